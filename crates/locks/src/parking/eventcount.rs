//! Where waiters park until a release: a sequence word in the lock, beside the contention manager's
//! state.
//!
//! A parker reads the sequence, sets the lock's parked bit, and sleeps while the sequence is
//! unchanged. A holder that finds the bit clears it, advances the sequence, and retries its
//! release. It wakes a parker only after the release, by address, since the lock may already be
//! freed.
//!
//! **Invariant 1.** No release succeeds while the parked bit is set. So a parker that set the bit
//! finds the sequence advanced or is woken. A waiter that gives up may also advance the sequence;
//! parkers then check the lock once too often.
//!
//! **Invariant 2.** A woken thread sets the bit again once it holds the lock, or passes the wake-up
//! on if it gives up: other parkers may remain, and their bit has been cleared.
//!
//! **Invariant 3.** A waiter that blocked others and gives up makes them [check
//! again](Eventcount::recheck). It withdraws before it advances the sequence. So a parker that read
//! the new sequence finds the waiter gone, and a parker that read the old one does not stay asleep.
//!
//! **Memory orderings.** Reading the sequence (acquire) precedes setting the bit; advancing it
//! (release) follows clearing the bit. The modification orders of both words, with the kernel's
//! check under its queue lock, decide Invariant 1.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Release};

use crate::primitive::backoff::Backoff;
use crate::primitive::{Atomic, AtomicInt, Kind, Primitive};

/// Time from the start of the system call until the kernel has checked the sequence; the second
/// figure is for many concurrent callers.
const FALLING_ASLEEP_NS: u64 = 500;
const MANY_FALLING_ASLEEP_NS: u64 = 8_000;

/// A lock as seen by threads that wait for it off the processor.
pub trait WaitedLock {
    /// What the thread waits for, if a release may wake threads of one kind only.
    fn kind(&self) -> Option<Kind> {
        None
    }
    /// Acquires the lock if it is free.
    fn try_lock(&self) -> bool;
    /// Sets the parked bit if the lock is held; returns false if it is free.
    fn set_parked_bit(&self) -> bool;
    /// Length of a wait from which on a waiter that parks again reserves the lock; `None` if the
    /// lock cannot be reserved.
    fn reserve_after(&self) -> Option<u64> {
        None
    }
    /// If the lock is held and can be reserved, makes the next release reserve it for the waiter
    /// that the release wakes, for a bounded time.
    fn reserve(&self) {}
    /// Acquires the lock if it is reserved.
    fn take_reserved(&self) -> bool {
        false
    }
    /// When a parked waiter tries again without a wake-up.
    fn retry_at(&self) -> Option<u64> {
        None
    }

    /// Sleeps until the release of a holder that [`set_parked_bit`](Self::set_parked_bit) does not
    /// know of, or until `deadline`. May return at any time, and by default does so at once.
    fn sleep_on_holder(&self, deadline: Option<u64>) {
        let _ = deadline;
    }
    /// Whether another thread contends for the lock and would acquire it on release.
    fn has_contender(&self) -> bool;
    /// Whether the lock has one holder at a time and no acquisition order of its own. If so, a
    /// waiter may stand aside without delaying other waiters.
    fn is_exclusive(&self) -> bool {
        false
    }
    /// Thread id of the holder; `None` if it is not recorded.
    fn holder(&self) -> Option<u32> {
        None
    }
    /// A number that changes with every acquisition of the lock; `None` if acquisitions are not
    /// counted at this moment.
    fn acquisitions(&self) -> Option<u32> {
        None
    }
    /// Asks holders to count acquisitions for a while, if they count on request.
    fn watch(&self) {}
    /// The number of acquisitions, even if holders do not count them at this moment.
    fn watched_acquisitions(&self) -> Option<u32> {
        self.acquisitions()
    }
}

/// Parked waiters of one lock. All zeroes before first use.
#[repr(transparent)]
pub struct Eventcount<P: Primitive>(P::U32);

