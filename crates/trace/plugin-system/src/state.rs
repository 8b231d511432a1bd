//! The emulated processor's registers, at the cost of a load.
//!
//! The interface has registers, but each takes a call, a search and a copy, and cannot be written. QEMU on an x86-64 host keeps the address of the emulated
//! processor's state in host register rbp while translated code runs (`TCG_AREG0`), a callback's callee-saved register, and the state of an emulated
//! x86-64 starts with the sixteen general registers, rip and rflags (`CPUX86State`, since 2003). [`with_state!`](crate::with_state) hands rbp on; it is believed after the
//! interface has told the same sixteen registers and flags ([`State::verify`]).
//!
//! What is written is one flag: rflags' alignment check. QEMU translates blocks apart for it, and nothing else heeds it as long as SMAP is off (the kernel then neither sets nor clears it,
//! and QEMU checks no alignment). It is the switch between code with and without memory callbacks, see `translate`.

use crate::api;
use std::ffi::CStr;

/// Byte offset in `CPUX86State`.
const RFLAGS: usize = 17 * 8;
const ALIGNMENT_CHECK: u64 = 1 << 18;

/// General registers, as `CPUX86State` numbers them.
pub mod register {
    pub const RAX: usize = 0;
    pub const RCX: usize = 1;
    pub const RDX: usize = 2;
    pub const RSP: usize = 4;
    pub const RSI: usize = 6;
    pub const RDI: usize = 7;
}

/// By their numbers.
const NAMES: [&CStr; 16] = [
    c"rax", c"rcx", c"rdx", c"rbx", c"rsp", c"rbp", c"rsi", c"rdi", c"r8", c"r9", c"r10", c"r11", c"r12", c"r13",
    c"r14", c"r15",
];

/// Defines an `unsafe extern "C" fn $stub(vcpu, data)` that calls `$to(vcpu, data, state)`.
#[macro_export]
macro_rules! with_state {
    ($stub:ident => $to:path) => {
        #[unsafe(naked)]
        pub unsafe extern "C" fn $stub(vcpu: std::ffi::c_uint, data: *mut std::ffi::c_void) {
            std::arch::naked_asm!("mov rdx, rbp", "jmp {to}", to = sym $to)
        }
    };
}

/// The state of an emulated processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(*mut u64);

impl State {
    /// What rbp holds, in a callback that reads registers, on its processor's thread, if it is the state.
    pub fn verify(rbp: *mut u64) -> Option<State> {
        let told = Registers::ask();
        let named = NAMES.iter().map(|name| told.get(name));
        // Compared before it is believed: it need not be an address at all.
        let mut words = [0_u64; 18];
        if !read_own_memory(rbp as u64, &mut words) {
            return None;
        }
        let registers = named.zip(words).all(|(told, word)| told == Some(word));
        // QEMU keeps the arithmetic ones and the direction elsewhere.
        const KEPT: u32 = !0xcd5;
        let flags = told.get(c"eflags").is_some_and(|told| (told as u32 ^ words[17] as u32) & KEPT == 0);
        (registers && flags).then_some(State(rbp))
    }

    /// A general register.
    #[inline]
    pub fn register(self, which: usize) -> u64 {
        debug_assert!(which < 16);
        // SAFETY: by `verify`, the state lies there, and begins with 16 registers.
        unsafe { self.0.add(which).read_volatile() }
    }

    /// Whether blocks with memory callbacks are to be run.
    #[inline]
    pub fn watching(self) -> bool {
        // SAFETY: as above; rflags follow the registers and rip.
        unsafe { self.0.byte_add(RFLAGS).read_volatile() & ALIGNMENT_CHECK != 0 }
    }

    /// Has blocks with memory callbacks run, or those without, from the next indirect jump on. Nothing happens while the kernel is not running.
    #[inline]
    pub fn watch(self, on: bool) {
        // SAFETY: as above, and only the processor's own thread, which is here, uses its state.
        unsafe {
            let flags = self.0.byte_add(RFLAGS);
            let now = flags.read_volatile();
            flags.write_volatile(if on { now | ALIGNMENT_CHECK } else { now & !ALIGNMENT_CHECK });
        }
    }
}

/// Registers as the interface tells them, of the calling thread's processor.
pub struct Registers(Vec<(std::ffi::CString, u64)>);

impl Registers {
    /// All that have up to eight bytes, in a callback that reads registers.
    pub fn ask() -> Self {
        let mut values = Vec::new();
        // SAFETY: the array is the caller's, its elements are descriptors, whose strings live for ever; the buffer is freed here.
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

/// Reads this process's memory, which need not be there.
fn read_own_memory(address: u64, words: &mut [u64]) -> bool {
    let size = size_of_val(words);
    let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: size };
    // SAFETY: it writes at most that many bytes to `words`; what it cannot read it reports.
    unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) == size as isize }
}
