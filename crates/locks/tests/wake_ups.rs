//! How many waiters a release wakes. In a program of its own, because it assumes processors that
//! the machine may not have.

#![cfg(not(loom))]

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use unconvoy::contention::Contention as _;
use unconvoy::contention::loiter::Loiter;
use unconvoy::load::{Context as _, ThreadState};
use unconvoy::lock::{self, Process as _};
use unconvoy::parking::eventcount::{Eventcount, WaitedLock};
use unconvoy::primitive::Native;

const WAITERS: usize = 4;

struct Waited<'a>(&'a Loiter<Native>);

impl WaitedLock for Waited<'_> {
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    fn set_parked_bit(&self) -> bool {
        self.0.set_parked_bit()
    }

    fn has_contender(&self) -> bool {
        self.0.has_contender()
    }
}

/// Waits until `count` is at least `least`, or for `limit`; returns it.
fn reached(count: &AtomicUsize, least: usize, limit: Duration) -> usize {
    let end = Instant::now() + limit;
    while count.load(SeqCst) < least && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    count.load(SeqCst)
}

/// Releases a lock with the parked bit, which has nothing to do with the requeued waiters.
fn release_another_lock() {
    let (state, eventcount) = (Loiter::<Native>::unlocked(), Eventcount::<Native>::new());
    assert!(state.try_lock() && state.set_parked_bit());
    // SAFETY: held since above.
    unsafe { lock::release(&state, &eventcount) };
}

/// Number of waiters that one release wakes, on `processors` processors. If the waiters
/// `are_requeued`, this thread has `signalled` that many of them.
fn woken(processors: u32, are_requeued: bool, signalled: u32) -> usize {
    let process = Native::context();
    process.control().pollers.assume_processors(processors);
    let (state, eventcount) = (Loiter::<Native>::unlocked(), Eventcount::<Native>::new());
    let (falling_asleep, awake) = (AtomicUsize::new(0), AtomicUsize::new(0));
    assert!(state.try_lock());
    thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                falling_asleep.fetch_add(1, SeqCst);
                let acquired = eventcount.wait(&Waited(&state), None);
                assert!(!acquired, "held until all waiters sleep");
                awake.fetch_add(1, SeqCst);
            });
        }
        assert_eq!(reached(&falling_asleep, WAITERS, Duration::from_secs(60)), WAITERS);
        thread::sleep(Duration::from_millis(200)); // they are about to sleep
        if are_requeued {
            let requeued_at = std::ptr::from_ref(&eventcount).addr();
            let state = process.thread_state();
            process.set_thread_state(ThreadState { requeued_at, requeued: signalled, ..state });
            release_another_lock();
        }
        // SAFETY: held since above.
        unsafe { lock::release(&state, &eventcount) };
        let at_once = (processors as usize - 1).max(signalled as usize);
        let expected = if are_requeued { WAITERS.min(at_once) } else { 1 };
        reached(&awake, expected, Duration::from_secs(60));
        thread::sleep(Duration::from_millis(50)); // a wake-up too many would come now
        let woken = awake.load(SeqCst);
        eventcount.recheck();
        woken
    })
}

#[test]
fn release_wakes_requeued_waiters_for_each_free_processor() {
    assert_eq!(woken(16, true, 1), WAITERS);
    assert_eq!(woken(3, true, 1), 2);
    assert_eq!(woken(2, true, 1), 1);
    assert_eq!(woken(2, true, WAITERS as u32), WAITERS, "this thread has signalled all");
    assert_eq!(woken(16, false, 0), 1, "a waiter that parked by itself passes the wake-up on");
}
