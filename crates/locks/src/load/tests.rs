//! What a wait under each load manager records, and when it leaves.

use core::sync::atomic::Ordering::Relaxed;

use super::adaptive::Adaptive;
use super::backoff::Backoff;
use super::context::OVERTAKEN_NS;
use super::control::{CONTENTION_NS, Control, LONG_WAIT_NS};
use super::one_thread::{Busy, OneThread};
use super::park::Park;
use super::passive::PassiveSets;
use super::published::Published;
use super::restrict::Gcr;
use super::state::RESERVE_EVERY_NS;
use super::{LoadManager, Wait, WaitSummary};
use crate::parking::eventcount::Eventcount;
use crate::primitive::turn::Verdict;
use crate::primitive::{Clock as _, Native, Threads as _};

/// What a wait records that leaves `blocks` times and gives up.
fn summary<L: LoadManager>(blocks: u32) -> WaitSummary {
    let (process, eventcount, lock) = (OneThread::new(), Eventcount::new(), Busy::default());
    let mut wait = process.wait(&eventcount, &lock);
    wait.deadline = Some(Native::now());
    let mut waiter = L::begin_wait(&wait, Native::now());
    (0..blocks).for_each(|_| assert!(!L::block(&mut waiter, &wait), "the lock is held"));
    L::end_wait(waiter, &wait)
}

#[test]
fn wait_records_how_often_it_left_and_whether_it_parked() {
    let parked = |sleeps| WaitSummary { sleeps, parked: true };
    let slept = |sleeps| WaitSummary { sleeps, parked: false };
    for summary in [summary::<Park>, summary::<Adaptive>, summary::<Gcr>, summary::<Control>] {
        assert_eq!([0, 1, 2].map(summary), [WaitSummary::default(), parked(1), parked(2)]);
    }
    for summary in [summary::<Backoff>, summary::<Published>] {
        assert_eq!([0, 1, 2].map(summary), [slept(0), slept(1), slept(2)]);
    }
}

/// Whether a wait of `length` nanoseconds, with a turn per microsecond, asks for a controller.
fn reports_contention<L: LoadManager>(length: u64) -> bool {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let lock = Busy { progress: 1, ..Busy::default() };
    let wait = process.wait(&eventcount, &lock);
    let begin = Native::now();
    let mut waiter = L::begin_wait(&wait, begin);
    for time in (0..=length).step_by(1000) {
        L::turn(&mut waiter, &wait, begin + time);
    }
    L::end_wait(waiter, &wait);
    process.control.contended.load(Relaxed) != 0
}

#[test]
fn only_long_waits_report_contention() {
    for reports in [reports_contention::<Control>, reports_contention::<Published>] {
        assert!(!reports(CONTENTION_NS / 2));
        assert!(reports(CONTENTION_NS + 5000));
    }
}

#[test]
fn adaptive_wait_teaches_its_thread_how_long_it_spun() {
    let (process, eventcount, lock) = (OneThread::new(), Eventcount::new(), Busy::default());
    let wait = process.wait(&eventcount, &lock);
    let mut waiter = Adaptive::begin_wait(&wait, 5000);
    Adaptive::turn(&mut waiter, &wait, 5000 + 800);
    Adaptive::end_wait(waiter, &wait);
    assert_eq!(process.state.get().spun, 100, "an eighth");
    let bound = |time: u64| {
        let mut waiter = Adaptive::begin_wait(&wait, 5000);
        Adaptive::turn(&mut waiter, &wait, 5000 + time)
    };
    assert_eq!((bound(1200), bound(1201)), (Verdict::Spin, Verdict::Leave));
}

/// The domain of a lock, and the key of another lock.
fn domain_and_other_key(wait: &Wait<'_, OneThread>) -> (usize, u64) {
    (PassiveSets::<Native>::domain_of(wait.key()), wait.key() + 1)
}

#[test]
fn restricted_waiter_occupies_the_domain_of_a_mutex_until_it_ends() {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let lock = Busy { is_exclusive: true, ..Busy::default() };
    let wait = process.wait(&eventcount, &lock);
    let sets = &process.control.passive;
    let (domain, other_key) = domain_and_other_key(&wait);
    let mut waiter = Gcr::begin_wait(&wait, 0);
    assert_eq!(Gcr::turn(&mut waiter, &wait, 0), Verdict::Spin);
    assert!(sets.is_contended(domain) && !sets.enter(domain, other_key));
    Gcr::end_wait(waiter, &wait);
    assert!(!sets.is_contended(domain) && sets.enter(domain, other_key));
}

#[test]
fn waiter_of_a_reader_writer_lock_is_not_restricted() {
    let (process, eventcount, lock) = (OneThread::new(), Eventcount::new(), Busy::default());
    let wait = process.wait(&eventcount, &lock);
    let sets = &process.control.passive;
    let (domain, other_key) = domain_and_other_key(&wait);
    assert!(sets.enter(domain, other_key));
    let mut waiter = Gcr::begin_wait(&wait, 0);
    assert_eq!(Gcr::turn(&mut waiter, &wait, 0), Verdict::Spin);
    assert!(!sets.is_contended(domain));
    Gcr::end_wait(waiter, &wait);
    assert!(!sets.enter(domain, wait.key()), "the other lock still has the domain");
}

