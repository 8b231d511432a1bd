//! Thread-local state that outlives a wait, and a word for the user of this library.
//!
//! A shared object usually finds its thread-local variables through `__tls_get_addr`, which has no
//! table to read on a thread unknown to the C library. The variable is therefore laid out with the
//! program's own thread-local variables (*initial-exec*, ELF Handling for Thread-Local Storage,
//! section 4.4.6), like libc's `errno`. Stable Rust has no attribute for it.

use crate::contention::visible::Row;
use crate::load::ThreadState;
use crate::primitive::Native;

/// All state of one thread. Zeroes in a new thread.
#[derive(Clone, Copy)]
#[repr(C)]
struct Local {
    state: ThreadState,
    word: u64,
    held: u64,
    spin_ns: u64,
    sample: *const (),
    ended: EndedWait,
    row: Option<&'static Row<Native>>,
}

#[cfg(target_arch = "x86_64")]
mod local {
    use super::Local;
    use crate::primitive::native::versioned::versioned;

    core::arch::global_asm!(
        ".pushsection .tbss.unconvoy_thread_state,\"awT\",@nobits",
        versioned!(".hidden ", "unconvoy_thread_state", ""),
        versioned!(".globl ", "unconvoy_thread_state", ""),
        versioned!(".type ", "unconvoy_thread_state", ",@object"),
        versioned!(".size ", "unconvoy_thread_state", ",{size}"),
        ".p2align 3",
        versioned!("", "unconvoy_thread_state", ":"),
        ".zero {size}",
        ".popsection",
        size = const size_of::<Local>(),
    );

    #[inline]
    pub(super) fn of_this_thread() -> *mut Local {
        let address;
        // SAFETY: reads the variable's offset, and the thread pointer from the word that it points
        // to.
        unsafe {
            core::arch::asm!(
                versioned!("mov {0}, qword ptr [rip + ", "unconvoy_thread_state", "@GOTTPOFF]"),
                "add {0}, qword ptr fs:[0]",
                out(reg) address,
                options(nostack, readonly, pure)
            );
        }
        address
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod local {
    use core::cell::Cell;

    use super::Local;

    thread_local! {
        // Constant and without a destructor, so that first use neither allocates nor registers.
        // SAFETY: all zeroes are a value of each field.
        static LOCAL: Cell<Local> = const { Cell::new(unsafe { core::mem::zeroed() }) };
    }

    pub(super) fn of_this_thread() -> *mut Local {
        LOCAL.with(Cell::as_ptr)
    }
}

#[inline]
pub(super) fn get() -> ThreadState {
    // SAFETY: as for `set`.
    unsafe { (*local::of_this_thread()).state }
}

#[inline]
pub(super) fn set(state: ThreadState) {
    // SAFETY: only the calling thread accesses its state.
    unsafe { (*local::of_this_thread()).state = state }
}

/// The calling thread's word; 0 in a new thread.
#[inline]
pub fn word() -> u64 {
    // SAFETY: as for `set`.
    unsafe { (*local::of_this_thread()).word }
}

/// Sets [`word`].
#[inline]
pub fn set_word(word: u64) {
    // SAFETY: only the calling thread accesses its state.
    unsafe { (*local::of_this_thread()).word = word }
}

/// Number of locks that the calling thread holds, as far as the user of this library counts them.
/// The thread that returns from a `fork` in the child inherits the number with its locks.
#[inline]
pub fn held_locks() -> u64 {
    // SAFETY: as for `set`.
    unsafe { (*local::of_this_thread()).held }
}

/// Counts a lock that the calling thread has acquired.
#[inline]
pub fn count_acquired() {
    // SAFETY: only the calling thread accesses its state.
    unsafe { (*local::of_this_thread()).held += 1 }
}

/// Counts a lock that the calling thread releases. A count of 0 stays: another thread acquired the
/// lock, or the acquisition was not counted.
#[inline]
pub fn count_released() {
    // SAFETY: only the calling thread accesses its state.
    unsafe { (*local::of_this_thread()).held = held_locks().saturating_sub(1) }
}

/// The calling thread's row among the visible readers; `None` in a new thread.
#[inline(always)]
pub(super) fn row() -> Option<&'static Row<Native>> {
    // SAFETY: as for `set`.
    unsafe { (*local::of_this_thread()).row }
}

/// Sets [`row`].
pub(super) fn set_row(row: &'static Row<Native>) {
    // SAFETY: only the calling thread accesses its state.
    unsafe { (*local::of_this_thread()).row = Some(row) }
}

/// See [`set_spin_ns`].
#[inline]
pub(super) fn spin_ns() -> u64 {
    // SAFETY: as for `set`.
    unsafe { (*local::of_this_thread()).spin_ns }
}

/// Sets for how long the calling thread's next waits poll before they park; 0 leaves that to the
/// load manager. See [`Context::spin_ns`](crate::load::Context::spin_ns).
#[inline]
pub fn set_spin_ns(ns: u64) {
    // SAFETY: only the calling thread accesses its state.
    unsafe { (*local::of_this_thread()).spin_ns = ns }
}

/// See [`present_sample`](super::present_sample).
#[inline]
pub(super) fn sample() -> *const () {
    // SAFETY: as for `set`.
    unsafe { (*local::of_this_thread()).sample }
}

/// See [`sample_waits`](super::sample_waits).
#[inline]
pub(super) fn replace_sample(sample: *const ()) -> *const () {
    // SAFETY: only the calling thread accesses its state.
    unsafe { core::mem::replace(&mut (*local::of_this_thread()).sample, sample) }
}

/// The last wait of the calling thread, kept for the user of this library. It is all zeroes in a
/// new thread, and inherited by the thread that returns from a `fork` in the child.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct EndedWait {
    /// Address of the object that the thread waited for; 0 if no wait is kept.
    pub address: usize,
    /// The user's description of the wait.
    pub description: u64,
    /// When the wait began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// Another word for the user.
    pub word: u64,
}

/// The calling thread's last wait.
#[inline]
pub fn ended_wait() -> EndedWait {
    // SAFETY: as for `set`.
    unsafe { (*local::of_this_thread()).ended }
}

/// The address in [`ended_wait`].
#[inline]
pub fn ended_wait_address() -> usize {
    // SAFETY: as for `set`.
    unsafe { (*local::of_this_thread()).ended.address }
}

/// Sets [`ended_wait`].
#[inline]
pub fn set_ended_wait(wait: EndedWait) {
    // SAFETY: only the calling thread accesses its state.
    unsafe { (*local::of_this_thread()).ended = wait }
}
