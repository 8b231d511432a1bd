//! Passive sets: one set per lock, of the waiters that concurrency restriction keeps from
//! contending.
//!
//! A lock has no room for a list, so the sets live in two fixed arrays of the process: *domains*,
//! found by the lock's address, and *seats*, one per passive thread, linked by index. A domain
//! belongs to one lock at a time: a thread that holds one lock and waits for another must not queue
//! behind a waiter for the first. While another lock occupies its domain, a lock is not restricted.
//!
//! ```text
//!   domain   active = 1          front -> seat 7 -> seat 3 -> seat 12
//!                                          WATCH     PARKED    PARKED
//! ```
//!
//! | seat | meaning |
//! | --- | --- |
//! | `FREE` | unused |
//! | `PARKED` | its thread is parked on it |
//! | `WATCH` | its thread, the *watcher*, is the front of its set and watches the lock |
//!
//! **Invariant 1.** A set changes only under its domain's latch. A thread removes only its own
//! seat.
//!
//! **Invariant 2.** The front of a set is at `WATCH`, all other seats at `PARKED`: a thread that
//! makes a seat the front sets it to `WATCH` and wakes its thread. A non-empty set thus has an
//! awake thread that will contend for a lock without contenders, and needs no wake-up from outside.
//!
//! **Invariant 3.** `key` changes only under the latch, while `users` is 0: all threads that
//! [use](PassiveSets::enter) a domain wait for one lock.
//!
//! **Invariant 4.** Each watcher that leaves makes one other thread the watcher. If the oldest
//! thread has been passive for longer than [`LONGEST_PASSIVE_NS`], it is next, whatever the order.
//! A thread therefore watches after at most [`LONGEST_PASSIVE_NS`] plus one watch per thread in the
//! set.
//!
//! **Invariant 5.** `active` is the number of contending waiters of the domain. Each adds and
//! removes itself once.
//!
//! **Memory orderings.** The latch is taken with acquire and released with release. A seat's state
//! is stored with release and loaded with acquire by its thread.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::primitive::backoff::BriefWait;
use crate::primitive::{Atomic, AtomicInt, Primitive};

const FREE: u32 = 0;
const PARKED: u32 = 1;
const WATCH: u32 = 2;

/// No seat. Seats count from 1, so that all zeroes is an empty set.
const NO_SEAT: u32 = 0;

/// Number of domains. Programs have a few tens of contended locks at a time.
const DOMAINS: usize = if cfg!(loom) { 1 } else { 256 };
/// Number of threads that can be passive at a time. All others contend.
const SEATS: usize = if cfg!(loom) { 2 } else { 1024 };

/// How long newcomers may overtake a passive thread: about the longest sleep for load, so that
/// waits are as long as under load control.
pub const LONGEST_PASSIVE_NS: u64 = 100_000_000;

#[repr(align(64))]
struct Domain<P: Primitive> {
    latch: P::U32,
    active: P::U32,
    front: P::U32,
    /// Waits that have ended.
    passed: P::U32,
    /// Waiters of the lock that occupies the domain, active and passive.
    users: P::U32,
    /// The key of that lock.
    key: P::U64,
}

struct Seat<P: Primitive> {
    state: P::U32,
    behind: P::U32,
    /// When its thread took the seat.
    since: P::U64,
}

/// Which thread follows a watcher that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Newcomers join at the end.
    FirstComeFirstServed,
    /// Newcomers join right behind the watcher.
    LastComeFirstServed,
}

/// The passive sets of a process.
pub struct PassiveSets<P: Primitive> {
    domains: [Domain<P>; DOMAINS],
    seats: [Seat<P>; SEATS],
}

/// A thread's seat in a passive set. Give it back with [`PassiveSets::leave_set`].
#[derive(Debug)]
#[must_use = "a seat must be given back"]
pub struct Membership {
    domain: usize,
    seat: u32,
    order: Order,
}

impl<P: Primitive> PassiveSets<P> {
    /// Empty sets.
    pub fn new() -> Self {
        let zero = || P::U32::new(0);
        PassiveSets {
            domains: core::array::from_fn(|_| Domain {
                latch: zero(),
                active: zero(),
                front: zero(),
                passed: zero(),
                users: zero(),
                key: P::U64::new(0),
            }),
            seats: core::array::from_fn(|_| Seat {
                state: zero(),
                behind: zero(),
                since: P::U64::new(0),
            }),
        }
    }

    /// The domain of the lock with `key`.
    pub fn domain_of(key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % DOMAINS
    }

    /// Registers the caller as a waiter for the lock with `key`. Returns false if another lock has
    /// the domain.
    pub fn enter(&self, domain: usize, key: u64) -> bool {
        self.latched(domain, |domain| {
            let users = domain.users.load(Relaxed);
            let is_free = users == 0;
            if is_free {
                domain.key.store(key, Relaxed);
            }
            let is_its_own = is_free || domain.key.load(Relaxed) == key;
            if is_its_own {
                domain.users.store(users + 1, Relaxed);
            }
            is_its_own
        })
    }

