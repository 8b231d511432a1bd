//! The generic suite: every pair of contention manager and load manager runs every test.
//!
//! On a hang, the suite prints the state of the sleep slots and the stacks of all threads, then
//! aborts.
#![cfg(not(loom))]

mod order;

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use lock_api::{GuardSend, RawMutex, RawMutexTimed};
use unconvoy::catalogue::{Availability, availability};
use unconvoy::contention::Contention;
use unconvoy::load::{Holds, LoadManager};
use unconvoy::lock::Process as _;
use unconvoy::primitive::{Native, Threads as _};
use unconvoy::raw::RawLock;
use unconvoy::runtime::{load_control, without_controller};

/// Threads per test: several times the processors of small machines.
const THREADS: usize = 8;

/// Sections per thread. When threads outnumber processors, strict queues without load management
/// make about ten thousand hand-overs per second, and fewer under a sanitizer. The suite must end
/// for them too.
const SECTIONS: usize = if cfg!(tsan) { 50 } else { 400 };

/// A test without a section for this long hangs. On a busy machine, one hand-over of a strict queue
/// may take a full round of the scheduler.
const NO_PROGRESS: Duration = Duration::from_secs(60);

/// Sections of all tests so far.
static PROGRESS: AtomicU64 = AtomicU64::new(0);

/// Runs `test`; aborts with a report after [`NO_PROGRESS`] without a section.
fn watched(test: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut sections, mut since) = (PROGRESS.load(Relaxed), Instant::now());
            while !done.load(SeqCst) {
                thread::park_timeout(Duration::from_secs(1));
                let now = PROGRESS.load(Relaxed);
                if now != sections {
                    (sections, since) = (now, Instant::now());
                } else if since.elapsed() > NO_PROGRESS && !done.load(SeqCst) {
                    report_hang();
                }
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        done.store(true, SeqCst);
        watch.thread().unpark();
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

fn report_hang() -> ! {
    let slots = &load_control().slots;
    eprintln!(
        "HANG in {:?}: slots {:?}, target {}",
        thread::current().name(),
        slots.totals(),
        slots.target()
    );
    let pid = std::process::id().to_string();
    let gdb = std::process::Command::new("gdb")
        .args(["-p", &pid, "-batch", "-ex", "thread apply all bt 12"])
        .status();
    if let Err(error) = gdb {
        eprintln!("no stacks: cannot run gdb: {error}");
    }
    std::process::abort();
}

/// The lock under test. Only these functions are compiled for each pair; the tests are compiled
/// once.
trait Lock: Sync {
    fn lock(&self);
    fn try_lock(&self) -> bool;
    fn try_lock_for(&self, timeout: Duration) -> bool;
    fn try_lock_until(&self, deadline: Instant) -> bool;
    fn is_locked(&self) -> bool;

    /// # Safety
    ///
    /// The calling thread holds the lock.
    unsafe fn unlock(&self);

    /// Sleeps for load, holding nothing, if the load manager says so.
    fn checkpoint(&self);
}

impl<C: Contention, L: LoadManager> Lock for RawLock<C, L> {
    fn lock(&self) {
        RawMutex::lock(self);
    }

    fn try_lock(&self) -> bool {
        RawMutex::try_lock(self).is_some()
    }

    fn try_lock_for(&self, timeout: Duration) -> bool {
        RawMutexTimed::try_lock_for(self, timeout).is_some()
    }

    fn try_lock_until(&self, deadline: Instant) -> bool {
        RawMutexTimed::try_lock_until(self, deadline).is_some()
    }

    fn is_locked(&self) -> bool {
        RawMutex::is_locked(self)
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock; a proof of that may move between threads here.
        unsafe { RawMutex::unlock(self, GuardSend::new()) }
    }

    fn checkpoint(&self) {
        L::checkpoint(Native::context(), || Holds::Nothing);
    }
}

/// Makes a free lock of the pair under test.
type MakeLock = fn() -> Box<dyn Lock>;

/// A counter protected only by the lock.
struct Guarded {
    lock: Box<dyn Lock>,
    count: UnsafeCell<u64>,
}

// SAFETY: the cell is accessed under the lock under test.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new(make: MakeLock) -> Self {
        Guarded { lock: make(), count: UnsafeCell::new(0) }
    }

    /// Runs the critical section of a held lock: read, delay, write, release.
    fn section(&self) {
        // SAFETY: the lock is held.
        unsafe {
            let before = self.count.get().read();
            (0..20).for_each(|_| std::hint::spin_loop());
            self.count.get().write(before + 1);
            PROGRESS.fetch_add(1, Relaxed);
            self.lock.unlock();
        }
    }

    fn locked_section(&self) {
        self.lock.lock();
        self.section();
    }

    fn count(&mut self) -> u64 {
        *self.count.get_mut()
    }
}

