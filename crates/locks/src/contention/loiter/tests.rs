use super::*;
use crate::primitive::{Clock, Native};

#[test]
fn arrival_polls_before_it_queues() {
    let lock = Loiter::<Native>::unlocked();
    assert!(lock.try_lock());
    let outcome = lock.attempt(&mut |_| {
        assert!(!lock.has_contender(), "an empty queue");
        Verdict::Leave
    });
    assert_eq!(outcome, Outcome::Abandoned);
}

/// A waiter's turns beside an owner that takes the lock once in this many nanoseconds; 0: never.
struct BesideOwner(u64);

impl Turn for BesideOwner {
    fn turn(&mut self, _: u64) -> Verdict {
        Verdict::Spin
    }

    fn acquisitions(&self) -> Option<u32> {
        Some(Native::now().checked_div(self.0).unwrap_or(0) as u32)
    }
}

#[test]
fn waiter_leaves_a_rapid_lock_to_its_owner_for_a_bounded_time() {
    let lock = Loiter::<Native>::unlocked();
    lock.watch();
    let begin = Native::now();
    assert_eq!(lock.attempt(&mut BesideOwner(RAPID_NS / 5)), Outcome::Acquired);
    assert!(Native::now() - begin >= BARGING_BOUND_NS);
    assert!(lock.is_watched() && !lock.is_demanded() && !lock.has_contender());
}

#[test]
fn waiter_takes_a_lock_whose_owner_is_gone() {
    let lock = Loiter::<Native>::unlocked();
    lock.watch();
    assert_eq!(lock.attempt(&mut BesideOwner(0)), Outcome::Acquired);
    assert_eq!(lock.advice.load(Relaxed), 0);
}

/// A waiter's turns beside this number of acquisitions.
struct Counted(u64);

impl Turn for Counted {
    fn turn(&mut self, _: u64) -> Verdict {
        Verdict::Spin
    }

    fn acquisitions(&self) -> Option<u32> {
        Some(self.0 as u32)
    }
}

#[test]
fn watch_ends_if_acquisitions_were_not_rapid() {
    let lock = Loiter::<Native>::unlocked();
    let end = 1000 + WATCH_NS;
    let mut watch = Some(Watch { acquisitions: 0, since: 1000 });
    assert!(lock.stays_away(&mut watch, end - 1, &Counted(0)), "too early to judge");
    assert!(lock.stays_away(&mut watch, end, &Counted(WATCH_NS / RAPID_NS)));
    assert_eq!(watch.as_ref().map(|watch| watch.since), Some(end), "it starts again");
    assert!(!lock.stays_away(&mut watch, end + WATCH_NS, &Counted(WATCH_NS / RAPID_NS + 1)));
    assert!(watch.is_none() && !lock.is_watched());
}

#[test]
fn waiter_behind_a_standby_is_none() {
    let lock = Loiter::<Native>::unlocked();
    assert!(lock.try_lock());
    let joined = lock.inner.join(&mut |_: u64| Verdict::Spin, &core::ptr::null_mut);
    let standby = joined.unwrap_or_else(|_| panic!("the queue was empty"));
    let begin = Native::now();
    let end = begin + ARRIVAL_NS + 3 * CHECK_INTERVAL_NS;
    let outcome = lock.attempt(&mut |now: u64| {
        if now < end {
            return Verdict::Spin;
        }
        lock.advise(DEMAND, true);
        Verdict::Leave
    });
    assert_eq!(outcome, Outcome::Abandoned);
    let is_delayed = Native::now() > begin + ABSENT_STANDBY_NS;
    assert!(is_delayed || lock.is_demanded(), "only a standby lowers the demand");
    // SAFETY: the test is the front of the queue, and this is its ticket.
    assert!(unsafe { lock.inner.release(standby) }.is_ok());
}

