//! Passive sets: one set per lock, of the waiters that concurrency restriction keeps from
//! contending.
//!
//! A lock has no room for a list, so the process has a fixed array of *domains*, found by the
//! lock's address. Each passive thread has a *seat*, a queue [node](crate::queue), in a list linked
//! in both directions. A domain belongs to one lock at a time: a thread that holds one lock and
//! waits for another must not queue behind a waiter for the first. While another lock occupies its
//! domain, a lock is not restricted.
//!
//! ```text
//!   domain   active = 1     front -> seat <-> seat <-> seat <- back
//!                                    WATCH    PARKED   PARKED
//! ```
//!
//! | seat | meaning |
//! | --- | --- |
//! | `PARKED` | its thread is parked on it |
//! | `WATCH` | its thread, the *watcher*, is the front of its set and watches the lock |
//!
//! **Invariant 1.** A set changes only under its domain's latch. A thread removes only its own
//! seat. No change walks along the list: a set may have thousands of threads, and others wait for
//! the latch.
//!
//! **Invariant 2.** The front of a set is at `WATCH`, all other seats at `PARKED`: a thread that
//! makes a seat the front sets it to `WATCH` and wakes its thread. The watcher of a lock without
//! contenders contends for it. It may park after a long watch, until a release wakes it as any
//! parked waiter.
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
//! **Invariant 6.** A seat returns to its memory once it is out of the list, by its own thread. A
//! thread that wakes the next watcher uses only the address of that seat's state, which it takes
//! under the latch.
//!
//! **Memory orderings.** The latch is taken with acquire and released with release. A seat's state
//! is stored with release and loaded with acquire by its thread.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::primitive::backoff::BriefWait;
use crate::primitive::{Atomic, AtomicInt};
use crate::queue::{Node, NodeMemory};

const PARKED: u32 = 1;
const WATCH: u32 = 2;

/// Number of domains. Programs have a few tens of contended locks at a time.
const DOMAINS: usize = if cfg!(loom) { 1 } else { 256 };

/// How long newcomers may overtake a passive thread: about the longest sleep for load, so that
/// waits are as long as under load control.
pub const LONGEST_PASSIVE_NS: u64 = 100_000_000;

#[repr(align(64))]
struct Domain<P: NodeMemory> {
    latch: P::U32,
    active: P::U32,
    /// The first and the last seat; null in an empty set.
    front: P::Ptr<Node<P>>,
    back: P::Ptr<Node<P>>,
    /// Waits that have ended.
    passed: P::U32,
    /// Waiters of the lock that occupies the domain, active and passive.
    users: P::U32,
    /// The key of that lock.
    key: P::U64,
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
pub struct PassiveSets<P: NodeMemory> {
    domains: [Domain<P>; DOMAINS],
}

/// A thread's seat in a passive set. Give it back with [`PassiveSets::leave_set`].
#[must_use = "a seat must be given back"]
pub struct Membership<P: NodeMemory> {
    domain: usize,
    seat: *mut Node<P>,
    order: Order,
}

/// Borrows a seat.
///
/// # Safety
///
/// `seat` is in a list whose latch the caller holds, or belongs to the caller.
unsafe fn seat_at<'a, P: NodeMemory>(seat: *mut Node<P>) -> &'a Node<P> {
    // SAFETY: guaranteed by the caller; a seat in a list is not returned (Invariant 6).
    unsafe { &*seat }
}

impl<P: NodeMemory> Membership<P> {
    fn seat(&self) -> &Node<P> {
        // SAFETY: the thread's own seat until `leave_set`, which consumes the membership.
        unsafe { seat_at(self.seat) }
    }
}

impl<P: NodeMemory> Domain<P> {
    /// The word that leads to the seat behind `ahead`, or to the front if `ahead` is null.
    ///
    /// # Safety
    ///
    /// The caller holds the latch, and `ahead` is null or in the set.
    unsafe fn link_behind(&self, ahead: *mut Node<P>) -> &P::Ptr<Node<P>> {
        // SAFETY: guaranteed by the caller.
        if ahead.is_null() { &self.front } else { unsafe { &seat_at(ahead).next } }
    }

    /// The word that leads to the seat ahead of `behind`, or to the back if `behind` is null.
    ///
    /// # Safety
    ///
    /// The caller holds the latch, and `behind` is null or in the set.
    unsafe fn link_ahead(&self, behind: *mut Node<P>) -> &P::Ptr<Node<P>> {
        // SAFETY: guaranteed by the caller.
        if behind.is_null() { &self.back } else { unsafe { &seat_at(behind).previous } }
    }

    /// Inserts `seat` behind `ahead`, or as the front if `ahead` is null.
    ///
    /// # Safety
    ///
    /// The caller holds the latch. `seat` belongs to the caller or has been unlinked under this
    /// latch; `ahead` is null or in the set.
    unsafe fn insert(&self, seat: *mut Node<P>, ahead: *mut Node<P>) {
        // SAFETY: guaranteed by the caller; `behind` is in the set.
        unsafe {
            let behind = self.link_behind(ahead).load(Relaxed);
            seat_at(seat).previous.store(ahead, Relaxed);
            seat_at(seat).next.store(behind, Relaxed);
            self.link_behind(ahead).store(seat, Relaxed);
            self.link_ahead(behind).store(seat, Relaxed);
        }
    }