    /// Ends the wait of a caller that has [entered](Self::enter).
    pub fn leave(&self, domain: usize) {
        self.latched(domain, |domain| domain.users.store(domain.users.load(Relaxed) - 1, Relaxed));
    }

    /// Counts the caller as active unless `limit` waiters already are. Returns whether the caller
    /// was counted.
    pub fn admit(&self, domain: usize, limit: u32) -> bool {
        let one_more = |seen: u32| (seen < limit).then_some(seen + 1);
        self.domains[domain].active.modify(Relaxed, Relaxed, one_more).is_ok()
    }

    /// Counts the caller as active, without a limit.
    pub fn promote(&self, domain: usize) {
        self.domains[domain].active.fetch_add(1, Relaxed);
    }

    /// Ends the active state of the caller, which has acquired its lock or given up.
    pub fn retire(&self, domain: usize) {
        self.domains[domain].active.fetch_sub(1, Relaxed);
    }

    /// Whether any waiter of the domain is active.
    pub fn is_contended(&self, domain: usize) -> bool {
        self.domains[domain].active.load(Relaxed) != 0
    }

    /// Counts an ended wait. Returns the previous number.
    pub fn pass(&self, domain: usize) -> u32 {
        self.domains[domain].passed.fetch_add(1, Relaxed)
    }

    /// The number of waits that have ended, modulo 2^32.
    pub fn passed(&self, domain: usize) -> u32 {
        self.domains[domain].passed.load(Relaxed)
    }

    fn latched<R>(&self, domain: usize, work: impl FnOnce(&Domain<P>) -> R) -> R {
        let domain = &self.domains[domain];
        let mut delay = BriefWait::default();
        while domain.latch.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            delay.wait::<P>(&domain.latch);
        }
        let result = work(domain);
        domain.latch.store(0, Release);
        result
    }

    fn seat(&self, seat: u32) -> &Seat<P> {
        &self.seats[seat as usize - 1]
    }

    /// Claims a free seat; `None` if all are taken.
    fn find_seat(&self) -> Option<u32> {
        // Threads start their search at different seats.
        let first = P::thread_id() as usize;
        (0..SEATS)
            .map(|offset| (first + offset) % SEATS)
            .find(|&seat| {
                let state = &self.seats[seat].state;
                state.load(Relaxed) == FREE
                    && state.compare_exchange(FREE, PARKED, Acquire, Relaxed).is_ok()
            })
            .map(|seat| seat as u32 + 1)
    }

    /// Puts the caller into a passive set; `None` if no seat is free.
    pub fn join_set(&self, domain: usize, order: Order) -> Option<Membership> {
        let seat = self.find_seat()?;
        self.seat(seat).since.store(P::now(), Relaxed);
        self.latched(domain, |domain| {
            let front = domain.front.load(Relaxed);
            if front == NO_SEAT {
                self.seat(seat).behind.store(NO_SEAT, Relaxed);
                self.seat(seat).state.store(WATCH, Relaxed);
                domain.front.store(seat, Relaxed);
                return;
            }
            let mut before = front;
            if order == Order::FirstComeFirstServed {
                while self.seat(before).behind.load(Relaxed) != NO_SEAT {
                    before = self.seat(before).behind.load(Relaxed);
                }
            }
            self.seat(seat).behind.store(self.seat(before).behind.load(Relaxed), Relaxed);
            self.seat(before).behind.store(seat, Relaxed);
        });
        Some(Membership { domain, seat, order })
    }

    /// Parks until the caller is the watcher or `deadline` passes. Returns whether it is the
    /// watcher.
    pub fn wait_for_front(&self, membership: &Membership, deadline: Option<u64>) -> bool {
        let state = &self.seat(membership.seat).state;
        while state.load(Acquire) == PARKED {
            if deadline.is_some_and(|end| P::now() >= end) {
                return false;
            }
            P::park(state, PARKED, deadline);
        }
        true
    }

    /// Removes the caller from its set. A watcher is followed by the oldest thread if `oldest` is
    /// set or that thread has been passive for too long (Invariant 4), else by the next thread.
    pub fn leave_set(&self, membership: Membership, oldest: bool) {
        let Membership { domain, seat, order } = membership;
        let next = self.latched(domain, |domain| {
            let behind = self.seat(seat).behind.load(Relaxed);
            let front = domain.front.load(Relaxed);
            if front != seat {
                let mut before = front;
                while self.seat(before).behind.load(Relaxed) != seat {
                    before = self.seat(before).behind.load(Relaxed);
                }
                self.seat(before).behind.store(behind, Relaxed);
                return NO_SEAT;
            }
            let next = match order {
                Order::FirstComeFirstServed => behind,
                Order::LastComeFirstServed => self.oldest_or_first(behind, oldest),
            };
            domain.front.store(next, Relaxed);
            if next != NO_SEAT {
                self.seat(next).state.store(WATCH, Release); // Invariant 2
            }
            next
        });
        self.seat(seat).state.store(FREE, Release);
        if next != NO_SEAT {
            P::unpark(&raw const self.seat(next).state, 1);
        }
    }

    /// Moves the last seat of the list that begins at `first` to the front, if `oldest` is set or
    /// its thread has been passive for too long. (The last seat is the oldest, because newcomers go
    /// first.) Returns the first seat of the resulting list.
    fn oldest_or_first(&self, first: u32, oldest: bool) -> u32 {
        let behind = |seat: u32| self.seat(seat).behind.load(Relaxed);
        if first == NO_SEAT || behind(first) == NO_SEAT {
            return first;
        }
        let mut before = first;
        while behind(behind(before)) != NO_SEAT {
            before = behind(before);
        }
        let last = behind(before);
        let passive = P::now().saturating_sub(self.seat(last).since.load(Relaxed));
        if !oldest && passive <= LONGEST_PASSIVE_NS {
            return first;
        }
        self.seat(before).behind.store(NO_SEAT, Relaxed);
        self.seat(last).behind.store(first, Relaxed);
        last
    }

    /// Clears the sets in the child of a `fork`, which has no waiters.
    pub fn reset(&self) {
        let words = self
            .domains
            .iter()
            .flat_map(|domain| [&domain.latch, &domain.active, &domain.front, &domain.users]);
        words
            .chain(self.seats.iter().map(|seat| &seat.state))
            .for_each(|word| word.store(0, Relaxed));
    }
}

