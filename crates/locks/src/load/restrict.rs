//! Concurrency restriction: few waiters contend, and the others are kept out of the way.
//!
//! A lock that is contended needs its holder and one more thread to be always in use; every further
//! one only takes processor time, cache and the scheduler's attention. Dice and Kogan (*Avoiding
//! Scalability Collapse by Restricting Concurrency*, Euro-Par 2019) restrict any lock: beyond a small number of
//! *active* threads, arrivals join a *passive* set, first come, first served. Its first thread, here
//! the watcher, becomes active when the active ones drain away, and every so many acquisitions, so that
//! nobody starves; the others are parked. Dice (*Malthusian Locks*, EuroSys 2017) has the last
//! to come return first, since its data is in the cache still, but for one episode in a thousand, which is the
//! eldest's.
//!
//! It decides by the one lock, and knows nothing of the load: that is what to compare [load control](super::control)
//! with. The sets are [`PassiveSets`]; what differs between the two is the order, and how often
//! fairness is bought.
//!
//! Deviations: the papers count the holder among the active threads, at every acquisition; here an
//! acquisition that nobody disputes never asks a load manager, so that only waiters are counted, and
//! at most one contends. Where the papers' threads spin for ever, an active waiter and a watcher park at the
//! lock after [`LONG_WAIT_NS`]. The papers bound unfairness in acquisitions; here also in time, since
//! an acquisition may take milliseconds ([`LONGEST_WATCH_NS`], and
//! [`LONGEST_SITTING_NS`](super::passive::LONGEST_SITTING_NS)). And only mutexes are restricted:
//! readers of a reader-writer lock may have to wait for a writer that waits, which must then not
//! wait for them.

use core::marker::PhantomData;

use super::control::{LONG_WAIT_NS, YIELD_EVERY_NS};
use super::passive::{Order, PassiveSets, Sitter};
use super::{Context, LoadManager, Wait, WaitSummary};
use crate::primitive::turn::{LONGEST_TURN_NS, Verdict};
use crate::primitive::{Clock as _, Generation as _, Spin as _, Threads as _};

/// Waiters of a lock that contend: with the holder, the two threads that keep it busy.
const ACTIVE: u32 = 1;

/// Acquisitions after which the watcher is let in although the lock is busy. Dice and Kogan, section 4: 0x4000.
const FAIR_AFTER: u32 = 0x4000;

/// The same, counted in waits where nobody counts acquisitions: of those many are undisputed.
const FAIR_AFTER_WAITS: u32 = 0x400;

/// And however few acquisitions there were: the longest that a watcher lets others go first. Far more
/// than [`FAIR_AFTER`] short sections take; sections of milliseconds, or holders that wait for a
/// processor, would let it watch for minutes.
pub const LONGEST_WATCH_NS: u64 = if cfg!(loom) { 1 << 60 } else { 10_000_000 };

/// Polling after which a waiter parks; a checker has it park at once.
const LONGEST_POLLING_NS: u64 = if cfg!(loom) { 0 } else { LONG_WAIT_NS };

/// One in so many episodes is the eldest's (Dice, section 4: 1/1000).
const ELDEST_IN: u32 = 1000;

/// How often the watcher looks.
const LOOK_NS: u64 = if cfg!(loom) { 0 } else { 2_000 };

/// While others contend the watcher leaves the lock to them; but if one of those that contend is
/// preempted it may be free for long, so now and then it tries all the same.
const TRY_EVERY_NS: u64 = 50_000;

/// What differs between the two managers.
pub trait Restriction: 'static {
    /// Of the passive set.
    const ORDER: Order;
    /// Whether the thread that follows the `episode`th watcher is the set's last.
    fn is_eldests(episode: u32) -> bool;
}

/// Dice and Kogan's: first come, first served.
pub struct InTurn;

impl Restriction for InTurn {
    const ORDER: Order = Order::FirstComeFirstServed;

    fn is_eldests(_: u32) -> bool {
        false
    }
}

/// Dice's: last come, first served.
pub struct LatestFirst;

