//! Passive sets: waiters that concurrency restriction keeps from contending, one set per lock.
//!
//! A lock has no room for a list, so the sets live in two fixed arrays of the process: *domains*, found by the
//! lock's address, and *seats*, one per passive thread, linked by their indices. A domain is one lock's at a time:
//! a thread that holds one lock and wants another must not sit behind one that waits for the first. A lock
//! that finds its domain taken is not restricted meanwhile.
//!
//! ```text
//!   domain   active = 1          front -> seat 7 -> seat 3 -> seat 12
//!                                          WATCH     SIT       SIT
//! ```
//!
//! | seat | meaning |
//! | --- | --- |
//! | `FREE` | nobody's |
//! | `SIT` | its thread is parked on it |
//! | `WATCH` | its thread is the front of its set, the *watcher*, and looks after the lock |
//!
//! **Invariant 1.** A set is changed only under its domain's latch; a seat leaves its set only by its own
//! thread.
//!
//! **Invariant 2.** The front of a set is at `WATCH`, all others at `SIT`: whoever makes a seat the front sets it so and
//! wakes its thread. So a set that is not empty has a thread that is awake and will contend for a lock
//! that nobody else wants: no wake-up is lost because nobody else needs to give one.
//!
//! **Invariant 3.** `key` changes only under the latch, while `users` is 0: all who [use](PassiveSets::enter) a domain
//! wait for one lock.
//!
//! **Invariant 4.** Each watcher that goes makes one other thread the watcher. While the eldest of a
//! set has sat for longer than [`LONGEST_SITTING_NS`], that one is next, whatever the order. So a
//! thread watches after [`LONGEST_SITTING_NS`] and as many watches as there were threads in the set.
//!
//! **Invariant 5.** `active` is the number of waiters of the domain that contend. Each adds itself once and
//! takes itself away once.
//!
//! **Memory orderings.** The latch is taken with acquire and released with release. A seat's state is
//! stored with release and loaded with acquire by its thread.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::primitive::{Atomic, AtomicInt, Primitive};

const FREE: u32 = 0;
const SIT: u32 = 1;
const WATCH: u32 = 2;

/// No seat. Seats are counted from 1, so that all zeroes is an empty set.
const NOBODY: u32 = 0;

/// Domains: programs have some tens of contended locks at a time.
const DOMAINS: usize = if cfg!(loom) { 1 } else { 256 };
/// Threads that can be passive at a time. Whoever finds no seat contends.
const SEATS: usize = if cfg!(loom) { 2 } else { 1024 };

/// How long newcomers may go before a thread that sits: about the longest sleep for load, so that a
/// wait is not longer here than under load control.
pub const LONGEST_SITTING_NS: u64 = 100_000_000;

/// Polls for a latch before its holder is taken for preempted, and is let run.
const POLLS_BEFORE_YIELD: u32 = if cfg!(loom) { 0 } else { 100 };

#[repr(align(64))]
struct Domain<P: Primitive> {
    latch: P::U32,
    active: P::U32,
    front: P::U32,
    /// Waits that have ended.
    passed: P::U32,
    /// Waiters of the lock whose domain it is, active and passive.
    users: P::U32,
    /// That lock's key.
    key: P::U64,
}

struct Seat<P: Primitive> {
    state: P::U32,
    behind: P::U32,
    /// When its thread sat down.
    since: P::U64,
}

/// Who is next when the watcher goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Newcomers at the end.
    FirstComeFirstServed,
    /// Newcomers right behind the watcher.
    LastComeFirstServed,
}

/// The passive sets of a process.
pub struct PassiveSets<P: Primitive> {
    domains: [Domain<P>; DOMAINS],
    seats: [Seat<P>; SEATS],
}

