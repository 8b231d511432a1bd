//! Pressure stall information: the time in which some thread waited for a processor.
//!
//! `/proc/pressure/cpu`, or `cpu.pressure` of the process's version 2 control group if it is in one below the
//! root, counts in `some ... total=` the microseconds in which at least one thread was runnable and had no processor.
//! That is a part of the time, between 0 and 1, and not a number of threads: one waiting thread all the time and
//! sixty look the same. So the number is searched for ([`Search`]): while somebody waits more than now and then,
//! the estimate of the load grows, by steps that double; while hardly anybody waits it shrinks in the same way;
//! and whenever the direction changes it begins again with one thread.
//!
//! What a step changes is how many waiters sleep, and that changes the pressure: the loop is closed through the
//! controller. It settles with as many threads awake as leave the run queues empty most of the time. That is
//! about one less than with `schedstat`, whose margin keeps one thread waiting (`controller.rs`).
//!
//! The machine's file counts everybody's waiting, as `/proc/loadavg` does; a group's counts that of its own
//! threads, whoever makes them wait.

use super::capacity::Capacity;
use super::cgroup;
use super::file::{File, Source, decimal};
use crate::load::sensor::{Reading, Sensor};

/// Above this part of the time with somebody waiting, there are too many threads: a time slice or two in an interval of
/// the default length are nothing.
const OFTEN: f64 = 0.3;
/// Below it, there may be room for one more.
const RARELY: f64 = 0.1;

/// Longest step: a thousand threads are reached within ten intervals anyway.
const LONGEST_STEP: f64 = 256.0;

/// The search for a load that would explain the pressure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Search {
    /// Threads that want a processor, those included that sleep for load.
    load: f64,
    /// The last step.
    step: f64,
}

impl Search {
    /// The load, after an interval in which somebody waited for the part `share` of the time, while
    /// `sleeping` threads slept for load, on `capacity` processors.
    ///
    /// It stays between the capacity and what one step more than those who sleep comes to: where no waiter is there
    /// to be put to sleep, it does not run away.
    pub fn advance(&mut self, share: f64, sleeping: f64, capacity: f64) -> f64 {
        let direction = if share > OFTEN {
            1.0
        } else if share < RARELY {
            -1.0
        } else {
            0.0
        };
        let goes_on = self.step * direction > 0.0;
        self.step = if goes_on { (self.step * 2.0).clamp(-LONGEST_STEP, LONGEST_STEP) } else { direction };
        // One more than is to run: the direct policy's margin, which pressure has no room for.
        let beyond = capacity + 1.0;
        self.load = (self.load + self.step).clamp(capacity, beyond + sleeping + self.step.max(0.0));
        self.load
    }
}

/// The sensor.
pub struct Pressure {
    source: Source,
    own_thread: u32,
    sleeping: u32,
    /// Time and total of the last reading.
    last: Option<(u64, u64)>,
    search: Search,
    capacity: Capacity,
}

/// The microseconds of `some ... total=N`.
fn total_us(text: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"some "))?;
    let digits = line.split(|&byte| byte == b' ').find_map(|field| field.strip_prefix(b"total="))?;
    decimal(digits)
}

