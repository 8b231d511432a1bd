//! Test-and-test-and-set with bounded exponential backoff.
//!
//! The simplest spin lock that does not flood the memory system: a waiter polls with loads and
//! swaps only when the lock looks free (Agarwal and Cherian, ISCA 1989). It is unfair, and the
//! fastest there is while nobody is preempted: the thread that released it last has the line, and
//! takes it again.
//!
//! | word | meaning |
//! | --- | --- |
//! | `FREE` | nobody holds it |
//! | `HELD` | somebody holds it |
//! | `HELD + PARKED` | and somebody waits off the processor for its release |
//!
//! **Invariant 1.** Only the thread that moved the word from `FREE` to `HELD` moves it back.
//!
//! **Memory orderings.** The acquiring compare-and-swap pairs with the one, or the store, that
//! releases.

use super::Contention;
use super::word::{Word, by_its_word};
use crate::primitive::Primitive;
use crate::primitive::backoff::Backoff;
use crate::primitive::turn::{Outcome, Turn, Verdict};

/// First and longest wait between two polls. 50 ns is about one line transfer between cores of one
/// package; past some microseconds a longer wait no longer relieves the memory system and only
/// delays the hand-over.
const BACKOFF_NS: (u64, u64) = (50, 10_000);

/// A test-and-test-and-set lock.
#[repr(C)]
pub struct Ttas<P: Primitive> {
    word: Word<P>,
}

// SAFETY: Invariant 1, and the orderings above.
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
