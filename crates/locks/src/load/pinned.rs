//! Pinned holders: threads that must not sleep for load because others wait for a lock that they
//! hold.
//!
//! Load control assumes that no other thread soon needs a waiting thread to run. This is wrong for
//! a thread that holds one lock and waits for another: all waiters of the first lock need it
//! (ASPLOS 2010, section 6.1.2: nested critical sections). The paper proposes that waiters ask to
//! have the holder woken. Here a waiter [pins](PinnedHolders::pin) its lock's holder while it
//! waits, spinning or parked. Pinning wakes the holder if it sleeps for load, and keeps it awake.
//!
//! A small table counts pins by thread id. Threads that share an entry are pinned together. At
//! worst, one of them spins that could have slept.
//!
//! **Invariant 1.** No thread sleeps for load while it is pinned. The waiter increments the count,
//! fences, and looks for the holder's slot; the holder writes its slot, fences (in
//! [`claim`](SleepSlots::claim)), and reads the count. At least one of the two sees the other's
//! write.
//!
//! **Invariant 2.** A waiter that parks sets the lock's parked bit. The holder's release finds the
//! bit and records the [wake-up](super::ThreadState::last_wake). Earlier pins are void, even if
//! their waiters have not run yet to end them.
//!
//! *Not* guaranteed: a holder is unknown for the nanoseconds before it writes its id beside the
//! lock. When a thread that holds two locks with parked waiters releases the one for which it
//! parked last, or has parked for neither, the pins for both are void. A thread that waits for a
//! lock without a recorded holder pins no thread.
//!
//! **Memory orderings.** The fences of Invariant 1; the counts are relaxed.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::parking::slots::SleepSlots;
use crate::primitive::{Atomic, AtomicInt, Primitive};

const ENTRIES: usize = if cfg!(loom) { 2 } else { 256 };

/// Number of histogram bins, one per power of two: 2^40 ns are 18 minutes.
const MAGNITUDES: usize = if cfg!(loom) { 1 } else { 40 };

/// The number of pins of each thread.
pub struct PinnedHolders<P: Primitive> {
    counts: [P::U32; ENTRIES],
    /// When the thread was last pinned.
    begun: [P::U64; ENTRIES],
    /// If a waiter has just woken the thread, the time of the last acquisition of that waiter's
    /// lock; else 0.
    since: [P::U64; ENTRIES],
    /// The key of the lock whose waiter last pinned the thread.
    keys: [P::U64; ENTRIES],
    /// Pauses that ended when a waiter woke the holder, by power of two.
    pauses: [P::U32; MAGNITUDES],
    /// Set to leave holders asleep, for experiments.
    pub(super) disabled: P::U32,
}

/// A waiter's pin on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a pin must be ended"]
pub struct Pin(u32);

impl<P: Primitive> PinnedHolders<P> {
    pub(crate) fn new() -> Self {
        PinnedHolders {
            counts: core::array::from_fn(|_| P::U32::new(0)),
            begun: core::array::from_fn(|_| P::U64::new(0)),
            since: core::array::from_fn(|_| P::U64::new(0)),
            keys: core::array::from_fn(|_| P::U64::new(0)),
            pauses: core::array::from_fn(|_| P::U32::new(0)),
            disabled: P::U32::new(0),
        }
    }

    fn count(&self, thread: u32) -> &P::U32 {
        &self.counts[thread as usize % ENTRIES]
    }

    /// Pins `holder`, the holder of the lock of `key`, for which the caller waits, and wakes it if
    /// it sleeps in `slots`. `since` is the time of the lock's last known acquisition.
    #[cold]
    pub fn pin(&self, holder: u32, key: u64, slots: &SleepSlots<P>, since: u64) -> Pin {
        self.keys[holder as usize % ENTRIES].store(key, Relaxed);
        self.begun[holder as usize % ENTRIES].store(P::now(), Relaxed);
        self.count(holder).fetch_add(1, Relaxed);
        P::fence(SeqCst); // Invariant 1; pairs with the fence of a claim
        slots.wake_thread(holder, || self.since[holder as usize % ENTRIES].store(since, Relaxed));
        Pin(holder)
    }

    /// If a waiter woke `thread`, the caller, from its sleep, records how long the waiter's lock
    /// made no progress until the time `now`, and returns true.
    pub(crate) fn resume(&self, thread: u32, now: u64) -> bool {
        let since = &self.since[thread as usize % ENTRIES];
        let was_woken = since.load(Relaxed) != 0;
        if was_woken {
            let pause = now.saturating_sub(since.swap(0, Relaxed));
            let magnitude = (u64::BITS - pause.leading_zeros()) as usize;
            self.pauses[magnitude.min(MAGNITUDES - 1)].fetch_add(1, Relaxed);
        }
        was_woken
    }

    /// Whether waiters pin holders.
    pub(super) fn is_enabled(&self) -> bool {
        self.disabled.load(Relaxed) == 0
    }

    /// The number of pauses that ended when a waiter woke the holder, by power of two: below 2^0,
    /// 2^1, 2^2 ... nanoseconds.
    pub fn pauses(&self) -> [u32; MAGNITUDES] {
        core::array::from_fn(|magnitude| self.pauses[magnitude].load(Relaxed))
    }

    /// Whether the last waiter that pinned `thread`, the caller, waits for another lock than the
    /// caller, which waits for that of `key`. A pin by a waiter of the same lock is late: the
    /// caller has released it.
    pub(super) fn is_for_other_lock(&self, thread: u32, key: u64) -> bool {
        self.keys[thread as usize % ENTRIES].load(Relaxed) != key
    }

    /// Ends a pin.
    pub fn end(&self, pin: Pin) {
        self.count(pin.0).fetch_sub(1, Relaxed);
    }

    /// Whether a waiter has pinned `thread`, the caller, since `last_wake`. Called after a claim.
    pub fn is_pinned(&self, thread: u32, last_wake: u64) -> bool {
        self.count(thread).load(Relaxed) != 0
            && self.begun[thread as usize % ENTRIES].load(Relaxed) >= last_wake
    }

    /// Clears the pins in the child of a `fork`.
    pub(crate) fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }
}
