//! One turn of a waiter's loop: the interface between contention and load.

/// The answer to a waiter's question.
///
/// ```
/// use unconvoy::primitive::turn::{Turn, Verdict};
///
/// // Leaves at a time on the machine's clock. A closure is a `Turn`.
/// let mut until = |now: u64| if now < 1_000 { Verdict::Spin } else { Verdict::Leave };
/// assert_eq!(until.turn(999), Verdict::Spin);
/// assert_eq!(until.turn(1_000), Verdict::Leave);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Keep polling.
    Spin,
    /// Abandon the lock and return [`Outcome::Abandoned`], unless the lock has been acquired
    /// meanwhile.
    Leave,
}

/// How an attempt ended.
///
/// ```
/// use unconvoy::contention::{Contention, ttas::Ttas};
/// use unconvoy::primitive::Native;
/// use unconvoy::primitive::turn::{Outcome, Verdict};
///
/// let lock = Ttas::<Native>::unlocked();
/// let mut leave = |_now: u64| Verdict::Leave;
/// assert_eq!(lock.attempt(&mut leave), Outcome::Acquired);
/// assert_eq!(lock.attempt(&mut leave), Outcome::Abandoned);
/// ```
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
///
/// ```
/// use unconvoy::contention::{Contention, ttas::Ttas};
/// use unconvoy::primitive::Native;
/// use unconvoy::primitive::turn::{Outcome, Verdict};
///
/// let lock = Ttas::<Native>::unlocked();
/// assert!(lock.try_lock());
///
/// // The lock is held, so the second attempt polls until the closure says leave.
/// let mut polls = 0;
/// let outcome = lock.attempt(&mut |_now: u64| {
///     polls += 1;
///     if polls < 10 { Verdict::Spin } else { Verdict::Leave }
/// });
/// assert_eq!((outcome, polls), (Outcome::Abandoned, 10));
/// ```
pub trait Turn {
    /// Keep spinning, or leave? `now` is [`Clock::now`](super::Clock::now), read in this turn.
    fn turn(&mut self, now: u64) -> Verdict;

    /// Latest time at which the waiter must give up; for the one algorithm that blocks by itself.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// A number that changes with every acquisition of a lock that
    /// [is watched](crate::contention::Contention::is_watched); `None` if none are counted.
    fn acquisitions(&self) -> Option<u32> {
        None
    }
}

impl<F: FnMut(u64) -> Verdict> Turn for F {
    fn turn(&mut self, now: u64) -> Verdict {
        self(now)
    }
}
