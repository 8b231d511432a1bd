//! Checkpoints under load control: who sleeps there, and what wakes a sleeper.
#![cfg(not(loom))]

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use unconvoy::load::backoff::Backoff;
use unconvoy::load::control::Control;
use unconvoy::load::published::Published;
use unconvoy::load::{Context, Holds, LoadControl, LoadManager, ThreadState};
use unconvoy::primitive::{Clock as _, Native, Threads as _};

thread_local! {
    static STATE: Cell<ThreadState> = Cell::new(ThreadState::default());
}

/// A process whose test plays the controller.
#[derive(Clone, Copy)]
struct Uncontrolled(&'static LoadControl<Native>);

impl Context for Uncontrolled {
    type Machine = Native;

    fn control(self) -> &'static LoadControl<Native> {
        self.0
    }

    fn thread_state(self) -> ThreadState {
        STATE.get()
    }

    fn set_thread_state(self, state: ThreadState) {
        STATE.set(state);
    }

    fn ensure_controller(self) {}
}

fn process() -> Uncontrolled {
    let process = Uncontrolled(Box::leak(Box::default()));
    process.0.sleep.store(3_600_000_000_000, Relaxed);
    process
}

fn wait_until(truth: impl Fn() -> bool) {
    while !truth() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Starts a thread that passes a checkpoint and returns whether it slept.
fn sleeper<L: LoadManager>(process: Uncontrolled) -> thread::JoinHandle<bool> {
    thread::spawn(move || L::checkpoint(process, || Holds::Nothing))
}

fn sleeps_until_target_falls<L: LoadManager>() {
    let process = process();
    let slots = &process.0.slots;
    assert!(!L::checkpoint(process, || panic!("asked without load")), "no load");
    slots.set_target(1);
    let asleep = sleeper::<L>(process);
    wait_until(|| slots.sleeping() == 1);
    assert!(!asleep.is_finished());
    slots.set_target(0);
    assert!(asleep.join().expect("no panic"));
    assert_eq!((slots.sleeping(), slots.totals().woken), (0, 1));
}

#[test]
fn thread_at_checkpoint_under_load_sleeps_until_target_falls() {
    sleeps_until_target_falls::<Control>();
    sleeps_until_target_falls::<Published>();
}

fn sleeps_until_time_out<L: LoadManager>() {
    let process = process();
    process.0.sleep.store(5_000_000, Relaxed);
    process.0.slots.set_target(1);
    let begin = Instant::now();
    assert!(L::checkpoint(process, || Holds::Nothing));
    assert!(begin.elapsed() >= Duration::from_millis(5));
    assert_eq!(process.0.slots.totals().timed_out, 1);
}

#[test]
fn sleeper_without_a_waker_times_out() {
    sleeps_until_time_out::<Control>();
    sleeps_until_time_out::<Published>();
}

fn holder_stays_awake<L: LoadManager>() {
    let process = process();
    process.0.slots.set_target(1);
    assert!(!L::checkpoint(process, || Holds::Locks));
    let pending_wake_until = Native::now() + 3_600_000_000_000;
    STATE.set(ThreadState { pending_wake_until, ..ThreadState::default() });
    assert!(!L::checkpoint(process, || Holds::Unknown), "it may hold a lock with parked waiters");
    STATE.set(ThreadState::default());
    assert_eq!(process.0.slots.totals().slept, 0);
}

#[test]
fn thread_that_holds_a_lock_does_not_sleep() {
    holder_stays_awake::<Control>();
    holder_stays_awake::<Published>();
    let process = process();
    process.0.set_overload(1.0);
    assert!(!Backoff::checkpoint(process, || Holds::Locks));
}

#[test]
fn pinned_thread_does_not_sleep() {
    let process = process();
    let slots = &process.0.slots;
    slots.set_target(1);
    let pin = process.0.pinned.pin(Native::thread_id(), 1, slots, 1);
    assert!(!Control::checkpoint(process, || Holds::Nothing));
    assert_eq!((slots.totals().given_back, slots.sleeping()), (1, 0));
    process.0.pinned.end(pin);
}

#[test]
fn sleeper_found_to_hold_a_lock_is_woken() {
    let process = process();
    let slots = &process.0.slots;
    slots.set_target(1);
    let (sender, receiver) = std::sync::mpsc::channel();
    let asleep = thread::spawn(move || {
        sender.send(Native::thread_id()).expect("the test listens");
        Control::checkpoint(process, || Holds::Unknown)
    });
    let holder = receiver.recv().expect("the thread runs");
    wait_until(|| slots.sleeping() == 1);
    let pin = process.0.pinned.pin(holder, 1, slots, 1);
    assert!(asleep.join().expect("no panic"));
    process.0.pinned.end(pin);
}

#[test]
fn thread_at_checkpoint_without_room_stays_awake() {
    let process = process();
    let slots = &process.0.slots;
    slots.set_target(1);
    let asleep = sleeper::<Control>(process);
    wait_until(|| slots.sleeping() == 1);
    assert!(!Control::checkpoint(process, || panic!("asked without room")));
    assert!(!asleep.is_finished());
    slots.set_target(0);
    assert!(asleep.join().expect("no panic"));
}

#[test]
fn sleeper_whose_turn_is_over_is_woken_by_the_controller() {
    let process = process();
    let slots = &process.0.slots;
    slots.set_target(1);
    let asleep = sleeper::<Control>(process);
    wait_until(|| slots.sleeping() == 1);
    slots.serve_turns(0, Native::now(), process.0.sleep.load(Relaxed));
    assert!(asleep.join().expect("no panic"));
}

#[test]
fn thread_that_has_just_slept_stays_awake() {
    let process = process();
    process.0.slots.set_target(1);
    STATE.set(ThreadState { awake_since: Native::now() + 1_000_000_000, ..ThreadState::default() });
    assert!(!Control::checkpoint(process, || Holds::Nothing));
    STATE.set(ThreadState::default());
}

/// The slot's last user waited for a lock. A contender of that lock that gives up must wake a
/// waiter, and a waiter that takes the sleeper's place must not count it as a contender.
#[test]
fn sleeper_at_checkpoint_waits_for_no_lock() {
    const KEY: u32 = 5;
    let process = process();
    let slots = &process.0.slots;
    slots.set_target(1);
    for position in 0..unconvoy::parking::slots::SLOTS {
        let claim = slots.claim(1).unwrap_or_else(|| panic!("room at {position}"));
        slots.announce(&claim, KEY);
        slots.give_back(claim);
    }
    slots.set_target(1); // reclaims the slots
    let asleep = sleeper::<Control>(process);
    wait_until(|| slots.sleeping() == 1);
    slots.wake_waiter(KEY);
    assert_eq!(slots.sleeping(), 1);
    assert_eq!(slots.wake_longest(), Some(0));
    assert!(asleep.join().expect("no panic"));
}

#[test]
fn backoff_at_checkpoint_sleeps_under_overload_only() {
    let process = process();
    process.0.backoff.store(1_000_000, Relaxed);
    assert!(!Backoff::checkpoint(process, || panic!("asked without overload")));
    process.0.set_overload(1.0);
    assert!(Backoff::checkpoint(process, || Holds::Nothing));
    assert_eq!(process.0.backed_off.load(Relaxed), 0);
}
