//! Pressure stall information: the time in which some thread waited for a processor.
//!
//! The kernel counts, in `some ... total=`, the microseconds in which at least one thread was
//! runnable without a processor: in `cpu.pressure` of the process's version 2 control group if that
//! group is below the root, else in `/proc/pressure/cpu`. This yields a share of time rather than a
//! number of threads: one thread that always waits looks like sixty. The sensor therefore searches
//! for the number ([`Search`]). While threads wait often, the estimated load grows in steps that
//! double; while threads hardly wait, it shrinks the same way; a change of direction restarts with
//! a step of one thread.
//!
//! A step changes how many waiters sleep, and thereby the pressure: the controller closes the loop.
//! The search settles where the awake threads leave the run queues empty most of the time, about
//! one thread below `schedstat`, whose margin keeps one thread waiting
//! (`load/policy/observation.rs`).
//!
//! The machine's file counts the waits of all processes, as `/proc/loadavg` does. A group's file
//! counts the waits of its own threads, whichever process causes them.

use super::capacity::Capacity;
use super::cgroup;
use super::file::{File, Source, decimal};
use crate::load::sensor::{Reading, Sensor};

/// Above this share of time with a waiting thread, there are too many threads. A wait of one or two
/// time slices per default interval stays below it.
const OFTEN: f64 = 0.3;
/// Below this share, there may be room for a thread.
const RARELY: f64 = 0.1;

/// Longest step: the search reaches a thousand threads within ten intervals anyway.
const LONGEST_STEP: f64 = 256.0;

/// The search for a load that explains the pressure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Search {
    /// Threads that want a processor, including those that sleep for load.
    load: f64,
    /// The last step.
    step: f64,
}

impl Search {
    /// The load on `capacity` processors, after an interval in which `sleeping` threads slept for
    /// load and some thread waited during the fraction `share` of the time.
    ///
    /// It is at least the capacity, and at most one step beyond what the sleepers explain, so that
    /// it stays bounded where no waiter can be put to sleep.
    pub fn advance(&mut self, share: f64, sleeping: f64, capacity: f64) -> f64 {
        let direction = if share > OFTEN {
            1.0
        } else if share < RARELY {
            -1.0
        } else {
            0.0
        };
        let goes_on = self.step * direction > 0.0;
        self.step =
            if goes_on { (self.step * 2.0).clamp(-LONGEST_STEP, LONGEST_STEP) } else { direction };
        // The direct policy's margin of one thread, which pressure cannot show.
        let beyond = capacity + 1.0;
        self.load = (self.load + self.step).clamp(capacity, beyond + sleeping + self.step.max(0.0));
        self.load
    }
}

/// The sensor.
pub struct Pressure {
    source: Source,
    keep_open: bool,
    is_dead: bool,
    own_thread: u32,
    sleeping: u32,
    /// Time and total of the last reading.
    last: Option<(u64, u64)>,
    search: Search,
    capacity: Capacity,
}

/// The microseconds in `some ... total=N`.
fn total_us(text: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"some "))?;
    let digits =
        line.split(|&byte| byte == b' ').find_map(|field| field.strip_prefix(b"total="))?;
    decimal(digits)
}

/// The microseconds that the text read by `read_into` states.
fn total(read_into: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<u64> {
    let mut text = [0u8; 256];
    let len = read_into(&mut text)?;
    total_us(text.get(..len)?)
}

impl Pressure {
    /// The sensor, for a controller with thread id `own_thread`; `None` if the kernel does not
    /// record pressure. For `keep_open` see [`Schedstat::new`](super::schedstat::Schedstat::new).
    pub fn open(keep_open: bool, own_thread: u32) -> Option<Self> {
        Some(Pressure {
            source: Source::new(Self::file, keep_open)?,
            keep_open,
            is_dead: false,
            own_thread,
            sleeping: 0,
            last: None,
            search: Search::default(),
            capacity: Capacity::default(),
        })
    }

    fn file() -> Option<File> {
        cgroup::open_own(b"cpu.pressure").filter(Self::is_counting).or_else(|| {
            // Without `psi=1` the file may exist and be unreadable.
            File::open(c"/proc/pressure/cpu").filter(Self::is_counting)
        })
    }

    /// Opens the file again: the process may have moved to another group, and its last one be gone.
    fn reopen(&mut self) {
        self.last = None;
        match Source::new(Self::file, self.keep_open) {
            Some(source) => self.source = source,
            None => self.is_dead = true,
        }
    }

    /// Whether the kernel no longer records pressure for this process.
    pub fn is_dead(&self) -> bool {
        self.is_dead
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
        let Some(total) = total(|text| self.source.read_into(text)) else {
            self.reopen();
            return None;
        };
        let (then, before) = self.last.replace((now, total))?;
        let interval = now.checked_sub(then).filter(|&ns| ns > 0)?;
        let share = total.saturating_sub(before) as f64 * 1e3 / interval as f64;
        let capacity = self.capacity.processors();
        let load = self.search.advance(share.min(1.0), sleeping, capacity);
        // The controller adds the sleepers itself.
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
    fn total_without_some_line_is_none() {
        let text = b"some avg10=3.07 avg60=18.15 avg300=25.95 total=8708\n\
              full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(total_us(text), Some(8708));
        assert_eq!(total_us(b"full avg10=0.00 total=1\n"), None);
        assert_eq!(total_us(b"some avg10=0.00 total=\n"), None);
        assert_eq!(total_us(b""), None);
    }

    /// Runs `threads` busy threads under the direct policy. Returns the number of awake threads
    /// after each interval.
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
    fn search_under_overload_settles_near_capacity() {
        for (threads, capacity) in [(4.0, 2.0), (64.0, 2.0), (64.0, 8.0), (1000.0, 16.0)] {
            let awake = awake(threads, capacity, 400);
            let steady = &awake[100..];
            let mean = steady.iter().sum::<f64>() / steady.len() as f64;
            assert!((mean - capacity).abs() <= 1.0, "{threads} on {capacity}: {mean}: {steady:?}");
            assert!(steady.iter().all(|awake| (awake - capacity).abs() <= 4.0), "{steady:?}");
            assert!(awake[12] <= capacity + 1.0 + threads / 4.0, "soon: {awake:?}");
        }
    }

    #[test]
    fn search_without_pressure_requests_no_sleepers() {
        assert!(awake(2.0, 2.0, 50).iter().all(|&awake| awake == 2.0));
    }

    #[test]
    fn search_without_sleepers_stays_bounded() {
        let mut search = Search::default();
        (0..1000).for_each(|_| assert!(search.advance(1.0, 0.0, 2.0) <= 3.0 + LONGEST_STEP));
        let back = (0..20).position(|_| search.advance(0.0, 0.0, 2.0) <= 3.0);
        assert!(back.is_some_and(|intervals| intervals < 12), "{back:?}");
    }

    #[test]
    fn search_at_medium_pressure_keeps_estimate() {
        let mut search = Search { load: 7.0, step: 4.0 };
        assert_eq!(search.advance(0.2, 5.0, 2.0), 7.0);
        assert_eq!(search.advance(0.9, 5.0, 2.0), 8.0);
    }
}
