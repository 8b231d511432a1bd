//! Costs of memory accesses, by location of the line.

use std::hint::black_box;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence as full_fence};
use std::time::{Duration, Instant};

use unconvoy::primitive::{Clock as _, Native, Spin as _};
use unconvoy_measure::tries::{TRIES, median, per_call};

use super::threads::confined;
use super::topology::Two;

/// A cache line. The alignment to two lines keeps other data out of the line that the prefetcher
/// fetches with it.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// Elements of a chain that fits the first-level cache, and of one that fits no cache.
const SHORT: usize = 256;
const LONG: usize = 8 << 20;

/// Time of a step along a chain of dependent loads through `len` elements of 8 bytes. The order
/// defeats prefetchers: one random cycle through all elements (Sattolo's algorithm).
fn step(len: usize) -> f64 {
    const STEPS: u32 = 200_000;
    let mut random = fastrand::Rng::with_seed(1);
    let mut next: Vec<u64> = (0..len as u64).collect();
    for last in (1..len).rev() {
        next.swap(last, random.usize(..last));
    }
    let mut place = 0;
    median(|| {
        let begin = Instant::now();
        for _ in 0..STEPS {
            place = next[place as usize];
        }
        black_box(place);
        begin.elapsed().as_nanos() as f64 / f64::from(STEPS)
    })
}

/// A load served by the first-level cache, in nanoseconds.
pub(super) fn hit() -> f64 {
    step(SHORT)
}

/// A load served by memory, from a chain of 64 MiB. The largest caches hold a part of this chain.
pub(super) fn miss() -> f64 {
    step(LONG)
}

/// Extra cost of an atomic addition over a load, in a chain of dependent additions.
pub(super) fn read_modify_write() -> f64 {
    let line = Line::default();
    let mut seen = 0;
    per_call(|| seen = line.0.fetch_add(seen & 1, SeqCst)) - hit()
}

/// A fence after a store.
pub(super) fn fence() -> f64 {
    let line = Line::default();
    let store = || line.0.store(black_box(1), Relaxed);
    let both = per_call(|| {
        store();
        full_fence(SeqCst);
    });
    both - per_call(store)
}

pub(super) fn pause() -> f64 {
    per_call(Native::pause)
}

pub(super) fn clock() -> f64 {
    per_call(|| _ = black_box(Native::now()))
}

/// Transfer of a line that the other context of `two` has written.
///
/// The two contexts take turns: each reads what the other wrote, and writes. A round has four
/// transfers: a copy and an invalidation in each direction. Between its looks at the line, a
/// context pauses like a lock's waiter: looks without pauses take the line from the writer, and a
/// round lasts up to 2.5 times as long.
pub(super) fn transfer((here, there): Two) -> f64 {
    const ROUNDS: u64 = 2_000;
    let line = Line::default();
    let answer = |end: u64| {
        let mut round = 0;
        while round < end {
            let seen = line.0.load(Acquire);
            if seen == 2 * round + 1 {
                line.0.store(seen + 1, Release);
                round += 1;
            }
            Native::pause();
        }
    };
    let mut of_round = f64::NAN;
    std::thread::scope(|scope| {
        scope.spawn(|| confined(there, || answer(ROUNDS * TRIES as u64)));
        let mut round = 0;
        of_round = confined(here, || {
            median(|| {
                let begin = Instant::now();
                for _ in 0..ROUNDS {
                    line.0.store(2 * round + 1, Release);
                    while line.0.load(Acquire) != 2 * round + 2 {
                        Native::pause();
                    }
                    round += 1;
                }
                begin.elapsed().as_nanos() as f64 / ROUNDS as f64
            })
        });
    });
    of_round / 4.0
}

/// Slowdown of computation, in thousandths, while the other context of `two` computes.
pub(super) fn slowdown((here, there): Two) -> f64 {
    const WINDOW: Duration = Duration::from_millis(20);
    let stop = Line::default();
    // Dependent steps of one multiplication and two shifts.
    let compute = |mut state: u64| {
        for _ in 0..1_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state = state.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        black_box(state)
    };
    let rate = || {
        let (begin, mut done) = (Instant::now(), 0.0);
        while begin.elapsed() < WINDOW {
            compute(begin.elapsed().as_nanos() as u64 | 1);
            done += 1.0;
        }
        done
    };
    let alone = confined(here, || median(rate));
    let mut together = f64::NAN;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            confined(there, || {
                while stop.0.load(Relaxed) == 0 {
                    compute(1);
                }
            });
        });
        together = confined(here, || median(rate));
        stop.0.store(1, Relaxed);
    });
    1_000.0 * (alone / together - 1.0)
}
