//! Immediate notice: waiters adjust T to the live load between two intervals of the controller
//! (rule 6 of [`control`](super::control); ASPLOS 2010, section 6.2.2).

use core::sync::atomic::Ordering::Relaxed;

use super::Context;
use super::sensor::LiveLoad;
use crate::primitive::Atomic;

/// Least time between two changes of T by waiters. The thread that one change puts to sleep must
/// have left its processor before the next, or the same excess would count twice (section 5.1: the
/// load follows T within 200 us; a context switch takes a few microseconds).
const NOTICE_NS: u64 = 100_000;

/// Adjusts T to the live `load` unless a waiter has just done so (rule 6).
#[cold]
pub(super) fn follow<X: Context>(process: X, now: u64, load: LiveLoad) {
    let control = process.control();
    let due = control.follow_at.load(Relaxed);
    let is_in_bounds = (load.low..=load.high).contains(&load.runnable);
    if is_in_bounds
        || now < due
        || control.follow_at.compare_exchange(due, now + NOTICE_NS, Relaxed, Relaxed).is_err()
    {
        return;
    }
    if load.runnable > load.high {
        control.slots.raise_target(control.slots.sleeping() + load.runnable - load.high);
        process.ensure_controller(); // lowers T again if no thread polls by then
    } else {
        control.slots.wake_one_and_lower_target();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::load::one_thread::OneThread;

    #[test]
    fn target_with_live_load_follows_it() {
        let process = OneThread::new();
        let slots = &process.control().slots;
        let load = |runnable| LiveLoad { runnable, low: 2, high: 3 };
        let mut now = NOTICE_NS;
        let mut follow = |runnable| {
            now += NOTICE_NS;
            follow(process, now, load(runnable));
            slots.target()
        };
        assert_eq!((follow(2), follow(3)), (0, 0), "between the bounds");
        assert_eq!(follow(5), 2);
        let claims = [1, 2].map(|thread| slots.claim(thread).expect("room for two"));
        assert_eq!(follow(4), 3, "added to the sleepers");
        assert_eq!(
            (follow(1), slots.sleeping()),
            (1, 1),
            "one sleeper wakes, and its slot stays empty"
        );
        assert_eq!((follow(1), slots.sleeping()), (0, 0));
        assert_eq!(follow(1), 0);
        claims.into_iter().for_each(|claim| slots.give_back(claim));
    }

    #[test]
    fn second_change_within_notice_time_is_ignored() {
        let process = OneThread::new();
        let slots = &process.control().slots;
        let follow = |now, runnable| follow(process, now, LiveLoad { runnable, low: 2, high: 3 });
        follow(NOTICE_NS, 4);
        follow(NOTICE_NS + 1, 9);
        assert_eq!(slots.target(), 1);
        follow(2 * NOTICE_NS, 9);
        assert_eq!(slots.target(), 6);
    }
}
