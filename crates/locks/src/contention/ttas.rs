//! Test-and-test-and-set with bounded exponential backoff.
//!
//! A waiter polls with loads and tries to swap only when the lock looks free, so it does not flood
//! the memory system (Agarwal and Cherian, ISCA 1989). The lock is unfair, because the last
//! releaser still owns the cache line and can reacquire at once. As long as no thread is preempted,
//! that also makes it at least as fast as any other lock.
//!
//! | word | meaning |
//! | --- | --- |
//! | `FREE` | no holder |
//! | `HELD` | held |
//! | `HELD + PARKED` | held, and a waiter sleeps until the release |
//!
//! **Invariant 1.** Only the thread that changed the word from `FREE` to `HELD` changes it back.
//!
//! **Memory orderings.** The acquiring compare-and-swap pairs with the releasing one.

use super::Contention;
use super::word::{Word, by_its_word};
use crate::primitive::Primitive;
use crate::primitive::backoff::Backoff;
use crate::primitive::turn::{Outcome, Turn, Verdict};

/// First and longest wait between two polls. 50 ns is about one line transfer between cores of a
/// package. Beyond some microseconds a longer wait only delays the hand-over, without further
/// relief for the memory system.
const BACKOFF_NS: (u64, u64) = (50, 10_000);

/// A test-and-test-and-set lock.
///
#[doc = example_of_pair!("ttas::Ttas", "control::Control")]
#[repr(C)]
pub struct Ttas<P: Primitive> {
    word: Word<P>,
}

// SAFETY: Invariant 1 and the orderings above.
unsafe impl<P: Primitive> Contention for Ttas<P> {
    fn unlocked() -> Self {
        Ttas { word: Word::unlocked() }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.word.try_lock()
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        let mut backoff = Backoff::new(BACKOFF_NS.0, BACKOFF_NS.1, P::address(turn));
        loop {
            if self.word.is_free() && self.try_lock() {
                return Outcome::Acquired;
            }
            if turn.turn(P::now()) == Verdict::Leave {
                return Outcome::Abandoned;
            }
            backoff.wait::<P>();
        }
    }

    by_its_word!();
}