/// A child of `fork` has the demand of a standby of its parent.
#[test]
fn waiter_ends_a_demand_that_no_standby_will_end() {
    let lock = Loiter::<Native>::unlocked();
    lock.advise(DEMAND, true);
    assert!(!lock.try_lock_without_barging());
    assert_eq!(lock.attempt(&mut |_: u64| Verdict::Spin), Outcome::Acquired);
    assert!(!lock.is_demanded());
}

#[test]
fn one_in_many_waits_begins_to_watch() {
    let lock = Loiter::<Native>::unlocked();
    let turn = BesideOwner(0);
    let watches = (0..10 * WATCHED_WAITS).filter(|&now| {
        lock.advise(WATCHED, false);
        lock.begin_watch(now, &turn).is_some()
    });
    assert_eq!(watches.count(), 10);
    assert!(lock.begin_watch(0, &|_: u64| Verdict::Spin).is_none(), "nothing is counted");
}

#[test]
fn advice_of_a_lock_built_on_this_one_leaves_this_ones_alone() {
    let lock = Loiter::<Native>::unlocked();
    lock.watch();
    lock.set_advice(u32::MAX >> ADVICE_BITS);
    lock.advise(DEMAND, true);
    lock.advise(WATCHED, false);
    assert!(lock.advice() == u32::MAX >> ADVICE_BITS && lock.is_demanded());
    lock.set_advice(0);
    assert_eq!(lock.advice.load(Relaxed), DEMAND);
}

#[test]
fn reserved_word_is_left_to_the_standby_for_a_bounded_time() {
    let lock = Loiter::<Native>::unlocked();
    let overrule = Overrule::default();
    lock.advise(DEMAND, true);
    assert!(!lock.try_lock_without_barging());
    assert!(!lock.barge(&overrule, 1000) && !lock.barge(&overrule, 999 + OVERRULE_NS));
    assert!(lock.barge(&overrule, 1000 + OVERRULE_NS));
    assert!(lock.is_locked() && !lock.is_demanded());
}

#[test]
fn reserved_word_is_left_to_a_parked_waiter_for_a_bounded_time() {
    let lock = Loiter::<Native>::unlocked();
    let reserve = || {
        assert!(lock.try_lock());
        lock.reserve();
        // SAFETY: locked above.
        assert!(unsafe { lock.unlock() } && !lock.is_locked());
    };
    reserve();
    assert!(!lock.try_lock_without_barging());
    assert!(lock.take_reserved() && lock.is_locked() && !lock.take_reserved());
    // SAFETY: locked above.
    assert!(unsafe { lock.unlock() } && lock.try_lock_without_barging(), "reserved once");
    // SAFETY: locked above.
    assert!(unsafe { lock.unlock() });
    reserve();
    let overrule = Overrule::default();
    assert!(!lock.barge(&overrule, 1000) && !lock.barge(&overrule, 999 + WAKING_NS));
    assert!(lock.barge(&overrule, 1000 + WAKING_NS));
    // SAFETY: locked above.
    assert!(unsafe { lock.unlock() } && lock.try_lock_without_barging());
}

#[test]
fn arrival_neither_takes_nor_leaves_a_reserved_word() {
    let lock = Loiter::<Native>::unlocked();
    lock.reserve();
    assert!(lock.try_lock(), "nobody holds the lock, so nothing is reserved");
    lock.reserve();
    // SAFETY: locked above.
    assert!(unsafe { lock.unlock() });
    let begin = Native::now();
    assert_eq!(lock.attempt(&mut |_| Verdict::Leave), Outcome::Acquired);
    assert!(Native::now() - begin >= WAKING_NS);
}

#[test]
fn caller_of_try_lock_takes_a_reserved_word() {
    let lock = Loiter::<Native>::unlocked();
    assert!(lock.try_lock());
    lock.reserve();
    assert!(lock.set_parked_bit());
    // SAFETY: locked above.
    unsafe {
        assert!(!lock.unlock());
        lock.clear_parked_bit();
        assert!(lock.unlock());
    }
    assert!(lock.try_lock());
}
