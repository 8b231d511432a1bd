//! How many waiters a release wakes. In a program of its own, because it assumes processors that
//! the machine may not have.

#![cfg(not(loom))]

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::{Duration, Instant};
use std::{fs, thread};

use unconvoy::contention::Contention as _;
use unconvoy::contention::biased_rw::BiasedRw;
use unconvoy::contention::loiter::Loiter;
use unconvoy::contention::rw::{RwWord, Share};
use unconvoy::load::{Context as _, ThreadState};
use unconvoy::lock::{self, Process as _};
use unconvoy::parking::eventcount::{Eventcount, WaitedLock};
use unconvoy::primitive::{Kind, Native, Threads as _};

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

struct WaitedRw<'a>(&'a RwWord<Native>, Kind);

impl WaitedLock for WaitedRw<'_> {
    fn kind(&self) -> Option<Kind> {
        Some(self.1)
    }

    fn try_lock(&self) -> bool {
        false
    }

    fn set_parked_bit(&self) -> bool {
        self.0.set_parked_bit()
    }

    fn has_contender(&self) -> bool {
        self.0.has_contender()
    }
}

/// The ids of threads that park, 0 before they do.
#[derive(Default)]
struct Parkers([AtomicU32; 2 * WAITERS]);

impl Parkers {
    /// Waits until the first `count` of them sleep.
    fn wait(&self, count: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        let sleeps = |id: &AtomicU32| {
            let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", id.load(SeqCst)));
            stat.is_ok_and(|stat| {
                stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
            })
        };
        while !self.0[..count].iter().all(sleeps) {
            assert!(Instant::now() < end, "not all of {count} threads sleep");
            thread::sleep(Duration::from_millis(1));
        }
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
    let (parkers, awake) = (Parkers::default(), AtomicUsize::new(0));
    assert!(state.try_lock());
    thread::scope(|scope| {
        for id in &parkers.0[..WAITERS] {
            let (state, eventcount, awake) = (&state, &eventcount, &awake);
            scope.spawn(move || {
                id.store(Native::thread_id(), SeqCst);
                let acquired = eventcount.wait(&Waited(state), || None);
                assert!(!acquired, "held until all waiters sleep");
                awake.fetch_add(1, SeqCst);
            });
        }
        parkers.wait(WAITERS);
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

#[test]
fn shared_release_wakes_one_writer_and_all_readers() {
    let (word, eventcount) = (RwWord::<Native>::unlocked(), Eventcount::<Native>::new());
    let (parkers, writers, readers) =
        (Parkers::default(), AtomicUsize::new(0), AtomicUsize::new(0));
    assert!(word.try_acquire(Share::Write));
    let kinds = [(Kind::Exclusive, &writers), (Kind::Shared, &readers)];
    thread::scope(|scope| {
        for (id, (kind, awake)) in parkers.0.iter().zip(kinds.iter().cycle()) {
            let waited = WaitedRw(&word, *kind);
            let eventcount = &eventcount;
            scope.spawn(move || {
                id.store(Native::thread_id(), SeqCst);
                assert!(!eventcount.wait(&waited, || None), "held until all waiters sleep");
                awake.fetch_add(1, SeqCst);
            });
        }
        parkers.wait(2 * WAITERS);
        // SAFETY: held since above.
        unsafe { lock::release_shared(BiasedRw::unbiased(&word, &eventcount)) };
        reached(&writers, 1, Duration::from_secs(60));
        reached(&readers, WAITERS, Duration::from_secs(60));
        thread::sleep(Duration::from_millis(50)); // a wake-up too many would come now
        let woken = (writers.load(SeqCst), readers.load(SeqCst));
        eventcount.recheck();
        assert_eq!(woken, (1, WAITERS));
    });
}
