//! Recognizes accesses to devices, which optimistic concurrency cannot undo.

use crate::api;

/// Whether the current access goes to a device. Call it only within the access's callback.
#[cold]
pub fn is_device(information: u32, address: u64) -> bool {
    // SAFETY: QEMU passed both values to the current callback; the result is valid until the
    // callback returns.
    unsafe {
        let hardware = api::qemu_plugin_get_hwaddr(information, address);
        !hardware.is_null() && api::qemu_plugin_hwaddr_is_io(hardware)
    }
}

/// Whether a model-specific register belongs to a device: the interrupt controller, or the timer's
/// deadline.
pub fn is_device_register(number: u32) -> bool {
    matches!(number, 0x800..=0x8ff | 0x6e0)
}
