//! Lock elision: a critical section runs as a hardware transaction, without the lock being taken
//! (Rajwar and Goodman, *Speculative Lock Elision*, MICRO 2001), with a fall-back that learns, as in
//! glibc (Kleen; `elision-conf.c` up to glibc 2.41).
//!
//! The transaction reads the lock's word, and so is undone by whoever takes the lock. Sections that
//! touch different data run side by side; one that conflicts, does not fit, or makes a system call
//! aborts, and takes the lock. The lock below is [`ttas`](super::ttas).
//!
//! Whether to try is learnt per lock. After an elision that failed the lock is taken for a number of
//! acquisitions, twice as many after each further failure; an elision that commits makes it none.
//!
//! | adaptation | meaning |
//! | --- | --- |
//! | `remaining` (low half) | acquisitions that do not try |
//! | `penalty` (high half) | what the last failure cost; 0 after a success |
//!
//! **Invariant 1.** Inside a transaction no lock of this kind is taken or tried, nor its parked bit set: that aborts
//! the transaction, and the section starts over with the lock. For there *held* cannot be told: a
//! word that is free may be elided by the very thread that asks.
//!
//! **Invariant 2.** So a section is elided if its thread is inside a transaction and the word is free
//! when it ends. If the word is held there, it was taken before the transaction began.
//!
//! **Invariant 3.** The transaction's end is the release: nothing of the lock is touched after it.
//! What is learnt from a success is written before, and is part of the transaction.
//!
//! What is *not* kept: a thread that locks a mutex which it has elided already does not wait for
//! itself for ever, but goes through.
//!
//! **Memory orderings.** A transaction is one atomic step in the order of all; else those of
//! [`ttas`](super::ttas).

use core::sync::atomic::Ordering::Relaxed;

use super::Contention;
use super::ttas::Ttas;
use crate::primitive::turn::{Outcome, Turn};
use crate::primitive::{Abort, Atomic, Begun, Primitive};

/// Transactions per acquisition, as `glibc.elision.tries`.
const TRIES: u32 = 3;

/// Acquisitions that do not try after a first failure, as `glibc.elision.skip_lock_internal_abort`.
const FIRST_PENALTY: u32 = 3;
/// And after many. A try that fails costs some 100 ns: one in so many is not felt.
const LONGEST_PENALTY: u32 = 1 << 10;

/// What was learnt of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Adaptation(u32);

impl Adaptation {
    const FRESH: Adaptation = Adaptation(0);

    fn of(penalty: u32, remaining: u32) -> Self {
        Adaptation(penalty << 16 | remaining)
    }

    fn remaining(self) -> u32 {
        self.0 & 0xFFFF
    }

    fn penalty(self) -> u32 {
        self.0 >> 16
    }

    /// An acquisition that does not try.
    fn skipped(self) -> Self {
        Self::of(self.penalty(), self.remaining().saturating_sub(1))
    }

    fn failed(self) -> Self {
        let penalty = (self.penalty() * 2).clamp(FIRST_PENALTY, LONGEST_PENALTY);
        Self::of(penalty, penalty)
    }
}

/// Whether to try once more after `tries` transactions, the last of which ended with `abort`.
fn is_worth_another(abort: Abort, tries: u32) -> bool {
    abort.may_succeed_on_retry && tries < TRIES
}

/// A lock that is elided where that works.
#[repr(C)]
pub struct Elided<P: Primitive> {
    lock: Ttas<P>,
    adaptation: P::U32,
}

impl<P: Primitive> Elided<P> {
    /// Ends the transaction that the caller is in, if it is in one, by starting it over (Invariant 1).
    #[inline]
    fn refuse_in_transaction(&self) {
        if P::in_transaction() {
            P::abort_transaction();
        }
    }
}

// SAFETY: `Ttas`, and the Invariants.
unsafe impl<P: Primitive> Contention for Elided<P> {
    fn unlocked() -> Self {
        Elided { lock: Ttas::unlocked(), adaptation: P::U32::new(Adaptation::FRESH.0) }
    }

    fn try_lock(&self) -> bool {
        self.refuse_in_transaction();
        self.lock.try_lock()
    }

    fn try_lock_politely(&self) -> bool {
        self.elide() || self.try_lock()
    }

    const ELIDES: bool = true;

    fn elide(&self) -> bool {
        // Threads may overwrite each other's: then one of them learns nothing.
        let known = Adaptation(self.adaptation.load(Relaxed));
        if known.remaining() > 0 {
            self.adaptation.store(known.skipped().0, Relaxed);
            return false;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match P::begin_transaction() {
                Begun::Started if !self.lock.is_locked() => return true,
                // Aborts, and is back at the match with the reason.
                Begun::Started => P::abort_transaction(),
                Begun::Aborted(abort) if is_worth_another(abort, tries) => {}
                Begun::Aborted(_) => {
                    self.adaptation.store(known.failed().0, Relaxed);
                    return false;
                }
                Begun::Unavailable => return false,
            }
        }
    }

    unsafe fn end_elided(&self) -> bool {
        if !P::in_transaction() || self.lock.is_locked() {
            return false;
        }
        if Adaptation(self.adaptation.load(Relaxed)) != Adaptation::FRESH {
            self.adaptation.store(Adaptation::FRESH.0, Relaxed);
        }
        P::end_transaction();
        true
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        self.refuse_in_transaction();
        self.lock.attempt(turn)
    }

    unsafe fn unlock(&self) -> bool {
        // SAFETY: passed on from the caller.
        unsafe { self.end_elided() || self.lock.unlock() }
    }

    unsafe fn clear_parked_bit(&self) {
        // SAFETY: passed on from the caller.
        unsafe { self.lock.clear_parked_bit() };
    }

    fn set_parked_bit(&self) -> bool {
        self.refuse_in_transaction();
        self.lock.set_parked_bit()
    }

    fn is_locked(&self) -> bool {
        self.refuse_in_transaction();
        self.lock.is_locked()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn failures_cost_ever_more_and_a_success_costs_nothing() {
        let mut adaptation = Adaptation::FRESH;
        assert_eq!(adaptation.remaining(), 0);
        let mut penalties = Vec::new();
        for _ in 0..12 {
            adaptation = adaptation.failed();
            assert_eq!(adaptation.remaining(), adaptation.penalty());
            penalties.push(adaptation.penalty());
        }
        assert_eq!(penalties[..4], [FIRST_PENALTY, 2 * FIRST_PENALTY, 4 * FIRST_PENALTY, 8 * FIRST_PENALTY]);
        assert_eq!(penalties[11], LONGEST_PENALTY);
    }

    #[test]
    fn a_penalty_is_served_and_remembered() {
        let mut adaptation = Adaptation::FRESH.failed();
        for remaining in (0..FIRST_PENALTY).rev() {
            adaptation = adaptation.skipped();
            assert_eq!(adaptation.remaining(), remaining);
        }
        assert_eq!(adaptation.penalty(), FIRST_PENALTY);
        assert_eq!(adaptation.skipped().remaining(), 0);
        assert_eq!(adaptation.failed().remaining(), 2 * FIRST_PENALTY);
    }

    #[test]
    fn only_what_may_succeed_is_tried_again_and_not_for_ever() {
        let (conflict, hopeless) = (Abort { may_succeed_on_retry: true }, Abort { may_succeed_on_retry: false });
        assert!(is_worth_another(conflict, 1));
        assert!(!is_worth_another(conflict, TRIES));
        assert!(!is_worth_another(hopeless, 1));
    }
}
