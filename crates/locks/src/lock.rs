//! Where the two halves of a lock meet: one acquire and one release, for every pair of contention
//! manager and load manager.

use crate::contention::backoff::Backoff;
use crate::contention::rw::{RwWord, Share};
use crate::contention::{Contention, LONGEST_TURN_NS, Outcome, Turn, Verdict};
use crate::load::gate::{Gate, Spot};
use crate::load::{Departure, LoadManager};
use crate::platform::{Atomic, Platform, ThreadNote};
use core::sync::atomic::Ordering::Relaxed;

/// Backoff of [`poll`]: as [`ttas`](crate::contention::ttas).
const POLL_BACKOFF_NS: (u64, u64) = (50, 10_000);

/// A lock at which others may be parked is taken to be released after so long, by whichever thread:
/// about the longest sleep for load, which is what its holder is kept from.
const DEBT_NS: u64 = 100_000_000;

/// How an acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquired {
    /// Whether the lock is held; false only after a deadline.
    pub held: bool,
    /// What the wait came to.
    pub departure: Departure,
}

/// Waiting that a thread keeps to itself at most, nanoseconds: little against a time slice.
const PORTION_NS: u64 = 50_000;

/// How long a wait keeps its processor busy, for machines that want to know ([`Platform::waited`]).
struct Spent {
    is_counted: bool,
    last: u64,
    ns: u64,
}

impl Spent {
    fn begin<P: Platform>(now: u64) -> Self {
        Spent { is_counted: P::counts_waits(), last: now, ns: 0 }
    }

    #[inline(always)]
    fn turn<P: Platform>(&mut self, now: u64) {
        if self.is_counted {
            // A longer gap between two turns is time off the processor.
            self.ns += now.saturating_sub(self.last).min(LONGEST_TURN_NS);
            self.last = now;
            if self.ns >= PORTION_NS {
                P::waited(core::mem::take(&mut self.ns));
            }
        }
    }

    /// The thread was away.
    fn resume<P: Platform>(&mut self) {
        if self.is_counted {
            self.last = P::now();
        }
    }

    fn end<P: Platform>(mut self) {
        if self.is_counted {
            self.turn::<P>(P::now());
            P::waited(self.ns);
        }
    }
}

/// Asks the load manager, and watches the deadline.
struct Asking<'a, P: Platform, L: LoadManager<P>> {
    waiter: &'a mut L::Waiter,
    spent: &'a mut Spent,
    spot: &'a dyn Spot,
    deadline: Option<u64>,
    late: bool,
}

impl<P: Platform, L: LoadManager<P>> Turn for Asking<'_, P, L> {
    #[inline]
    fn turn(&mut self, now: u64) -> Verdict {
        self.spent.turn::<P>(now);
        self.late = self.deadline.is_some_and(|end| now >= end);
        if self.late { Verdict::Leave } else { L::turn(self.waiter, now, self.spot) }
    }

    fn deadline(&self) -> Option<u64> {
        self.deadline
    }
}

/// One wait, for any lock: contend, leave when told to, come back, until the lock is held or the
/// deadline has passed.
#[inline]
fn wait<P: Platform, L: LoadManager<P>>(
    gate: &Gate<P>,
    spot: &dyn Spot,
    deadline: Option<u64>,
    mut attempt: impl FnMut(&mut Asking<'_, P, L>) -> Outcome,
) -> Acquired {
    let begin = P::now();
    let mut waiter = L::arrive(begin, P::place(gate));
    let mut spent = Spent::begin::<P>(begin);
    let held = loop {
        let mut asking = Asking { waiter: &mut waiter, spent: &mut spent, spot, deadline, late: false };
        match attempt(&mut asking) {
            Outcome::Acquired => break true,
            Outcome::Left if asking.late => break false,
            Outcome::Left => {}
        }
        let is_held = L::away(&mut waiter, gate, spot, deadline);
        spent.resume::<P>();
        if is_held {
            break true;
        }
    };
    spent.end::<P>();
    let departure = L::depart(waiter);
    if !held {
        L::give_up(P::place(gate), spot);
    }
    if departure.parked {
        // Gate, Invariant 2. Holding the lock, this marks it; without, somebody else's hold, or else wakes
        // one.
        gate.pass_on(spot);
        if held {
            let owes_until = P::now() + DEBT_NS;
            P::set_thread_note(ThreadNote { owes_until, ..P::thread_note() });
        }
    }
    Acquired { held, departure }
}

/// A mutex's contention manager, as a parker sees it.
struct MutexSpot<'a, P: Platform, C> {
    state: &'a C,
    account: Option<Account<'a, P>>,
}

/// What the user of a mutex writes down beside it, under it: waiters see by it how the lock fares.
pub struct Account<'a, P: Platform> {
    /// Another number after each acquisition.
    pub acquisitions: &'a P::U32,
    /// Who holds it, by the platform's id of the thread; 0: nobody says.
    pub holder: &'a P::U32,
}

