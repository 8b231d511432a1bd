//! No waiter is passed over for ever. Waits are measured in the time that the lock's holders run:
//! neighbours on a busy machine lengthen every other clock.
#![cfg(not(any(loom, tsan)))]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use lock_api::RawMutex;
use unconvoy::contention::mcs::Mcs;
use unconvoy::load::passive::LONGEST_SITTING_NS;
use unconvoy::load::restrict::{Gcr, LONGEST_WATCH_NS, Malthus};
use unconvoy::primitive::Native;
use unconvoy::raw::RawLock;

const THREADS: u64 = 6;

/// A section that is long beside the polling of waiters, and of which few are made.
const SECTION: Duration = Duration::from_millis(2);
const SECTIONS: u64 = 400;

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for one time.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn run_for(length: Duration) {
    let end = processor_time() + length;
    while processor_time() < end {}
}

/// The longest wait of any thread, in sections that others began meanwhile.
fn longest_wait<M: RawMutex + Sync>() -> u64 {
    let lock = M::INIT;
    let (begun, longest) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while begun.load(Relaxed) < SECTIONS {
                    let before = begun.load(Relaxed);
                    let guard = lock.lock();
                    longest.fetch_max(begun.fetch_add(1, Relaxed) - before, Relaxed);
                    run_for(SECTION);
                    // SAFETY: locked above.
                    unsafe { lock.unlock(guard) };
                }
            });
        }
    });
    longest.load(Relaxed)
}

/// The sum of what passive.rs and restrict.rs promise: a thread sits until it is too long there, and
/// as many watch before it as there are others. Each watcher lets go after its time and waits its
/// turn at the lock, where at most all others are before it.
const LONGEST_WAIT: u64 = in_sections(LONGEST_SITTING_NS) + THREADS * (in_sections(LONGEST_WATCH_NS) + THREADS);

const fn in_sections(ns: u64) -> u64 {
    ns.div_ceil(SECTION.as_nanos() as u64)
}

fn check<M: RawMutex + Sync>(name: &str) {
    let longest = longest_wait::<M>();
    println!("{name}: {longest} sections before a waiter's, at most {LONGEST_WAIT} expected");
    assert!(longest <= LONGEST_WAIT, "{name}: a waiter was passed over {longest} times");
}

#[test]
fn a_first_come_passive_set_lets_everybody_in() {
    check::<RawLock<Mcs<Native>, Gcr>>("mcs+gcr");
}

#[test]
fn a_last_come_passive_set_lets_everybody_in() {
    check::<RawLock<Mcs<Native>, Malthus>>("mcs+malthus");
}
