//! The sleep-slot buffer, and pinned holders, which do not sleep in it.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use loom::thread;
use unconvoy::load::control::Control;
use unconvoy::load::{Context as _, Holds, LoadControl, LoadManager as _};
use unconvoy::lock::Process as _;
use unconvoy::parking::slots::SleepSlots;
use unconvoy::primitive::Checked;

use crate::model::{explore, set_time};

/// Claimers against a controller that raises and drops the target. No sleep times out in this
/// model, so a thread that sleeps beyond a target of 0 is a deadlock. S and W agree at the end.
#[test]
fn target_changes_lose_no_wake_up_and_keep_count() {
    let _time = set_time(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        let sleepers: Vec<_> = [1, 2]
            .map(|id| {
                let slots = slots.clone();
                thread::spawn(move || {
                    if slots.has_room()
                        && let Some(claim) = slots.claim(id)
                    {
                        slots.sleep(claim, u64::MAX);
                    }
                })
            })
            .into();
        slots.set_target(1);
        assert!(slots.target() == 1);
        slots.set_target(0);
        sleepers.into_iter().for_each(|thread| thread.join().expect("no panics"));
        let totals = slots.totals();
        assert_eq!(totals.slept, totals.left);
        assert_eq!(slots.sleeping(), 0);
    });
}

/// Threads that claim at once each get a slot if there is room for all.
#[test]
fn claims_at_once_all_succeed() {
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        slots.set_target(2);
        let other = {
            let slots = slots.clone();
            thread::spawn(move || slots.give_back(slots.claim(1).expect("room for both")))
        };
        slots.give_back(slots.claim(2).expect("room for both"));
        other.join().expect("no panics");
        assert_eq!(slots.totals().slept, 2);
    });
}

/// A claim that is given back while the controller clears it counts once.
#[test]
fn claim_given_back_during_a_wake_up_counts_once() {
    let _time = set_time(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        slots.set_target(1);
        let claimer = {
            let slots = slots.clone();
            thread::spawn(move || slots.claim(7).map(|claim| slots.give_back(claim)).is_some())
        };
        slots.set_target(0);
        claimer.join().expect("no panics");
        let totals = slots.totals();
        assert_eq!(totals.slept, totals.left);
        assert!(totals.woken + totals.given_back <= totals.slept);
        slots.set_target(0);
        assert_eq!(slots.sleeping(), 0);
    });
}

/// A waiter repeatedly releases a sleeper, which may not have fallen asleep yet: the sleeper is
/// woken or does not sleep. No other thread would wake it.
#[test]
fn sleeper_released_during_its_claim_wakes() {
    let _time = set_time(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        let awake = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        slots.raise_target(1);
        let sleeper = {
            let (slots, awake) = (slots.clone(), awake.clone());
            thread::spawn(move || {
                if let Some(claim) = slots.claim(7) {
                    slots.sleep(claim, u64::MAX);
                }
                awake.store(true, Release);
            })
        };
        while !awake.load(Acquire) {
            slots.wake_one_and_lower_target();
            thread::yield_now();
        }
        sleeper.join().expect("no panics");
        assert_eq!(slots.totals().slept, slots.totals().left);
        assert!(
            slots.target() + slots.totals().slept <= 1 + slots.totals().given_back,
            "the released slot is not claimed again"
        );
    });
}

/// Two waiters release a sleeper while a third raises the target: T ends at one of the written
/// values, and no thread sleeps beyond it.
#[test]
fn target_raised_during_a_release_bounds_sleepers() {
    let _time = set_time(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        slots.raise_target(1);
        let claim = slots.claim(7).expect("room for one");
        let others: Vec<_> = [false, true]
            .map(|raises| {
                let slots = slots.clone();
                thread::spawn(move || {
                    if raises { slots.raise_target(2) } else { slots.wake_one_and_lower_target() }
                })
            })
            .into();
        slots.wake_one_and_lower_target();
        others.into_iter().for_each(|thread| thread.join().expect("no panics"));
        assert!(slots.sleeping() <= slots.target());
        slots.give_back(claim);
        assert_eq!((slots.sleeping(), slots.totals().slept, slots.totals().left), (0, 1, 1));
    });
}

/// The array wraps around: slots are reused, and never by two claims at a time.
#[test]
fn slots_after_wrap_around_are_reused() {
    let _time = set_time(false);
    explore(2, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        slots.set_target(1);
        let claimer = {
            let slots = slots.clone();
            thread::spawn(move || {
                (0..4).filter_map(|_| slots.claim(9)).map(|claim| slots.give_back(claim)).count()
            })
        };
        slots.set_target(1);
        slots.set_target(1);
        assert!(claimer.join().expect("no panics") <= 4);
        assert_eq!(slots.totals().slept, slots.totals().left);
    });
}

/// A contender gives up while another waiter goes to sleep because of it: the sleeper is woken, or
/// sees that no thread contends. There is no time-out and no controller.
#[test]
fn sleeper_whose_contender_gives_up_is_woken() {
    const KEY: u32 = 5;
    let _time = set_time(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        let contends = Arc::new(loom::sync::atomic::AtomicBool::new(true));
        slots.set_target(1);
        let sleeper = {
            let (slots, contends) = (slots.clone(), contends.clone());
            thread::spawn(move || {
                let claim = slots.claim(7).expect("room for one");
                slots.announce(&claim, KEY);
                if contends.load(Acquire) {
                    slots.sleep(claim, u64::MAX);
                } else {
                    slots.give_back(claim);
                }
            })
        };
        contends.store(false, Release);
        slots.wake_waiter(KEY);
        sleeper.join().expect("no panics");
        assert_eq!(slots.sleeping(), 0);
    });
}

/// A holder goes to sleep for load while a waiter pins it. There is no time-out and no controller,
/// so a holder that stays asleep is a deadlock.
#[test]
fn pinned_holder_does_not_sleep() {
    const HOLDER: u32 = 7;
    let _time = set_time(false);
    explore(3, || {
        let control = Arc::new(LoadControl::<Checked>::new());
        control.slots.set_target(1);
        let holder = {
            let control = control.clone();
            thread::spawn(move || {
                let Some(claim) = control.slots.claim(HOLDER) else { return };
                if control.pinned.is_pinned(HOLDER, 0) {
                    control.slots.give_back(claim);
                } else {
                    control.slots.sleep(claim, u64::MAX);
                }
            })
        };
        let pin = control.pinned.pin(HOLDER, 0, &control.slots, 1);
        holder.join().expect("no panics");
        control.pinned.end(pin);
        assert!(!control.pinned.is_pinned(HOLDER, 0));
        assert_eq!(control.slots.sleeping(), 0);
    });
}

/// Two threads at checkpoints, of which one may sleep. No sleep times out, so a thread that stays
/// asleep at a target of 0 is a deadlock.
#[test]
fn sleeper_at_checkpoint_wakes_when_target_falls() {
    let _time = set_time(false);
    explore(3, || {
        let slots = &Checked::context().control().slots;
        slots.set_target(1);
        let threads = [(); 2]
            .map(|()| thread::spawn(|| Control::checkpoint(Checked::context(), || Holds::Nothing)));
        slots.set_target(0);
        let slept = threads.map(|thread| thread.join().expect("no panics"));
        let totals = slots.totals();
        assert_eq!(totals.slept, totals.left);
        assert!(slept.into_iter().filter(|&slept| slept).count() as u32 <= totals.slept);
        assert_eq!(slots.sleeping(), 0);
    });
}
