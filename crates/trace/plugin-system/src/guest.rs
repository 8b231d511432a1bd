//! The guest's memory, in the address space of the calling processor.

use crate::api;
use unconvoy_trace_collector::memory::Memory;

/// See the [module](self). Usable only in callbacks. A read walks the page tables and takes about a
/// microsecond.
pub struct Guest;

impl Memory for Guest {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        thread_local! {
            /// One buffer per thread, never freed because reads are frequent.
            static BUFFER: *mut api::ByteArray =
                // SAFETY: no preconditions.
                unsafe { api::g_byte_array_new() };
        }
        BUFFER.with(|buffer| {
            // SAFETY: the array belongs to this thread and has `len` bytes.
            unsafe {
                let got = api::qemu_plugin_read_memory_vaddr(address, *buffer, to.len());
                if !got || ((**buffer).len as usize) < to.len() {
                    return false;
                }
                to.copy_from_slice(std::slice::from_raw_parts((**buffer).data, to.len()));
                true
            }
        })
    }
}
