//! What a thread remembers between two waits, in thread-local storage; and a word for whoever builds on this library.
//!
//! A lock may be taken by a thread that the C library does not know: then the general way to a
//! thread-local variable of a shared object, `__tls_get_addr`, has no table to look in. So the
//! variable is laid out with the program's own (*initial-exec*, ELF Handling for Thread-Local
//! Storage, section 4.4.6), as libc's `errno` is. Rust has no word for that yet.

use crate::load::ThreadState;

/// All that is kept for a thread. Zeroes in a new one.
#[derive(Clone, Copy)]
#[repr(C)]
struct Local {
    state: ThreadState,
    word: u64,
}

#[cfg(target_arch = "x86_64")]
mod local {
    use super::Local;

    core::arch::global_asm!(
        ".pushsection .tbss.unconvoy_thread_state,\"awT\",@nobits",
        ".hidden unconvoy_thread_state",
        ".globl unconvoy_thread_state",
        ".type unconvoy_thread_state,@object",
        ".size unconvoy_thread_state,{size}",
        ".p2align 3",
        "unconvoy_thread_state:",
        ".zero {size}",
        ".popsection",
        size = const size_of::<Local>(),
    );

    /// This thread's.
    #[inline]
    pub(super) fn of_this_thread() -> *mut Local {
        let place;
        // SAFETY: reads the variable's offset and the thread pointer, which the word it points to names.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + unconvoy_thread_state@GOTTPOFF]",
                "add {0}, qword ptr fs:[0]",
                out(reg) place,
                options(nostack, readonly, pure)
            );
        }
        place
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod local {
    use core::cell::Cell;

    use super::Local;
    use crate::load::ThreadState;

    thread_local! {
        // Constant and without a destructor: nothing to allocate, nothing to register.
        static LOCAL: Cell<Local> = const {
            Cell::new(Local { state: ThreadState { awake_since: 0, polled: 0, pending_wake_until: 0, last_wake: 0, spun: 0 }, word: 0 })
        };
    }

    pub(super) fn of_this_thread() -> *mut Local {
        LOCAL.with(Cell::as_ptr)
    }
}

#[inline]
pub(super) fn get() -> ThreadState {
    // SAFETY: this thread's, plain numbers, zeroes at first.
    unsafe { (*local::of_this_thread()).state }
}

#[inline]
pub(super) fn set(state: ThreadState) {
    // SAFETY: this thread's.
    unsafe { (*local::of_this_thread()).state = state }
}

/// The word of the calling thread: 0 in a new one.
#[inline]
pub fn word() -> u64 {
    // SAFETY: this thread's, 0 at first.
    unsafe { (*local::of_this_thread()).word }
}

/// Sets [`word`].
#[inline]
pub fn set_word(word: u64) {
    // SAFETY: this thread's.
    unsafe { (*local::of_this_thread()).word = word }
}
