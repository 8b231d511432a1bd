//! One turn of a waiter's loop: the interface between contention and load.

/// The answer to a waiter's question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Keep polling.
    Spin,
    /// Abandon the lock and return [`Outcome::Abandoned`], unless the lock has been acquired
    /// meanwhile.
    Leave,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The thread holds the lock.
    Acquired,
    /// The waiter has abandoned the lock: it is in no queue and will not be handed the lock.
    Abandoned,
}

/// Upper bound of a waiter's turn in nanoseconds, backoff included. A longer gap between two turns
/// was spent off the processor.
pub(crate) const LONGEST_TURN_NS: u64 = 20_000;

/// The question that a waiter asks once per turn of its loop.
pub trait Turn {
    /// Keep spinning, or leave? `now` is [`Clock::now`](super::Clock::now), read in this turn.
    fn turn(&mut self, now: u64) -> Verdict;

    /// Latest time at which the waiter must give up; for the one algorithm that blocks by itself.
    fn deadline(&self) -> Option<u64> {
        None
    }
}

impl<F: FnMut(u64) -> Verdict> Turn for F {
    fn turn(&mut self, now: u64) -> Verdict {
        self(now)
    }
}
