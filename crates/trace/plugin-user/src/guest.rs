//! The emulated program's memory, and the check that its registers are where the collector expects
//! them ([`state`](unconvoy_trace_collector::state)).
//!
//! [`Calibration`] checks the state in the program's first block: its rip must be the block's
//! address, its rflags must look plausible, and the first memory access must be at its rsp or 8
//! below, where that block pops or pushes. Before the check, the state is read only by a system
//! call that fails instead of faulting. If the check fails, nothing is sampled and the stream says
//! why.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use unconvoy_trace_collector::memory::{Memory, OwnMemory};
use unconvoy_trace_collector::state::{ALIGNMENT_CHECK, register};

/// Makes QEMU forget the callbacks of an instruction that the thread left before its end, see
/// `translate`: `qemu_plugin_disable_mem_helpers(current_cpu)`. The function is not part of the
/// interface, but QEMU 7.2 exports both symbols for its own modules. Later versions need no such
/// call and lack the function.
#[derive(Clone, Copy)]
pub struct Forgetting(Option<(Disable, *mut c_void)>);

type Disable = unsafe extern "C" fn(*mut c_void);

impl Forgetting {
    /// Looks up the function for the calling thread, which runs the program.
    pub fn of_this_thread() -> Self {
        // SAFETY: both names are strings. The first symbol is a function of type `Disable`, the
        // second this thread's pointer to its processor.
        unsafe {
            let function =
                libc::dlsym(libc::RTLD_DEFAULT, c"qemu_plugin_disable_mem_helpers".as_ptr());
            let current =
                libc::dlsym(libc::RTLD_DEFAULT, c"current_cpu".as_ptr()).cast::<*mut c_void>();
            let processor = if current.is_null() { ptr::null_mut() } else { current.read() };
            let known = !function.is_null() && !processor.is_null();
            Forgetting(
                known.then(|| (std::mem::transmute::<*mut c_void, Disable>(function), processor)),
            )
        }
    }

    pub fn forget(self) {
        if let Some((function, processor)) = self.0 {
            // SAFETY: by `of_this_thread`; the processor lives as long as its thread, the calling
            // one.
            unsafe { function(processor) };
        }
    }
}

/// Host address minus guest address: constant for all of the program's memory.
static BASE: AtomicU64 = AtomicU64::new(0);

/// Sets the base from one address of the program and the host's address for it.
pub fn set_base(guest: u64, host: u64) {
    BASE.store(host.wrapping_sub(guest), Ordering::Relaxed);
}

pub fn host(address: u64) -> u64 {
    address.wrapping_add(BASE.load(Ordering::Relaxed))
}

pub fn address(host: u64) -> u64 {
    host.wrapping_sub(BASE.load(Ordering::Relaxed))
}

/// Reads the program's memory.
///
/// # Safety
///
/// The memory is mapped and readable, and every bit pattern is a valid `T`.
pub unsafe fn read<T: Copy>(address: u64) -> T {
    // SAFETY: by this function's contract; alignment is not needed.
    unsafe { (host(address) as *const T).read_unaligned() }
}

/// The program's memory, which may be unmapped.
pub struct Program;

impl Memory for Program {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        OwnMemory.read(host(address), to)
    }
}

/// Checks that the state is where the collector expects it; see the [module](self).
pub struct Calibration {
    phase: AtomicU8,
    stack: AtomicU64,
}

/// Progress of a [`Calibration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nothing has run.
    Unseen,
    /// The first block's registers are plausible.
    Plausible,
    /// The first access fits as well.
    Found,
    /// A check failed.
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

    /// The stack pointer at the program's start.
    pub fn initial_stack(&self) -> u64 {
        self.stack.load(Ordering::Relaxed)
    }

    /// Checks the registers as the first block starts at `pc`; `state` was in rbp.
    pub fn check_state(&self, pc: u64, state: u64) {
        if self.phase() != Phase::Unseen {
            return;
        }
        let word = |which: usize| OwnMemory.word(state.wrapping_add(which as u64 * 8));
        let flags_plausible =
            |flags: u64| flags & 2 != 0 && flags < 1 << 22 && flags & ALIGNMENT_CHECK == 0;
        let plausible =
            word(register::RIP) == Some(pc) && word(register::RFLAGS).is_some_and(flags_plausible);
        let stack = word(register::RSP).filter(|stack| plausible && stack % 16 == 0);
        self.stack.store(stack.unwrap_or(0), Ordering::Relaxed);
        let phase = if stack.is_some() { Phase::Plausible } else { Phase::Refuted };
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Checks that the first block accessed `address`; only the first call counts.
    pub fn check_access(&self, address: u64) {
        if self.phase() == Phase::Plausible {
            let stack = self.initial_stack();
            let fits = address == stack || address == stack.wrapping_sub(8);
            self.phase
                .store(if fits { Phase::Found } else { Phase::Refuted } as u8, Ordering::Release);
        }
    }
}