fn sections_do_not_overlap(make: MakeLock) {
    let mut guarded = Guarded::new(make);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..SECTIONS).for_each(|_| guarded.locked_section()));
        }
    });
    assert_eq!(guarded.count(), (THREADS * SECTIONS) as u64);
    assert!(!guarded.lock.is_locked());
}

fn try_lock_of_held_lock_fails(make: MakeLock) {
    let guarded = Guarded::new(make);
    assert!(guarded.lock.try_lock());
    assert!(guarded.lock.is_locked());
    assert!(!guarded.lock.try_lock());
    thread::scope(|scope| {
        assert!(!scope.spawn(|| guarded.lock.try_lock()).join().expect("no panic"))
    });
    guarded.section();
    assert!(guarded.lock.try_lock());
    guarded.section();
    assert!(!guarded.lock.is_locked());
}

fn timed_lock_of_held_lock_times_out_at_its_deadline(make: MakeLock) {
    let guarded = Guarded::new(make);
    guarded.lock.lock();
    let begin = Instant::now();
    let timeout = Duration::from_millis(30);
    assert!(!guarded.lock.try_lock_for(timeout));
    assert!(begin.elapsed() >= timeout);
    assert!(!guarded.lock.try_lock_until(Instant::now()), "deadline in the past");
    guarded.section();
    assert!(guarded.lock.try_lock_for(timeout), "free lock");
    guarded.section();
}

/// Waiters behind a holder that works for long acquire the lock after its release.
fn long_wait_ends_with_the_release(make: MakeLock) {
    let mut guarded = Guarded::new(make);
    guarded.lock.lock();
    thread::scope(|scope| {
        (0..3).for_each(|_| {
            scope.spawn(|| guarded.locked_section());
        });
        thread::sleep(Duration::from_millis(60));
        guarded.section();
    });
    assert_eq!(guarded.count(), 4);
}

/// Waiters that time out constantly, among waiters that do not.
fn timeouts_do_not_disturb_other_waiters(make: MakeLock) {
    let mut guarded = Guarded::new(make);
    let held = AtomicU64::new(0);
    let tries = SECTIONS as u64 / 2;
    thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (guarded, held) = (&guarded, &held);
            scope.spawn(move || {
                for round in 0..tries {
                    let timeout = Duration::from_nanos((round * 7919 + thread * 104_729) % 150_000);
                    if thread < 2 {
                        guarded.lock.lock();
                    } else if !guarded.lock.try_lock_for(timeout) {
                        continue;
                    }
                    held.fetch_add(1, Relaxed);
                    guarded.section();
                }
            });
        }
    });
    assert!(held.load(Relaxed) >= 2 * tries);
    assert_eq!(guarded.count(), held.load(Relaxed));
    assert!(guarded.lock.try_lock(), "no waiter is left in a queue");
    guarded.section();
}

fn nested_locks_exclude(make: MakeLock) {
    let (mut outer, mut inner) = (Guarded::new(make), Guarded::new(make));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (outer, inner) = (&outer, &inner);
            scope.spawn(move || {
                for _ in 0..SECTIONS / 4 {
                    if thread % 4 == 0 {
                        inner.locked_section();
                    } else {
                        outer.lock.lock();
                        inner.locked_section();
                        outer.section();
                    }
                }
            });
        }
    });
    let sections = (THREADS * (SECTIONS / 4)) as u64;
    assert_eq!(inner.count(), sections);
    assert_eq!(outer.count(), sections / 4 * 3);
}

fn short_lived_threads_exclude(make: MakeLock) {
    let mut guarded = Guarded::new(make);
    let (rounds, threads) = (if cfg!(tsan) { 4 } else { 60 }, 2 * THREADS);
    for _ in 0..rounds {
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..3).for_each(|_| guarded.locked_section()));
            }
        });
    }
    assert_eq!(guarded.count(), (rounds * threads * 3) as u64);
}

/// A signal handler that keeps its thread from running for a while, like a SIGSTOP for a single
/// thread.
extern "C" fn stall(_: i32) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 80_000_000 };
    // SAFETY: async-signal-safe.
    unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
}

