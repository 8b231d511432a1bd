//! Concurrency restriction: few waiters contend, and the others stay passive.
//!
//! A holder and one more thread keep a contended lock busy. Every further thread only takes
//! processor time, cache and the scheduler's attention. Dice and Kogan (*Avoiding Scalability
//! Collapse by Restricting Concurrency*, Euro-Par 2019) restrict any lock: beyond a few *active*
//! threads, arriving threads join a *passive* set, first come, first served. The first thread of
//! the set, here called the watcher, becomes active when no active thread is left. It also becomes
//! active after a fixed number of acquisitions, so that no thread starves. The others are parked.
//! In *Malthusian Locks* (Dice, EuroSys 2017) the newest passive thread returns first, while its
//! data is still cached. In one episode of a thousand, the oldest returns first.
//!
//! Restriction looks at each lock alone and knows nothing of the load. It is included as a
//! comparison for [load control](super::control). [`PassiveSets`] holds the sets; the two managers
//! differ in the order and in how often they pay for fairness.
//!
//! Deviations from the papers:
//!
//! - The papers count the holder as active at every acquisition. Here an uncontended acquisition
//!   calls no load manager, so only waiters are counted, and at most one of them contends.
//! - An active waiter and a watcher park after [`LONG_WAIT_NS`] instead of spinning forever. In a
//!   longer wait, they poll for as long as they have waited, up to [`LONGEST_POLLING_NS`], so that
//!   a release finds them polling.
//! - Unfairness is bounded in time as well as in acquisitions, because an acquisition may take
//!   milliseconds ([`LONGEST_WATCH_NS`], and
//!   [`LONGEST_PASSIVE_NS`](super::passive::LONGEST_PASSIVE_NS)).
//! - Only mutexes are restricted. The readers of a reader-writer lock may have to wait for a
//!   waiting writer, so that writer must not wait behind them.

use core::marker::PhantomData;

use super::control::{LONG_WAIT_NS, YIELD_EVERY_NS};
use super::passive::{Membership, Order, PassiveSets};
use super::{Context, LoadManager, Wait, WaitSummary};
use crate::primitive::turn::{LONGEST_TURN_NS, Verdict};
use crate::primitive::{Clock as _, Spin as _, Threads as _};

/// Waiters per lock that contend. With the holder they keep the lock busy.
const ACTIVE: u32 = 1;

/// Acquisitions after which the watcher contends for a busy lock (Dice and Kogan, section 4:
/// 0x4000).
const FAIR_AFTER: u32 = 0x4000;

/// The same bound in waits, for locks whose acquisitions are not counted. It is lower, because many
/// acquisitions are uncontended and end no wait.
const FAIR_AFTER_WAITS: u32 = 0x400;

/// Longest time for which a watcher lets others go first. [`FAIR_AFTER`] short sections take far
/// less time. But as many sections would take minutes if each lasts milliseconds, or if the holders
/// wait for a processor.
#[doc(hidden)]
pub const LONGEST_WATCH_NS: u64 = if cfg!(loom) { 1 << 60 } else { 10_000_000 };

/// Bounds of the polling time after which a waiter parks; at once under the model checker.
const SHORTEST_POLLING_NS: u64 = if cfg!(loom) { 0 } else { LONG_WAIT_NS };
const LONGEST_POLLING_NS: u64 = if cfg!(loom) { 0 } else { 100_000_000 };

/// One episode in this many goes to the oldest thread (Dice, section 4: 1/1000).
const OLDEST_ONE_IN: u32 = 1000;

/// Time between two polls of the watcher.
const LOOK_NS: u64 = if cfg!(loom) { 0 } else { 2_000 };

/// Time between two attempts of a watcher while others contend. A preempted contender may leave the
/// lock free for a long time.
const TRY_EVERY_NS: u64 = 50_000;

/// What differs between the two managers.
#[doc(hidden)]
pub trait Restriction: 'static {
    /// Order of the passive set.
    const ORDER: Order;
    /// Whether the set's oldest thread follows the `episode`th watcher.
    fn picks_oldest(episode: u32) -> bool;
}

