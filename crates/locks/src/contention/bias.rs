//! The bias of a [reader-writer lock](super::biased_rw) towards its readers: a mode with a version,
//! and when readers may set it.
//!
//! | from | to | by |
//! | --- | --- | --- |
//! | `UNBIASED`, `DRAINING` | `BIASED`, next version | a reader, whose hold is in the lock's word |
//! | `BIASED` | `DRAINING` | a writer |
//! | `DRAINING` | `UNBIASED` | a writer that has found no published hold under this version |
//!
//! The state shares its word with a byte of the lock's user. So a user whose fast path compares that
//! byte with a constant compares the whole word, and pays nothing for the bias of an unbiased lock.
//!
//! **Invariant.** A version is biased once. So a state that has not changed between two looks has
//! not changed and returned.
//!
//! **Memory orderings.** Setting and ending a bias have release ordering, and each look at the
//! state acquire ordering. The looks and the change between which [`biased_rw`](super::biased_rw)
//! needs a total order are `SeqCst`.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::primitive::{Atomic, Primitive};

/// The bits of the mode. Those below are the user's, and those above are the version.
const MODE: u32 = 3 << 8;
const UNBIASED: u32 = 0;
const BIASED: u32 = 1 << 8;
const DRAINING: u32 = 2 << 8;
const VERSION: u32 = 1 << 10;

/// Readings beside other readers until a reader reads the clock, and may set the bias. One in a
/// model, which explores short executions.
const OVERLAPS: u32 = if cfg!(loom) { 1 } else { 16 };

/// A bias is not set again for this many times as long as its revocation took, so revocations take
/// at most a tenth of the writers' time (BRAVO, section 3, with the same factor).
///
/// None in a model, where each look at the clock may take a second.
const INHIBITION: u64 = if cfg!(loom) { 0 } else { 9 };

/// When readers may set the bias of a lock: 16 bytes, all zeroes in a new lock.
#[repr(C)]
pub struct Limits<P: Primitive> {
    /// Readings beside other readers since the last look at the clock. Some may be lost.
    overlaps: P::U32,
    /// Time before which no reader sets the bias.
    inhibited_until: P::U64,
}

impl<P: Primitive> Limits<P> {
    /// The limits of a new lock.
    pub fn new() -> Self {
        Limits { overlaps: P::U32::new(0), inhibited_until: P::U64::new(0) }
    }
}

impl<P: Primitive> Default for Limits<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// The bias of a lock.
pub struct Bias<'a, P: Primitive> {
    state: &'a P::U32,
    limits: &'a Limits<P>,
}

impl<P: Primitive> Clone for Bias<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Primitive> Copy for Bias<'_, P> {}

impl<'a, P: Primitive> Bias<'a, P> {
    /// The bias in these words. All bits of `state` but the lowest eight are 0 in a new lock, and
    /// only the bias changes them.
    #[inline(always)]
    pub fn new(state: &'a P::U32, limits: &'a Limits<P>) -> Self {
        Bias { state, limits }
    }

    /// Whether there may be published holds: the mode is `BIASED` or `DRAINING`.
    #[inline(always)]
    pub(super) fn is_in_use(self) -> bool {
        self.state.load(Acquire) & MODE != UNBIASED
    }

    /// The state, if holds may be published under it.
    #[inline(always)]
    pub(super) fn biased(self) -> Option<u32> {
        Some(self.state.load(Acquire)).filter(|state| state & MODE == BIASED)
    }

    /// Whether the state is the same as before.
    #[inline(always)]
    pub(super) fn is_still(self, state: u32) -> bool {
        self.state.load(SeqCst) == state
    }

    /// Counts a reading beside other readers. Returns the state if a bias may be worthwhile.
    pub(super) fn count_overlap(self) -> Option<u32> {
        let state = self.state.load(Relaxed);
        if state & MODE == BIASED {
            return None; // the reader's slot was in use
        }
        let overlaps = self.limits.overlaps.load(Relaxed) + 1;
        self.limits.overlaps.store(overlaps % OVERLAPS, Relaxed);
        (overlaps >= OVERLAPS).then_some(state)
    }

    /// Biases the lock unless the last revocation was too expensive, or `state` is no longer the
    /// lock's.
    pub(super) fn set(self, state: u32) {
        if P::now() >= self.limits.inhibited_until.load(Relaxed) {
            let biased = ((state & !MODE) | BIASED).wrapping_add(VERSION);
            // Pairs with every look at the state.
            let _ = self.state.compare_exchange(state, biased, Release, Relaxed);
        }
    }

    /// Keeps readers from publishing. Returns the state to drain; `None` if there is no bias.
    pub(super) fn begin_drain(self) -> Option<u32> {
        let begin = |state: u32| (state & MODE == BIASED).then_some((state & !MODE) | DRAINING);
        match self.state.modify(SeqCst, SeqCst, begin) {
            Ok(before) => begin(before),
            Err(now) => (now & MODE == DRAINING).then_some(now),
        }
    }

    /// Ends a bias without published holds. Returns false if `state` is no longer the lock's.
    pub(super) fn end_drain(self, state: u32) -> bool {
        self.state.compare_exchange(state, state & !MODE, AcqRel, Relaxed).is_ok()
    }

    /// Inhibits the bias after a revocation that began at the time `begin`.
    pub(super) fn inhibit(self, begin: u64) {
        let now = P::now();
        self.limits.inhibited_until.store(now + INHIBITION * now.saturating_sub(begin), Relaxed);
    }
}
