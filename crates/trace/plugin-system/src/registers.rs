//! The processor's registers as the interface reports them. The processor's state is checked
//! against them ([`unconvoy_trace_collector::state`]).

use crate::api;
use std::ffi::CStr;
use unconvoy_trace_collector::memory::{Memory as _, OwnMemory};
use unconvoy_trace_collector::state::{State, register};

/// The general registers, in the order of the processor's state.
const NAMES: [&CStr; 16] = [
    c"rax", c"rcx", c"rdx", c"rbx", c"rsp", c"rbp", c"rsi", c"rdi", c"r8", c"r9", c"r10", c"r11",
    c"r12", c"r13", c"r14", c"r15",
];

/// The state that rbp points to, if the interface reports the same general registers and flags.
/// Call it only in a callback that reads registers, on the processor's thread.
pub fn verify(rbp: *mut u64) -> Option<State> {
    let reported = Registers::read_all();
    let words = (0..register::COUNT)
        .map(|index| OwnMemory.word((rbp as u64).wrapping_add(index as u64 * 8)));
    // A system call reads the words, because rbp may hold no address: the call fails where a load
    // would fault.
    let words: Vec<u64> = words.collect::<Option<_>>()?;
    let registers = NAMES.iter().zip(&words).all(|(name, word)| reported.get(name) == Some(*word));
    // QEMU keeps the arithmetic flags and the direction flag elsewhere.
    const KEPT: u32 = !0xcd5;
    let flags = words[register::RFLAGS] as u32;
    let flags =
        reported.get(c"eflags").is_some_and(|reported| (reported as u32 ^ flags) & KEPT == 0);
    // SAFETY: the memory has the form of the state, and on this thread rbp points to its
    // processor's.
    (registers && flags).then(|| unsafe { State::new(rbp) })
}

/// The registers of the calling thread's processor, as the interface reports them.
pub struct Registers(Vec<(std::ffi::CString, u64)>);

impl Registers {
    /// All registers of up to eight bytes. Call it only in a callback that reads registers.
    pub fn read_all() -> Self {
        let mut values = Vec::new();
        // SAFETY: QEMU passes ownership of the array. Its elements are descriptors, whose strings
        // have static lifetime. The buffer is freed here.
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
                    bytes[..size as usize]
                        .copy_from_slice(std::slice::from_raw_parts((*buffer).data, size as usize));
                    values.push((
                        CStr::from_ptr(descriptor.name).to_owned(),
                        u64::from_le_bytes(bytes),
                    ));
                }
            }
            api::g_byte_array_free(buffer, 1);
            api::g_array_free(all, 1);
        }
        Registers(values)
    }

    pub fn get(&self, name: &CStr) -> Option<u64> {
        self.0.iter().find(|(other, _)| other.as_c_str() == name).map(|(_, value)| *value)
    }
}
