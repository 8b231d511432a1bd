use super::slots::{SleepSlots, Totals};
use crate::primitive::{Native, Threads as _};

const MS: u64 = 1_000_000;
const TIMEOUT_NS: u64 = 100 * MS;

/// Slots in which `sleepers` threads are about to sleep, with that target.
fn slots(sleepers: u32) -> Box<SleepSlots<Native>> {
    let slots = Box::<SleepSlots<Native>>::default();
    slots.set_target(sleepers);
    for thread in 1..=sleepers {
        // The other threads sleep no more than this test lets them.
        let claim = slots.claim(Native::thread_id() + thread).expect("room");
        slots.announce(&claim, thread);
    }
    slots
}

/// Whether a waiter that has been awake since time 0 may exchange at the time `now`.
fn exchanges(slots: &SleepSlots<Native>, now: u64) -> bool {
    let claim = slots.claim_in_exchange(now, TIMEOUT_NS, || 0);
    let has_claim = claim.is_some();
    claim.into_iter().for_each(|claim| slots.give_back(claim));
    has_claim
}

#[test]
fn exchanges_are_due_several_times_in_a_time_out_for_each_sleeper() {
    let slots = slots(200);
    let (begin, interval) = (1000 * MS, TIMEOUT_NS / 200 * 3 / 4);
    assert!(exchanges(&slots, begin));
    assert!(!exchanges(&slots, begin + interval - 1));
    assert!(exchanges(&slots, begin + interval));
}

#[test]
fn exchanges_with_few_sleepers_are_a_millisecond_apart() {
    let slots = slots(1);
    assert!(exchanges(&slots, 1000 * MS));
    assert!(!exchanges(&slots, 1001 * MS - 1));
    assert!(exchanges(&slots, 1001 * MS));
}

#[test]
fn fresh_thread_leaves_the_exchange_to_others_for_half_an_interval() {
    let slots = slots(1);
    let now = 1000 * MS;
    assert!(exchanges(&slots, now));
    let fresh = |now: u64| slots.claim_in_exchange(now, TIMEOUT_NS, || now - MS).is_some();
    assert!(!fresh(now + MS) && !fresh(now + MS + MS / 2 - 1));
    assert!(fresh(now + MS + MS / 2));
}

#[test]
fn overdue_turns_wake_the_longest_sleepers() {
    let slots = slots(4);
    let serve = |since, now| {
        slots.serve_turns(since, now, TIMEOUT_NS);
        slots.totals().woken
    };
    assert!(exchanges(&slots, 1000 * MS));
    assert_eq!(serve(1000 * MS, 1001 * MS), 0, "due, and not overdue");
    assert_eq!(serve(1000 * MS, 1003 * MS), 2);
    assert_eq!(serve(1003 * MS, 1003 * MS), 2, "not due");
    assert_eq!(slots.wake_longest(), Some(3), "the first two woke");
    assert_eq!(serve(1003 * MS, 1099 * MS), 4, "no more than sleep");
}

#[test]
fn turns_before_the_last_interval_are_not_overdue() {
    let slots = slots(4);
    assert!(exchanges(&slots, 1000 * MS));
    slots.serve_turns(1049 * MS, 1050 * MS, TIMEOUT_NS);
    assert_eq!(slots.totals().woken, 1);
}

#[test]
fn wake_times_are_spread_over_the_time_out() {
    let slots = slots(4);
    let now = 1000 * MS;
    let times = [1, 2, 3, 4, 5].map(|_| slots.wake_time(now, TIMEOUT_NS));
    assert_eq!(times.map(|time| (time - now) / MS), [25, 50, 75, 100, 100]);
    assert_eq!(slots.wake_time(now + 80 * MS, TIMEOUT_NS), now + 125 * MS);
}

#[test]
fn thread_is_counted_asleep_until_it_is_woken_or_gives_its_slot_back() {
    let slots = Box::<SleepSlots<Native>>::default();
    assert!(!slots.has_room() && slots.claim(1).is_none(), "target 0");
    slots.set_target(2);
    assert!(slots.has_room());
    let claims = [1, 2].map(|thread| slots.claim(thread).expect("room"));
    assert!(!slots.has_room() && slots.claim(3).is_none());
    let [first, second] = claims;
    slots.give_back(first);
    assert_eq!((slots.sleeping(), slots.totals().given_back), (1, 1));
    slots.set_target(0);
    assert_eq!((slots.sleeping(), slots.totals().woken), (0, 1));
    slots.give_back(second);
    assert_eq!(slots.totals().given_back, 1, "the second has been woken");
}

/// The child of a `fork` ended more sleeps than it had begun.
#[test]
fn reset_clears_every_total() {
    let slots = Box::<SleepSlots<Native>>::default();
    slots.set_target(3);
    let [first, second, third] = [1, 2, 3].map(|thread| slots.claim(thread).expect("room"));
    slots.give_back(first);
    slots.sleep(second, 0);
    slots.set_target(0);
    slots.give_back(third);
    let each_way = Totals { slept: 3, left: 3, woken: 1, timed_out: 1, given_back: 1 };
    assert_eq!(slots.totals(), each_way);
    slots.reset();
    assert_eq!(slots.totals(), Totals::default());
}
