//! One turn of a waiter's loop: the question in which contention and load meet.

/// The answer to a waiter's question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Go on polling.
    Spin,
    /// Withdraw from the lock and return [`Outcome::Abandoned`], unless the lock came meanwhile.
    Leave,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is held.
    Acquired,
    /// The waiter has abandoned its place: it is in no queue, and will not be handed the lock.
    Abandoned,
}

/// No waiter's turn takes longer, backoff included, nanoseconds: more between two is time off the
/// processor.
pub(crate) const LONGEST_TURN_NS: u64 = 20_000;

/// What a waiter asks once per turn of its loop.
pub trait Turn {
    /// Keep spinning, or leave? `now` is [`Clock::now`](super::Clock::now), read this turn.
    fn turn(&mut self, now: u64) -> Verdict;

    /// When the waiter must give up at the latest, for the one algorithm that blocks by itself.
    fn deadline(&self) -> Option<u64> {
        None
    }
}

impl<F: FnMut(u64) -> Verdict> Turn for F {
    fn turn(&mut self, now: u64) -> Verdict {
        self(now)
    }
}