/// The microseconds that a reading finds.
fn total(read_into: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<u64> {
    let mut text = [0u8; 256];
    let len = read_into(&mut text)?;
    total_us(text.get(..len)?)
}

impl Pressure {
    /// A sensor on a thread with id `own_thread`; `None` where the kernel does not account for
    /// pressure. For `keep_open` see [`Schedstat::new`](super::schedstat::Schedstat::new).
    pub fn open(keep_open: bool, own_thread: u32) -> Option<Self> {
        Some(Pressure {
            source: Source::new(Self::file, keep_open)?,
            own_thread,
            sleeping: 0,
            last: None,
            search: Search::default(),
            capacity: Capacity::default(),
        })
    }

    fn file() -> Option<File> {
        cgroup::open_own(b"cpu.pressure").filter(Self::is_counting).or_else(|| {
            File::open(c"/proc/pressure/cpu").filter(Self::is_counting) // there, but no use, where booted without `psi=1`
        })
    }

    fn is_counting(file: &File) -> bool {
        total(|text| file.read_into(text)).is_some()
    }
}

impl Sensor for Pressure {
    fn begin(&mut self, now: u64) {
        let _ = self.read(now);
    }

    fn read(&mut self, now: u64) -> Option<Reading> {
        self.capacity.follow_process(now, self.own_thread);
        let sleeping = f64::from(core::mem::take(&mut self.sleeping));
        let total = total(|text| self.source.read_into(text))?;
        let (then, before) = self.last.replace((now, total))?;
        let interval = now.checked_sub(then).filter(|&ns| ns > 0)?;
        let share = total.saturating_sub(before) as f64 * 1e3 / interval as f64;
        let capacity = self.capacity.processors();
        let load = self.search.advance(share.min(1.0), sleeping, capacity);
        // The controller adds those who sleep.
        Some(Reading::of_runnable((load - sleeping).max(0.0), capacity))
    }

    fn expect_asleep(&mut self, _thread: u32, _slot: u32) {
        self.sleeping = self.sleeping.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_some() {
        let text =
            b"some avg10=3.07 avg60=18.15 avg300=25.95 total=8708\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(total_us(text), Some(8708));
        assert_eq!(total_us(b"full avg10=0.00 total=1\n"), None);
        assert_eq!(total_us(b"some avg10=0.00 total=\n"), None);
        assert_eq!(total_us(b""), None);
    }

    /// A process of `threads` that would all run, as many of which sleep as the controller's direct policy says. The numbers
    /// awake after each interval.
    fn awake(threads: f64, capacity: f64, intervals: usize) -> Vec<f64> {
        let mut search = Search::default();
        let mut sleeping = 0.0;
        let step = |_| {
            let share = if threads - sleeping > capacity { 1.0 } else { 0.0 };
            let runnable: f64 = search.advance(share, sleeping, capacity) - sleeping;
            sleeping = (sleeping + runnable - capacity - 1.0 + 0.5).floor().clamp(0.0, threads);
            threads - sleeping
        };
        (0..intervals).map(step).collect()
    }

    #[test]
    fn it_finds_the_number_that_no_longer_waits() {
        for (threads, capacity) in [(4.0, 2.0), (64.0, 2.0), (64.0, 8.0), (1000.0, 16.0)] {
            let awake = awake(threads, capacity, 400);
            let settled = &awake[100..];
            let mean = settled.iter().sum::<f64>() / settled.len() as f64;
            assert!((mean - capacity).abs() <= 1.0, "{threads} on {capacity}: {mean}: {settled:?}");
            assert!(settled.iter().all(|awake| (awake - capacity).abs() <= 4.0), "{settled:?}");
            assert!(awake[12] <= capacity + 1.0 + threads / 4.0, "soon: {awake:?}");
        }
    }

    #[test]
    fn without_pressure_nobody_sleeps() {
        assert!(awake(2.0, 2.0, 50).iter().all(|&awake| awake == 2.0));
    }

    #[test]
    fn where_nobody_can_be_put_to_sleep_it_does_not_run_away() {
        let mut search = Search::default();
        (0..1000).for_each(|_| assert!(search.advance(1.0, 0.0, 2.0) <= 3.0 + LONGEST_STEP));
        let back = (0..20).position(|_| search.advance(0.0, 0.0, 2.0) <= 3.0);
        assert!(back.is_some_and(|intervals| intervals < 12), "{back:?}");
    }

    #[test]
    fn between_often_and_rarely_it_stays() {
        let mut search = Search { load: 7.0, step: 4.0 };
        assert_eq!(search.advance(0.2, 5.0, 2.0), 7.0);
        assert_eq!(search.advance(0.9, 5.0, 2.0), 8.0);
    }
}
