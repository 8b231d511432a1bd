//! Costs of the scheduler, futex calls and the load sensor.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::futex::{self, Flags};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, Timespec, clock_getres};
use unconvoy::load::sensor::Sensor as _;
use unconvoy::runtime::sensor::schedstat::Schedstat;
use unconvoy_measure::tries::{TRIES, median, middle, per_call};

use super::quantity::Outcome;
use super::topology::Two;

/// Number of extra threads for the per-thread cost of a reading.
pub(super) const MANY: usize = 64;

/// Runs `work` confined to one processor, if the system permits.
pub(super) fn confined<R>(processor: usize, work: impl FnOnce() -> R) -> R {
    let before = sched_getaffinity(None);
    let mut mask = CpuSet::new();
    mask.set(processor);
    let is_confined = sched_setaffinity(None, &mask).is_ok();
    let result = work();
    if let (true, Ok(mask)) = (is_confined, before) {
        // Ignore an error: there is no other way to restore the thread's mask.
        let _ = sched_setaffinity(None, &mask);
    }
    result
}

fn nanoseconds(time: Timespec) -> f64 {
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Period of the scheduler's tick, which is the resolution of the coarse clock.
pub(super) fn tick() -> f64 {
    nanoseconds(clock_getres(ClockId::MonotonicCoarse))
}

/// The parking system call without the sleep: a wait on a word that has already changed.
pub(super) fn park_call() -> f64 {
    let word = AtomicU32::new(1);
    per_call(|| _ = futex::wait(&word, Flags::PRIVATE, 0, None))
}

/// The waking system call without a sleeper.
pub(super) fn wake_call() -> f64 {
    let word = AtomicU32::new(0);
    per_call(|| _ = futex::wake(&word, Flags::PRIVATE, 1))
}

/// Waking a thread that sleeps on another processor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wake {
    /// Duration of the call.
    pub(super) call: f64,
    /// Time from before the call until the thread runs.
    pub(super) latency: f64,
}

pub(super) fn wake((here, there): Two) -> Wake {
    const ROUNDS: usize = 8 * TRIES;
    /// Long enough for the thread to sleep; short enough to avoid deep idle states.
    const PAUSE: Duration = Duration::from_micros(200);
    let word = AtomicU32::new(0);
    let sleeper = || -> Vec<Instant> {
        let round = |round: u32| {
            while word.load(Acquire) <= round {
                // Ignore errors and spurious wake-ups: the loop checks the word.
                let _ = futex::wait(&word, Flags::PRIVATE, round, None);
            }
            Instant::now()
        };
        (0..ROUNDS as u32).map(round).collect()
    };
    thread::scope(|scope| {
        let woken = scope.spawn(|| confined(there, sleeper));
        let calls: Vec<(Instant, f64)> = confined(here, || {
            let round = |round: usize| {
                let asleep = Instant::now() + PAUSE;
                while Instant::now() < asleep {}
                let before = Instant::now();
                word.store(round as u32 + 1, Release);
                let _ = futex::wake(&word, Flags::PRIVATE, 1);
                (before, before.elapsed().as_nanos() as f64)
            };
            (0..ROUNDS).map(round).collect()
        });
        let woken = woken.join().expect("it does not panic");
        let latencies = calls
            .iter()
            .zip(&woken)
            .map(|((before, _), woken)| woken.duration_since(*before).as_nanos() as f64);
        Wake { call: middle(calls.iter().map(|call| call.1)), latency: middle(latencies) }
    })
}

