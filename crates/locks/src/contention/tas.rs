//! Test-and-set: a waiter writes to the lock's cache line until it finds the lock free.
//!
//! The baseline of every study of spin locks. Each try takes the line away from its owner, the lock
//! holder included, so with several waiting processors the memory system carries little else
//! (Anderson, *The Performance of Spin Lock Alternatives*, IEEE TPDS 1(1), 1990, section II).
//! [`ttas`](super::ttas) has the table of states.
//!
//! **Invariant 1.** Only the thread that changed the word from free to held changes it back.
//!
//! **Memory orderings.** The acquiring test-and-set pairs with the releasing compare-and-swap.

use super::Contention;
use super::word::{Word, by_its_word};
use crate::primitive::Primitive;
use crate::primitive::turn::{Outcome, Turn, Verdict};

/// Tries between two turns. A turn reads the clock and the state of load control, which would slow
/// a loop that is meant to be tight.
const TRIES_PER_TURN: u32 = if cfg!(loom) { 1 } else { 8 };

/// A test-and-set lock.
///
#[doc = example_of_pair!("tas::Tas", "control::Control")]
#[repr(C)]
pub struct Tas<P: Primitive> {
    word: Word<P>,
}

// SAFETY: Invariant 1 and the orderings above.
unsafe impl<P: Primitive> Contention for Tas<P> {
    fn unlocked() -> Self {
        Tas { word: Word::unlocked() }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.word.try_lock()
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        loop {
            if (0..TRIES_PER_TURN).any(|_| self.word.test_and_set()) {
                return Outcome::Acquired;
            }
            if turn.turn(P::now()) == Verdict::Leave {
                return Outcome::Abandoned;
            }
            P::pause();
        }
    }

    by_its_word!();
}
