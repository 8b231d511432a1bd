//! Where the two halves of a lock meet: one acquire and one release, for every pair of contention
//! manager and load manager.

use core::sync::atomic::Ordering::Relaxed;

use crate::contention::Contention;
use crate::contention::rw::{RwWord, Share};
use crate::load::{Context, LoadManager, ThreadState, Wait, WaitSummary};
use crate::parking::eventcount::{Eventcount, WaitedLock};
use crate::primitive::backoff::Backoff;
use crate::primitive::turn::{LONGEST_TURN_NS, Outcome, Turn, Verdict};
use crate::primitive::{Atomic, Primitive};

/// A machine with a process on it: what it hands to the waiters of its locks.
pub trait Process: Primitive {
    /// The process, as a waiter sees it.
    type Context: Context<Machine = Self>;

    /// The process that runs.
    fn context() -> Self::Context;
}

/// Backoff of [`poll`]: as [`ttas`](crate::contention::ttas).
const POLL_BACKOFF_NS: (u64, u64) = (50, 10_000);

/// A thread's pending wake-up of others is forgotten after so long: about the longest sleep for load,
/// which is what the thread is kept from.
const PENDING_WAKE_NS: u64 = 100_000_000;

/// How an acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquired {
    /// Whether the lock is held; false only after a deadline.
    pub held: bool,
    /// What the wait came to.
    pub wait: WaitSummary,
}

/// Waiting that a thread keeps to itself at most, nanoseconds: little against a time slice.
const PORTION_NS: u64 = 50_000;

/// How long a wait keeps its processor busy, for processes that want to know
/// ([`Context::waited`]).
struct Spent {
    is_counted: bool,
    last: u64,
    ns: u64,
}

impl Spent {
    fn begin(process: impl Context, now: u64) -> Self {
        Spent { is_counted: process.counts_waits(), last: now, ns: 0 }
    }

    #[inline(always)]
    fn turn(&mut self, process: impl Context, now: u64) {
        if self.is_counted {
            // A longer gap between two turns is time off the processor.
            self.ns += now.saturating_sub(self.last).min(LONGEST_TURN_NS);
            self.last = now;
            if self.ns >= PORTION_NS {
                process.waited(core::mem::take(&mut self.ns));
            }
        }
    }

    /// The thread was away.
    fn resume<P: Primitive>(&mut self) {
        if self.is_counted {
            self.last = P::now();
        }
    }

    fn end<P: Primitive>(mut self, process: impl Context) {
        if self.is_counted {
            self.turn(process, P::now());
            process.waited(self.ns);
        }
    }
}

/// Asks the load manager, and watches the deadline.
struct Asking<'a, X: Context, L: LoadManager> {
    waiter: &'a mut L::Waiter,
    wait: &'a Wait<'a, X>,
    spent: &'a mut Spent,
    late: bool,
}

impl<X: Context, L: LoadManager> Turn for Asking<'_, X, L> {
    #[inline]
    fn turn(&mut self, now: u64) -> Verdict {
        self.spent.turn(self.wait.process, now);
        self.late = self.wait.deadline.is_some_and(|end| now >= end);
        if self.late { Verdict::Leave } else { L::turn(self.waiter, self.wait, now) }
    }

    fn deadline(&self) -> Option<u64> {
        self.wait.deadline
    }
}

/// One wait, for any lock: contend, leave when the load manager says so, come back, until the lock is
/// held or the deadline has passed.
#[inline]
fn wait<P: Process, L: LoadManager>(
    eventcount: &Eventcount<P>,
    lock: &dyn WaitedLock,
    deadline: Option<u64>,
    mut attempt: impl FnMut(&mut Asking<'_, P::Context, L>) -> Outcome,
) -> Acquired {
    let process = P::context();
    let wait = Wait { process, eventcount, lock, deadline };
    let begin = P::now();
    let mut waiter = L::begin_wait(&wait, begin);
    let mut spent = Spent::begin(process, begin);
    let held = loop {
        let mut asking = Asking { waiter: &mut waiter, wait: &wait, spent: &mut spent, late: false };
        match attempt(&mut asking) {
            Outcome::Acquired => break true,
            Outcome::Abandoned if asking.late => break false,
            Outcome::Abandoned => {}
        }
        let is_held = L::block(&mut waiter, &wait);
        spent.resume::<P>();
        if is_held {
            break true;
        }
    };
    spent.end::<P>(process);
    let summary = L::end_wait(waiter, &wait);
    if !held {
        L::give_up(&wait);
    }
    if summary.parked {
        // Eventcount, Invariant 2. Holding the lock, this sets the bit; without, somebody else's hold, or
        // else wakes one.
        eventcount.pass_on(lock);
        if held {
            let pending_wake_until = P::now() + PENDING_WAKE_NS;
            process.set_thread_state(ThreadState { pending_wake_until, ..process.thread_state() });
        }
    }
    Acquired { held, wait: summary }
}

/// A mutex, as its waiters see it.
struct WaitedMutex<'a, P: Primitive, C> {
    state: &'a C,
    account: Option<Account<'a, P>>,
}

