//! What a wait on a condition variable does with its mutex, beside releasing and acquiring it.

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use libc::pthread_mutex_t;

use super::{Mutex, is_libcs};
use crate::chosen::pair;
use crate::identity::me;

/// glibc's `PTHREAD_MUTEX_ROBUST_NORMAL_NP` in `kind`.
const ROBUST: i32 = 16;

/// Keeps a mutex in use while a wait has released it, so that `pthread_mutex_destroy` answers
/// EBUSY: glibc leaves its count of users raised for the length of a wait.
#[derive(Clone, Copy)]
pub(crate) struct Use {
    /// The count that this use has raised; null if it is not counted.
    count: *const AtomicU32,
}

impl Use {
    /// Begins a use. The caller is about to release the mutex for a wait.
    ///
    /// A mutex of libc's is counted where libc counts, else libc's `destroy` would not know. libc
    /// changes that word by plain loads and stores under the mutex, so that none but the holder may
    /// write it: a wait by another thread is not counted, and libc refuses to release for it. Nor
    /// is one with a robust mutex, which libc destroys in any state.
    ///
    /// # Safety
    ///
    /// `mutex` points to a mutex.
    pub(crate) unsafe fn begin(mutex: *mut pthread_mutex_t) -> Self {
        // SAFETY: passed on from the caller.
        let this = unsafe { Mutex::at(mutex) };
        let count = if !is_libcs(this) {
            &this.waiting
        } else if this.kind.load(Relaxed) & ROBUST == 0 && this.is_owner(me()) {
            &this.taken
        } else {
            return Use { count: ptr::null() };
        };
        // The release of the mutex publishes it: see `Mutex::is_in_use`.
        count.fetch_add(1, Relaxed);
        Use { count }
    }

    /// Ends the use. The caller has acquired the mutex again, or could not release it. A wait that
    /// could not acquire it again leaves it in use for good, as with libc.
    ///
    /// # Safety
    ///
    /// The mutex is still there, and this use has not been ended.
    pub(crate) unsafe fn end(self) {
        // SAFETY: null, or a word of the mutex.
        if let Some(count) = unsafe { self.count.as_ref() } {
            // Pairs with the load in `Mutex::is_in_use`: whoever sees the count lowered sees the
            // mutex acquired.
            count.fetch_sub(1, Release);
        }
    }
}

/// Where a waiter for the mutex can be put to sleep, so that the next release wakes it, if the
/// calling thread holds the mutex: the gate's word. The mutex is marked, so that its release will
/// look there.
///
/// # Safety
///
/// `mutex` points to a mutex.
pub(crate) unsafe fn gate_if_mine<'a>(mutex: *mut pthread_mutex_t) -> Option<&'a AtomicU32> {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    let mine = !is_libcs(this) && this.is_owner(me());
    (mine && (pair().mark)(this.words())).then(|| this.gate.word())
}

/// The calling thread, which holds the mutex, may have been woken at its gate: others may be there
/// still.
///
/// # Safety
///
/// `mutex` points to a mutex that the caller holds.
pub(crate) unsafe fn pass_on(mutex: *mut pthread_mutex_t) {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    if !is_libcs(this) {
        (pair().mark)(this.words());
    }
}
