//! The input of a policy, and arithmetic that the policies share.

use crate::load::sensor::Reading;

/// Number of runnable threads beyond the capacity that the policies aim at, which the controller
/// adapts in each interval.
///
/// The paper aims at the capacity itself. But with as many threads as processors, two may meet on
/// one processor, and Linux then leaves another processor idle for up to 20 ms (a newly idle
/// processor does not look for work if it is idle often and briefly). One more thread keeps that
/// processor busy. (Think time 1 us, 8 threads on 2 processors: 1.63 processors used without the
/// margin, 1.97 with it.)
///
/// On many processors one thread is too few. If threads mostly work even with the margin, more of
/// them do not hurt their lock, and the margin [grows](GROWTH) until none sleeps. (Think time
/// 10 us, 64 threads on 16 processors: .85 to .90 of the throughput of libc's adaptive mutex with a
/// margin of one thread, .93 to .96 with a margin that grows.)
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Margin(f64);

/// Once polling takes more than this fraction of the capacity, there is no margin: one more thread
/// would only poll, and the next thread of a queue might then be off the processor. (TP-MCS,
/// saturated, 4 threads on 2 processors: .18 of its 2-thread throughput with the margin, .8 and
/// more without.) The fraction is small, because waits shorter than one turn are not counted.
const MOSTLY_POLLING: f64 = 0.03;

/// Growth of the margin in an interval: from one thread to ten in six intervals. (A saturated lock,
/// 24 threads on 16 processors: no difference with 1.5, and 6 % less throughput with 2. With 64
/// threads on 2 processors, a margin that lets all threads in at once costs 5 to 10 %.)
const GROWTH: f64 = 1.5;

/// No process has more threads.
const LARGEST: f64 = 1e6;

impl Margin {
    /// The margin of the first interval in which threads mostly work.
    pub(crate) const FIRST: f64 = 1.0;

    /// The margin after an interval in which `polling` threads, on average, polled for locks.
    pub(crate) fn after(self, polling: f64, capacity: f64) -> Self {
        let mostly_polls = polling > MOSTLY_POLLING * capacity;
        Margin(if mostly_polls { 0.0 } else { (self.0 * GROWTH).clamp(Self::FIRST, LARGEST) })
    }

    pub(crate) fn threads(self) -> f64 {
        self.0
    }
}

/// What the controller knows at the end of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The sensor's reading.
    pub reading: Reading,
    /// Threads that sleep for load.
    pub sleeping: u32,
    /// Threads beyond the capacity that may stay awake.
    pub margin: f64,
}

impl Observation {
    /// Threads that would run if none slept for load.
    pub(super) fn demand(&self) -> f64 {
        f64::from(self.sleeping) + self.reading.runnable
    }

    /// Threads that should be awake.
    pub(super) fn room(&self) -> f64 {
        self.reading.capacity + self.margin
    }
}

/// Rounds to whole threads, at least 0. Half a thread is measurement noise, since counters advance
/// by whole ticks. The cast saturates a negative number to 0.
pub(super) fn threads(target: f64) -> u32 {
    (target + 0.5) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margin_grows_while_threads_mostly_work() {
        let mut margin = Margin::default();
        let mut after = |polling| {
            margin = margin.after(polling, 2.0);
            margin.threads()
        };
        let bound = MOSTLY_POLLING * 2.0;
        assert_eq!([0.0, 0.05, bound].map(&mut after), [1.0, 1.5, 2.25]);
        assert_eq!(after(0.07), 0.0, "threads mostly poll");
        assert_eq!(after(0.0), 1.0);
        assert_eq!((0..100).map(|_| after(0.0)).last(), Some(LARGEST));
    }
}