/// What the user of a mutex writes down beside it, under it: waiters see by it how the lock fares.
pub struct Account<'a, P: Primitive> {
    /// Another number after each acquisition.
    pub acquisitions: &'a P::U32,
    /// Who holds it, by the machine's id of the thread; 0: nobody says.
    pub holder: &'a P::U32,
}

impl<P: Primitive, C: Contention> WaitedLock for WaitedMutex<'_, P, C> {
    fn try_lock(&self) -> bool {
        self.state.try_lock()
    }

    fn set_parked_bit(&self) -> bool {
        self.state.set_parked_bit()
    }

    fn has_contender(&self) -> bool {
        self.state.has_contender()
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

/// Acquires a mutex that the caller found taken, and of which its user may keep an account. `deadline`
/// is on the machine's clock.
#[cold]
pub fn acquire<P: Process, C: Contention, L: LoadManager>(
    state: &C,
    eventcount: &Eventcount<P>,
    account: Option<Account<'_, P>>,
    deadline: Option<u64>,
) -> Acquired {
    let lock = WaitedMutex { state, account };
    wait::<P, L>(eventcount, &lock, deadline, |asking| state.attempt(asking))
}

/// The calling thread releases a lock with parked waiters: they need the thread no longer.
#[cold]
fn record_wake<P: Process>() {
    let process = P::context();
    let last_wake = P::now();
    process.set_thread_state(ThreadState { pending_wake_until: 0, last_wake, ..process.thread_state() });
}

/// Releases a mutex.
///
/// # Safety
///
/// The calling context holds it.
#[inline]
pub unsafe fn release<P: Process, C: Contention>(state: &C, eventcount: &Eventcount<P>) {
    // SAFETY: the caller holds the lock, also after an `unlock` that found parked waiters.
    unsafe {
        if !state.unlock() {
            record_wake::<P>();
            eventcount.release(1, || state.clear_parked_bit(), || state.unlock());
        }
    }
}

/// A reader-writer lock, as a waiter that wants `Share` sees it.
struct WaitedRwLock<'a, P: Primitive>(&'a RwWord<P>, Share);

impl<P: Primitive> WaitedLock for WaitedRwLock<'_, P> {
    fn try_lock(&self) -> bool {
        self.0.try_acquire(self.1)
    }

    fn set_parked_bit(&self) -> bool {
        self.0.set_parked_bit()
    }

    fn has_contender(&self) -> bool {
        self.0.has_contender()
    }
}

/// Acquires a reader-writer lock that the caller could not have at once.
#[cold]
pub fn acquire_shared<P: Process, L: LoadManager>(
    state: &RwWord<P>,
    share: Share,
    eventcount: &Eventcount<P>,
    deadline: Option<u64>,
) -> Acquired {
    state.begin_wait(share);
    let acquired =
        wait::<P, L>(eventcount, &WaitedRwLock(state, share), deadline, |asking| state.attempt(share, asking));
    let opens = state.end_wait(share);
    if opens && !acquired.held {
        eventcount.recheck();
    }
    acquired
}

/// Releases a reader-writer lock. All parkers are woken: several readers may go in.
///
/// # Safety
///
/// The calling context holds it.
#[inline]
pub unsafe fn release_shared<P: Process>(state: &RwWord<P>, eventcount: &Eventcount<P>) {
    // SAFETY: the caller holds the lock, also after a `release` that found parked waiters.
    unsafe {
        if !state.release() {
            record_wake::<P>();
            eventcount.release(u32::MAX, || state.clear_parked_bit(), || state.release());
        }
    }
}

/// A word with room for nothing but itself.
struct Bare<'a>(&'a dyn Fn() -> bool);

impl WaitedLock for Bare<'_> {
    fn try_lock(&self) -> bool {
        (self.0)()
    }

    /// There is no room for the bit: a waiter that would park polls on.
    fn set_parked_bit(&self) -> bool {
        false
    }

    /// Nobody can tell.
    fn has_contender(&self) -> bool {
        true
    }
}

/// Polls `attempt` with backoff until it succeeds, for locks whose memory has no room for an eventcount:
/// their waiters sleep in slots and yield, but do not park.
#[cold]
pub fn poll<P: Process, L: LoadManager>(attempt: &dyn Fn() -> bool) -> Acquired {
    wait::<P, L>(&Eventcount::new(), &Bare(attempt), None, |asking| {
        let mut backoff = Backoff::new(POLL_BACKOFF_NS.0, POLL_BACKOFF_NS.1, P::address(asking));
        loop {
            if attempt() {
                return Outcome::Acquired;
            }
            if asking.turn(P::now()) == Verdict::Leave {
                return Outcome::Abandoned;
            }
            backoff.wait::<P>();
        }
    })
}