/// The restriction of Dice and Kogan: first come, first served.
#[doc(hidden)]
pub struct InTurn;

impl Restriction for InTurn {
    const ORDER: Order = Order::FirstComeFirstServed;

    fn picks_oldest(_: u32) -> bool {
        false
    }
}

/// The restriction of Dice: last come, first served.
#[doc(hidden)]
pub struct LatestFirst;

impl Restriction for LatestFirst {
    const ORDER: Order = Order::LastComeFirstServed;

    fn picks_oldest(episode: u32) -> bool {
        episode.is_multiple_of(OLDEST_ONE_IN)
    }
}

/// A load manager that restricts concurrency.
#[doc(hidden)]
pub struct Restrict<R>(PhantomData<R>);

/// Generic concurrency restriction (GCR).
///
#[doc = example_of_pair!("tpmcs::TpMcs", "restrict::Gcr")]
pub type Gcr = Restrict<InTurn>;
/// Malthusian locks.
///
#[doc = example_of_pair!("tpmcs::TpMcs", "restrict::Malthus")]
pub type Malthus = Restrict<LatestFirst>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    New,
    /// Not restricted: the lock is no mutex, or another lock occupies its domain.
    Free,
    /// Entered the lock's domain, neither active nor passive yet.
    Entered,
    Active,
    Passive,
}

/// One wait under [`Restrict`].
#[doc(hidden)]
pub struct Waiter {
    domain: usize,
    standing: Standing,
    /// Time spent polling on a processor since the wait began or the thread last parked.
    polled: u64,
    /// Polling time after which it parks.
    bound: u64,
    last_turn: u64,
    yield_at: u64,
    sleeps: u32,
    parked: bool,
}

impl Waiter {
    /// Whether the waiter has polled long enough to park. Yields now and then.
    fn is_long<X: Context>(&mut self, now: u64) -> bool {
        if now >= self.yield_at {
            X::Machine::yield_now();
            self.yield_at = now + YIELD_EVERY_NS;
        }
        // A gap beyond the longest turn is time off the processor: a preempted waiter keeps its
        // place in the queue.
        self.polled += now.saturating_sub(self.last_turn).min(LONGEST_TURN_NS);
        self.last_turn = now;
        self.polled > self.bound
    }

    /// Restarts the measurement of polling time.
    fn start_over<X: Context>(&mut self) {
        self.polled = 0;
        self.last_turn = X::Machine::now();
    }

    fn park<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        self.parked = true;
        let acquired = wait.park();
        self.start_over::<X>();
        let waited = self.last_turn.saturating_sub(wait.begin);
        self.bound = waited.clamp(SHORTEST_POLLING_NS, LONGEST_POLLING_NS);
        acquired
    }

    /// Watches the lock until the thread should contend. Returns true if it acquired the lock
    /// meanwhile.
    fn watch<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        let sets = &wait.process.control().passive;
        let progress = || (wait.lock.acquisitions(), sets.passed(self.domain));
        let (acquisitions, passed) = progress();
        let is_due = |(now, waits): (Option<u32>, u32)| match (acquisitions, now) {
            (Some(before), Some(now)) => now.wrapping_sub(before) >= FAIR_AFTER,
            _ => waits.wrapping_sub(passed) >= FAIR_AFTER_WAITS,
        };
        self.start_over::<X>();
        let watches_until = self.last_turn + LONGEST_WATCH_NS;
        let mut try_at = self.last_turn + TRY_EVERY_NS;
        loop {
            let now = X::Machine::now();
            let is_late = wait.is_late(now);
            if !sets.is_contended(self.domain) || now >= try_at {
                try_at = now + TRY_EVERY_NS;
                if wait.lock.try_lock() {
                    return true;
                }
            }
            if is_late {
                return false;
            }
            if now >= watches_until || is_due((wait.lock.acquisitions(), sets.passed(self.domain)))
            {
                sets.promote(self.domain);
                self.standing = Standing::Active;
                return false;
            }
            if self.is_long::<X>(now) && self.park(wait) {
                return true;
            }
            X::Machine::delay(LOOK_NS);
        }
    }

    /// Stays passive until the thread should contend. Returns true if it acquired the lock
    /// meanwhile.
    fn stay_passive<X: Context, R: Restriction>(
        &mut self,
        membership: Membership<X::Machine>,
        wait: &Wait<'_, X>,
    ) -> bool {
        let sets = &wait.process.control().passive;
        let watches = sets.wait_for_front(&membership, wait.deadline);
        let acquired = watches && self.watch(wait);
        let fair = watches && R::picks_oldest(sets.pass(self.domain));
        sets.leave_set(membership, fair);
        acquired
    }
}

