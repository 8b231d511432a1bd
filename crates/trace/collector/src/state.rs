//! The emulated processor's registers, at the cost of a load.
//!
//! Version 1 of QEMU's interface gives no access to registers. In version 4 each read takes a call,
//! a search and a copy, and writes are impossible. On an x86-64 host, QEMU keeps the address of the
//! emulated processor's state in host register rbp while translated code runs (`TCG_AREG0`).
//! Callbacks preserve rbp, so a callback can read it. The state of an emulated x86-64 starts with
//! the sixteen general registers, rip and rflags (`CPUX86State`, since 2003), and at the first
//! instruction of a block all of them are in memory. [`with_state!`](crate::with_state) passes rbp
//! on. QEMU guarantees none of this: a front end relies on it only after a check.
//!
//! The collectors write a single bit: the alignment-check flag of rflags. QEMU translates separate
//! blocks for it. Nothing else depends on the flag in user mode, or in a guest with SMAP off: the
//! kernel then neither sets nor clears it, and QEMU checks no alignment. The flag switches between
//! code with and without memory callbacks.
//!
//! # The switch
//!
//! A memory callback costs more than the access, so code outside sampled sections must have none.
//! Version 1 has no conditional callbacks and no second version of a block; a conditional callback
//! of version 4 would still cost a load and a branch per access. But QEMU translates a block
//! separately for each combination of processor flags that the code may depend on. A thread or
//! processor in a sampled section therefore runs with the flag set ([`State::watch`]). It executes
//! other blocks, and only those have memory callbacks.
//!
//! QEMU reads the flags at indirect jumps, at returns, and where blocks are not chained yet.
//! Chained blocks do not check. If a block that changes the flag were chained to its successor, the
//! chain would later lead from one kind of block to the other. So the flag changes only in blocks
//! of locking functions: control leaves them by a return before anything is to be recorded.

use std::cell::Cell;

/// Indices of the general registers in `CPUX86State`, and of the two that follow.
pub mod register {
    #![allow(missing_docs, reason = "the names of the registers")]
    pub const RAX: usize = 0;
    pub const RCX: usize = 1;
    pub const RDX: usize = 2;
    pub const RSP: usize = 4;
    pub const RSI: usize = 6;
    pub const RDI: usize = 7;
    pub const RIP: usize = 16;
    pub const RFLAGS: usize = 17;
    /// Number of registers.
    pub const COUNT: usize = 18;
}

/// The bit of rflags that switches memory callbacks.
pub const ALIGNMENT_CHECK: u64 = 1 << 18;

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

thread_local! {
    /// The state of the calling thread's processor. Translation callbacks need it, because QEMU
    /// passes them no processor number.
    static CURRENT: Cell<Option<State>> = const { Cell::new(None) };
}

impl State {
    /// # Safety
    ///
    /// `address` points to the state of a processor, with [`register::COUNT`] words, for as long as
    /// the processor's thread lives. No other thread uses this value.
    #[inline]
    pub const unsafe fn new(address: *mut u64) -> Self {
        State(address)
    }

    /// Makes this the state of the calling thread's processor.
    pub fn make_current(self) {
        CURRENT.set(Some(self));
    }

    /// The state of the calling thread's processor, once known.
    pub fn current() -> Option<State> {
        CURRENT.get()
    }

    /// A register's value. Exact only at the first instruction of a block.
    #[inline]
    pub fn register(self, which: usize) -> u64 {
        debug_assert!(which < register::COUNT);
        // SAFETY: `new` requires the state to be there.
        unsafe { self.0.add(which).read_volatile() }
    }

    /// Whether blocks with memory callbacks run.
    #[inline]
    pub fn is_watching(self) -> bool {
        self.register(register::RFLAGS) & ALIGNMENT_CHECK != 0
    }

    /// Switches to blocks with memory callbacks, or without, from the next indirect jump on.
    #[inline]
    pub fn watch(self, on: bool) {
        let flags = self.register(register::RFLAGS);
        let flags = if on { flags | ALIGNMENT_CHECK } else { flags & !ALIGNMENT_CHECK };
        // SAFETY: `new` requires the state to be there and to be used by this thread alone.
        unsafe { self.0.add(register::RFLAGS).write_volatile(flags) };
    }
}
