//! Threads that others wait for, and that are therefore not to sleep for load.
//!
//! Load control takes it that nobody needs a waiting thread soon. A thread that waits for one lock and holds another is
//! needed by all who wait for that one (ASPLOS 2010, section 6.1.2: nested critical sections). The paper
//! proposes that waiters ask to have the holder woken. A waiter here [expects](Awaited::expect) its
//! lock's holder for as long as it waits, spinning or parked: that wakes the holder if it sleeps for
//! load, and keeps it from falling asleep.
//!
//! Expected threads are counted in a small table by their ids. Two threads that share an entry are
//! expected together: one of them goes on spinning for nothing, which does no harm.
//!
//! **Invariant 1.** No thread sleeps for load while it is expected. The expecting waiter counts, fences, and
//! looks for the holder's slot; the holder writes its slot, fences (in
//! [`claim`](super::slots::SleepSlots::claim)), and looks at the count. One of them sees the other.
//!
//! **Invariant 2.** Who parks marks the lock, so that its holder's release is one that finds the mark, and
//! [settles](crate::lock): what was expected of the holder before is done, though the waiters that expected it have not
//! had a processor yet to say so.
//!
//! What is *not* guaranteed: a holder that has the lock, but has not written its id beside it yet, is
//! unknown for some nanoseconds. A thread that holds two marked locks and releases one has settled for both. And whose locks do not know their holders expects nobody.
//!
//! **Memory orderings.** The fences of Invariant 1; the counts themselves are relaxed.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::slots::SleepSlots;
use crate::platform::{Atomic, AtomicInt, Platform};

const ENTRIES: usize = if cfg!(loom) { 2 } else { 256 };

/// Pauses are told apart by their binary order of magnitude: 2^40 ns are 18 minutes.
const MAGNITUDES: usize = if cfg!(loom) { 1 } else { 40 };

/// How many waiters expect each thread.
pub struct Awaited<P: Platform> {
    counts: [P::U32; ENTRIES],
    /// When the thread was last begun to be expected.
    begun: [P::U64; ENTRIES],
    /// Since when the lock stood still of a waiter that has just woken the thread; 0 if none has.
    since: [P::U64; ENTRIES],
    /// Pauses that ended by waking the holder, by magnitude.
    pauses: [P::U32; MAGNITUDES],
    /// Whether waiters wake holders; for experiments without.
    pub(crate) enabled: P::U32,
}

/// A thread that one waiter expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an expectation ends"]
pub struct Registration(u32);

#[cfg(not(loom))]
impl Awaited<crate::platform::Native> {
    /// As `new`, for a static.
    pub(crate) const fn nobody() -> Self {
        use core::sync::atomic::{AtomicU32, AtomicU64};
        Awaited {
            counts: [const { AtomicU32::new(0) }; ENTRIES],
            begun: [const { AtomicU64::new(0) }; ENTRIES],
            since: [const { AtomicU64::new(0) }; ENTRIES],
            pauses: [const { AtomicU32::new(0) }; MAGNITUDES],
            enabled: AtomicU32::new(1),
        }
    }
}

impl<P: Platform> Awaited<P> {
    pub(crate) fn new() -> Self {
        Awaited {
            counts: core::array::from_fn(|_| P::U32::new(0)),
            begun: core::array::from_fn(|_| P::U64::new(0)),
            since: core::array::from_fn(|_| P::U64::new(0)),
            pauses: core::array::from_fn(|_| P::U32::new(0)),
            enabled: P::U32::new(1),
        }
    }

    fn count(&self, thread: u32) -> &P::U32 {
        &self.counts[thread as usize % ENTRIES]
    }

    /// The caller waits for what `holder` holds, and nobody has come by it since the time `since`: wakes
    /// the holder if it sleeps in `slots`, and keeps it from sleeping there.
    #[cold]
    pub fn expect(&self, holder: u32, slots: &SleepSlots<P>, since: u64) -> Registration {
        self.begun[holder as usize % ENTRIES].store(P::now(), Relaxed);
        self.count(holder).fetch_add(1, Relaxed);
        P::fence(SeqCst); // Invariant 1; pairs with that of a claim
        slots.wake_thread(holder, || self.since[holder as usize % ENTRIES].store(since, Relaxed));
        Registration(holder)
    }

    /// `thread`, the caller, goes on after a sleep at the time `now`: notes how long others paused for it,
    /// if they had to wake it.
    pub(crate) fn resume(&self, thread: u32, now: u64) {
        let since = &self.since[thread as usize % ENTRIES];
        if since.load(Relaxed) != 0 {
            let pause = now.saturating_sub(since.swap(0, Relaxed));
            let magnitude = (u64::BITS - pause.leading_zeros()) as usize;
            self.pauses[magnitude.min(MAGNITUDES - 1)].fetch_add(1, Relaxed);
        }
    }

    /// How many pauses ended by waking the holder since the process began, by magnitude: below
    /// 2^0, 2^1, 2^2 ... nanoseconds.
    pub fn pauses(&self) -> [u32; MAGNITUDES] {
        core::array::from_fn(|magnitude| self.pauses[magnitude].load(Relaxed))
    }

    /// The caller waits no more, or for another thread.
    pub fn end(&self, registration: Registration) {
        self.count(registration.0).fetch_sub(1, Relaxed);
    }

    /// Whether somebody waits for `thread`, which last released a marked lock at the time `settled`. Asked by that
    /// thread, after it has claimed a slot.
    pub fn is_expected(&self, thread: u32, settled: u64) -> bool {
        self.count(thread).load(Relaxed) != 0 && self.begun[thread as usize % ENTRIES].load(Relaxed) >= settled
    }

    /// Starts anew, in the child of a `fork`.
    pub(crate) fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }
}
