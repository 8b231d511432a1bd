//! The emulated program's registers and memory.
//!
//! Interface version 1 has no registers. But QEMU of that version, on an x86-64 host, keeps the address of the emulated processor's state in
//! host register rbp while translated code runs (`TCG_AREG0`), a callback's callee-saved register, and the state of an emulated x86-64
//! starts with the sixteen general registers, rip and rflags (`CPUX86State`, since 2003). At the first instruction of a block they are all in
//! memory. So an execution callback on such an instruction can have them: [`with_state!`] hands rbp on.
//!
//! That is not promised anywhere, so it is believed only after it was seen: of the program's first block, the state's rip must be the block's address, its rflags must look
//! like one, and the first memory access must be at the state's rsp or 8 below, where that block pops or pushes ([`Calibration`]). Until then
//! nothing of the state is read but by a system call that fails instead of faulting; without it nothing is sampled, and the stream says why.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Byte offsets in `CPUX86State`.
const RIP: usize = 16 * 8;
const RFLAGS: usize = 17 * 8;

/// General registers, as `CPUX86State` numbers them.
pub mod register {
    pub const RAX: usize = 0;
    pub const RDX: usize = 2;
    pub const RSP: usize = 4;
    pub const RSI: usize = 6;
    pub const RDI: usize = 7;
}

/// rflags' alignment check: QEMU translates blocks apart for it, and nothing else heeds it in user mode. It is the switch between code with and without memory callbacks, see `translate`.
const ALIGNMENT_CHECK: u64 = 1 << 18;

/// Defines an `unsafe extern "C" fn $stub(vcpu, data)` that calls `$to(vcpu, data, state)`.
macro_rules! with_state {
    ($(#[$doc:meta])* $stub:ident => $to:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $stub(vcpu: std::ffi::c_uint, data: *mut std::ffi::c_void) {
            std::arch::naked_asm!("mov rdx, rbp", "jmp {to}", to = sym $to)
        }
    };
}
pub(crate) use with_state;

/// The state of an emulated processor, after [`Calibration`] found that it is one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State(*mut u64);

impl State {
    /// # Safety
    ///
    /// `address` was in rbp when an execution callback came in, and the calibration has succeeded.
    pub unsafe fn new(address: *mut u64) -> Self {
        State(address)
    }

    /// No state.
    pub const NONE: State = State(ptr::null_mut());

    /// A general register; right at the first instruction of a block.
    pub fn register(self, which: usize) -> u64 {
        debug_assert!(which < 16);
        // SAFETY: by `new`, the state lies there, and begins with 16 registers.
        unsafe { self.0.add(which).read_volatile() }
    }

    /// Whether blocks with memory callbacks are to be run.
    pub fn watching(self) -> bool {
        // SAFETY: as above; rflags follow the registers and rip.
        self != State::NONE && unsafe { self.0.byte_add(RFLAGS).read_volatile() } & ALIGNMENT_CHECK != 0
    }

    /// Has blocks with memory callbacks run, or those without, from the next indirect jump on.
    pub fn watch(self, on: bool) {
        // SAFETY: as above, and only the processor's own thread, which is here, uses its state.
        unsafe {
            let flags = self.0.byte_add(RFLAGS);
            let now = flags.read_volatile();
            flags.write_volatile(if on { now | ALIGNMENT_CHECK } else { now & !ALIGNMENT_CHECK });
        }
    }
}

/// A thread's means to have QEMU forget the callbacks of an instruction that it has left before its end, see `translate`: `qemu_plugin_disable_mem_helpers(current_cpu)`. It is
/// no part of the interface, but QEMU 7.2 exports both for its own modules, and later versions do it by themselves, and have no such function.
#[derive(Clone, Copy)]
pub struct Forgetting(Option<(Disable, *mut c_void)>);

type Disable = unsafe extern "C" fn(*mut c_void);

impl Forgetting {
    /// For the calling thread, which runs the program.
    pub fn of_this_thread() -> Self {
        // SAFETY: strings; the first is the address of a function of that type, the second of this thread's pointer to its processor.
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
            // SAFETY: by `of_this_thread`; the processor lives as long as its thread, which is here.
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
    // SAFETY: by this function's own contract; alignment is not needed.
    unsafe { (host(address) as *const T).read_unaligned() }
}

/// Reads the program's memory, which need not be there.
pub fn try_read<const N: usize>(address: u64) -> Option<[u8; N]> {
    try_read_host(host(address))
}

/// Reads this process's memory, which need not be there.
fn try_read_host<const N: usize>(address: u64) -> Option<[u8; N]> {
    let mut bytes = [0_u8; N];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: N };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: N };
    // SAFETY: it writes at most N bytes to `bytes`; what it cannot read it reports.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (got == N as isize).then_some(bytes)
}

/// Reads a string of the program's, which need not be there, up to its zero byte or `most` bytes.
pub fn try_read_string(address: u64, most: usize) -> Vec<u8> {
    let bytes = (address..).map_while(try_read::<1>).map(|[byte]| byte);
    bytes.take_while(|byte| *byte != 0).take(most).collect()
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
    pub fn begins(&self, pc: u64, state: u64) {
        if self.phase() != Phase::Unseen {
            return;
        }
        let word = |offset: usize| try_read_host::<8>(state.wrapping_add(offset as u64)).map(u64::from_le_bytes);
        let flags_plausible = |flags: u64| flags & 2 != 0 && flags < 1 << 22 && flags & ALIGNMENT_CHECK == 0;
        let plausible = word(RIP) == Some(pc) && word(RFLAGS).is_some_and(flags_plausible);
        let stack = word(register::RSP * 8).filter(|stack| plausible && stack % 16 == 0);
        self.stack.store(stack.unwrap_or(0), Ordering::Relaxed);
        let phase = if stack.is_some() { Phase::Plausible } else { Phase::Refuted };
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The first block accessed `address`; only the first call counts.
    pub fn accessed(&self, address: u64) {
        if self.phase() == Phase::Plausible {
            let stack = self.initial_stack();
            let fits = address == stack || address == stack.wrapping_sub(8);
            self.phase.store(if fits { Phase::Found } else { Phase::Refuted } as u8, Ordering::Release);
        }
    }
}
