//! The emulated processor's registers, at the cost of a load.
//!
//! The interface has no registers in version 1; in version 4 each takes a call, a search and a
//! copy, and cannot be written. QEMU on an x86-64 host keeps the address of the emulated
//! processor's state in host register rbp while translated code runs (`TCG_AREG0`), a callback's
//! callee-saved register, and the state of an emulated x86-64 starts with the sixteen general
//! registers, rip and rflags (`CPUX86State`, since 2003). At the first instruction of a block they
//! are all in memory. [`with_state!`](crate::with_state) hands rbp on. That is not promised
//! anywhere: a front end believes it only after it has seen it.
//!
//! What is written is one flag: rflags' alignment check. QEMU translates blocks apart for it, and
//! nothing else heeds it in user mode, or in a guest as long as SMAP is off (the kernel then
//! neither sets nor clears it, and QEMU checks no alignment). It is the switch between code with
//! and without memory callbacks.
//!
//! # The switch
//!
//! A memory callback costs more than the access, so that code outside of sampled sections must have
//! none. Version 1 can neither ask before it calls back, nor have two versions of a block; a
//! conditional callback of version 4 would still cost a load and a branch at each access. But QEMU
//! translates a block anew for each combination of processor flags that the code may depend on. So
//! a thread or processor in a sampled section runs with that flag set ([`State::watch`]): its
//! blocks are others, and only they have memory callbacks.
//!
//! QEMU looks at the flags at indirect jumps and returns, and where blocks are not chained yet;
//! chained blocks do not ask. A chain once made by a block that changes the flag would let others
//! later come from one kind of blocks to the other. So it is changed in blocks of locking functions
//! alone: these are left by a return before anything is to be recorded.

use std::cell::Cell;

/// General registers, as `CPUX86State` numbers them, and the two that follow.
pub mod register {
    #![allow(missing_docs, reason = "their names say it")]
    pub const RAX: usize = 0;
    pub const RCX: usize = 1;
    pub const RDX: usize = 2;
    pub const RSP: usize = 4;
    pub const RSI: usize = 6;
    pub const RDI: usize = 7;
    pub const RIP: usize = 16;
    pub const RFLAGS: usize = 17;
    /// How many of them there are.
    pub const COUNT: usize = 18;
}

/// The flag of rflags that is the switch.
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
    /// Translation is not told which processor it is for.
    static CURRENT: Cell<Option<State>> = const { Cell::new(None) };
}

impl State {
    /// # Safety
    ///
    /// At `address` lies the state of a processor, with [`register::COUNT`] words, as long as its
    /// thread lives; no other thread uses this value.
    #[inline]
    pub const unsafe fn new(address: *mut u64) -> Self {
        State(address)
    }

    /// Remembers it as that of this thread's processor.
    pub fn make_current(self) {
        CURRENT.set(Some(self));
    }

    /// That of this thread's processor, once it is known.
    pub fn current() -> Option<State> {
        CURRENT.get()
    }

    /// A register; right at the first instruction of a block.
    #[inline]
    pub fn register(self, which: usize) -> u64 {
        debug_assert!(which < register::COUNT);
        // SAFETY: by `new`, it lies there.
        unsafe { self.0.add(which).read_volatile() }
    }

    /// Whether blocks with memory callbacks are to be run.
    #[inline]
    pub fn is_watching(self) -> bool {
        self.register(register::RFLAGS) & ALIGNMENT_CHECK != 0
    }

    /// Has blocks with memory callbacks run, or those without, from the next indirect jump on.
    #[inline]
    pub fn watch(self, on: bool) {
        let flags = self.register(register::RFLAGS);
        let flags = if on { flags | ALIGNMENT_CHECK } else { flags & !ALIGNMENT_CHECK };
        // SAFETY: by `new`, it lies there, and the processor's own thread alone, which is here,
        // uses it.
        unsafe { self.0.add(register::RFLAGS).write_volatile(flags) };
    }
}