impl<P: Primitive> Default for PassiveSets<P> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::{Clock as _, Native};

    /// Whether each of `members` is the watcher.
    fn watchers(sets: &PassiveSets<Native>, members: &[&Membership]) -> Vec<bool> {
        members.iter().map(|member| sets.seat(member.seat).state.load(Relaxed) == WATCH).collect()
    }

    fn three(sets: &PassiveSets<Native>, order: Order) -> [Membership; 3] {
        core::array::from_fn(|_| sets.join_set(5, order).expect("a free seat"))
    }

    #[test]
    fn watcher_under_fcfs_is_followed_in_order() {
        let sets = PassiveSets::new();
        let [first, second, third] = three(&sets, Order::FirstComeFirstServed);
        assert_eq!(watchers(&sets, &[&first, &second, &third]), [true, false, false]);
        sets.leave_set(first, false);
        assert_eq!(watchers(&sets, &[&second, &third]), [true, false]);
        sets.leave_set(second, false);
        sets.leave_set(third, false);
        assert_eq!(sets.domains[5].front.load(Relaxed), NO_SEAT);
    }

    #[test]
    fn watcher_under_lcfs_is_followed_by_newest_or_oldest() {
        let sets = PassiveSets::new();
        let [first, second, third] = three(&sets, Order::LastComeFirstServed);
        sets.leave_set(first, false);
        assert_eq!(watchers(&sets, &[&second, &third]), [false, true], "the newest");
        let fourth = sets.join_set(5, Order::LastComeFirstServed).expect("a free seat");
        sets.leave_set(third, true);
        assert_eq!(watchers(&sets, &[&second, &fourth]), [true, false], "the oldest");
        sets.leave_set(second, true);
        sets.leave_set(fourth, true);
    }

    #[test]
    fn watcher_after_longest_passive_time_is_the_oldest() {
        let sets = PassiveSets::new();
        let [first, second, third] = three(&sets, Order::LastComeFirstServed);
        let before = Native::now().saturating_sub(LONGEST_PASSIVE_NS + 1);
        sets.seat(second.seat).since.store(before, Relaxed);
        sets.leave_set(first, false);
        assert_eq!(watchers(&sets, &[&second, &third]), [true, false]);
        sets.leave_set(second, false);
        assert_eq!(watchers(&sets, &[&third]), [true]);
        sets.leave_set(third, false);
    }

    #[test]
    fn leave_from_the_middle_keeps_the_order() {
        let sets = PassiveSets::new();
        let [first, second, third] = three(&sets, Order::FirstComeFirstServed);
        sets.leave_set(second, false);
        assert_eq!(watchers(&sets, &[&first, &third]), [true, false]);
        sets.leave_set(first, false);
        assert_eq!(watchers(&sets, &[&third]), [true]);
        sets.leave_set(third, false);
    }

    #[test]
    fn seats_after_leave_are_free_again() {
        let sets = PassiveSets::<Native>::new();
        let members: Vec<Membership> =
            core::iter::from_fn(|| sets.join_set(1, Order::LastComeFirstServed)).collect();
        assert_eq!(members.len(), SEATS);
        members.into_iter().for_each(|member| sets.leave_set(member, false));
        let membership = sets.join_set(2, Order::FirstComeFirstServed).expect("a free seat");
        sets.leave_set(membership, false);
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
}
