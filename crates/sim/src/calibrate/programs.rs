//! Time of a turn of the programs `counter` and `hashtable` of `unconvoy bench` on one thread.
//! Their loops are reproduced here, so that a calibration does not need the programs.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use unconvoy_measure::tries::{median, per_call};

use crate::workload::table::{KEYS, Lists, Operation, THETA, Visits, Zipf};

pub(super) struct Loops {
    ticks_per_ns: f64,
    zipf: Zipf,
}

/// The clock that `ticks` of the programs reads: the cheapest one available.
#[inline(always)]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use unconvoy::primitive::{Clock as _, Native};
        Native::now()
    }
}

/// Section length of `counter` in the measurement, in nanoseconds: its default.
const SECTION_NS: f64 = 100.0;

struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

impl Mutex {
    fn new() -> Self {
        Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    fn lock(&self) {
        // SAFETY: initialised, not moved while borrowed, and used by one thread only.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    fn unlock(&self) {
        // SAFETY: see `lock`; the caller holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// A lock and an unlock function.
type Functions = [fn(&AtomicU64) -> bool; 2];

#[inline(always)]
fn near_lock(word: &AtomicU64) {
    // Always succeeds: no other thread uses the word.
    let _ = word.compare_exchange(0, 1, Acquire, Relaxed);
}

#[inline(never)]
fn far_lock(word: &AtomicU64) -> bool {
    word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
}

#[inline(never)]
fn far_unlock(word: &AtomicU64) -> bool {
    word.store(0, Release);
    true
}

#[inline(never)]
fn through(table: &Functions, entry: usize, word: &AtomicU64) {
    black_box(table[black_box(entry)](black_box(word)));
}

/// Time of a step along a cached list: the difference in time between finding a deep key and a
/// shallow one, divided by the difference in depth.
fn step(lists: &Lists) -> f64 {
    let of_bucket = || (0..KEYS).filter(|&key| Lists::bucket_of(key) == 0);
    let deep = of_bucket().filter_map(|key| Some((lists.depth(key)?, key))).max();
    let shallow = of_bucket().filter_map(|key| Some((lists.depth(key)?, key))).min();
    let (Some((far, deep)), Some((near, shallow))) = (deep, shallow) else { return f64::NAN };
    let find = |key: u32| {
        per_call(|| _ = black_box(lists.operate(Operation::Get, black_box(key), &mut Visits(0))))
    };
    (find(deep) - find(shallow)) / (far - near) as f64
}

impl Loops {
    pub(super) fn new() -> Self {
        let (begin, start) = (Instant::now(), ticks());
        while begin.elapsed() < Duration::from_millis(5) {}
        let ticks_per_ns = (ticks() - start) as f64 / begin.elapsed().as_nanos() as f64;
        Loops { ticks_per_ns, zipf: Zipf::new(KEYS, THETA) }
    }

    /// A turn of `counter` on one thread with the given lock, without its section of 100 ns.
    fn counter_turn_with(&self, lock: impl Fn(), unlock: impl Fn()) -> f64 {
        const TURNS: u32 = 10_000;
        let section = (SECTION_NS * self.ticks_per_ns) as u64;
        let (phase, line, count) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        median(|| {
            let begin = Instant::now();
            for _ in 0..TURNS {
                if black_box(&phase).load(Relaxed) != 0 {
                    break;
                }
                lock();
                line.store(line.load(Relaxed) + 1, Relaxed);
                let start = ticks();
                while ticks().wrapping_sub(start) < section {}
                unlock();
                count.store(count.load(Relaxed) + 1, Relaxed);
            }
            begin.elapsed().as_nanos() as f64 / f64::from(TURNS) - SECTION_NS
        })
    }

    /// A turn of `counter` with a libc mutex.
    pub(super) fn counter_turn(&self) -> f64 {
        let mutex = Mutex::new();
        self.counter_turn_with(|| mutex.lock(), || mutex.unlock())
    }

    /// Extra cost, in the loop of `counter`, of calling a lock through a table of locks: each lock
    /// and unlock calls a function that is not inlined, which makes an indirect call.
    pub(super) fn counter_dispatch(&self) -> f64 {
        let word = AtomicU64::new(0);
        let table: Functions = black_box([far_lock, far_unlock]);
        let through =
            self.counter_turn_with(|| through(&table, 0, &word), || through(&table, 1, &word));
        let direct = self.counter_turn_with(|| near_lock(&word), || word.store(0, Release));
        through - direct
    }

    /// Extra cost, in the loop of `hashtable`, of calling a lock through a table of locks.
    pub(super) fn table_dispatch(&self) -> f64 {
        let mut random = fastrand::Rng::with_seed(1);
        let word = AtomicU64::new(0);
        let table: Functions = black_box([far_lock, far_unlock]);
        let through = self.table_turn(&mut random, |_, _| {
            through(&table, 0, &word);
            through(&table, 1, &word);
            0
        });
        let direct = self.table_turn(&mut random, |_, _| {
            near_lock(&word);
            word.store(0, Release);
            0
        });
        through.0 - direct.0
    }

    /// The part of a `hashtable` operation before the lock.
    pub(super) fn table_outside(&self) -> f64 {
        let mut random = fastrand::Rng::with_seed(1);
        self.table_turn(&mut random, |_, _| 0).0
    }

    /// The calls that lock and unlock a libc mutex.
    pub(super) fn table_call(&self) -> f64 {
        let mutex = Mutex::new();
        let mut random = fastrand::Rng::with_seed(1);
        let locked = self.table_turn(&mut random, |_, _| {
            mutex.lock();
            mutex.unlock();
            0
        });
        locked.0 - self.table_outside()
    }

    /// Time of a `hashtable` operation under the lock without the walk along its list, and time of
    /// one step of the walk.
    pub(super) fn table_section(&self) -> (f64, f64) {
        let mut random = fastrand::Rng::with_seed(1);
        let lists = Lists::new();
        let step = step(&lists);
        for _ in 0..100_000 {
            lists.operate(
                Operation::draw(&mut random),
                self.zipf.next(&mut random),
                &mut Visits(0),
            );
        }
        let operate = |operation, key| {
            let mut visits = Visits(0);
            black_box(lists.operate(operation, key, &mut visits));
            visits.0
        };
        let (ns, visits) = self.table_turn(&mut random, operate);
        (ns - self.table_outside() - step * visits, step)
    }

    /// Mean time of a turn, and mean depth of its key in the list.
    fn table_turn(
        &self,
        random: &mut fastrand::Rng,
        work: impl Fn(Operation, u32) -> u64,
    ) -> (f64, f64) {
        const TURNS: u32 = 5_000;
        let (phase, count) = (AtomicU64::new(0), AtomicU64::new(0));
        let (start, shift) = (ticks(), (250e6 * self.ticks_per_ns) as u64);
        let (mut visits, mut turns) = (0, 0);
        let ns = median(|| {
            let begin = Instant::now();
            for _ in 0..TURNS {
                if black_box(&phase).load(Relaxed) != 0 {
                    break;
                }
                let offset = (ticks() - start) / shift * 1_000;
                let key = (u64::from(self.zipf.next(random)) + offset) % u64::from(KEYS);
                let operation = black_box(Operation::draw(random));
                visits += work(operation, black_box(key as u32));
                count.store(count.load(Relaxed) + 1, Relaxed);
            }
            turns += TURNS;
            begin.elapsed().as_nanos() as f64 / f64::from(TURNS)
        });
        (ns, visits as f64 / f64::from(turns))
    }
}
