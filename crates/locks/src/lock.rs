//! Where contention manager and load manager meet: one acquire and one release for every pair.

mod spent;

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use crate::contention::Contention;
use crate::contention::biased_rw::{BiasedRw, Drain};
use crate::contention::give_way::LATE_AFTER_NS;
use crate::contention::rw::Share;
use crate::contention::visible::VisibleReaders;
use crate::load::context::OVERTAKEN_NS;
use crate::load::{Context, LoadManager, ThreadState, Wait, WaitSummary};
use crate::parking::eventcount::{Eventcount, WaitedLock};
use crate::primitive::backoff::Backoff;
use crate::primitive::turn::{Outcome, Turn, Verdict};
use crate::primitive::{Atomic, Kind, Primitive};
use crate::queue::NodeMemory;
use spent::Spent;

/// A machine together with the process that runs on it.
pub trait Process: VisibleReaders + NodeMemory {
    /// The process, as a waiter sees it.
    type Context: Context<Machine = Self>;

    /// The calling process.
    fn context() -> Self::Context;
}

/// Backoff of [`poll`], the same as that of [`ttas`](crate::contention::ttas).
const POLL_BACKOFF_NS: (u64, u64) = (50, 10_000);

/// Length of a wait from which on a reader that parks again reserves the lock: as long as a writer
/// waits before it asks readers to give way.
const OVERTAKEN_READER_NS: u64 = if cfg!(loom) { 0 } else { LATE_AFTER_NS };

/// How long a pending wake-up keeps a thread awake: about the longest sleep for load.
const PENDING_WAKE_NS: u64 = 100_000_000;

/// How an acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquired {
    /// Whether the lock is held; false only after the deadline.
    pub held: bool,
    /// What happened during the wait.
    pub wait: WaitSummary,
}

/// The waiter's question to its load manager, and its deadline.
struct Query<'a, X: Context, L: LoadManager> {
    waiter: &'a mut L::Waiter,
    wait: &'a Wait<'a, X>,
    spent: &'a mut Spent,
    sample: &'a mut Sample,
    late: bool,
}

/// The time at which a wait is to be sampled; `u64::MAX` if it is not, or has been sampled.
struct Sample(u64);

impl Sample {
    #[inline(always)]
    fn take_after(&mut self, time: u64, process: impl Context) {
        if time >= self.0 {
            self.take(process);
        }
    }

    #[cold]
    fn take(&mut self, process: impl Context) {
        if core::mem::replace(&mut self.0, u64::MAX) != u64::MAX {
            process.take_sample();
        }
    }
}

impl<X: Context, L: LoadManager> Turn for Query<'_, X, L> {
    #[inline]
    fn turn(&mut self, now: u64) -> Verdict {
        self.spent.turn(self.wait.process, now);
        self.sample.take_after(now, self.wait.process);
        self.late = self.wait.is_late(now);
        if self.late { Verdict::Leave } else { L::turn(self.waiter, self.wait, now) }
    }

    fn deadline(&self) -> Option<u64> {
        match self.sample.0 {
            u64::MAX => self.wait.deadline,
            sample => Some(self.wait.earlier(sample)),
        }
    }

    #[inline]
    fn acquisitions(&self) -> Option<u32> {
        self.wait.lock.watched_acquisitions()
    }
}

/// One wait for any lock: contend, leave when the load manager says so, and contend again, until
/// the lock is held or the deadline has passed.
#[inline]
fn wait<P: Process, L: LoadManager>(
    eventcount: &Eventcount<P>,
    lock: &dyn WaitedLock,
    deadline: Option<u64>,
    mut attempt: impl FnMut(&mut Query<'_, P::Context, L>) -> Outcome,
) -> Acquired {
    // In the child of a `fork`, drops the parent's sleepers, pins and controller; in a parent, lets
    // its children notice. Locks without a queue read the generation nowhere else.
    P::generation();
    let process = P::context();
    let begin = P::now();
    let wait = Wait { process, eventcount, lock, deadline, begin, parked: Cell::new(None) };
    let mut waiter = L::begin_wait(&wait, begin);
    let mut spent = Spent::begin(process, begin);
    let mut sample = Sample(process.sample_at());
    let held = loop {
        let mut query = Query {
            waiter: &mut waiter,
            wait: &wait,
            spent: &mut spent,
            sample: &mut sample,
            late: false,
        };
        match attempt(&mut query) {
            Outcome::Acquired => break true,
            Outcome::Abandoned if query.late => break false,
            Outcome::Abandoned => {}
        }
        sample.take(process);
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
        // Eventcount, Invariant 2: sets the parked bit if any thread holds the lock, and wakes one
        // waiter if the lock is free.
        let is_left_to_holder = eventcount.pass_on(lock);
        if held && is_left_to_holder {
            process.set_thread_state(ThreadState {
                pending_wake_until: P::now() + PENDING_WAKE_NS,
                pending_wake_at: wait.key(),
                ..process.thread_state()
            });
        }
    }
    Acquired { held, wait: summary }
}

/// A mutex, as its waiters see it.
struct WaitedMutex<'a, P: Primitive, C> {
    state: &'a C,
    account: Option<Account<'a, P>>,
}