#[test]
fn active_waiter_parks_after_a_long_wait() {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let lock = Busy { is_exclusive: true, ..Busy::default() };
    let wait = process.wait(&eventcount, &lock);
    let mut waiter = Gcr::begin_wait(&wait, 0);
    let mut leaves = |us: &u64| Gcr::turn(&mut waiter, &wait, us * 1000) == Verdict::Leave;
    assert_eq!((0..10_000).find(&mut leaves), Some(LONG_WAIT_NS / 1000 + 1));
    Gcr::end_wait(waiter, &wait);
}

#[test]
fn passive_waiter_that_returns_is_admitted_again() {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let lock = Busy { is_exclusive: true, ..Busy::default() };
    let mut wait = process.wait(&eventcount, &lock);
    wait.deadline = Some(Native::now());
    let sets = &process.control.passive;
    let (domain, _) = domain_and_other_key(&wait);
    assert!(sets.admit(domain, 1));
    let mut waiter = Gcr::begin_wait(&wait, 0);
    assert_eq!(Gcr::turn(&mut waiter, &wait, 0), Verdict::Leave, "passive");
    assert!(!Gcr::block(&mut waiter, &wait), "late");
    sets.retire(domain);
    assert_eq!(Gcr::turn(&mut waiter, &wait, 1000), Verdict::Spin, "active");
    assert!(sets.is_contended(domain));
    Gcr::end_wait(waiter, &wait);
    assert!(!sets.is_contended(domain));
}

#[test]
fn domains_of_locks_are_many() {
    let used: std::collections::BTreeSet<usize> =
        (1..=256).map(|lock| PassiveSets::<Native>::domain_of(lock * 64)).collect();
    assert!(used.len() > 100, "{} domains of 256 locks", used.len());
}

#[test]
fn pause_that_a_waiter_ends_is_recorded_by_its_magnitude() {
    let control = OneThread::new().control;
    let (pinned, slots) = (&control.pinned, &control.slots);
    slots.set_target(1);
    let thread = Native::thread_id();
    assert!(!pinned.resume(thread, 1000), "not woken");
    let claim = slots.claim(thread).expect("a slot");
    let pin = pinned.pin(thread, 7, slots, 1000);
    assert_eq!(slots.totals().woken, 1, "{claim:?}");
    assert!(pinned.resume(thread, 1100) && !pinned.resume(thread, 1100));
    assert_eq!(pinned.pauses()[7], 1, "below 2^7 ns");
    pinned.end(pin);
}

#[test]
fn pins_of_a_parent_process_are_forgotten() {
    let control = OneThread::new().control;
    let pin = control.pinned.pin(5, 7, &control.slots, 1000);
    assert!(control.pinned.is_pinned(5, 0), "{pin:?}");
    control.reset();
    assert!(!control.pinned.is_pinned(5, 0));
}

#[test]
fn long_wait_has_the_lock_reserved_for_it_and_for_the_next() {
    let (process, eventcount, lock) = (OneThread::new(), Eventcount::new(), Busy::default());
    let mut wait = process.wait(&eventcount, &lock);
    wait.deadline = Some(Native::now());
    wait.begin = u64::MAX;
    assert!(![wait.park(), wait.park()].contains(&true) && lock.reserved.get() == 0, "short");
    wait.begin = Native::now() - OVERTAKEN_NS;
    wait.parked.set(None);
    assert!(!wait.park() && lock.reserved.get() == 0, "nobody has overtaken it");
    assert!(wait.park());
    assert_eq!(lock.reserved.get(), 1, "the second is too early");
    std::thread::sleep(std::time::Duration::from_nanos(RESERVE_EVERY_NS));
    assert!(process.control.may_reserve(Native::now()));
    assert!(!process.control.may_reserve(Native::now()));
}

#[test]
fn lock_that_cannot_be_reserved_leaves_the_reservation_to_others() {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let lock = Busy { cannot_be_reserved: true, ..Busy::default() };
    let mut wait = process.wait(&eventcount, &lock);
    (wait.begin, wait.deadline) = (Native::now() - OVERTAKEN_NS, Some(Native::now()));
    wait.park();
    wait.park();
    assert!(lock.reserved.get() == 0 && process.control.may_reserve(Native::now()));
}

#[test]
fn lock_is_not_reserved_while_sections_are_short() {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let reserved_after = |progress| {
        let lock = Busy { progress, ..Busy::default() };
        let mut wait = process.wait(&eventcount, &lock);
        (wait.begin, wait.deadline) = (Native::now() - OVERTAKEN_NS, Some(Native::now()));
        wait.park();
        std::thread::sleep(std::time::Duration::from_millis(1));
        wait.park();
        lock.reserved.get()
    };
    assert_eq!([0, u32::MAX / 8].map(reserved_after), [1, 0]);
}
