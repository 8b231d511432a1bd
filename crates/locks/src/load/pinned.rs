//! Pinned holders: threads that hold a lock which others wait for, and that are therefore not to
//! sleep for load.
//!
//! Load control takes it that nobody needs a waiting thread soon. A thread that waits for one lock and holds another is
//! needed by all who wait for that one (ASPLOS 2010, section 6.1.2: nested critical sections). The paper
//! proposes that waiters ask to have the holder woken. A waiter here [pins](PinnedHolders::pin) its
//! lock's holder for as long as it waits, spinning or parked: that wakes the holder if it sleeps for
//! load, and keeps it from falling asleep.
//!
//! Pins are counted in a small table by the threads' ids. Two threads that share an entry are
//! pinned together: one of them goes on spinning for nothing, which does no harm.
//!
//! **Invariant 1.** No thread sleeps for load while it is pinned. The pinning waiter counts, fences, and
//! looks for the holder's slot; the holder writes its slot, fences (in
//! [`claim`](SleepSlots::claim)), and looks at the count. One of them sees the other.
//!
//! **Invariant 2.** A waiter that parks sets the lock's parked bit, so that its holder's release finds the bit and
//! records the [wake-up](super::ThreadState::last_wake). Pins from before that release are void, though the waiters that
//! set them have not had a processor yet to take them back.
//!
//! What is *not* guaranteed: a holder that has the lock, but has not written its id beside it yet, is
//! unknown for some nanoseconds. When a thread that holds two locks with
//! parked waiters releases one, the pins for both are void. And a thread that waits for a lock without a recorded holder
//! pins no thread.
//!
//! **Memory orderings.** The fences of Invariant 1; the counts themselves are relaxed.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::parking::slots::SleepSlots;
use crate::primitive::{Atomic, AtomicInt, Primitive};

const ENTRIES: usize = if cfg!(loom) { 2 } else { 256 };

/// Pauses are counted by their binary order of magnitude: 2^40 ns are 18 minutes.
const MAGNITUDES: usize = if cfg!(loom) { 1 } else { 40 };

/// How many waiters pin each thread.
pub struct PinnedHolders<P: Primitive> {
    counts: [P::U32; ENTRIES],
    /// When the thread was last pinned.
    begun: [P::U64; ENTRIES],
    /// Since when nobody had acquired the lock of a waiter that has just woken the thread; 0 if none has.
    since: [P::U64; ENTRIES],
    /// Pauses that ended by waking the holder, by magnitude.
    pauses: [P::U32; MAGNITUDES],
    /// Whether holders are left asleep, for experiments.
    pub(super) disabled: P::U32,
}

/// A thread that one waiter pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a pin ends"]
pub struct Pin(u32);

impl<P: Primitive> PinnedHolders<P> {
    pub(crate) fn new() -> Self {
        PinnedHolders {
            counts: core::array::from_fn(|_| P::U32::new(0)),
            begun: core::array::from_fn(|_| P::U64::new(0)),
            since: core::array::from_fn(|_| P::U64::new(0)),
            pauses: core::array::from_fn(|_| P::U32::new(0)),
            disabled: P::U32::new(0),
        }
    }

    fn count(&self, thread: u32) -> &P::U32 {
        &self.counts[thread as usize % ENTRIES]
    }

    /// The caller waits for what `holder` holds, and nobody has acquired it since the time `since`: wakes
    /// the holder if it sleeps in `slots`, and keeps it from sleeping there.
    #[cold]
    pub fn pin(&self, holder: u32, slots: &SleepSlots<P>, since: u64) -> Pin {
        self.begun[holder as usize % ENTRIES].store(P::now(), Relaxed);
        self.count(holder).fetch_add(1, Relaxed);
        P::fence(SeqCst); // Invariant 1; pairs with that of a claim
        slots.wake_thread(holder, || self.since[holder as usize % ENTRIES].store(since, Relaxed));
        Pin(holder)
    }

    /// `thread`, the caller, goes on after a sleep at the time `now`: records how long others paused for it,
    /// if they had to wake it.
    pub(crate) fn resume(&self, thread: u32, now: u64) {
        let since = &self.since[thread as usize % ENTRIES];
        if since.load(Relaxed) != 0 {
            let pause = now.saturating_sub(since.swap(0, Relaxed));
            let magnitude = (u64::BITS - pause.leading_zeros()) as usize;
            self.pauses[magnitude.min(MAGNITUDES - 1)].fetch_add(1, Relaxed);
        }
    }

    /// Whether waiters pin holders at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.disabled.load(Relaxed) == 0
    }

    /// How many pauses ended by waking the holder since the process began, by magnitude: below
    /// 2^0, 2^1, 2^2 ... nanoseconds.
    pub fn pauses(&self) -> [u32; MAGNITUDES] {
        core::array::from_fn(|magnitude| self.pauses[magnitude].load(Relaxed))
    }

    /// The caller waits no more, or for another thread.
    pub fn end(&self, pin: Pin) {
        self.count(pin.0).fetch_sub(1, Relaxed);
    }

    /// Whether somebody waits for `thread`, which last released a lock with parked waiters at the time `last_wake`. Asked
    /// by that thread, after it has claimed a slot.
    pub fn is_pinned(&self, thread: u32, last_wake: u64) -> bool {
        self.count(thread).load(Relaxed) != 0 && self.begun[thread as usize % ENTRIES].load(Relaxed) >= last_wake
    }

    /// Starts anew, in the child of a `fork`.
    pub(crate) fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }
}