/// A waiter and a holder are stopped during contention; every thread still gets through.
fn stopped_threads_only_delay_others(make: MakeLock) {
    // SAFETY: the handler only sleeps.
    unsafe { libc::signal(libc::SIGUSR1, stall as extern "C" fn(i32) as libc::sighandler_t) };
    let mut guarded = Guarded::new(make);
    let ids: [AtomicU32; 4] = Default::default();
    let started = AtomicU32::new(0);
    thread::scope(|scope| {
        for id in &ids {
            let (guarded, started) = (&guarded, &started);
            scope.spawn(move || {
                id.store(Native::thread_id(), SeqCst);
                started.fetch_add(1, SeqCst);
                (0..SECTIONS / 4).for_each(|_| guarded.locked_section());
                id.store(0, SeqCst); // do not signal this thread any longer
            });
        }
        while started.load(SeqCst) < 4 {
            thread::yield_now();
        }
        for id in &ids[..2] {
            let thread = id.load(SeqCst);
            if thread != 0 {
                // SAFETY: a thread of this process, or one that has ended, for which the call
                // fails.
                unsafe {
                    libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGUSR1)
                };
            }
        }
        // This thread is certain to hold the lock when it stops.
        guarded.lock.lock();
        // SAFETY: to this thread itself.
        unsafe { libc::raise(libc::SIGUSR1) };
        guarded.section();
    });
    assert_eq!(guarded.count(), 4 * (SECTIONS / 4) as u64 + 1);
}

/// Threads sleep at checkpoints between their sections, at a target that the test sets beside the
/// process's controller.
fn sleepers_at_checkpoints_return(make: MakeLock) {
    const ROUNDS: u64 = 8;
    let slots = &load_control().slots;
    let mut guarded = Guarded::new(make);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    guarded.locked_section();
                    slots.raise_target(THREADS as u32 / 2);
                    guarded.lock.checkpoint();
                }
            });
        }
    });
    without_controller(|| slots.set_target(0));
    assert_eq!(guarded.count(), THREADS as u64 * ROUNDS);
    assert_eq!(slots.sleeping(), 0);
}

type Test = fn(MakeLock);

const TESTS: &[(&str, Test)] = &[
    ("sections_do_not_overlap", sections_do_not_overlap),
    ("try_lock_of_held_lock_fails", try_lock_of_held_lock_fails),
    (
        "timed_lock_of_held_lock_times_out_at_its_deadline",
        timed_lock_of_held_lock_times_out_at_its_deadline,
    ),
    ("long_wait_ends_with_the_release", long_wait_ends_with_the_release),
    ("timeouts_do_not_disturb_other_waiters", timeouts_do_not_disturb_other_waiters),
    ("nested_locks_exclude", nested_locks_exclude),
    ("short_lived_threads_exclude", short_lived_threads_exclude),
    ("stopped_threads_only_delay_others", stopped_threads_only_delay_others),
    ("sleepers_at_checkpoints_return", sleepers_at_checkpoints_return),
];

struct Pair {
    lock: &'static str,
    name: &'static str,
    make: MakeLock,
}

fn make<C: Contention + 'static, L: LoadManager + 'static>() -> Box<dyn Lock> {
    Box::new(RawLock::<C, L>::INIT)
}

macro_rules! pairs {
    ([$(($lock:literal, $contention:ty)),*] $loads:tt) => {
        const PAIRS: &[&[Pair]] = &[$(pairs!(@row $lock, $contention, $loads)),*];
    };
    (@row $lock:literal, $contention:ty, [$(($load:literal, $manager:ty)),*]) => {
        &[$(Pair {
            lock: $lock,
            name: concat!($lock, "+", $load),
            make: make::<$contention, $manager>,
        }),*]
    };
}

unconvoy::with_managers!(pairs);

/// Sequential, since concurrent pairs would load each other. `UNCONVOY_SUITE=mcs+park,tas+none`
/// runs two pairs.
#[test]
fn every_pair_passes_every_test() {
    let only = std::env::var("UNCONVOY_SUITE").ok().filter(|only| only != "all");
    let is_chosen = |name| only.as_deref().is_none_or(|only| only.split(',').any(|n| n == name));
    let pairs = PAIRS.iter().copied().flatten().filter(|pair| is_chosen(pair.name));
    let mut seen = 0;
    for pair in pairs {
        if let Availability::Refused(reason) = availability(pair.lock) {
            eprintln!("skipped: {}: {reason}", pair.name);
            seen += 1;
            continue;
        }
        for (test, run) in TESTS {
            let begin = Instant::now();
            eprint!("{} {test} ... ", pair.name);
            watched(|| run(pair.make));
            eprintln!("{:.2} s", begin.elapsed().as_secs_f64());
            seen += 1;
        }
    }
    assert!(seen > 0, "UNCONVOY_SUITE={only:?} names no pair");
}
