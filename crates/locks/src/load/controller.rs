//! The controller: reads the sensor at an interval and sets how many waiting threads should sleep.
//!
//! ASPLOS 2010, section 3.1.1 and Figure 7 (left). The [policy](super::policy) is pure; the
//! [loop](serve) drives it on whatever machine it is given. It is the daemon of [load-triggered
//! backoff](super::backoff) too, which wants the same reading.

use core::sync::atomic::Ordering::Relaxed;

use super::backoff;
use super::policy::{Observation, Policy};
use super::sensor::{Reading, Sensor};
use super::state::LoadControl;
use crate::primitive::{Atomic, AtomicInt, Primitive};

/// Intervals without contention and without sleepers after which the controller goes away.
const IDLE_INTERVALS: u32 = 30;

/// The controller rests this many times as long as its last reading took, if that is longer than
/// the interval: with very many threads it reacts more slowly instead of taking more than 1 % of a
/// processor. It never rests longer than the second constant.
const PAUSE_PER_BUSY: u64 = 100;
const LONGEST_PAUSE_NS: u64 = 50_000_000;

/// What the controllers of a process did, for the statistics.
pub struct Counters<P: Primitive> {
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

impl<P: Primitive> Counters<P> {
    fn record(&self, reading: Reading) {
        self.runnable.store((reading.runnable * 1e3) as u32, Relaxed);
        self.capacity.store((reading.capacity * 1e3) as u32, Relaxed);
    }
}

/// Serves `control` until there was nothing to do for some time, or until `stop` is set (whoever
/// does that wakes those parked on it). On return T is 0 and nobody sleeps for it.
///
/// Without a reading (no `/proc`, say) T stays 0: less is done, and nothing is made worse.
pub fn serve<P: Primitive>(control: &LoadControl<P>, sensor: &mut impl Sensor, counters: &Counters<P>, stop: &P::U32) {
    let name = Policy::NAMES[control.policy.load(Relaxed) as usize];
    let mut policy = Policy::named(name).expect("its own name");
    let mut overload = 0.0;
    let (mut idle, mut pause) = (0, 0);
    let (mut last, mut polled_before) = (P::now(), control.polled.load(Relaxed));
    counters.starts.fetch_add(1, Relaxed);
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
        let target = reading.map_or(0, |reading| policy.target(Observation { reading, sleeping, polling }));
        reading.into_iter().for_each(|reading| counters.record(reading));
        control.slots.set_target(target);
        overload = reading.map_or(0.0, |reading| backoff::running_average(overload, reading));
        control.set_overload(overload);
        control.slots.serve_turns(since, begin, control.sleep.load(Relaxed));
        let quiet = control.contended.swap(0, Relaxed) == 0 && control.slots.sleeping() == 0;
        idle = if quiet { idle + 1 } else { 0 };
        counters.ticks.fetch_add(1, Relaxed);
        let busy = P::now().saturating_sub(begin);
        counters.busy_ns.fetch_add(busy, Relaxed);
        pause = (busy * PAUSE_PER_BUSY).min(LONGEST_PAUSE_NS);
    }
    control.slots.set_target(0);
    control.set_overload(0.0);
}
