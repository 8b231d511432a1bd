//! Threads that take turns on one processor: how long a slice is, and when a thread that wakes preempts.

use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

use super::threads::confined;
use super::tries::Outcome;

/// Longer than an interrupt, shorter than a time slice: a thread that sees such a gap in its time was preempted.
const GAP: Duration = Duration::from_micros(300);

/// The least time that a thread runs before a tick preempts it for another one.
///
/// Slices end at ticks, so that of two threads that only compute each runs for whole ticks. One of the two therefore
/// yields after a random time, so that the other begins anywhere between two ticks; it runs until the first tick
/// at which its slice is over.
pub(super) fn slice(processor: usize) -> Outcome {
    const LENGTH: Duration = Duration::from_millis(500);
    let (gate, done) = (Barrier::new(2), AtomicU32::new(0));
    let mut turns: Vec<Duration> = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            confined(processor, || {
                let mut random = fastrand::Rng::with_seed(1);
                gate.wait();
                while done.load(Acquire) == 0 {
                    let end = Instant::now() + Duration::from_micros(random.u64(0..4_000));
                    while Instant::now() < end {}
                    thread::yield_now();
                }
            });
        });
        confined(processor, || {
            gate.wait();
            let start = Instant::now();
            let (mut last, mut since) = (start, None);
            while last.duration_since(start) < LENGTH {
                let now = Instant::now();
                // Whoever has yielded at once is back after less than a gap.
                if now.duration_since(last) > GAP {
                    turns.extend(since.map(|since| last.duration_since(since)));
                    since = Some(now);
                }
                last = now;
            }
            done.store(1, Release);
        });
    });
    turns.sort();
    // A turn or two may be short because something else ran.
    let least = turns.get(turns.len() / 20).filter(|_| turns.len() >= 10);
    least.map(|turn| turn.as_nanos() as f64).ok_or("two threads on one processor did not take turns")
}

/// How long a thread has to have run for one that wakes on its processor to preempt it at once.
///
/// The sleeper's thread runs for a moment and sleeps for longer and longer; the other one computes all the time.
pub(super) fn wake_preemption(processor: usize) -> Outcome {
    const SLEEPS: [u64; 12] = [20, 50, 100, 200, 400, 700, 1_000, 1_500, 2_000, 3_000, 4_000, 6_000];
    const EACH: usize = 9;
    /// Later than that, the sleeper waited for a tick, or for a time that the other one still had.
    const AT_ONCE: Duration = Duration::from_micros(150);
    let done = AtomicU32::new(0);
    let mut found = Err("a thread that wakes never preempts another one at once");
    thread::scope(|scope| {
        scope.spawn(|| {
            confined(processor, || {
                while done.load(Relaxed) == 0 {
                    std::hint::spin_loop();
                }
            });
        });
        confined(processor, || {
            thread::sleep(Duration::from_millis(5));
            for micros in SLEEPS {
                let length = Duration::from_micros(micros);
                let is_prompt = |_: &usize| {
                    let begin = Instant::now();
                    thread::sleep(length);
                    begin.elapsed().saturating_sub(length) < AT_ONCE
                };
                let prompt = (0..EACH).filter(is_prompt).count();
                if prompt > EACH / 2 {
                    found = Ok(length.as_nanos() as f64);
                    break;
                }
            }
            done.store(1, Relaxed);
        });
    });
    found
}
