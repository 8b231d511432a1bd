//! What a wait on a condition variable does with its mutex, beside releasing and acquiring it.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::object::Mutex;
use crate::chosen::pair;
use crate::identity::me;

/// glibc's `PTHREAD_MUTEX_ROBUST_NORMAL_NP` in `kind`.
const ROBUST: i32 = 16;

/// Keeps a mutex in use while a wait has released it, so that `pthread_mutex_destroy` answers
/// EBUSY: glibc leaves its count of users raised for the length of a wait.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    /// The count that this use has raised, if it is counted.
    count: Option<&'a AtomicU32>,
}

impl<'a> Use<'a> {
    /// Begins a use. The caller is about to release the mutex for a wait.
    ///
    /// A mutex of libc's is counted where libc counts, else libc's `destroy` would not know. libc
    /// changes that word by plain loads and stores under the mutex, so that none but the holder may
    /// write it: a wait by another thread is not counted, and libc refuses to release for it. Nor
    /// is one with a robust mutex, which libc destroys in any state.
    pub(crate) fn begin(mutex: &'a Mutex) -> Self {
        let count = if !mutex.is_libcs() {
            Some(&mutex.waiting)
        } else {
            (mutex.kind.load(Relaxed) & ROBUST == 0 && mutex.is_owner(me())).then_some(&mutex.taken)
        };
        // The release of the mutex publishes it: see `Mutex::is_in_use`.
        count.inspect(|count| _ = count.fetch_add(1, Relaxed));
        Use { count }
    }

    /// Ends the use. The caller has acquired the mutex again, or could not release it. A wait that
    /// could not acquire it again leaves it in use for good, as with libc.
    pub(crate) fn end(self) {
        if let Some(count) = self.count {
            // Pairs with the load in `Mutex::is_in_use`: whoever sees the count lowered sees the
            // mutex acquired.
            count.fetch_sub(1, Release);
        }
    }
}

/// Where a waiter for the mutex can be put to sleep, so that the next release wakes it, if the
/// calling thread holds the mutex: the gate's word. The mutex is marked, so that its release will
/// look there.
pub(crate) fn gate_if_mine(mutex: &Mutex) -> Option<&AtomicU32> {
    let mine = !mutex.is_libcs() && mutex.is_owner(me());
    (mine && (pair().mark)(mutex.words())).then(|| mutex.gate.word())
}

/// The calling thread, which holds the mutex, may have been woken at its gate: others may be there
/// still.
pub(crate) fn pass_on(mutex: &Mutex) {
    if !mutex.is_libcs() {
        (pair().mark)(mutex.words());
    }
}
