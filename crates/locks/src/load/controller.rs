//! The controller: reads the sensor at an interval and sets the number of waiters that should
//! sleep.
//!
//! ASPLOS 2010, section 3.1.1 and Figure 7 (left). The [policy](super::policy) is pure; the
//! [loop](serve) drives it on any machine. The loop is also the daemon of [load-triggered
//! backoff](super::backoff), which needs the same readings.

use core::sync::atomic::Ordering::Relaxed;

use super::backoff;
use super::policy::observation::Margin;
use super::policy::{Observation, Policy};
use super::sensor::{Reading, Sensor};
use super::state::{LoadControl, MARGIN, TURNS};
use crate::primitive::{Atomic, AtomicInt, Primitive};
use crate::queue::NodeMemory;

/// Intervals without contention and without sleepers after which the controller exits.
const IDLE_INTERVALS: u32 = 30;

/// Shortest pause of the controller, as a multiple of the time that its last reading took, and an
/// upper bound on that pause. With very many threads the controller reacts more slowly instead of
/// taking more than 1 % of a processor.
const PAUSE_PER_BUSY: u64 = 100;
const LONGEST_PAUSE_NS: u64 = 50_000_000;

/// Counters of a process's controllers, for the statistics.
pub struct Counters<P: Primitive> {
    /// Controllers started.
    pub starts: P::U32,
    /// Intervals served.
    pub ticks: P::U32,
    /// Nanoseconds spent awake.
    pub busy_ns: P::U64,
    /// Runnable threads in the last reading, in thousandths.
    pub runnable: P::U32,
    /// Processors in the last reading, in thousandths.
    pub capacity: P::U32,
}

impl<P: Primitive> Counters<P> {
    fn record(&self, reading: Reading) {
        self.runnable.store((reading.runnable * 1e3) as u32, Relaxed);
        self.capacity.store((reading.capacity * 1e3) as u32, Relaxed);
    }
}

/// Serves `control` until [`IDLE_INTERVALS`] without work, or until `stop` is set. The thread that
/// sets `stop` must also wake the threads parked on it. On return T is 0 and no thread sleeps for
/// load.
///
/// Without a reading (no `/proc`, say), T stays 0.
pub fn serve<P: NodeMemory>(
    control: &LoadControl<P>,
    sensor: &mut impl Sensor,
    counters: &Counters<P>,
    stop: &P::U32,
) {
    let name = Policy::NAMES[control.policy.load(Relaxed) as usize];
    let mut policy = Policy::named(name).expect("a name of the table");
    let mut overload = 0.0;
    let mut margin = Margin::default();
    let (mut idle, mut pause) = (0, 0);
    let (mut last, mut polled_before) = (P::now(), control.polled.sum());
    let (mut capacity, mut events_before) = (None, control.pollers.polled());
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
        let polled = control.polled.sum();
        let polling =
            polled.wrapping_sub(polled_before) as f64 / begin.saturating_sub(last).max(1) as f64;
        let elapsed = begin.saturating_sub(last).max(1) as f64;
        let events = control.pollers.polled();
        let for_events = events.wrapping_sub(events_before) as f64 / elapsed;
        let since = last;
        (last, polled_before, events_before) = (begin, polled, events);
        let reading = sensor.read(begin).map(|reading| reading.without(for_events));
        let target = reading.map_or(0, |reading| {
            margin = margin.after(polling, reading.capacity);
            let margin = if control.has(MARGIN) { margin.threads() } else { 0.0 };
            policy.target(Observation { reading, sleeping, margin })
        });
        if let Some(reading) = reading {
            counters.record(reading);
            capacity = Some(reading.capacity);
            control.pollers.set_room(reading, target);
        }
        control.slots.set_target(target);
        overload = reading.map_or(0.0, |reading| backoff::running_average(overload, reading));
        control.set_overload(overload);
        if control.has(TURNS) {
            control.slots.serve_turns(since, begin, control.sleep.load(Relaxed));
        }
        let quiet = control.contended.swap(0, Relaxed) == 0 && control.slots.sleeping() == 0;
        idle = if quiet { idle + 1 } else { 0 };
        counters.ticks.fetch_add(1, Relaxed);
        let busy = P::now().saturating_sub(begin);
        counters.busy_ns.fetch_add(busy, Relaxed);
        pause = (busy * PAUSE_PER_BUSY).min(LONGEST_PAUSE_NS);
    }
    control.slots.set_target(0);
    control.set_overload(0.0);
    control.omit(0);
    if let Some(capacity) = capacity {
        control.pollers.assume_processors(capacity as u32);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::Native;
    use core::sync::atomic::{AtomicU32, AtomicU64};

    /// Reads the loads of a list, and nothing after its end.
    struct Listed(Vec<f64>);

    impl Sensor for Listed {
        fn begin(&mut self, _: u64) {}

        fn read(&mut self, _: u64) -> Option<Reading> {
            self.0.pop().map(|runnable| Reading::of_runnable(runnable, 2.0))
        }
    }

    fn counters() -> Counters<Native> {
        let [starts, ticks, runnable, capacity] = [0; 4].map(AtomicU32::new);
        Counters { starts, ticks, busy_ns: AtomicU64::new(0), runnable, capacity }
    }

    #[test]
    fn controller_without_work_ends_after_idle_intervals() {
        let (control, counters) = (LoadControl::<Native>::new(), counters());
        control.interval.store(1000, Relaxed);
        control.report_contention();
        serve(&control, &mut Listed(vec![9.5]), &counters, &AtomicU32::new(0));
        assert_eq!(counters.starts.load(Relaxed), 1);
        assert_eq!(counters.ticks.load(Relaxed), IDLE_INTERVALS + 1, "one had contention");
        assert_eq!(counters.runnable.load(Relaxed), 9500);
        assert_eq!(counters.capacity.load(Relaxed), 2000);
        assert_eq!(control.slots.target(), 0);
    }

    #[test]
    fn stopped_controller_serves_no_interval() {
        let (control, counters) = (LoadControl::<Native>::new(), counters());
        control.pollers.assume_processors(4);
        serve(&control, &mut Listed(vec![9.5]), &counters, &AtomicU32::new(1));
        assert_eq!(counters.ticks.load(Relaxed), 0);
        assert!(!control.pollers.is_crowded(), "it knows no better number of processors");
    }
}