/// Words beside a mutex, which its user updates while holding it. Waiters read its progress there.
pub enum Account<'a, P: Primitive> {
    /// The user always keeps both words.
    Full {
        /// Changes with each acquisition.
        acquisitions: &'a P::U32,
        /// The machine's thread id of the holder; 0 if unknown.
        holder: &'a P::U32,
    },
    /// The user keeps one word, and only while the mutex [is watched](Contention::is_watched).
    Watched {
        /// Changes with each acquisition.
        acquisitions: &'a P::U32,
    },
}

impl<P: Primitive, C: Contention> WaitedLock for WaitedMutex<'_, P, C> {
    fn try_lock(&self) -> bool {
        self.state.try_lock()
    }

    fn set_parked_bit(&self) -> bool {
        self.state.set_parked_bit()
    }

    fn reserve_after(&self) -> Option<u64> {
        C::RESERVES.then_some(OVERTAKEN_NS)
    }

    fn reserve(&self) {
        self.state.reserve();
    }

    fn take_reserved(&self) -> bool {
        self.state.take_reserved()
    }

    fn has_contender(&self) -> bool {
        self.state.has_contender()
    }

    fn acquisitions(&self) -> Option<u32> {
        let is_counted = match self.account.as_ref()? {
            Account::Full { .. } => true,
            Account::Watched { .. } => self.state.is_watched(),
        };
        if is_counted { self.watched_acquisitions() } else { None }
    }

    fn watch(&self) {
        self.state.watch();
    }

    fn watched_acquisitions(&self) -> Option<u32> {
        let (Account::Full { acquisitions, .. } | Account::Watched { acquisitions }) =
            self.account.as_ref()?;
        Some(acquisitions.load(Relaxed))
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn holder(&self) -> Option<u32> {
        let Some(Account::Full { holder, .. }) = self.account else { return None };
        Some(holder.load(Relaxed)).filter(|&holder| holder != 0)
    }
}

/// Acquires a mutex whose fast path failed. `account` refers to the words beside the mutex, if its
/// user keeps any; for `deadline` see [`Clock::has_passed`](crate::primitive::Clock::has_passed).
#[cold]
pub fn acquire<P: Process, C: Contention, L: LoadManager>(
    state: &C,
    eventcount: &Eventcount<P>,
    account: Option<Account<'_, P>>,
    deadline: Option<u64>,
) -> Acquired {
    let lock = WaitedMutex { state, account };
    // A requeued waiter was parked, though not by `Wait::park`: a lock may be reserved for it.
    let is_requeued = P::context().thread_state().is_requeued_at(eventcount);
    wait::<P, L>(eventcount, &lock, deadline, |query| {
        let takes = is_requeued && state.take_reserved();
        if takes { Outcome::Acquired } else { state.attempt(query) }
    })
}

/// Records that the calling thread releases a lock with parked waiters and, unless it has parked
/// for another lock since, has no pending wake-up left. Returns how many waiters to wake.
///
/// One waiter is enough, because it passes the wake-up on with its own release. But waiters that
/// were requeued from a condition variable mostly just return from their wait, and a wake-up takes
/// longer than that. So a release wakes one requeued waiter per free processor, more after a
/// broadcast, and now and then all that this thread has signalled
/// ([`Pollers`](crate::load::pollers::Pollers)). (16 processors, relative to libc: a broadcast to
/// 32 waiters .16 with one at a time, 1.0 with one per free processor; LevelDB's writes with 32
/// threads .51 and 1.05.)
#[cold]
fn record_wake<P: Process>(eventcount: &Eventcount<P>) -> u32 {
    let process = P::context();
    let last_wake = P::now();
    let state = process.thread_state();
    let are_requeued = state.is_requeued_at(eventcount);
    let is_needed_elsewhere =
        state.pending_wake_until > last_wake && state.pending_wake_at != P::address(eventcount);
    let woken = match is_needed_elsewhere {
        true => state,
        false => ThreadState { pending_wake_until: 0, last_wake, ..state },
    };
    if !are_requeued {
        process.set_thread_state(woken);
        return 1;
    }
    process.set_thread_state(ThreadState { requeued_at: 0, requeued: 0, ..woken });
    process.control().pollers.wakeable(state.requeued, last_wake)
}

/// Releases a mutex.
///
/// # Safety
///
/// The calling context holds the mutex.
#[inline]
pub unsafe fn release<P: Process, C: Contention>(state: &C, eventcount: &Eventcount<P>) {
    // SAFETY: the caller holds the mutex, and still holds it after an `unlock` that found parked
    // waiters.
    unsafe {
        if !state.unlock() {
            let count = record_wake::<P>(eventcount);
            eventcount.release(count, || state.clear_parked_bit(), || state.unlock());
        }
    }
}

