//! The guest's memory, as the processor that calls back has it mapped.

use crate::api;
use unconvoy_trace_collector::memory::Memory;

/// See the [module](self); to be asked in callbacks alone. An answer takes about a microsecond: a
/// walk of the page tables.
pub struct Guest;

impl Memory for Guest {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        thread_local! {
            /// One for each thread, never freed: it is asked for all the time.
            static BUFFER: *mut api::ByteArray =
                // SAFETY: no preconditions.
                unsafe { api::g_byte_array_new() };
        }
        BUFFER.with(|buffer| {
            // SAFETY: the array is this thread's own, and has as many bytes as its length says.
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
