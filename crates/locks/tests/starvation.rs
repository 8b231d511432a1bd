//! Waits are bounded. A wait is measured in sections of other threads, each of a fixed processor
//! time: the load of the machine affects every other clock.
#![cfg(not(any(loom, tsan)))]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lock_api::RawMutex;
use unconvoy::contention::loiter::Loiter;
use unconvoy::contention::mcs::Mcs;
use unconvoy::load::control::Control;
use unconvoy::load::passive::LONGEST_PASSIVE_NS;
use unconvoy::load::restrict::{Gcr, LONGEST_WATCH_NS, Malthus};
use unconvoy::primitive::Native;
use unconvoy::raw::RawLock;

const THREADS: u64 = 6;

/// Long compared with a waiter's polling, so a few sections suffice.
const SECTION: Duration = Duration::from_millis(2);
const SECTIONS: u64 = 400;

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes `time`.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn run_for(length: Duration) {
    let end = processor_time() + length;
    while processor_time() < end {}
}

/// How long the calling thread has been runnable without a processor, above all because of other
/// tests; 0 if the kernel does not record it.
fn held_up_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').nth(1).and_then(|waited| waited.parse().ok()).unwrap_or(0)
}

/// The longest wait of any thread, in sections begun by other threads, without those for which the
/// waiter was only held up.
fn longest_wait<M: RawMutex + Sync>() -> u64 {
    let lock = M::INIT;
    let (begun, longest) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while begun.load(Relaxed) < SECTIONS {
                    let (before, held_up) = (begun.load(Relaxed), held_up_ns());
                    let guard = lock.lock();
                    let overtaken = begun.fetch_add(1, Relaxed) - before;
                    let excused = in_sections(held_up_ns() - held_up);
                    longest.fetch_max(overtaken.saturating_sub(excused), Relaxed);
                    run_for(SECTION);
                    // SAFETY: locked above.
                    unsafe { lock.unlock(guard) };
                }
            });
        }
    });
    longest.load(Relaxed)
}

/// A thread sleeps for load once, for at most 100 ms, and is overtaken for 10 ms. Both before and
/// after this time, it waits for all other threads.
const LONGEST_WAIT: u64 = in_sections(110_000_000) + 2 * THREADS;

/// The sum of the bounds in passive.rs and restrict.rs. A thread is passive for at most the longest
/// passive time. Then up to [`THREADS`] other threads may watch the lock first. Each watcher leaves
/// after the longest watch, and then waits at the lock behind at most all other threads.
const LONGEST_RESTRICTED_WAIT: u64 =
    in_sections(LONGEST_PASSIVE_NS) + THREADS * (in_sections(LONGEST_WATCH_NS) + THREADS);

const fn in_sections(ns: u64) -> u64 {
    ns.div_ceil(SECTION.as_nanos() as u64)
}

fn check<M: RawMutex + Sync>(name: &str, bound: u64) {
    // The threads of two tests would leave each other no processor.
    static ONE_TEST: Mutex<()> = Mutex::new(());
    let _one = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let longest = longest_wait::<M>();
    println!("{name}: longest wait {longest} sections, bound {bound}");
    assert!(longest <= bound, "{name}: a waiter was overtaken {longest} times, bound {bound}");
}

/// Sections are longer than a waiter polls, so that it is parked at almost every release.
#[test]
fn default_lock_bounds_waits_for_long_sections() {
    check::<RawLock<Loiter<Native>, Control>>("loiter+control", LONGEST_WAIT);
}

#[test]
fn first_come_passive_set_bounds_every_wait() {
    check::<RawLock<Mcs<Native>, Gcr>>("mcs+gcr", LONGEST_RESTRICTED_WAIT);
}

#[test]
fn last_come_passive_set_bounds_every_wait() {
    check::<RawLock<Mcs<Native>, Malthus>>("mcs+malthus", LONGEST_RESTRICTED_WAIT);
}