/// The call that wakes a thread queued on the caller's own processor.
pub(super) fn wake_behind(processor: usize) -> f64 {
    const ROUNDS: usize = 8 * TRIES;
    let (word, asleep, end) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            confined(processor, || {
                while end.load(Acquire) == 0 {
                    let seen = word.load(Acquire);
                    asleep.store(1, Release);
                    // Ignore errors and spurious wake-ups: the loops check the words.
                    let _ = futex::wait(&word, Flags::PRIVATE, seen, None);
                }
            });
        });
        confined(processor, || {
            let call = |_: usize| {
                let mut turns = 0;
                // Whenever this thread yields, the other thread runs until it sleeps.
                while asleep.load(Acquire) == 0 || turns < 2 {
                    thread::yield_now();
                    turns += 1;
                }
                asleep.store(0, Release);
                word.fetch_add(1, Release);
                let begin = Instant::now();
                let _ = futex::wake(&word, Flags::PRIVATE, 1);
                begin.elapsed().as_nanos() as f64
            };
            let call = middle((0..ROUNDS).map(call));
            end.store(1, Release);
            word.fetch_add(1, Release);
            let _ = futex::wake(&word, Flags::PRIVATE, 1);
            call
        })
    })
}

/// Yielding to another thread of the processor, until that thread runs.
pub(super) fn yield_switch(processor: usize) -> f64 {
    const CALLS: u32 = 500;
    let end = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            confined(processor, || {
                while end.load(Acquire) == 0 {
                    thread::yield_now();
                }
            });
        });
        confined(processor, || {
            thread::sleep(Duration::from_millis(1));
            let ns = median(|| {
                let begin = Instant::now();
                (0..CALLS).for_each(|_| thread::yield_now());
                // The other thread yields back each time.
                begin.elapsed().as_nanos() as f64 / f64::from(2 * CALLS)
            });
            end.store(1, Release);
            ns
        })
    })
}

/// Yielding without another thread.
pub(super) fn yield_call(processor: usize) -> f64 {
    confined(processor, || per_call(thread::yield_now))
}

/// How much longer than requested a sleep takes.
pub(super) fn lateness() -> f64 {
    const LENGTH: Duration = Duration::from_millis(1);
    median(|| {
        let begin = Instant::now();
        thread::sleep(LENGTH);
        begin.elapsed().saturating_sub(LENGTH).as_nanos() as f64
    })
}

/// Starting a thread, measured in the starting thread.
pub(super) fn spawn() -> Outcome {
    let mut is_refused = false;
    let ns = median(|| {
        let begin = Instant::now();
        let started = thread::Builder::new().spawn(|| {});
        let ns = begin.elapsed().as_nanos() as f64;
        match started {
            Ok(started) => started.join().expect("it does not panic"),
            Err(_) => is_refused = true,
        }
        ns
    });
    if is_refused { Err("the system refused to start a thread") } else { Ok(ns) }
}

/// A reading of the default sensor, with `others` sleeping threads.
pub(super) fn reading(others: usize) -> Outcome {
    let end = AtomicU32::new(0);
    thread::scope(|scope| {
        let mut is_refused = false;
        for _ in 0..others {
            let sleep = || {
                while end.load(Acquire) == 0 {
                    // Ignore errors and spurious wake-ups: the loop checks the word.
                    let _ = futex::wait(&end, Flags::PRIVATE, 0, None);
                }
            };
            is_refused |= thread::Builder::new().spawn_scoped(scope, sleep).is_err();
        }
        let mut sensor = Schedstat::new(true, 0);
        let start = Instant::now();
        sensor.begin(1);
        let mut is_read = true;
        let ns = median(|| {
            thread::sleep(Duration::from_millis(1));
            let now = 1 + start.elapsed().as_nanos() as u64;
            let begin = Instant::now();
            is_read &= sensor.read(now).is_some();
            begin.elapsed().as_nanos() as f64
        });
        end.store(1, Relaxed);
        let _ = futex::wake(&end, Flags::PRIVATE, i32::MAX as u32);
        match (is_refused, is_read) {
            (true, _) => Err("the system refused to start 64 threads"),
            (_, false) => Err("/proc/self/task/*/schedstat cannot be read"),
            _ => Ok(ns),
        }
    })
}
