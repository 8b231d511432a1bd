//! Threads that alternate on one processor: the length of a slice, and the condition for preemption
//! at wake-up.

use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

use super::quantity::Outcome;
use super::threads::confined;

/// A longer gap in a thread's time means that the thread was preempted. The limit is longer than an
/// interrupt and shorter than a time slice.
const GAP: Duration = Duration::from_micros(300);

/// The shortest time that a thread runs before a tick preempts it for another thread.
///
/// Slices end at ticks, so two threads that only compute would alternate in whole ticks. One of the
/// two therefore yields after a random time. The other thread then begins anywhere between two
/// ticks, and runs until the first tick at which its slice is over.
pub(super) fn slice(processor: usize) -> Outcome {
    const LENGTH: Duration = Duration::from_millis(500);
    let (barrier, done) = (Barrier::new(2), AtomicU32::new(0));
    let mut turns: Vec<Duration> = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            confined(processor, || {
                let mut random = fastrand::Rng::with_seed(1);
                barrier.wait();
                while done.load(Acquire) == 0 {
                    let end = Instant::now() + Duration::from_micros(random.u64(0..4_000));
                    while Instant::now() < end {}
                    thread::yield_now();
                }
            });
        });
        confined(processor, || {
            barrier.wait();
            let start = Instant::now();
            let (mut last, mut since) = (start, None);
            while last.duration_since(start) < LENGTH {
                let now = Instant::now();
                // After a smaller gap, this turn continues: the other thread yielded at once.
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
    // Ignore the shortest turns: other threads may have cut them short.
    let least = turns.get(turns.len() / 20).filter(|_| turns.len() >= 10);
    least.map(|turn| turn.as_nanos() as f64).ok_or("two threads on one processor did not alternate")
}

/// How long a thread must have run to be preempted at once by a thread that wakes on its processor.
///
/// One thread sleeps for increasing times and runs briefly in between. The other thread always
/// computes.
pub(super) fn wake_preemption(processor: usize) -> Outcome {
    const SLEEPS: [u64; 12] =
        [20, 50, 100, 200, 400, 700, 1_000, 1_500, 2_000, 3_000, 4_000, 6_000];
    const EACH: usize = 9;
    /// A sleeper that starts later than this has waited for a tick or for the rest of the other
    /// thread's slice.
    const AT_ONCE: Duration = Duration::from_micros(150);
    let done = AtomicU32::new(0);
    let mut found = Err("no woken thread preempted another one at once");
    thread::scope(|scope| {
        scope.spawn(|| {
            confined(processor, || {
                while done.load(Relaxed) == 0 {
                    std::hint::spin_loop();
                }
            });
        });
        confined(processor, || {
            // Ignore a failure: sleeps are then longer.
            let slack = |ns: u64| {
                // SAFETY: the call has no pointers.
                unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) }
            };
            slack(1);
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
            slack(0); // the thread's default again
            done.store(1, Relaxed);
        });
    });
    found
}
