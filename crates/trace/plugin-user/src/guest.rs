//! The emulated program's memory, and whether its registers are where they were taken to be
//! ([`state`](unconvoy_trace_collector::state)).
//!
//! The state is believed only after it was seen: of the program's first block, the state's rip must
//! be the block's address, its rflags must look like one, and the first memory access must be at
//! the state's rsp or 8 below, where that block pops or pushes ([`Calibration`]). Until then
//! nothing of the state is read but by a system call that fails instead of faulting; without it
//! nothing is sampled, and the stream says why.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use unconvoy_trace_collector::memory::{Memory, OwnMemory};
use unconvoy_trace_collector::state::{ALIGNMENT_CHECK, register};

/// A thread's means to have QEMU forget the callbacks of an instruction that it has left before its
/// end, see `translate`: `qemu_plugin_disable_mem_helpers(current_cpu)`. It is no part of the
/// interface, but QEMU 7.2 exports both for its own modules, and later versions do it by
/// themselves, and have no such function.
#[derive(Clone, Copy)]
pub struct Forgetting(Option<(Disable, *mut c_void)>);

type Disable = unsafe extern "C" fn(*mut c_void);

impl Forgetting {
    /// For the calling thread, which runs the program.
    pub fn of_this_thread() -> Self {
        // SAFETY: strings; the first is the address of a function of that type, the second of this
        // thread's pointer to its processor.
        unsafe {
            let function = libc::dlsym(libc::RTLD_DEFAULT, c"qemu_plugin_disable_mem_helpers".as_ptr());
            let current = libc::dlsym(libc::RTLD_DEFAULT, c"current_cpu".as_ptr()).cast::<*mut c_void>();
            let processor = if current.is_null() { ptr::null_mut() } else { current.read() };
            let known = !function.is_null() && !processor.is_null();
            Forgetting(known.then(|| (std::mem::transmute::<*mut c_void, Disable>(function), processor)))
        }
    }

    /// Has it forget them.
    pub fn forget(self) {
        if let Some((function, processor)) = self.0 {
            // SAFETY: by `of_this_thread`; the processor lives as long as its thread, which is
            // here.
            unsafe { function(processor) };
        }
    }
}

/// Host address less guest address: the same for all the program's memory.
static BASE: AtomicU64 = AtomicU64::new(0);

/// Tells where the program's memory is: an address of the program, and the host's for it.
pub fn set_base(guest: u64, host: u64) {
    BASE.store(host.wrapping_sub(guest), Ordering::Relaxed);
}

/// The host address of the program's memory at `address`.
pub fn host(address: u64) -> u64 {
    address.wrapping_add(BASE.load(Ordering::Relaxed))
}

/// The program's address of what the host has at `host`.
pub fn address(host: u64) -> u64 {
    host.wrapping_sub(BASE.load(Ordering::Relaxed))
}

/// Reads the program's memory.
///
/// # Safety
///
/// It is mapped and readable, and `T` has no invalid values.
pub unsafe fn read<T: Copy>(address: u64) -> T {
    // SAFETY: by this function's contract; alignment is not needed.
    unsafe { (host(address) as *const T).read_unaligned() }
}

/// The program's memory, which need not be there.
pub struct Program;

impl Memory for Program {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        OwnMemory.read(host(address), to)
    }
}

/// Whether the state is where it was taken to be; see the [module](self).
pub struct Calibration {
    phase: AtomicU8,
    stack: AtomicU64,
}

/// How far [`Calibration`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nothing has run.
    Unseen,
    /// The first block's registers look right.
    Plausible,
    /// And its first access fits.
    Found,
    /// Something did not fit.
    Refuted,
}

impl Calibration {
    pub const fn new() -> Self {
        Calibration { phase: AtomicU8::new(Phase::Unseen as u8), stack: AtomicU64::new(0) }
    }

    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Unseen,
            1 => Phase::Plausible,
            2 => Phase::Found,
            _ => Phase::Refuted,
        }
    }

    /// The stack pointer that the program started with.
    pub fn initial_stack(&self) -> u64 {
        self.stack.load(Ordering::Relaxed)
    }

    /// The first block starts, at `pc`; `state` was in rbp.
    pub fn check_state(&self, pc: u64, state: u64) {
        if self.phase() != Phase::Unseen {
            return;
        }
        let word = |which: usize| OwnMemory.word(state.wrapping_add(which as u64 * 8));
        let flags_plausible = |flags: u64| flags & 2 != 0 && flags < 1 << 22 && flags & ALIGNMENT_CHECK == 0;
        let plausible = word(register::RIP) == Some(pc) && word(register::RFLAGS).is_some_and(flags_plausible);
        let stack = word(register::RSP).filter(|stack| plausible && stack % 16 == 0);
        self.stack.store(stack.unwrap_or(0), Ordering::Relaxed);
        let phase = if stack.is_some() { Phase::Plausible } else { Phase::Refuted };
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The first block accessed `address`; only the first call counts.
    pub fn check_access(&self, address: u64) {
        if self.phase() == Phase::Plausible {
            let stack = self.initial_stack();
            let fits = address == stack || address == stack.wrapping_sub(8);
            self.phase.store(if fits { Phase::Found } else { Phase::Refuted } as u8, Ordering::Release);
        }
    }
}