/// A thread in a passive set, and its seat: given back with [`PassiveSets::stand_up`].
#[derive(Debug)]
#[must_use = "a seat is given back"]
pub struct Sitter {
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
            seats: core::array::from_fn(|_| Seat { state: zero(), behind: zero(), since: P::U64::new(0) }),
        }
    }

    /// The domain of the lock of `key`.
    pub fn domain_of(key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % DOMAINS
    }

    /// The caller waits for the lock of `key`: whether the domain is that lock's.
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

    /// The caller, which has [entered](Self::enter), waits no more.
    pub fn leave(&self, domain: usize) {
        self.latched(domain, |domain| domain.users.store(domain.users.load(Relaxed) - 1, Relaxed));
    }

    /// Counts the caller among the active waiters, unless there are `limit` of them.
    pub fn admit(&self, domain: usize, limit: u32) -> bool {
        let one_more = |seen: u32| (seen < limit).then_some(seen + 1);
        self.domains[domain].active.modify(Relaxed, Relaxed, one_more).is_ok()
    }

    /// Counts the caller among the active waiters, however many there are.
    pub fn promote(&self, domain: usize) {
        self.domains[domain].active.fetch_add(1, Relaxed);
    }

    /// The caller, an active waiter, has its lock, or does not want it any more.
    pub fn retire(&self, domain: usize) {
        self.domains[domain].active.fetch_sub(1, Relaxed);
    }

    /// Whether waiters of the domain contend.
    pub fn is_contended(&self, domain: usize) -> bool {
        self.domains[domain].active.load(Relaxed) != 0
    }

    /// Notes that a wait has ended; how many had before.
    pub fn pass(&self, domain: usize) -> u32 {
        self.domains[domain].passed.fetch_add(1, Relaxed)
    }

    /// How many waits have ended, modulo 2^32.
    pub fn passed(&self, domain: usize) -> u32 {
        self.domains[domain].passed.load(Relaxed)
    }

    fn latched<R>(&self, domain: usize, work: impl FnOnce(&Domain<P>) -> R) -> R {
        let domain = &self.domains[domain];
        let mut polls = 0;
        while domain.latch.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            polls += 1;
            if polls < POLLS_BEFORE_YIELD { P::pause() } else { P::yield_now() }
        }
        let result = work(domain);
        domain.latch.store(0, Release);
        result
    }

    fn seat(&self, seat: u32) -> &Seat<P> {
        &self.seats[seat as usize - 1]
    }

    /// Takes a free seat; none if all are taken.
    fn find_seat(&self) -> Option<u32> {
        // Threads look in different places first.
        let first = P::thread_id() as usize;
        (0..SEATS)
            .map(|offset| (first + offset) % SEATS)
            .find(|&seat| {
                let state = &self.seats[seat].state;
                state.load(Relaxed) == FREE && state.compare_exchange(FREE, SIT, Acquire, Relaxed).is_ok()
            })
            .map(|seat| seat as u32 + 1)
    }

    /// Puts the caller into a passive set. `None`: there is no seat.
    pub fn sit(&self, domain: usize, order: Order) -> Option<Sitter> {
        let seat = self.find_seat()?;
        self.seat(seat).since.store(P::now(), Relaxed);
        self.latched(domain, |domain| {
            let front = domain.front.load(Relaxed);
            if front == NOBODY {
                self.seat(seat).behind.store(NOBODY, Relaxed);
                self.seat(seat).state.store(WATCH, Relaxed);
                domain.front.store(seat, Relaxed);
                return;
            }
            let mut before = front;
            if order == Order::FirstComeFirstServed {
                while self.seat(before).behind.load(Relaxed) != NOBODY {
                    before = self.seat(before).behind.load(Relaxed);
                }
            }
            self.seat(seat).behind.store(self.seat(before).behind.load(Relaxed), Relaxed);
            self.seat(before).behind.store(seat, Relaxed);
        });
        Some(Sitter { domain, seat, order })
    }

    /// Parks until the caller is its set's watcher, or until `deadline`. True if it is the watcher.
    pub fn wait_to_watch(&self, place: &Sitter, deadline: Option<u64>) -> bool {
        let state = &self.seat(place.seat).state;
        while state.load(Acquire) == SIT {
            if deadline.is_some_and(|end| P::now() >= end) {
                return false;
            }
            P::park(state, SIT, deadline);
        }
        true
    }

    /// Takes the caller out of its set. If it was the watcher, the next one is: the eldest of the set
    /// if `eldest` says so, or if that one has sat for too long (Invariant 4).
    pub fn stand_up(&self, place: Sitter, eldest: bool) {
        let Sitter { domain, seat, order } = place;
        let next = self.latched(domain, |domain| {
            let behind = self.seat(seat).behind.load(Relaxed);
            let front = domain.front.load(Relaxed);
            if front != seat {
                let mut before = front;
                while self.seat(before).behind.load(Relaxed) != seat {
                    before = self.seat(before).behind.load(Relaxed);
                }
                self.seat(before).behind.store(behind, Relaxed);
                return NOBODY;
            }
            let next = match order {
                Order::FirstComeFirstServed => behind,
                Order::LastComeFirstServed => self.eldest_or_first(behind, eldest),
            };
            domain.front.store(next, Relaxed);
            if next != NOBODY {
                self.seat(next).state.store(WATCH, Release); // Invariant 2
            }
            next
        });
        self.seat(seat).state.store(FREE, Release);
        if next != NOBODY {
            P::unpark(&raw const self.seat(next).state, 1);
        }
    }

    /// Moves the last of the list that begins at `first`, which is the eldest where newcomers go
    /// first, to its beginning if `eldest` says so or it has sat for too long; the new first.
    fn eldest_or_first(&self, first: u32, eldest: bool) -> u32 {
        let behind = |seat: u32| self.seat(seat).behind.load(Relaxed);
        if first == NOBODY || behind(first) == NOBODY {
            return first;
        }
        let mut before = first;
        while behind(behind(before)) != NOBODY {
            before = behind(before);
        }
        let last = behind(before);
        let sat = P::now().saturating_sub(self.seat(last).since.load(Relaxed));
        if !eldest && sat <= LONGEST_SITTING_NS {
            return first;
        }
        self.seat(before).behind.store(NOBODY, Relaxed);
        self.seat(last).behind.store(first, Relaxed);
        last
    }

    /// Starts anew, in the child of a `fork`, where none of the waiters exists.
    pub fn reset(&self) {
        let words =
            self.domains.iter().flat_map(|domain| [&domain.latch, &domain.active, &domain.front, &domain.users]);
        words.chain(self.seats.iter().map(|seat| &seat.state)).for_each(|word| word.store(0, Relaxed));
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

    /// The states of the places in `places`, in order.
    fn watchers(sets: &PassiveSets<Native>, places: &[&Sitter]) -> Vec<bool> {
        places.iter().map(|place| sets.seat(place.seat).state.load(Relaxed) == WATCH).collect()
    }

    fn three(sets: &PassiveSets<Native>, order: Order) -> [Sitter; 3] {
        core::array::from_fn(|_| sets.sit(5, order).expect("there are seats"))
    }

    #[test]
    fn the_first_watches_and_is_followed_in_order() {
        let sets = PassiveSets::new();
        let [first, second, third] = three(&sets, Order::FirstComeFirstServed);
        assert_eq!(watchers(&sets, &[&first, &second, &third]), [true, false, false]);
        sets.stand_up(first, false);
        assert_eq!(watchers(&sets, &[&second, &third]), [true, false]);
        sets.stand_up(second, false);
        sets.stand_up(third, false);
        assert_eq!(sets.domains[5].front.load(Relaxed), NOBODY);
    }

    #[test]
    fn newcomers_first_or_the_eldest() {
        let sets = PassiveSets::new();
        let [first, second, third] = three(&sets, Order::LastComeFirstServed);
        sets.stand_up(first, false);
        assert_eq!(watchers(&sets, &[&second, &third]), [false, true], "the newcomer");
        let fourth = sets.sit(5, Order::LastComeFirstServed).expect("there are seats");
        sets.stand_up(third, true);
        assert_eq!(watchers(&sets, &[&second, &fourth]), [true, false], "the eldest");
        sets.stand_up(second, true);
        sets.stand_up(fourth, true);
    }

    #[test]
    fn a_thread_that_sat_too_long_goes_before_newcomers() {
        let sets = PassiveSets::new();
        let [first, second, third] = three(&sets, Order::LastComeFirstServed);
        let before = Native::now().saturating_sub(LONGEST_SITTING_NS + 1);
        sets.seat(second.seat).since.store(before, Relaxed);
        sets.stand_up(first, false);
        assert_eq!(watchers(&sets, &[&second, &third]), [true, false]);
        sets.stand_up(second, false);
        assert_eq!(watchers(&sets, &[&third]), [true]);
        sets.stand_up(third, false);
    }

    #[test]
    fn one_in_the_middle_may_go() {
        let sets = PassiveSets::new();
        let [first, second, third] = three(&sets, Order::FirstComeFirstServed);
        sets.stand_up(second, false);
        assert_eq!(watchers(&sets, &[&first, &third]), [true, false]);
        sets.stand_up(first, false);
        assert_eq!(watchers(&sets, &[&third]), [true]);
        sets.stand_up(third, false);
    }

    #[test]
    fn seats_run_out_and_come_back() {
        let sets = PassiveSets::<Native>::new();
        let places: Vec<Sitter> = core::iter::from_fn(|| sets.sit(1, Order::LastComeFirstServed)).collect();
        assert_eq!(places.len(), SEATS);
        places.into_iter().for_each(|place| sets.stand_up(place, false));
        let place = sets.sit(2, Order::FirstComeFirstServed).expect("they came back");
        sets.stand_up(place, false);
    }

    #[test]
    fn a_domain_is_one_locks_at_a_time() {
        let sets = PassiveSets::<Native>::new();
        assert!(sets.enter(3, 0x10) && sets.enter(3, 0x10));
        assert!(!sets.enter(3, 0x20));
        sets.leave(3);
        assert!(!sets.enter(3, 0x20));
        sets.leave(3);
        assert!(sets.enter(3, 0x20));
    }

    #[test]
    fn no_more_are_admitted_than_allowed() {
        let sets = PassiveSets::<Native>::new();
        assert!(sets.admit(3, 1) && !sets.admit(3, 1));
        sets.promote(3);
        sets.retire(3);
        assert!(sets.is_contended(3));
        sets.retire(3);
        assert!(!sets.is_contended(3) && sets.admit(3, 1));
    }
}
