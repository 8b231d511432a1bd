//! How far two processors are apart: the time in which a cache line moves from one to the other.
//!
//! On a bare machine this time is constant. A hypervisor moves virtual processors between
//! hyper-threads of one core and cores with different caches, and the time changes tenfold within
//! seconds. The cost of a contended lock changes with it.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::messages;

/// Round trips of the line in one batch.
const TRIPS: u32 = 100;
/// Batches whose median counts: one in which a thread was preempted is an outlier.
const BATCHES: usize = 15;
/// Longest time for all batches. They take 1 ms to 10 ms unless other programs use the processors.
const LIMIT: Duration = Duration::from_millis(100);
/// Turns of a waiting thread between two readings of the clock.
const TURNS: u32 = 1 << 12;

/// Nanoseconds in which a cache line moves between the first two processors that the calling
/// thread may use. `None` if it may use only one, or if the processors are too busy.
pub fn line_transfer_ns() -> Option<u32> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let mut processors = (0..CpuSet::count()).filter(|&index| allowed.is_set(index) == Ok(true));
    let [first, second] = [processors.next()?, processors.next()?];
    let line = Line::default();
    thread::scope(|scope| {
        // Threads of their own, so that the caller's affinity stays.
        let start = thread::Builder::new;
        let asking = start().spawn_scoped(scope, || line.ask(first)).ok()?;
        // Without it, the asking thread gives up.
        let _ = start().spawn_scoped(scope, || line.answer(second));
        asking.join().ok()?
    })
}

/// A word on a cache line of its own. Odd values are the asking thread's.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    word: AtomicU32,
    has_ended: AtomicBool,
}

impl Line {
    fn ask(&self, processor: usize) -> Option<u32> {
        let deadline = Instant::now() + LIMIT;
        let times = stay_on(processor).then(|| self.batches(deadline)).flatten();
        self.has_ended.store(true, Release);
        let mut times = times?;
        times.sort_unstable();
        Some(times[times.len() / 2])
    }

    /// The nanoseconds of one move, batch by batch; `None` if the deadline passes.
    fn batches(&self, deadline: Instant) -> Option<Vec<u32>> {
        let mut asked = 0;
        let mut batch = || {
            let begin = Instant::now();
            for _ in 0..TRIPS {
                asked += 1;
                self.word.store(2 * asked - 1, Release);
                self.wait_for(2 * asked, deadline)?;
            }
            Some((begin.elapsed().as_nanos() / u128::from(2 * TRIPS)) as u32)
        };
        batch()?; // The other thread may not have started yet.
        (0..BATCHES).map(|_| batch()).collect()
    }

    fn wait_for(&self, value: u32, deadline: Instant) -> Option<()> {
        while self.word.load(Acquire) != value {
            for _ in 0..TURNS {
                if self.word.load(Acquire) == value {
                    return Some(());
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= deadline {
                return None;
            }
        }
        Some(())
    }

    fn answer(&self, processor: usize) {
        if !stay_on(processor) {
            return;
        }
        while !self.has_ended.load(Acquire) {
            for _ in 0..TURNS {
                let value = self.word.load(Acquire);
                if value % 2 == 1 {
                    self.word.store(value + 1, Release);
                }
                std::hint::spin_loop();
            }
        }
    }
}

/// Pins the calling thread.
fn stay_on(processor: usize) -> bool {
    let mut one = CpuSet::new();
    one.set(processor).is_ok() && sched_setaffinity(Pid::from_raw(0), &one).is_ok()
}

/// The ends of transfer times that differ by a factor of two or more: in effect, of two machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distances {
    least: u32,
    greatest: u32,
}

impl Distances {
    /// The distances in some transfer times; `None` if they hardly differ.
    pub fn of(times: impl Iterator<Item = u32>) -> Option<Self> {
        let ends = |ends: Option<(u32, u32)>, ns: u32| {
            Some(ends.map_or((ns, ns), |(least, greatest)| (least.min(ns), greatest.max(ns))))
        };
        let (least, greatest) = times.fold(None, ends)?;
        (greatest >= 2 * least.max(1)).then_some(Self { least, greatest })
    }

    /// Whether a transfer time is nearer to the greatest one.
    pub fn is_far(self, ns: u32) -> bool {
        let middle = f64::from(self.least.max(1)) * f64::from(self.greatest);
        f64::from(ns).powi(2) > middle
    }
}

/// Whether a note of a record is a warning that contains a [`remark`].
pub fn is_remark(note: &str) -> bool {
    note.starts_with("Warning: a cache line moved between two processors in ")
}

/// A remark about measurements with different [`Distances`].
pub fn remark(times: impl Iterator<Item = u32>) -> Option<String> {
    let times: Vec<u32> = times.collect();
    let distances = Distances::of(times.iter().copied())?;
    let far = times.iter().filter(|&&time| distances.is_far(time)).count();
    let Distances { least, greatest } = distances;
    Some(messages::processors_moved(least, greatest, far, times.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_moves_within_plausible_time_or_processors_are_busy() {
        let affinity = || sched_getaffinity(Pid::from_raw(0)).unwrap();
        let before = affinity();
        if let Some(ns) = line_transfer_ns() {
            assert!((1..100_000).contains(&ns), "{ns} ns");
        } else {
            println!("skipped: one processor, or both are busy");
        }
        assert_eq!(affinity(), before, "the caller's affinity changed");
    }

    #[test]
    fn one_processor_has_no_distance() {
        thread::scope(|scope| {
            let alone = scope.spawn(|| stay_on(0).then(line_transfer_ns).flatten());
            assert_eq!(alone.join().unwrap(), None);
        });
    }

    #[test]
    fn remark_needs_twofold_difference_and_counts_far_measurements() {
        assert_eq!(remark([].into_iter()), None);
        assert_eq!(remark([30, 31, 59].into_iter()), None);
        let text = remark([30, 32, 220, 210, 29].into_iter()).unwrap();
        assert!(text.contains("29 to 220 ns") && text.contains("2 of 5"), "{text}");
        assert!(is_remark(&format!("Warning: {text}.")) && !is_remark("Warning: other."));
    }
}
