//! What a tick costs, and when the processors tick.
//!
//! A thread that only reads the clock notices each interruption as a gap. A gap of a thread that
//! shares its processor with such a thread is a switch if the other thread has read the clock in
//! between. The other thread's last reading is then its last instruction before the switch.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::{Duration, Instant};

use super::threads::confined;
use super::topology::Two;

/// A thread that is not interrupted reads the clock in less time.
const GAP_NS: u64 = 1_000;

/// After a longer gap another program has run for a part of its slice.
const LONGEST_NS: u64 = 300_000;

/// How long two threads share a processor, and one thread watches a processor. At 250 ticks per
/// second, ten rounds have 1000 switches, of which ten are above the highest quantile but one.
const LENGTH: Duration = Duration::from_millis(400);

/// From the last instruction of a thread that is preempted at the end of its slice to the first one
/// of the next thread, in nanoseconds: once for each switch.
pub(super) fn switches(processor: usize) -> Vec<u64> {
    let start = Instant::now();
    let last = [AtomicU64::new(0), AtomicU64::new(0)];
    let watch = |me: usize| {
        let mut found = Vec::new();
        confined(processor, || {
            let mut before = 0;
            loop {
                let now = start.elapsed().as_nanos() as u64;
                if now - before > GAP_NS {
                    let other = last[1 - me].load(Acquire);
                    if other > before && before != 0 && now - other <= LONGEST_NS {
                        found.push(now - other);
                    }
                }
                last[me].store(now, Release);
                before = now;
                if now > LENGTH.as_nanos() as u64 {
                    return;
                }
            }
        });
        found
    };
    thread::scope(|scope| {
        let watch = &watch;
        let other = scope.spawn(move || watch(1));
        let mut found = watch(0);
        found.extend(other.join().expect("it does not panic"));
        found
    })
}

/// The interruptions of a thread that has `processor` to itself: the time since `start` and the
/// length of each, in nanoseconds.
fn interruptions(processor: usize, start: Instant) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    confined(processor, || {
        let begin = start.elapsed().as_nanos() as u64;
        let mut before = begin;
        while before - begin < LENGTH.as_nanos() as u64 {
            let now = start.elapsed().as_nanos() as u64;
            if (GAP_NS..=LONGEST_NS).contains(&(now - before)) {
                found.push((before, now - before));
            }
            before = now;
        }
    });
    found
}

/// When a processor ticks, within the period, and the interruptions that are ticks: those in the
/// part of the period that has the most.
fn ticks(found: &[(u64, u64)], period: u64) -> Option<(u64, Vec<u64>)> {
    /// A tick may be late by a 50th of the period: 80 us of 4 ms.
    const PARTS: u64 = 50;
    let part = (period / PARTS).max(1);
    let within = |from: u64| {
        found.iter().filter(move |(at, _)| (at % period + period - from) % period < part)
    };
    // A window that begins with one of the interruptions. The last of equal windows begins latest,
    // hence closest to its ticks.
    let from = found.iter().map(|(at, _)| at % period).max_by_key(|&from| within(from).count())?;
    let mut phases: Vec<u64> =
        within(from).map(|(at, _)| (at % period + period - from) % period).collect();
    phases.sort_unstable();
    let phase = (from + phases[phases.len() / 2]) % period;
    Some((phase, within(from).map(|&(_, takes)| takes).collect()))
}

/// How long the ticks of the two processors take, and how much later than the first one the second
/// one ticks; `None` if no tick was noticed.
pub(super) fn work((one, two): Two, period: u64) -> Option<(Vec<u64>, u64)> {
    let start = Instant::now();
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(move || interruptions(two, start));
        (interruptions(one, start), second.join().expect("it does not panic"))
    });
    let ((first, mut takes), (second, more)) = (ticks(&first, period)?, ticks(&second, period)?);
    takes.extend(more);
    Some((takes, (second + period - first) % period))
}

/// The same as [`work`] on the only processor.
pub(super) fn work_of_one(processor: usize, period: u64) -> Option<Vec<u64>> {
    Some(ticks(&interruptions(processor, Instant::now()), period)?.1)
}

/// Median of some times; `None` without times.
pub(super) fn median(times: &[u64]) -> Option<f64> {
    unconvoy_measure::statistics::Spread::of(times.iter().map(|&ns| ns as f64))
        .map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_interruptions_of_the_commonest_phase() {
        // Ticks of 5 ns at 990 to 1010 of every 1000 ns; others of 99 ns elsewhere.
        let found: Vec<(u64, u64)> = (1..20)
            .flat_map(|tick| [(tick * 1_000 + tick % 3 * 10 - 10, 5), (tick * 1_100 + 300, 99)])
            .collect();
        let (phase, takes) = ticks(&found, 1_000).expect("some");
        assert!(!(20..980).contains(&phase), "{phase}");
        assert!(
            takes.len() >= 12 && takes.iter().filter(|&&ns| ns == 5).count() >= 12,
            "{takes:?}"
        );
        assert_eq!(ticks(&[], 1_000), None);
    }
}
