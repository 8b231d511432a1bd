//! The processor's registers as the interface has them, against which its state is checked
//! ([`unconvoy_trace_collector::state`]).

use crate::api;
use std::ffi::CStr;
use unconvoy_trace_collector::memory::{Memory as _, OwnMemory};
use unconvoy_trace_collector::state::{State, register};

/// By their numbers.
const NAMES: [&CStr; 16] = [
    c"rax", c"rcx", c"rdx", c"rbx", c"rsp", c"rbp", c"rsi", c"rdi", c"r8", c"r9", c"r10", c"r11", c"r12", c"r13",
    c"r14", c"r15",
];

/// What rbp holds, in a callback that reads registers, on its processor's thread, if it is the
/// state: then the interface says the same of the general registers and flags.
pub fn verify(rbp: *mut u64) -> Option<State> {
    let said = Registers::ask();
    let words = (0..register::COUNT).map(|index| OwnMemory.word((rbp as u64).wrapping_add(index as u64 * 8)));
    // Compared before it is believed: it need not be an address at all.
    let words: Vec<u64> = words.collect::<Option<_>>()?;
    let registers = NAMES.iter().zip(&words).all(|(name, word)| said.get(name) == Some(*word));
    // QEMU keeps the arithmetic ones and the direction elsewhere.
    const KEPT: u32 = !0xcd5;
    let flags = words[register::RFLAGS] as u32;
    let flags = said.get(c"eflags").is_some_and(|said| (said as u32 ^ flags) & KEPT == 0);
    // SAFETY: it is memory of the form of the state, and on this thread rbp is its processor's.
    (registers && flags).then(|| unsafe { State::new(rbp) })
}

/// Registers as the interface has them, of the calling thread's processor.
pub struct Registers(Vec<(std::ffi::CString, u64)>);

impl Registers {
    /// All that have up to eight bytes, in a callback that reads registers.
    pub fn ask() -> Self {
        let mut values = Vec::new();
        // SAFETY: the array is the caller's, its elements are descriptors, whose strings live for
        // ever; the buffer is freed here.
        unsafe {
            let all = api::qemu_plugin_get_registers();
            if all.is_null() {
                return Registers(values);
            }
            let buffer = api::g_byte_array_new();
            let descriptors: *const api::RegisterDescriptor = (*all).data.cast();
            for index in 0..(*all).len as usize {
                let descriptor = &*descriptors.add(index);
                api::g_byte_array_set_size(buffer, 0);
                let size = api::qemu_plugin_read_register(descriptor.handle, buffer);
                if (1..=8).contains(&size) && (*buffer).len as usize >= size as usize {
                    let mut bytes = [0; 8];
                    bytes[..size as usize].copy_from_slice(std::slice::from_raw_parts((*buffer).data, size as usize));
                    values.push((CStr::from_ptr(descriptor.name).to_owned(), u64::from_le_bytes(bytes)));
                }
            }
            api::g_byte_array_free(buffer, 1);
            api::g_array_free(all, 1);
        }
        Registers(values)
    }

    /// The value of a register.
    pub fn get(&self, name: &CStr) -> Option<u64> {
        self.0.iter().find(|(other, _)| other.as_c_str() == name).map(|(_, value)| *value)
    }
}