impl<P: Platform, C: Contention<P>> Spot for MutexSpot<'_, P, C> {
    fn try_lock(&self) -> bool {
        self.state.try_lock()
    }

    fn mark(&self) -> bool {
        self.state.mark()
    }

    fn is_awaited(&self) -> bool {
        self.state.is_awaited()
    }

    fn acquisitions(&self) -> Option<u32> {
        self.account.as_ref().map(|account| account.acquisitions.load(Relaxed))
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn holder(&self) -> Option<u32> {
        self.account.as_ref().map(|account| account.holder.load(Relaxed)).filter(|&holder| holder != 0)
    }
}

/// Acquires a mutex that the caller found taken. `deadline` is on the platform's clock.
#[cold]
pub fn acquire<P: Platform, C: Contention<P>, L: LoadManager<P>>(
    state: &C,
    gate: &Gate<P>,
    deadline: Option<u64>,
) -> Acquired {
    acquire_counted::<P, C, L>(state, gate, None, deadline)
}

/// The same for a mutex whose user keeps an account of it.
#[cold]
pub fn acquire_counted<P: Platform, C: Contention<P>, L: LoadManager<P>>(
    state: &C,
    gate: &Gate<P>,
    account: Option<Account<'_, P>>,
    deadline: Option<u64>,
) -> Acquired {
    let spot = MutexSpot { state, account };
    wait::<P, L>(gate, &spot, deadline, |asking| state.attempt(asking))
}

/// The calling thread releases a marked lock: those that are parked there need it no longer.
#[cold]
fn settle<P: Platform>() {
    P::set_thread_note(ThreadNote { owes_until: 0, settled: P::now(), ..P::thread_note() });
}

/// Releases a mutex.
///
/// # Safety
///
/// The calling context holds it.
#[inline]
pub unsafe fn release<P: Platform, C: Contention<P>>(state: &C, gate: &Gate<P>) {
    // SAFETY: the caller holds the lock, also after an `unlock` that found it marked.
    unsafe {
        if !state.unlock() {
            settle::<P>();
            gate.release(1, || state.clear_mark(), || state.unlock());
        }
    }
}

/// A reader-writer lock, as a parker that wants `Share` sees it.
struct RwSpot<'a, P: Platform>(&'a RwWord<P>, Share);

impl<P: Platform> Spot for RwSpot<'_, P> {
    fn try_lock(&self) -> bool {
        self.0.try_acquire(self.1)
    }

    fn mark(&self) -> bool {
        self.0.mark()
    }

    fn is_awaited(&self) -> bool {
        self.0.is_awaited()
    }
}

/// Acquires a reader-writer lock that the caller could not have at once.
#[cold]
pub fn acquire_shared<P: Platform, L: LoadManager<P>>(
    state: &RwWord<P>,
    share: Share,
    gate: &Gate<P>,
    deadline: Option<u64>,
) -> Acquired {
    state.begin_wait(share);
    let acquired = wait::<P, L>(gate, &RwSpot(state, share), deadline, |asking| state.attempt(share, asking));
    let opens = state.end_wait(share);
    if opens && !acquired.held {
        gate.recheck();
    }
    acquired
}

/// Releases a reader-writer lock. All parkers are woken: several readers may go in.
///
/// # Safety
///
/// The calling context holds it.
#[inline]
pub unsafe fn release_shared<P: Platform>(state: &RwWord<P>, gate: &Gate<P>) {
    // SAFETY: the caller holds the lock, also after a `release` that found it marked.
    unsafe {
        if !state.release() {
            settle::<P>();
            gate.release(u32::MAX, || state.clear_mark(), || state.release());
        }
    }
}

/// A word with room for nothing but itself.
struct Bare<'a>(&'a dyn Fn() -> bool);

impl Spot for Bare<'_> {
    fn try_lock(&self) -> bool {
        (self.0)()
    }

    /// There is nowhere to leave a mark: who would park polls on.
    fn mark(&self) -> bool {
        false
    }

    /// Nobody can tell.
    fn is_awaited(&self) -> bool {
        true
    }
}

/// Polls `attempt` with backoff until it succeeds, for locks whose memory has no room for a gate:
/// their waiters sleep in slots and yield, but do not park.
#[cold]
pub fn poll<P: Platform, L: LoadManager<P>>(attempt: &dyn Fn() -> bool) -> Acquired {
    wait::<P, L>(&Gate::new(), &Bare(attempt), None, |asking| {
        let mut backoff = Backoff::new(POLL_BACKOFF_NS.0, POLL_BACKOFF_NS.1, P::place(asking));
        loop {
            if attempt() {
                return Outcome::Acquired;
            }
            if asking.turn(P::now()) == Verdict::Leave {
                return Outcome::Left;
            }
            backoff.wait::<P>();
        }
    })
}