impl Restriction for LatestFirst {
    const ORDER: Order = Order::LastComeFirstServed;

    fn is_eldests(episode: u32) -> bool {
        episode.is_multiple_of(ELDEST_IN)
    }
}

/// A load manager that restricts concurrency.
pub struct Restrict<R>(PhantomData<R>);

/// GCR.
pub type Gcr = Restrict<InTurn>;
/// The Malthusian idea.
pub type Malthus = Restrict<LatestFirst>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Arriving,
    /// Not restricted: of a lock whose domain is another's just now, or that is no mutex.
    Free,
    /// Of the lock's domain, and not decided.
    Entered,
    Active,
    Passive,
}

/// One wait under [`Restrict`].
pub struct Waiter {
    domain: usize,
    standing: Standing,
    /// Time spent polling, on a processor, since the arrival or the last time it parked.
    polled: u64,
    last_turn: u64,
    yield_at: u64,
    sleeps: u32,
    parked: bool,
}

impl Waiter {
    /// Whether this wait has been a long one; offers the processor now and then.
    fn is_long<X: Context>(&mut self, now: u64) -> bool {
        if now >= self.yield_at {
            X::Machine::yield_now();
            self.yield_at = now + YIELD_EVERY_NS;
        }
        // A longer gap between two turns is time off the processor: a waiter that was preempted keeps
        // its place in the lock's queue.
        self.polled += now.saturating_sub(self.last_turn).min(LONGEST_TURN_NS);
        self.last_turn = now;
        self.polled > LONGEST_POLLING_NS
    }

    /// The wait goes on after a time that was not spent polling.
    fn start_over<X: Context>(&mut self) {
        self.polled = 0;
        self.last_turn = X::Machine::now();
    }

    /// Parks at the lock until a release.
    fn park<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        self.parked = true;
        let acquired = wait.park();
        self.start_over::<X>();
        acquired
    }

    /// Looks after the lock as its set's first, until it is to contend or has the lock; true if it has.
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
            let is_late = wait.deadline.is_some_and(|end| now >= end);
            if !sets.is_contended(self.domain) || now >= try_at {
                try_at = now + TRY_EVERY_NS;
                if wait.lock.try_lock() {
                    return true;
                }
            }
            if is_late {
                return false;
            }
            if now >= watches_until || is_due((wait.lock.acquisitions(), sets.passed(self.domain))) {
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

    /// Sits in the passive set until it is to contend, or has the lock; true if it has.
    fn stay_passive<X: Context, R: Restriction>(&mut self, place: Sitter, wait: &Wait<'_, X>) -> bool {
        let sets = &wait.process.control().passive;
        let watches = sets.wait_to_watch(&place, wait.deadline);
        let acquired = watches && self.watch(wait);
        let fair = watches && R::is_eldests(sets.pass(self.domain));
        sets.stand_up(place, fair);
        acquired
    }
}

impl<R: Restriction> LoadManager for Restrict<R> {
    type Waiter = Waiter;

    fn begin_wait<X: Context>(wait: &Wait<'_, X>, now: u64) -> Waiter {
        Waiter {
            domain: PassiveSets::<X::Machine>::domain_of(wait.key()),
            standing: Standing::Arriving,
            polled: 0,
            last_turn: now,
            yield_at: now + YIELD_EVERY_NS,
            sleeps: 0,
            parked: false,
        }
    }

    fn turn<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>, now: u64) -> Verdict {
        let sets = &wait.process.control().passive;
        if waiter.standing == Standing::Arriving {
            X::Machine::generation(); // in the child of a `fork` the sets begin anew
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
        let Some(place) = sets.sit(waiter.domain, R::ORDER) else {
            sets.promote(waiter.domain);
            waiter.standing = Standing::Active;
            return false;
        };
        let acquired = waiter.stay_passive::<X, R>(place, wait);
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
        if !matches!(waiter.standing, Standing::Arriving | Standing::Free) {
            sets.leave(waiter.domain);
        }
        WaitSummary { sleeps: waiter.sleeps, parked: waiter.parked }
    }
}