    /// Removes `seat`.
    ///
    /// # Safety
    ///
    /// The caller holds the latch, and `seat` is in the set.
    unsafe fn unlink(&self, seat: *mut Node<P>) {
        // SAFETY: guaranteed by the caller; the seat's neighbours are in the set.
        unsafe {
            let ahead = seat_at(seat).previous.load(Relaxed);
            let behind = seat_at(seat).next.load(Relaxed);
            self.link_behind(ahead).store(behind, Relaxed);
            self.link_ahead(behind).store(ahead, Relaxed);
        }
    }

    /// Moves the last seat to the front, if `oldest` is set or its thread has been passive for too
    /// long. (The last seat is the oldest, because newcomers go first.)
    ///
    /// # Safety
    ///
    /// The caller holds the latch.
    unsafe fn advance_oldest(&self, oldest: bool) {
        let last = self.back.load(Relaxed);
        if last == self.front.load(Relaxed) {
            return;
        }
        // SAFETY: guaranteed by the caller; a set whose ends differ has a last seat.
        unsafe {
            let passive = P::now().saturating_sub(seat_at(last).published.load(Relaxed));
            if oldest || passive > LONGEST_PASSIVE_NS {
                self.unlink(last);
                self.insert(last, ptr::null_mut());
            }
        }
    }
}

impl<P: NodeMemory> PassiveSets<P> {
    /// Empty sets.
    pub fn new() -> Self {
        let zero = || P::U32::new(0);
        PassiveSets {
            domains: core::array::from_fn(|_| Domain {
                latch: zero(),
                active: zero(),
                front: P::Ptr::new(ptr::null_mut()),
                back: P::Ptr::new(ptr::null_mut()),
                passed: zero(),
                users: zero(),
                key: P::U64::new(0),
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

    /// Puts the caller into a passive set.
    pub fn join_set(&self, domain: usize, order: Order) -> Membership<P> {
        let membership = Membership { domain, seat: P::take_node(), order };
        let seat = membership.seat();
        seat.published.store(P::now(), Relaxed);
        seat.status.store(PARKED, Relaxed);
        self.latched(domain, |domain| {
            let front = domain.front.load(Relaxed);
            if front.is_null() {
                seat.status.store(WATCH, Relaxed); // Invariant 2
            }
            let ahead = match order {
                Order::FirstComeFirstServed => domain.back.load(Relaxed),
                Order::LastComeFirstServed => front,
            };
            // SAFETY: under the latch; `ahead` is in the set or null.
            unsafe { domain.insert(membership.seat, ahead) };
        });
        membership
    }

    /// Parks until the caller is the watcher or `deadline` passes. Returns whether it is the
    /// watcher.
    pub fn wait_for_front(&self, membership: &Membership<P>, deadline: Option<u64>) -> bool {
        let state = &membership.seat().status;
        while state.load(Acquire) == PARKED {
            if deadline.is_some_and(|end| P::has_passed(end, P::now())) {
                return false;
            }
            P::park(state, PARKED, deadline);
        }
        true
    }

    /// Removes the caller from its set. A watcher is followed by the oldest thread if `oldest` is
    /// set or that thread has been passive for too long (Invariant 4), else by the next thread.
    pub fn leave_set(&self, membership: Membership<P>, oldest: bool) {
        let Membership { domain, seat, order } = membership;
        let woken = self.latched(domain, |domain| {
            let is_watcher = domain.front.load(Relaxed) == seat;
            // SAFETY: under the latch; the caller's seat is in the set.
            unsafe { domain.unlink(seat) };
            if !is_watcher {
                return None;
            }
            if order == Order::LastComeFirstServed {
                // SAFETY: under the latch.
                unsafe { domain.advance_oldest(oldest) };
            }
            let next = domain.front.load(Relaxed);
            (!next.is_null()).then(|| {
                // SAFETY: under the latch, and in the set.
                let state = unsafe { &seat_at(next).status };
                state.store(WATCH, Release); // Invariant 2
                ptr::from_ref(state) // Invariant 6
            })
        });
        // SAFETY: from `take_node`, and in no list any more.
        unsafe { P::give_node(seat) };
        if let Some(state) = woken {
            P::unpark(state, 1);
        }
    }

    /// Clears the sets in the child of a `fork`, which has no waiters. (The seats left behind are
    /// lost to the child.)
    pub fn reset(&self) {
        for domain in &self.domains {
            domain.front.store(ptr::null_mut(), Relaxed);
            domain.back.store(ptr::null_mut(), Relaxed);
            for word in [&domain.latch, &domain.active, &domain.users] {
                word.store(0, Relaxed);
            }
        }
    }
}

impl<P: NodeMemory> Default for PassiveSets<P> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
