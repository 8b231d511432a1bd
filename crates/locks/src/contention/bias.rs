//! The bias of a [reader-writer lock](super::biased_rw) towards its readers: a mode with a version,
//! and when readers may set it.
//!
//! | from | to | by |
//! | --- | --- | --- |
//! | `UNBIASED`, `DRAINING` | `BIASED`, next version | a reader, whose hold is in the lock's word |
//! | `BIASED` | `DRAINING` | a writer |
//! | `DRAINING` | `UNBIASED` | a writer that has found no published hold under this version |
//!
//! The state shares its word with a byte of the lock's user. A fast path that would compare this
//! byte with a constant compares the bits of [`BYTE_AND_MODE`] instead: without a bias, they equal
//! the byte. So the fast path of an unbiased lock needs no second look for a bias.
//!
//! **Invariant.** Each bias has a version of its own. So if two looks find the same state, it did
//! not change between them.
//!
//! **Memory orderings.** Setting and ending a bias have release ordering, and each look at the
//! state acquire ordering. A reader's second look and the change to `DRAINING` are `SeqCst`, since
//! [`biased_rw`](super::biased_rw) needs a total order of them.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::primitive::{Atomic, Primitive};

/// The bits of the mode. Those below are the user's, and those above are the version.
const MODE: u32 = 3 << 8;
const UNBIASED: u32 = 0;
const BIASED: u32 = 1 << 8;
const DRAINING: u32 = 2 << 8;
const VERSION: u32 = 1 << 10;

/// The user's byte, and other bits that are 0 if there is no bias.
pub const BYTE_AND_MODE: u32 = 0xff | MODE;

/// A bias is not set again for at least this many times as long as its revocation took, so
/// revocations take at most a tenth of the writers' time (BRAVO, section 3, with the same factor).
/// Unlike BRAVO's, a revocation here does not include the wait for readers inside: they delay the
/// writer of an unbiased lock as long, and a reader without a processor would keep the bias off for
/// nine time slices.
///
/// 0 in a model, where each look at the clock may take a second.
const INHIBITION: u64 = if cfg!(loom) { 0 } else { 9 };

/// Margin for what a bias costs beside its revocation: slow paths, and transfers of cache lines.
const WORTHWHILE: u64 = 4;

/// The longest pause because of biases that were not worthwhile: about a thousand times what a bias
/// and its revocation cost together with few threads.
const LONGEST_PAUSE_NS: u64 = if cfg!(loom) { 0 } else { 1_000_000 };

/// When readers may set the bias of a lock: 16 bytes, all zeroes in a new lock.
#[repr(C)]
pub struct Limits<P: Primitive> {
    /// Last pause between two biases in nanoseconds.
    pause: P::U64,
    /// When the bias was set. Without a bias, the time before which no reader sets it.
    time: P::U64,
}

impl<P: Primitive> Limits<P> {
    /// The limits of a new lock.
    pub fn new() -> Self {
        let [pause, time] = [0, 0].map(P::U64::new);
        Limits { pause, time }
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

    /// The state, if a reader may set the bias in it.
    pub(super) fn unbiased(self) -> Option<u32> {
        Some(self.state.load(Relaxed)).filter(|state| state & MODE != BIASED)
    }

    /// Biases the lock unless it is too early, or `state` is no longer the lock's.
    pub(super) fn set(self, state: u32) {
        let now = P::now();
        if now >= self.limits.time.load(Relaxed) {
            self.limits.time.store(now, Relaxed);
            let biased = ((state & !MODE) | BIASED).wrapping_add(VERSION);
            // Pairs with every look at the state.
            let _ = self.state.compare_exchange(state, biased, Release, Relaxed);
        }
    }

    /// When the bias was set.
    pub(super) fn set_at(self) -> u64 {
        self.limits.time.load(Relaxed)
    }

    /// Keeps readers from publishing. Returns the state to drain, and whether the caller is the one
    /// that changed it; `None` if there is no bias.
    pub(super) fn begin_drain(self) -> Option<(u32, bool)> {
        let begin = |state: u32| (state & MODE == BIASED).then_some((state & !MODE) | DRAINING);
        match self.state.modify(SeqCst, SeqCst, begin) {
            Ok(before) => begin(before).map(|state| (state, true)),
            Err(now) => (now & MODE == DRAINING).then_some((now, false)),
        }
    }

    /// Ends a bias without published holds. Returns false if `state` is no longer the lock's.
    pub(super) fn end_drain(self, state: u32) -> bool {
        self.state.compare_exchange(state, state & !MODE, AcqRel, Relaxed).is_ok()
    }

    /// Inhibits the bias set at the time `set_at`, after a revocation that began at `begin`, in a
    /// process with this number of readers.
    ///
    /// The pause doubles if the bias was not worthwhile, and halves if it was. A bias gains at most
    /// its length times the number of readers. Its revocation costs the time that it took.
    ///
    /// BRAVO has no such rule: its factor does not include what a bias costs beside its revocation.
    /// (`unconvoy bench rwlock`, 2 threads on two busy processors, 50 % changes: 13 M/s if the
    /// pause is only a multiple of the revocation's time, 19 M/s without a bias; medians of 7 and 6
    /// runs.)
    pub(super) fn inhibit(self, set_at: u64, begin: u64, readers: usize) {
        let now = P::now();
        let (took, lasted) = (now.saturating_sub(begin), begin.saturating_sub(set_at));
        let last = self.limits.pause.load(Relaxed).min(LONGEST_PAUSE_NS);
        let is_worthwhile = lasted.saturating_mul(readers as u64) >= WORTHWHILE * took;
        let pause = if is_worthwhile { last / 2 } else { LONGEST_PAUSE_NS.min(2 * last) };
        let pause = pause.max(INHIBITION * took);
        self.limits.pause.store(pause, Relaxed);
        self.limits.time.store(now + pause, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::{Clock as _, Native};
    use core::sync::atomic::AtomicU32;

    /// The pause after a bias that lasted `lasted` nanoseconds, if the last pause was the longest.
    fn pause_after(lasted: u64) -> u64 {
        let (state, limits) = (AtomicU32::new(0), Limits::<Native>::new());
        limits.pause.store(LONGEST_PAUSE_NS, Relaxed);
        let begin = Native::now() - 1;
        Bias::new(&state, &limits).inhibit(begin - lasted, begin, 1);
        limits.pause.load(Relaxed)
    }

    #[test]
    fn pause_after_a_bias_that_was_not_worthwhile_is_not_shorter() {
        assert!(pause_after(0) >= LONGEST_PAUSE_NS);
    }

    #[test]
    fn pause_after_a_long_revocation_is_a_multiple_of_it() {
        const TOOK: u64 = 1_000_000;
        let (state, limits) = (AtomicU32::new(0), Limits::<Native>::new());
        let begin = Native::now() - TOOK;
        Bias::new(&state, &limits).inhibit(begin, begin, 1);
        assert!(limits.pause.load(Relaxed) >= INHIBITION * TOOK);
    }
}