impl<P: Primitive> Eventcount<P> {
    /// An eventcount without parked threads.
    pub fn new() -> Self {
        Eventcount(P::U32::new(0))
    }

    /// Parks until a release wakes this thread, or until `end`, which is asked once the parked bit
    /// is set: the release of a writer that it then finds will find the bit. True if the thread
    /// acquired the lock instead of sleeping.
    pub fn wait(&self, lock: &dyn WaitedLock, end: impl FnOnce() -> Option<u64>) -> bool {
        let sequence = self.0.load(Acquire);
        let is_held = lock.set_parked_bit();
        // Try even if the bit was set: a lock that readers held at that moment may be available to
        // this thread now.
        if lock.try_lock() {
            return true;
        }
        let deadline = end();
        if is_held {
            match lock.kind() {
                Some(kind) => P::park_as(kind, &self.0, sequence, deadline),
                None => P::park(&self.0, sequence, deadline),
            }
        } else {
            lock.sleep_on_holder(deadline);
        }
        false
    }

    /// A number that changes with each release that finds the parked bit. A caller that finds the
    /// bit set afterwards, and twice the same number, has seen no such release in between.
    pub(crate) fn sequence(&self) -> u32 {
        self.0.load(Acquire)
    }

    /// The word that parkers sleep on, for a caller that requeues sleepers to it. The caller holds
    /// the lock and has set its parked bit.
    pub fn word(&self) -> &P::U32 {
        &self.0
    }

    /// Passes the caller's wake-up on to another parker of its kind. For a thread that was woken,
    /// or may have been, and gives up (Invariant 2). True if the lock's holder will wake it.
    pub fn pass_on(&self, lock: &dyn WaitedLock) -> bool {
        // The next parker may sleep without a time-out behind a holder that has released since.
        let is_left_to_holder = lock.set_parked_bit() && lock.retry_at().is_none();
        if !is_left_to_holder {
            match lock.kind() {
                Some(kind) => P::unpark_kind(kind, &self.0, 1),
                None => P::unpark(&self.0, 1),
            }
        }
        is_left_to_holder
    }

    /// Makes every parker check the lock again, because the waiter that blocked them has given up
    /// without a release (Invariant 3).
    #[cold]
    pub fn recheck(&self) {
        self.0.fetch_add(1, Release);
        P::unpark(ptr::from_ref(&self.0), u32::MAX);
    }

    /// Releases a lock whose parked bit is set, then wakes up to `count` parkers. `clear` clears
    /// the bit; `unlock` tries to release.
    #[cold]
    pub(crate) fn release(&self, count: u32, clear: impl FnMut(), unlock: impl FnMut() -> bool) {
        P::unpark(self.unlock(clear, unlock), count);
    }

    /// As [`release`](Self::release), for a lock that several threads can share: wakes one parker
    /// that wants it for itself, and all that share it.
    #[cold]
    pub(crate) fn release_shared(&self, clear: impl FnMut(), unlock: impl FnMut() -> bool) {
        P::unpark_shared(self.unlock(clear, unlock));
    }

    /// Releases the lock, and returns the address of the word that parkers sleep on.
    fn unlock(&self, mut clear: impl FnMut(), mut unlock: impl FnMut() -> bool) -> *const P::U32 {
        let word = ptr::from_ref(&self.0);
        // A thread that set the bit meanwhile is about to sleep. If many do, advancing the sequence
        // at once could keep them all from falling asleep, and this release from succeeding.
        let mut backoff = Backoff::new(FALLING_ASLEEP_NS, MANY_FALLING_ASLEEP_NS, P::address(self));
        loop {
            clear();
            self.0.fetch_add(1, Release);
            if unlock() {
                break;
            }
            backoff.wait::<P>();
        }
        word
    }
}

impl<P: Primitive> Default for Eventcount<P> {
    fn default() -> Self {
        Self::new()
    }
}
