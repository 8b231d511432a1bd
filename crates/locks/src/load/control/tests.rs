use std::cell::Cell;

use super::*;
use crate::load::one_thread::{Busy, OneThread};
use crate::parking::eventcount::Eventcount;
use crate::primitive::Native;

/// The first verdict of a wait to leave, and when: one turn per microsecond, for `length`
/// microseconds.
fn leaves_after(wait: &Wait<'_, OneThread>, begin: u64, length: u64) -> Option<u64> {
    let mut waiter = Control::begin_wait(wait, begin);
    let left = (0..length)
        .find(|us| Control::turn(&mut waiter, wait, begin + us * 1000) == Verdict::Leave);
    Control::end_wait(waiter, wait);
    left
}

#[test]
fn lock_without_progress_makes_waiter_park_at_second_check() {
    let (process, eventcount, lock) = (OneThread::new(), Eventcount::new(), Busy::default());
    assert_eq!(leaves_after(&process.wait(&eventcount, &lock), 0, 1000), Some(20));
}

#[test]
fn one_wait_parks_at_once_on_request() {
    let (process, eventcount, lock) = (OneThread::new(), Eventcount::new(), Busy::default());
    process.set_thread_state(ThreadState { parks_at_once: true, ..ThreadState::default() });
    let wait = process.wait(&eventcount, &lock);
    let left = [0, 1].map(|_| leaves_after(&wait, 0, 1000));
    assert_eq!(left, [Some(0), Some(20)]);
}

#[test]
fn waiter_has_acquisitions_counted_before_it_parks() {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let left = [0, 1].map(|progress| {
        let lock = Busy { progress, unwatched: Cell::new(true), ..Busy::default() };
        leaves_after(&process.wait(&eventcount, &lock), 0, 1000)
    });
    assert_eq!(left, [Some(40), None]);
}

/// A thread that others needed in a wait for a lock: with room in the buffer, how long it spins in
/// later waits for that lock and another one.
fn spins_after_pin_by_waiter_of(other: bool) -> [Option<u64>; 3] {
    let (process, eventcounts) = (OneThread::new(), [Eventcount::new(), Eventcount::new()]);
    let lock = Busy { progress: 1, ..Busy::default() };
    let waits = [0, 1].map(|one: usize| process.wait(&eventcounts[one], &lock));
    let control = process.control;
    control.slots.set_target(1);
    let key = waits[usize::from(other)].key();
    let pin = control.pinned.pin(Native::thread_id(), key, &control.slots, 1);
    assert_eq!(leaves_after(&waits[0], 1_000_000, 21), None, "pinned");
    control.pinned.end(pin);
    let after = |wait: &Wait<'_, _>, ms: u64| leaves_after(wait, ms * 1_000_000, 21);
    [after(&waits[0], 2), after(&waits[1], 2), after(&waits[0], 200)]
}

#[test]
fn thread_needed_at_lock_does_not_sleep_there_for_some_time() {
    assert_eq!(spins_after_pin_by_waiter_of(true), [None, Some(20), Some(20)]);
}

#[test]
fn pin_by_waiter_of_same_lock_is_late_and_forgotten() {
    assert_eq!(spins_after_pin_by_waiter_of(false), [Some(20), Some(20), Some(20)]);
}

/// Whether the waiter leaves within `length` turns, one per microsecond.
fn leaves(waiter: &mut Waiter<Shipped>, wait: &Wait<'_, OneThread>, length: u64) -> bool {
    let begin = Native::now();
    (0..length).any(|us| Control::turn(waiter, wait, begin + us * 1000) == Verdict::Leave)
}

#[test]
fn waiter_sleeps_once_in_a_wait() {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let lock = Busy { progress: 1, ..Busy::default() };
    let wait = process.wait(&eventcount, &lock);
    process.control.slots.set_target(1);
    process.control.sleep.store(1_000_000, Relaxed);
    let mut waiter = Control::begin_wait(&wait, Native::now());
    assert!(leaves(&mut waiter, &wait, 100));
    Control::block(&mut waiter, &wait);
    assert_eq!(process.control.slots.totals().timed_out, 1);
    // The first turn may count a gap: the thread may be off the processor before it.
    let turns = (LONG_WAIT_NS - LONGEST_TURN_NS) / 1000;
    assert!(!leaves(&mut waiter, &wait, turns), "a second sleep");
    Control::end_wait(waiter, &wait);
}

#[test]
fn exchange_goes_before_free_slot() {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let lock = Busy { progress: 1, ..Busy::default() };
    let wait = process.wait(&eventcount, &lock);
    let slots = &process.control.slots;
    slots.set_target(2);
    process.control.sleep.store(1_000_000, Relaxed);
    let other = slots.claim(Native::thread_id() + 1).expect("a slot");
    let mut waiter = Control::begin_wait(&wait, Native::now());
    assert!(slots.has_room());
    assert!(leaves(&mut waiter, &wait, 100));
    Control::block(&mut waiter, &wait);
    assert_eq!(slots.totals().woken, 1, "{other:?} is woken");
    Control::end_wait(waiter, &wait);
}

#[test]
fn requeued_waiter_that_sleeps_passes_wakeup_on() {
    let (process, eventcount) = (OneThread::new(), Eventcount::new());
    let lock = Busy { progress: 1, ..Busy::default() };
    let requeued_at = core::ptr::from_ref(&eventcount).addr();
    process.set_thread_state(ThreadState { requeued_at, ..ThreadState::default() });
    let wait = process.wait(&eventcount, &lock);
    process.control.slots.set_target(1);
    process.control.sleep.store(1_000_000, Relaxed);
    let mut waiter = Control::begin_wait(&wait, Native::now());
    assert!(leaves(&mut waiter, &wait, 100));
    Control::block(&mut waiter, &wait);
    assert_eq!(lock.parked.get(), 1, "other threads may be parked still");
    Control::end_wait(waiter, &wait);
}

/// Woken parkers of a lock slept for load, and the others stayed parked for .1 s at a busy lock.
#[test]
fn parker_that_sleeps_passes_wakeup_on() {
    let (process, eventcount, lock) = (OneThread::new(), Eventcount::new(), Busy::default());
    let mut wait = process.wait(&eventcount, &lock);
    wait.deadline = Some(Native::now());
    let mut waiter = Control::begin_wait(&wait, Native::now());
    assert!(leaves(&mut waiter, &wait, 100), "no progress");
    Control::block(&mut waiter, &wait);
    let before = lock.parked.get();
    process.control.slots.set_target(1);
    assert!(leaves(&mut waiter, &wait, 100));
    Control::block(&mut waiter, &wait);
    assert_eq!((before, lock.parked.get()), (1, 2));
    Control::end_wait(waiter, &wait);
}