/// A reader-writer lock, as a waiter sees it.
struct WaitedRwLock<'a, P: Primitive> {
    lock: BiasedRw<'a, P>,
    share: Share,
    drain: Drain,
}

impl<P: VisibleReaders> WaitedLock for WaitedRwLock<'_, P> {
    fn kind(&self) -> Option<Kind> {
        Some(if self.share == Share::Write { Kind::Exclusive } else { Kind::Shared })
    }

    fn try_lock(&self) -> bool {
        self.lock.try_acquire(self.share, &self.drain)
    }

    fn set_parked_bit(&self) -> bool {
        self.lock.word().set_parked_bit()
    }

    fn reserve_after(&self) -> Option<u64> {
        Some(if self.share == Share::Write { OVERTAKEN_NS } else { OVERTAKEN_READER_NS })
    }

    fn reserve(&self) {
        if self.lock.word().is_written() {
            self.lock.word().request();
        }
    }

    fn take_reserved(&self) -> bool {
        self.share == Share::Write && self.lock.word().has_request() && self.try_lock()
    }

    /// While the parked bit is set, the eventcount advances with each release by a writer.
    fn acquisitions(&self) -> Option<u32> {
        let sequence = self.lock.eventcount().sequence();
        self.lock.word().is_written_and_parked().then_some(sequence)
    }

    fn watch(&self) {
        if self.lock.word().is_written() {
            self.lock.word().set_parked_bit();
        }
    }

    /// Unknown: only releases that find the parked bit are counted.
    fn watched_acquisitions(&self) -> Option<u32> {
        None
    }

    fn retry_at(&self) -> Option<u64> {
        // A model's sleeps with a deadline end at once, and would hide a lost wake-up.
        let may_be_late = self.share == Share::Write && !cfg!(loom);
        // The release of a writer finds the parked bit.
        (may_be_late && !self.lock.word().is_written()).then(|| self.drain.retry_at())
    }

    fn sleep_on_holder(&self, deadline: Option<u64>) {
        self.lock.sleep_on_hidden(self.share, &self.drain, deadline);
    }

    fn has_contender(&self) -> bool {
        self.lock.word().has_contender()
    }
}

/// Acquires a reader-writer lock whose fast path failed.
#[cold]
pub fn acquire_shared<P: Process, L: LoadManager>(
    lock: BiasedRw<'_, P>,
    share: Share,
    deadline: Option<u64>,
) -> Acquired {
    lock.word().begin_wait(share);
    let waited = WaitedRwLock { lock, share, drain: Drain::until(deadline) };
    let acquired = wait::<P, L>(lock.eventcount(), &waited, deadline, |query| {
        lock.attempt(share, &waited.drain, query)
    });
    let opens = lock.word().end_wait(share);
    let is_writer = share == Share::Write;
    if opens || is_writer && !acquired.held || !is_writer && !lock.word().has_waiting_writer() {
        // The last waiting writer may have reserved the lock for the next one, and a reader for
        // itself.
        lock.word().drop_request();
    }
    if opens && !acquired.held {
        lock.eventcount().recheck();
    }
    acquired
}

/// Releases a reader-writer lock. Wakes the longest parked writer and all parked readers. A writer
/// that it does not wake is woken by a later release, because the woken one sets the parked bit
/// again.
///
/// # Safety
///
/// The calling context holds the lock.
#[inline]
pub unsafe fn release_shared<P: Process>(lock: BiasedRw<'_, P>) {
    // SAFETY: the caller holds the lock, and still holds it after a `release` that found parked
    // waiters.
    unsafe {
        if !lock.release() {
            record_wake::<P>(lock.eventcount());
            let clear = || lock.word().clear_parked_bit();
            lock.eventcount().release_shared(clear, || lock.release());
        }
    }
}

/// A lock of one word, without room for a parked bit or an eventcount.
struct Bare<'a>(&'a dyn Fn() -> bool);

impl WaitedLock for Bare<'_> {
    fn try_lock(&self) -> bool {
        (self.0)()
    }

    /// Always false: without a parked bit, a waiter that would park keeps polling.
    fn set_parked_bit(&self) -> bool {
        false
    }

    /// Unknown, so assumed to be true.
    fn has_contender(&self) -> bool {
        true
    }
}

/// Polls `attempt` with backoff until it succeeds, for locks without room for an eventcount.
/// Waiters sleep in slots and yield, but never park.
#[cold]
pub fn poll<P: Process, L: LoadManager>(attempt: &dyn Fn() -> bool) -> Acquired {
    wait::<P, L>(&Eventcount::new(), &Bare(attempt), None, |query| {
        let mut backoff = Backoff::new(POLL_BACKOFF_NS.0, POLL_BACKOFF_NS.1, P::address(query));
        loop {
            if attempt() {
                return Outcome::Acquired;
            }
            if query.turn(P::now()) == Verdict::Leave {
                return Outcome::Abandoned;
            }
            backoff.wait::<P>();
        }
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
