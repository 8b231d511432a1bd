//! Where waiters park until a release: a sequence word in the lock, beside the contention manager's
//! state.
//!
//! A parker reads the sequence, sets the lock's parked bit, and sleeps as long as the sequence does
//! not change. A holder that finds the bit clears it, moves the sequence on, and tries its release
//! again; only then does it wake a parker, by address, since the lock may be gone.
//!
//! **Invariant 1.** No release succeeds while the parked bit is set. So a parker that set the bit
//! finds the sequence moved, or is woken. Beside the holder, a waiter that gives
//! up may move the sequence: then parkers look at the lock once more than they had to.
//!
//! **Invariant 2.** A thread that was woken sets the bit again once it holds the lock, or passes the
//! wake-up on if it gives up: other parkers may be behind it, and the bit that stood for them is
//! cleared.
//!
//! **Invariant 3.** A waiter that kept others out, and gives up, has them
//! [look again](Eventcount::recheck). It withdraws first and moves the sequence then; so a parker that
//! read the new sequence finds it gone, and one that read the old sequence does not sleep on.
//!
//! **Memory orderings.** Reading the sequence (acquire) comes before setting the bit; moving it
//! (release) after clearing the bit. Both are on words whose modification orders, with the kernel's check
//! under its queue lock, decide Invariant 1.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Release};

use crate::primitive::backoff::Backoff;
use crate::primitive::{Atomic, AtomicInt, Primitive};

/// What the system call takes until the kernel has looked at the sequence; and where many make it at a time.
const FALLING_ASLEEP_NS: u64 = 500;
const MANY_FALLING_ASLEEP_NS: u64 = 8_000;

/// A lock, as those see it that wait for it off the processor.
pub trait WaitedLock {
    /// Takes the lock if it is free.
    fn try_lock(&self) -> bool;
    /// Sets the parked bit if the lock is held; false if it is free.
    fn set_parked_bit(&self) -> bool;
    /// Whether another thread contends for the lock, and would take it if it were released.
    fn has_contender(&self) -> bool;
    /// Whether one holder at a time, and no order that the lock itself keeps, decides who is next: a waiter may
    /// stand aside without anybody waiting for it.
    fn is_exclusive(&self) -> bool {
        false
    }
    /// The thread that holds the lock, by its id on the machine; `None` where nobody knows.
    fn holder(&self) -> Option<u32> {
        None
    }
    /// A number that is another one whenever the lock has been acquired; `None` where nobody
    /// counts.
    fn acquisitions(&self) -> Option<u32> {
        None
    }
}

/// Parked waiters of one lock. All zeroes when nobody ever parked.
#[repr(transparent)]
pub struct Eventcount<P: Primitive>(P::U32);

impl<P: Primitive> Eventcount<P> {
    /// An eventcount at which nobody is parked.
    pub fn new() -> Self {
        Eventcount(P::U32::new(0))
    }

    /// Parks until a release wakes this thread or `deadline` passes; true if it found the lock free
    /// on the way, and took it.
    pub fn wait(&self, lock: &dyn WaitedLock, deadline: Option<u64>) -> bool {
        let sequence = self.0.load(Acquire);
        let is_held = lock.set_parked_bit();
        // Also when the bit was set: a lock that is held by readers now may be free for another.
        if lock.try_lock() {
            return true;
        }
        if is_held {
            P::park(&self.0, sequence, deadline);
        }
        false
    }

    /// The word that parkers sleep on, for a caller that moves sleepers here. It holds the lock and
    /// has set its parked bit.
    pub fn word(&self) -> &P::U32 {
        &self.0
    }

    /// Lets another parker go: the caller was woken, or may have been, and gives up
    /// (Invariant 2).
    pub fn pass_on(&self, lock: &dyn WaitedLock) {
        if !lock.set_parked_bit() {
            P::unpark(ptr::from_ref(&self.0), 1);
        }
    }

    /// Has every parker look at the lock again: what kept them out is gone, though nobody released
    /// the lock (Invariant 3).
    #[cold]
    pub fn recheck(&self) {
        self.0.fetch_add(1, Release);
        P::unpark(ptr::from_ref(&self.0), u32::MAX);
    }

    /// Releases a lock with the parked bit: `clear` clears it, `unlock` tries to release. Wakes up to
    /// `count` parkers.
    #[cold]
    pub(crate) fn release(&self, count: u32, mut clear: impl FnMut(), mut unlock: impl FnMut() -> bool) {
        let word = ptr::from_ref(&self.0);
        // A thread that set the bit in the meantime is on its way to sleep. Where there are many, and each
        // comes between two accesses of this thread, none would fall asleep if the sequence moved on at once.
        let mut backoff = Backoff::new(FALLING_ASLEEP_NS, MANY_FALLING_ASLEEP_NS, P::address(self));
        loop {
            clear();
            self.0.fetch_add(1, Release);
            if unlock() {
                break;
            }
            backoff.wait::<P>();
        }
        P::unpark(word, count);
    }
}

impl<P: Primitive> Default for Eventcount<P> {
    fn default() -> Self {
        Self::new()
    }
}
