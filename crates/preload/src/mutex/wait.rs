//! The mutex's side of a wait on a condition variable, besides release and acquisition.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use unconvoy_locks::load::{Context as _, ThreadState, event};
use unconvoy_locks::lock::Process as _;
use unconvoy_locks::primitive::Native;

use super::object::Mutex;
use crate::identity::me;
use crate::numbered::Numbered as _;

/// glibc's `PTHREAD_MUTEX_ROBUST_NORMAL_NP` in `kind`.
const ROBUST: i32 = 16;

/// Keeps a mutex in use while a wait has released it, so that `pthread_mutex_destroy` returns
/// EBUSY. glibc does the same: it keeps its count of users raised for the length of a wait.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    /// The counter that this use incremented, if any.
    count: Option<&'a AtomicU32>,
}

impl<'a> Use<'a> {
    /// Begins a use. The caller is about to release the mutex for a wait.
    ///
    /// For a libc mutex, this increments libc's own count, the only one that libc's `destroy`
    /// checks. libc changes that word with plain loads and stores under the mutex, so only the
    /// holder may write it. A wait by a thread that is not the holder is not counted, and libc then
    /// refuses the release. A robust mutex is not counted either: libc destroys it in any state.
    pub(crate) fn begin(mutex: &'a Mutex) -> Self {
        let count = if !mutex.is_libcs() {
            Some(&mutex.waiting)
        } else {
            (mutex.kind.load(Relaxed) & ROBUST == 0 && mutex.is_owner(me())).then_some(&mutex.taken)
        };
        // The release of the mutex publishes the increment; see `Mutex::is_in_use`.
        count.inspect(|count| _ = count.fetch_add(1, Relaxed));
        Use { count }
    }

    /// Ends the use. The caller has acquired the mutex again, or could not release it. If a wait
    /// cannot acquire the mutex again, the mutex stays in use for good, as in libc.
    pub(crate) fn end(self) {
        if let Some(count) = self.count {
            // Pairs with the load in `Mutex::is_in_use`: a thread that sees the decrement also sees
            // the mutex acquired.
            count.fetch_sub(1, Release);
        }
    }
}

/// The word of the mutex's eventcount, if the calling thread holds the mutex: the next release
/// wakes a waiter that was requeued to that word. Sets the mutex's parked bit, so that the release
/// looks at the eventcount.
pub(crate) fn eventcount_if_owned(mutex: &Mutex) -> Option<&AtomicU32> {
    let mine = !mutex.is_libcs() && mutex.is_owner(me());
    (mine && (mutex.pair().set_parked_bit)(mutex.words())).then(|| mutex.eventcount.word())
}

/// Whether this is the calling thread's first call in its current critical section of `mutex`.
pub(crate) fn is_first_wake(mutex: &Mutex) -> bool {
    let process = Native::context();
    let state = process.thread_state();
    let section =
        core::ptr::from_ref(mutex).addr() as u64 ^ u64::from(mutex.taken.load(Relaxed)) << 48;
    process.set_thread_state(ThreadState { section, ..state });
    state.section != section
}

/// Records that waiters may have been requeued to the mutex's eventcount: the calling thread, which
/// holds the mutex, requeued some, or was one of them and is about to take the mutex. `signalled`
/// is the number of those that it has just signalled.
pub(crate) fn record_requeued(mutex: &Mutex, signalled: u32) {
    let process = Native::context();
    let requeued_at = core::ptr::from_ref(&mutex.eventcount).addr();
    let state = process.thread_state();
    let before = if state.requeued_at == requeued_at { state.requeued } else { 0 };
    process.set_thread_state(ThreadState {
        requeued_at,
        requeued: before.saturating_add(signalled),
        ..state
    });
}

/// Sets the parked bit again. The calling thread, which holds the mutex, may have been woken at its
/// eventcount while other threads are still parked there.
pub(crate) fn restore_parked_bit(mutex: &Mutex) {
    if !mutex.is_libcs() {
        (mutex.pair().set_parked_bit)(mutex.words());
    }
}

/// Lets the holder release the mutex. Called by a thread that was woken inside a critical section
/// of the mutex, and takes the mutex next.
pub(crate) fn give_way(mutex: &Mutex) {
    if !mutex.is_libcs() && (mutex.pair().is_locked)(mutex.words()) {
        event::give_way(Native::context());
    }
}

#[cfg(test)]
mod tests {
    use core::mem::MaybeUninit;

    use super::*;

    #[test]
    fn each_section_has_a_first_wake() {
        // SAFETY: zeroes are a mutex.
        let mutex: Mutex = unsafe { MaybeUninit::zeroed().assume_init() };
        assert!(is_first_wake(&mutex) && !is_first_wake(&mutex));
        mutex.taken.fetch_add(1, Relaxed);
        assert!(is_first_wake(&mutex) && !is_first_wake(&mutex));
    }
}