// SAFETY: `block` returns what `park` did, or that the thread took the lock itself.
unsafe impl<R: Restriction> LoadManager for Restrict<R> {
    type Waiter = Waiter;

    fn begin_wait<X: Context>(wait: &Wait<'_, X>, now: u64) -> Waiter {
        Waiter {
            domain: PassiveSets::<X::Machine>::domain_of(wait.key()),
            standing: Standing::New,
            polled: 0,
            bound: SHORTEST_POLLING_NS,
            last_turn: now,
            yield_at: now + YIELD_EVERY_NS,
            sleeps: 0,
            parked: false,
        }
    }

    fn turn<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>, now: u64) -> Verdict {
        let sets = &wait.process.control().passive;
        if waiter.standing == Standing::New {
            let is_restricted = wait.lock.is_exclusive() && sets.enter(waiter.domain, wait.key());
            waiter.standing = if is_restricted { Standing::Entered } else { Standing::Free };
        }
        if waiter.standing == Standing::Entered {
            let admitted = sets.admit(waiter.domain, ACTIVE);
            waiter.standing = if admitted { Standing::Active } else { Standing::Passive };
        }
        let leaves = waiter.standing == Standing::Passive || waiter.is_long::<X>(now);
        if leaves { Verdict::Leave } else { Verdict::Spin }
    }

    fn block<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>) -> bool {
        waiter.sleeps += 1;
        if waiter.standing != Standing::Passive {
            return waiter.park(wait);
        }
        let sets = &wait.process.control().passive;
        let membership = sets.join_set(waiter.domain, R::ORDER);
        let acquired = waiter.stay_passive::<X, R>(membership, wait);
        if waiter.standing == Standing::Passive {
            waiter.standing = Standing::Entered;
        }
        acquired
    }

    fn end_wait<X: Context>(waiter: Waiter, wait: &Wait<'_, X>) -> WaitSummary {
        let sets = &wait.process.control().passive;
        if waiter.standing == Standing::Active {
            sets.retire(waiter.domain);
            sets.pass(waiter.domain);
        }
        if !matches!(waiter.standing, Standing::New | Standing::Free) {
            sets.leave(waiter.domain);
        }
        WaitSummary { sleeps: waiter.sleeps, parked: waiter.parked }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::load::one_thread::{Busy, OneThread};
    use crate::parking::eventcount::Eventcount;
    use crate::primitive::Native;

    #[test]
    fn waiter_that_was_parked_polls_again() {
        let (process, eventcount, lock) = (OneThread::new(), Eventcount::new(), Busy::default());
        let mut wait = process.wait(&eventcount, &lock);
        wait.deadline = Some(0); // so that it is not parked for long
        let mut now = Native::now();
        let mut waiter = Gcr::begin_wait(&wait, now);
        while Gcr::turn(&mut waiter, &wait, now) == Verdict::Spin {
            now += 1_000;
        }
        assert!(!Gcr::block(&mut waiter, &wait) && waiter.parked);
        let begin = waiter.last_turn;
        assert_eq!(Gcr::turn(&mut waiter, &wait, begin), Verdict::Spin);
        Gcr::end_wait(waiter, &wait);
    }
}
