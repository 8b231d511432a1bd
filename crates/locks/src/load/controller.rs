//! The controller: reads the sensor at an interval and sets how many waiting threads should sleep.
//!
//! ASPLOS 2010, section 3.1.1 and Figure 7 (left). The [policy](Direct) is pure; the [loop](serve)
//! drives it on whatever platform it is given.

use core::sync::atomic::Ordering::Relaxed;

use super::control::LoadControl;
use super::sensor::{Reading, Sensor};
use crate::platform::{Atomic, AtomicInt, Platform};

/// Intervals without contention and without sleepers after which the controller goes away.
const IDLE_INTERVALS: u32 = 30;

/// The controller rests this many times as long as its last reading took, if that is longer than
/// the interval: with very many threads it reacts more slowly instead of taking more than 1 % of a
/// processor. It never rests longer than the second constant.
const PAUSE_PER_BUSY: u64 = 100;
const LONGEST_PAUSE_NS: u64 = 50_000_000;

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

/// The paper's direct policy: T is the number of threads that run or wait to run beyond the capacity
/// and a margin, counting those that sleep already.
#[derive(Debug, Default, Clone)]
pub struct Direct;

impl Direct {
    /// The sleep target after a reading during which `sleeping` threads slept and, on average,
    /// `polling` threads polled for locks.
    pub fn target(&mut self, reading: Reading, sleeping: u32, polling: f64) -> u32 {
        let margin = if polling > MOSTLY_POLLING * reading.capacity { 0.0 } else { MARGIN };
        let excess = f64::from(sleeping) + reading.runnable - reading.capacity - margin;
        // Half a thread either way is measurement noise: the counters move by whole ticks. Adding a
        // half and cutting rounds a positive number; the cast saturates a negative one to 0.
        (excess + 0.5) as u32
    }
}

/// Counts of what a controller did, for the statistics.
pub struct Effort<P: Platform> {
    /// Times a controller was started.
    pub starts: P::U32,
    /// Intervals served.
    pub ticks: P::U32,
    /// Nanoseconds spent outside sleep.
    pub busy_ns: P::U64,
    /// The last reading, in thousandths of a thread and of a processor.
    pub runnable: P::U32,
    /// See [`runnable`](Self::runnable).
    pub capacity: P::U32,
}

impl<P: Platform> Effort<P> {
    fn note(&self, reading: Reading) {
        self.runnable.store((reading.runnable * 1e3) as u32, Relaxed);
        self.capacity.store((reading.capacity * 1e3) as u32, Relaxed);
    }
}

/// Serves `control` until there was nothing to do for some time, or until `stop` is set (whoever
/// does that wakes those parked on it). On return T is 0 and nobody sleeps for it.
///
/// Without a reading (no `/proc`, say) T stays 0: less is done, and nothing is made worse.
pub fn serve<P: Platform>(control: &LoadControl<P>, sensor: &mut impl Sensor, effort: &Effort<P>, stop: &P::U32) {
    let mut policy = Direct;
    let (mut idle, mut pause) = (0, 0);
    let (mut last, mut polled_before) = (P::now(), control.polled.load(Relaxed));
    effort.starts.fetch_add(1, Relaxed);
    sensor.begin(P::now());
    while idle < IDLE_INTERVALS {
        let wake = P::now() + control.interval.load(Relaxed).max(pause);
        while P::now() < wake && stop.load(Relaxed) == 0 {
            P::park(stop, 0, Some(wake));
        }
        if stop.load(Relaxed) != 0 {
            break;
        }
        let begin = P::now();
        let sleeping = control.slots.sleeping();
        control.slots.for_each_sleeper(|thread, slot| sensor.expect_asleep(thread, slot));
        let polled = control.polled.load(Relaxed);
        let polling = polled.wrapping_sub(polled_before) as f64 / begin.saturating_sub(last).max(1) as f64;
        let since = last;
        (last, polled_before) = (begin, polled);
        let reading = sensor.read(begin);
        let target = reading.map_or(0, |reading| policy.target(reading, sleeping, polling));
        reading.into_iter().for_each(|reading| effort.note(reading));
        control.slots.set_target(target);
        control.slots.serve_turns(since, begin, control.sleep.load(Relaxed));
        let quiet = control.contended.swap(0, Relaxed) == 0 && control.slots.sleeping() == 0;
        idle = if quiet { idle + 1 } else { 0 };
        effort.ticks.fetch_add(1, Relaxed);
        let busy = P::now().saturating_sub(begin);
        effort.busy_ns.fetch_add(busy, Relaxed);
        pause = (busy * PAUSE_PER_BUSY).min(LONGEST_PAUSE_NS);
    }
    control.slots.set_target(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(runnable: f64, capacity: f64, sleeping: u32) -> u32 {
        Direct.target(Reading::of_runnable(runnable, capacity), sleeping, 0.0)
    }

    #[test]
    fn where_threads_mostly_poll_there_is_no_margin() {
        let reading = Reading::of_runnable(3.0, 2.0);
        assert_eq!(Direct.target(reading, 0, 0.05), 0);
        assert_eq!(Direct.target(reading, 0, 0.9), 1);
    }

    #[test]
    fn target_is_the_excess_over_capacity_and_margin() {
        assert_eq!(target(64.0, 2.0, 0), 61);
        assert_eq!(target(3.0, 1.5, 0), 1);
    }

    #[test]
    fn sleepers_count_as_load() {
        assert_eq!(target(3.0, 2.0, 61), 61);
        assert_eq!(target(1.0, 2.0, 61), 59);
        assert_eq!(target(5.0, 2.0, 60), 62);
    }

    #[test]
    fn underload_needs_no_sleepers() {
        assert_eq!(target(0.3, 2.0, 0), 0);
        assert_eq!(target(3.0, 2.0, 0), 0);
        assert_eq!(target(0.0, 64.0, 3), 0);
    }

    #[test]
    fn less_than_half_a_thread_is_noise() {
        assert_eq!(target(3.4, 2.0, 7), 7);
        assert_eq!(target(2.6, 2.0, 7), 7);
        assert_eq!(target(3.6, 2.0, 7), 8);
    }
}
