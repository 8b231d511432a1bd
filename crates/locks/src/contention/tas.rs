//! Test-and-set: a waiter writes to the lock's line until it finds that the lock was free.
//!
//! The first spin lock of every study, and the one that the others are measured against: each try
//! takes the line from whoever has it, the holder included, so that the memory system carries
//! nothing else once several processors wait (Anderson, *The Performance of Spin Lock Alternatives*,
//! IEEE TPDS 1(1), 1990, section II). The states are those of [`ttas`](super::ttas).
//!
//! **Invariant 1.** Only the thread that moved the word from free to held moves it back.
//!
//! **Memory orderings.** The acquiring test-and-set pairs with the compare-and-swap that releases.

use super::Contention;
use super::word::{Word, by_its_word};
use crate::primitive::Primitive;
use crate::primitive::turn::{Outcome, Turn, Verdict};

/// Tries between two turns: what a turn costs, the clock and a look at load control, is not part of
/// a loop that is as tight as can be.
const TRIES_PER_TURN: u32 = if cfg!(loom) { 1 } else { 8 };

/// A test-and-set lock.
#[repr(C)]
pub struct Tas<P: Primitive> {
    word: Word<P>,
}

// SAFETY: Invariant 1, and the orderings above.
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
