//! Lock elision: a critical section runs as a hardware transaction, without taking the lock (Rajwar
//! and Goodman, *Speculative Lock Elision*, MICRO 2001). All other sections take the default lock,
//! [`loiter`](super::loiter).
//!
//! The transaction reads the lock's word, so a thread that takes the lock aborts it. Sections that
//! touch different data run side by side. A section aborts if it conflicts, does not fit into the
//! cache, or makes a system call; it may then take the lock instead. [`elision`](super::elision)
//! decides that.
//!
//! **Invariant 1.** Inside a transaction, no thread takes, tries or tests a lock of this kind, or
//! sets its parked bit. Each of these attempts aborts the transaction, and the section starts over
//! with the lock. A free word proves nothing inside a transaction, because the thread itself may
//! have elided that lock.
//!
//! **Invariant 2.** So a section is elided if its thread is inside a transaction and the word is
//! free when the section ends. If the word is held at that point, it was taken before the
//! transaction began.
//!
//! **Invariant 3.** The end of the transaction is the release: the thread accesses nothing of the
//! lock after it.
//!
//! What is *not* guaranteed: a thread that [elides](Contention::elide) a mutex which it has already
//! elided does not deadlock, but enters the section. The locks of [`raw`](crate::raw), whose guards
//! give exclusive access, therefore end the outer section first.
//!
//! **Memory orderings.** A transaction takes effect as one atomic step. The underlying lock orders
//! everything else.

use super::Contention;
use super::elision::Elidable;
use super::loiter::Loiter;
use crate::primitive::turn::{Outcome, Turn};
use crate::queue::NodeMemory;

/// A lock that elides its sections where that works.
///
#[doc = example_of_pair!("elided::Elided", "control::Control")]
#[repr(transparent)]
pub struct Elided<P: NodeMemory> {
    lock: Loiter<P>,
}

impl<P: NodeMemory> Elidable<P> for Elided<P> {
    #[inline]
    fn is_open(&self) -> bool {
        self.lock.is_free()
    }

    #[inline]
    fn advice(&self) -> u32 {
        self.lock.advice()
    }

    #[inline]
    fn set_advice(&self, advice: u32) {
        self.lock.set_advice(advice);
    }
}

impl<P: NodeMemory> Elided<P> {
    /// Enters a section of a free lock, as [`elide`](Contention::elide) does. Returns false if that
    /// needs more than one try.
    #[inline]
    pub fn elide_at_once(&self) -> bool {
        self.elide_section_at_once()
    }

    /// Takes a free lock if elision is not worthwhile. Returns false if that needs more than one
    /// try.
    #[inline]
    pub fn lock_at_once(&self) -> bool {
        let learnt = self.learnt();
        let takes = learnt.only_takes_lock()
            && !P::in_transaction()
            && self.lock.try_lock_without_barging();
        if takes {
            self.record_locked(learnt);
        }
        takes
    }

    /// Ends an elided section as [`end_elided`](Contention::end_elided) does. Returns false if the
    /// section is not elided, or belongs to a trial.
    ///
    /// # Safety
    ///
    /// As for [`Contention::unlock`].
    #[inline]
    pub unsafe fn end_at_once(&self) -> bool {
        let ends = self.lock.is_free() && P::in_transaction() && !self.learnt().is_trial();
        if ends {
            P::end_transaction(); // Invariant 3
        }
        ends
    }

    /// Takes the lock by `take`, which returns whether it did.
    #[inline]
    fn take(&self, take: impl FnOnce(&Loiter<P>) -> bool) -> bool {
        self.refuse_in_transaction();
        let held = take(&self.lock);
        if held {
            self.record_locked(self.learnt());
        }
        held
    }

    /// Releases a lock that is held and not elided, unless its parked bit is set.
    ///
    /// # Safety
    ///
    /// As for [`Contention::unlock`]. The section is not elided.
    #[inline]
    pub unsafe fn unlock_held(&self) -> bool {
        // SAFETY: by this function's contract.
        unsafe { self.lock.unlock() }
    }
}

// SAFETY: by the contract of `Loiter` and the Invariants above.
unsafe impl<P: NodeMemory> Contention for Elided<P> {
    fn unlocked() -> Self {
        Elided { lock: Loiter::unlocked() }
    }

    fn try_lock(&self) -> bool {
        self.take(Loiter::try_lock)
    }

    fn try_lock_without_barging(&self) -> bool {
        self.elide() || self.take_without_barging()
    }

    fn take_without_barging(&self) -> bool {
        self.take(Loiter::try_lock_without_barging)
    }

    const ELIDES: bool = true;

    #[inline]
    fn elide(&self) -> bool {
        self.elide_section()
    }

    #[inline]
    unsafe fn end_elided(&self) -> bool {
        if !self.lock.is_free() || !P::in_transaction() {
            return false;
        }
        self.end(); // Invariant 3
        true
    }

    #[inline]
    fn abort_section(&self) {
        self.refuse_in_transaction();
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        self.refuse_in_transaction();
        let outcome = self.lock.attempt(turn);
        if outcome == Outcome::Acquired {
            self.record_locked(self.learnt());
        }
        outcome
    }

    unsafe fn unlock(&self) -> bool {
        // SAFETY: the caller is in a section of the lock, which is elided or else holds the lock.
        unsafe { self.end_elided() || self.lock.unlock() }
    }

    unsafe fn clear_parked_bit(&self) {
        // SAFETY: the caller holds the lock, so its section is not elided.
        unsafe { self.lock.clear_parked_bit() };
    }

    fn set_parked_bit(&self) -> bool {
        self.refuse_in_transaction();
        self.lock.set_parked_bit()
    }

    const RESERVES: bool = true;

    fn reserve(&self) {
        self.refuse_in_transaction();
        self.lock.reserve();
    }

    fn take_reserved(&self) -> bool {
        self.take(Loiter::take_reserved)
    }

    fn is_locked(&self) -> bool {
        self.refuse_in_transaction();
        self.lock.is_locked()
    }

    fn has_contender(&self) -> bool {
        self.lock.has_contender()
    }

    fn is_watched(&self) -> bool {
        self.lock.is_watched()
    }

    fn watch(&self) {
        self.lock.watch();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::Native;

    #[test]
    fn lock_without_a_transaction_is_the_default() {
        let lock = Elided::<Native>::unlocked();
        assert!(lock.take_without_barging() && lock.is_locked());
        // SAFETY: locked above.
        assert!(unsafe { lock.unlock() } && !lock.is_locked() && !lock.is_watched());
        lock.watch();
        assert!(lock.is_watched());
    }
}
