//! What a turn of `unconvoy bench`'s `counter` and `hashtable` takes on one thread: their loops, measured here, so that
//! the simulated programs have the machine's times and nobody has to have the programs.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use super::tries::{median, per_call};
use crate::workload::table::{KEYS, Lists, Operation, THETA, Visits, Zipf};

/// The programs' loops.
pub(super) struct Loops {
    ticks_per_ns: f64,
    zipf: Zipf,
}

/// As the programs' `ticks`: the cheapest clock there is.
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

/// The section that `counter` is measured with here, nanoseconds: its default.
const SECTION_NS: f64 = 100.0;

/// A mutex of libc.
struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

impl Mutex {
    fn new() -> Self {
        Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    fn lock(&self) {
        // SAFETY: it was initialised, stays where it is while it is borrowed, and is of this thread alone.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    /// After a [`lock`](Self::lock).
    fn unlock(&self) {
        // SAFETY: as above; the caller has locked it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// Locks and unlocks.
type Functions = [fn(&AtomicU64) -> bool; 2];

#[inline(always)]
fn near_lock(word: &AtomicU64) {
    // Nobody else is there.
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

/// A step along a list that the first cache holds: a key far down it is found that much later than one at its head.
fn step(lists: &Lists) -> f64 {
    let of_bucket = || (0..KEYS).filter(|&key| Lists::bucket_of(key) == 0);
    let deep = of_bucket().filter_map(|key| Some((lists.depth(key)?, key))).max();
    let shallow = of_bucket().filter_map(|key| Some((lists.depth(key)?, key))).min();
    let (Some((far, deep)), Some((near, shallow))) = (deep, shallow) else { return f64::NAN };
    let find = |key: u32| per_call(|| _ = black_box(lists.operate(Operation::Get, black_box(key), &mut Visits(0))));
    (find(deep) - find(shallow)) / (far - near) as f64
}

impl Loops {
    pub(super) fn new() -> Self {
        let (begin, start) = (Instant::now(), ticks());
        while begin.elapsed() < Duration::from_millis(5) {}
        let ticks_per_ns = (ticks() - start) as f64 / begin.elapsed().as_nanos() as f64;
        Loops { ticks_per_ns, zipf: Zipf::new(KEYS, THETA) }
    }

    /// A turn of `counter` on one thread, beyond its section of 100 ns, with a lock.
    fn counter_turn_with(&self, lock: impl Fn(), unlock: impl Fn()) -> f64 {
        const TURNS: u32 = 10_000;
        let section = (SECTION_NS * self.ticks_per_ns) as u64;
        let (phase, line, tally) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
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
                tally.store(tally.load(Relaxed) + 1, Relaxed);
            }
            begin.elapsed().as_nanos() as f64 / f64::from(TURNS) - SECTION_NS
        })
    }

    /// The same with a mutex of libc.
    pub(super) fn counter_turn(&self) -> f64 {
        let mutex = Mutex::new();
        self.counter_turn_with(|| mutex.lock(), || mutex.unlock())
    }

    /// What it costs to go through a table of locks, in `counter`'s loop: for a lock and an unlock a function each that is
    /// not inlined, and from it one that is only known at run time.
    pub(super) fn counter_dispatch(&self) -> f64 {
        let word = AtomicU64::new(0);
        let table: Functions = black_box([far_lock, far_unlock]);
        let through = self.counter_turn_with(|| through(&table, 0, &word), || through(&table, 1, &word));
        let direct = self.counter_turn_with(|| near_lock(&word), || word.store(0, Release));
        through - direct
    }

    /// The same in `hashtable`'s.
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

    /// What `hashtable` does before it takes a lock.
    pub(super) fn table_outside(&self) -> f64 {
        let mut random = fastrand::Rng::with_seed(1);
        self.table_turn(&mut random, |_, _| 0).0
    }

    /// What the calls add that lock and unlock a mutex of libc.
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

    /// The time of an operation of `hashtable` under the lock at no step along its list, and the time of a step.
    pub(super) fn table_section(&self) -> (f64, f64) {
        let mut random = fastrand::Rng::with_seed(1);
        let lists = Lists::new();
        let step = step(&lists);
        for _ in 0..100_000 {
            lists.operate(Operation::draw(&mut random), self.zipf.next(&mut random), &mut Visits(0));
        }
        let operate = |operation, key| {
            let mut visits = Visits(0);
            black_box(lists.operate(operation, key, &mut visits));
            visits.0
        };
        let (ns, visits) = self.table_turn(&mut random, operate);
        (ns - self.table_outside() - step * visits, step)
    }

    /// A turn, and how far its key was down the list, on average.
    fn table_turn(&self, random: &mut fastrand::Rng, work: impl Fn(Operation, u32) -> u64) -> (f64, f64) {
        const TURNS: u32 = 5_000;
        let (phase, tally) = (AtomicU64::new(0), AtomicU64::new(0));
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
                tally.store(tally.load(Relaxed) + 1, Relaxed);
            }
            turns += TURNS;
            begin.elapsed().as_nanos() as f64 / f64::from(TURNS)
        });
        (ns, visits as f64 / f64::from(turns))
    }
}
