use super::*;
use crate::primitive::{Clock as _, Native};

/// Whether each of `members` is the watcher.
fn watchers(members: &[&Membership<Native>]) -> Vec<bool> {
    members.iter().map(|member| member.seat().status.load(Relaxed) == WATCH).collect()
}

fn three(sets: &PassiveSets<Native>, order: Order) -> [Membership<Native>; 3] {
    core::array::from_fn(|_| sets.join_set(5, order))
}

fn is_empty(domain: &Domain<Native>) -> bool {
    [&domain.front, &domain.back].iter().all(|end| end.load(Relaxed).is_null())
}

#[test]
fn watcher_under_fcfs_is_followed_in_order() {
    let sets = PassiveSets::new();
    let [first, second, third] = three(&sets, Order::FirstComeFirstServed);
    assert_eq!(watchers(&[&first, &second, &third]), [true, false, false]);
    sets.leave_set(first, false);
    assert_eq!(watchers(&[&second, &third]), [true, false]);
    sets.leave_set(second, false);
    sets.leave_set(third, false);
    assert!(is_empty(&sets.domains[5]));
}

#[test]
fn watcher_under_lcfs_is_followed_by_newest_or_oldest() {
    let sets = PassiveSets::new();
    let [first, second, third] = three(&sets, Order::LastComeFirstServed);
    sets.leave_set(first, false);
    assert_eq!(watchers(&[&second, &third]), [false, true], "the newest");
    let fourth = sets.join_set(5, Order::LastComeFirstServed);
    sets.leave_set(third, true);
    assert_eq!(watchers(&[&second, &fourth]), [true, false], "the oldest");
    sets.leave_set(second, true);
    sets.leave_set(fourth, true);
}

#[test]
fn watcher_after_longest_passive_time_is_the_oldest() {
    let sets = PassiveSets::new();
    let [first, second, third] = three(&sets, Order::LastComeFirstServed);
    let before = Native::now().saturating_sub(LONGEST_PASSIVE_NS + 1);
    second.seat().published.store(before, Relaxed);
    sets.leave_set(first, false);
    assert_eq!(watchers(&[&second, &third]), [true, false]);
    sets.leave_set(second, false);
    assert_eq!(watchers(&[&third]), [true]);
    sets.leave_set(third, false);
}

#[test]
fn leave_from_the_middle_keeps_the_order() {
    let sets = PassiveSets::new();
    let [first, second, third] = three(&sets, Order::FirstComeFirstServed);
    sets.leave_set(second, false);
    assert_eq!(watchers(&[&first, &third]), [true, false]);
    sets.leave_set(first, false);
    assert_eq!(watchers(&[&third]), [true]);
    sets.leave_set(third, false);
    assert!(is_empty(&sets.domains[5]));
}

/// Beyond 1024 passive threads in a process, the others used to contend without limit.
#[test]
fn set_of_5000_threads_has_a_seat_for_each() {
    let sets = PassiveSets::<Native>::new();
    for order in [Order::FirstComeFirstServed, Order::LastComeFirstServed] {
        let members: Vec<_> = (0..5000).map(|_| sets.join_set(1, order)).collect();
        assert!(members.iter().skip(1).all(|member| watchers(&[member]) == [false]));
        members.into_iter().for_each(|member| sets.leave_set(member, false));
        assert!(is_empty(&sets.domains[1]));
    }
}

#[test]
fn enter_of_occupied_domain_by_other_lock_is_refused() {
    let sets = PassiveSets::<Native>::new();
    assert!(sets.enter(3, 0x10) && sets.enter(3, 0x10));
    assert!(!sets.enter(3, 0x20));
    sets.leave(3);
    assert!(!sets.enter(3, 0x20));
    sets.leave(3);
    assert!(sets.enter(3, 0x20));
}

#[test]
fn admit_beyond_limit_is_refused() {
    let sets = PassiveSets::<Native>::new();
    assert!(sets.admit(3, 1) && !sets.admit(3, 1));
    sets.promote(3);
    sets.retire(3);
    assert!(sets.is_contended(3));
    sets.retire(3);
    assert!(!sets.is_contended(3) && sets.admit(3, 1));
}
