//! The sleep-slot buffer, and the holders that do not sleep in it.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use loom::thread;
use unconvoy::load::LoadControl;
use unconvoy::parking::slots::SleepSlots;
use unconvoy::primitive::Checked;

use crate::model::{explore, time_that};

/// Claimers against a controller that raises and drops the target. Nobody times out in this model,
/// so that a thread which slept beyond a target of 0 would be a deadlock; and S and W agree in the
/// end.
#[test]
fn sleep_slots_lose_no_wake_up_and_keep_count() {
    let _time = time_that(false);
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

/// A claim that is given back while the controller clears it is counted once.
#[test]
fn giving_back_meets_waking() {
    let _time = time_that(false);
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

/// A waiter that lets a sleeper go, again and again, while that one may be about to sleep: it is woken, or does not
/// sleep. Nobody else would wake it.
#[test]
fn letting_one_go_meets_a_claim() {
    let _time = time_that(false);
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
            slots.let_one_go();
            thread::yield_now();
        }
        sleeper.join().expect("no panics");
        assert_eq!(slots.totals().slept, slots.totals().left);
        assert!(
            slots.target() + slots.totals().slept <= 1 + slots.totals().given_back,
            "a place that was let go is gone"
        );
    });
}

/// Two waiters that let one go at a time, and one that raises the target: it ends where somebody put it, and nobody
/// sleeps beyond it.
#[test]
fn letting_go_meets_raising() {
    let _time = time_that(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        slots.raise_target(1);
        let claim = slots.claim(7).expect("room for one");
        let others: Vec<_> = [false, true]
            .map(|raises| {
                let slots = slots.clone();
                thread::spawn(move || if raises { slots.raise_target(2) } else { slots.let_one_go() })
            })
            .into();
        slots.let_one_go();
        others.into_iter().for_each(|thread| thread.join().expect("no panics"));
        assert!(slots.sleeping() <= slots.target());
        slots.give_back(claim);
        assert_eq!((slots.sleeping(), slots.totals().slept, slots.totals().left), (0, 1, 1));
    });
}

/// The array wraps around: slots are used again, and never by two claims at a time.
#[test]
fn slots_are_used_again_after_the_array_wrapped_around() {
    let _time = time_that(false);
    explore(2, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        slots.set_target(1);
        let claimer = {
            let slots = slots.clone();
            thread::spawn(move || (0..4).filter_map(|_| slots.claim(9)).map(|claim| slots.give_back(claim)).count())
        };
        slots.set_target(1);
        slots.set_target(1);
        assert!(claimer.join().expect("no panics") <= 4);
        assert_eq!(slots.totals().slept, slots.totals().left);
    });
}

/// A contender gives up while another waiter goes to sleep on its account: the sleeper is woken, or
/// sees that nobody contends. No time passes and no controller comes.
#[test]
fn a_sleeper_does_not_rely_on_a_contender_that_gave_up() {
    const PLACE: u64 = 5;
    let _time = time_that(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        let contends = Arc::new(loom::sync::atomic::AtomicBool::new(true));
        slots.set_target(1);
        let sleeper = {
            let (slots, contends) = (slots.clone(), contends.clone());
            thread::spawn(move || {
                let claim = slots.claim(7).expect("room for one");
                slots.announce(&claim, PLACE);
                if contends.load(Acquire) {
                    slots.sleep(claim, u64::MAX);
                } else {
                    slots.give_back(claim);
                }
            })
        };
        contends.store(false, Release);
        slots.wake_waiter(PLACE);
        sleeper.join().expect("no panics");
        assert_eq!(slots.sleeping(), 0);
    });
}

/// A holder that goes to sleep for load while a waiter pins it: no time passes and no controller comes, so
/// that a holder which slept on would be a deadlock.
#[test]
fn a_pinned_holder_does_not_sleep() {
    const HOLDER: u32 = 7;
    let _time = time_that(false);
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
        let pin = control.pinned.pin(HOLDER, &control.slots, 1);
        holder.join().expect("no panics");
        control.pinned.end(pin);
        assert!(!control.pinned.is_pinned(HOLDER, 0));
        assert_eq!(control.slots.sleeping(), 0);
    });
}
