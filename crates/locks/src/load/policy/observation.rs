//! What a policy is given, and what the policies share of its arithmetic.

use crate::load::sensor::Reading;

/// Runnable threads aimed at beyond the capacity, while those awake mostly work. The paper aims at
/// the capacity itself; but when two of as many runnable threads meet on one processor, Linux
/// leaves the other one idle until the next tick finds out (a newly idle processor does not look
/// for work if it is idle often and shortly), up to 4 ms. One thread more keeps it busy. (Think
/// time 1 us, 8 threads on 2 processors: 1.63 processors used without, 1.97 with.)
pub(crate) const MARGIN: f64 = 1.0;

/// From this part of the capacity spent polling there is no margin: one thread more would only poll
/// too, and in a queue it may be the one that is next and does not run. (TP-MCS, saturated, 4
/// threads on 2 processors: .18 of its 2-thread throughput with, .8 and more without.) So small,
/// because a wait shorter than one turn is not counted.
const MOSTLY_POLLING: f64 = 0.03;

/// What the controller knows at the end of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The sensor's.
    pub reading: Reading,
    /// Threads that sleep for load.
    pub sleeping: u32,
    /// Threads that polled for locks, on average.
    pub polling: f64,
}

impl Observation {
    /// Threads that would run if nobody slept for load.
    pub(super) fn demand(&self) -> f64 {
        f64::from(self.sleeping) + self.reading.runnable
    }

    /// Threads that should be awake.
    pub(super) fn room(&self) -> f64 {
        let mostly_polls = self.polling > MOSTLY_POLLING * self.reading.capacity;
        self.reading.capacity + if mostly_polls { 0.0 } else { MARGIN }
    }
}

/// A whole number of threads. Half a thread either way is measurement noise: the counters move by
/// whole ticks. Adding a half and cutting rounds a positive number; the cast saturates a negative
/// one to 0.
pub(super) fn threads(target: f64) -> u32 {
    (target + 0.5) as u32
}
