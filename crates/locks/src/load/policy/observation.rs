//! The input of a policy, and arithmetic that the policies share.

use crate::load::sensor::Reading;

/// While awake threads mostly work, policies aim at this many runnable threads beyond the capacity.
/// The paper aims at the capacity itself. But with as many threads as processors, two may meet on
/// one processor, and Linux then leaves another processor idle for up to 4 ms, until the next tick
/// (a newly idle processor does not look for work if it is idle often and briefly). One more thread
/// keeps that processor busy. (Think time 1 us, 8 threads on 2 processors: 1.63 processors used
/// without the margin, 1.97 with it.)
pub(crate) const MARGIN: f64 = 1.0;

/// Once polling takes more than this fraction of the capacity, there is no margin: one more thread
/// would only poll, and the next thread of a queue might then be off the processor. (TP-MCS,
/// saturated, 4 threads on 2 processors: .18 of its 2-thread throughput with the margin, .8 and
/// more without.) The fraction is small, because waits shorter than one turn are not counted.
const MOSTLY_POLLING: f64 = 0.03;

/// What the controller knows at the end of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The sensor's reading.
    pub reading: Reading,
    /// Threads that sleep for load.
    pub sleeping: u32,
    /// Threads that polled for locks, averaged over the interval.
    pub polling: f64,
    /// Whether the target may leave a thread beyond the capacity awake.
    pub has_margin: bool,
}

impl Observation {
    /// Threads that would run if none slept for load.
    pub(super) fn demand(&self) -> f64 {
        f64::from(self.sleeping) + self.reading.runnable
    }

    /// Threads that should be awake.
    pub(super) fn room(&self) -> f64 {
        let mostly_polls = self.polling > MOSTLY_POLLING * self.reading.capacity;
        self.reading.capacity + if self.has_margin && !mostly_polls { MARGIN } else { 0.0 }
    }
}

/// Rounds to whole threads, at least 0. Half a thread is measurement noise, since counters advance
/// by whole ticks. The cast saturates a negative number to 0.
pub(super) fn threads(target: f64) -> u32 {
    (target + 0.5) as u32
}
