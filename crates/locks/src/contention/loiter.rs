//! The default lock: a word open to barging, with a time-published queue of waiters behind it.
//!
//! A strict hand-off moves the lock's line, and the data it protects, to another processor for
//! every critical section. With few processors that costs more than the section itself. So any
//! arriving thread may take the word, and the last releaser usually does. A thread that does not
//! get it joins a queue, and only the front of the queue, the *standby*, polls the word. The
//! composition is LOITER's (Dice, *Malthusian Locks*, EuroSys 2017, section 5: outer word, inner
//! queue). The queue is that of [`tpmcs`](super::tpmcs); waiters abandon it when load control says
//! to leave.
//!
//! ```text
//!   arrivals --barge--> [ word | demand ] <--polls-- standby <--TP-MCS-- waiter <- waiter <- tail
//! ```
//!
//! Unfairness is bounded: after `BARGING_BOUND_NS` the standby raises `demand`, and arrivals
//! leave the word to it. A parked waiter that others [overtake](crate::load::Wait::park) makes the
//! next release reserve the word for the waiter that this release wakes.
//!
//! | word | demand | meaning |
//! | --- | --- | --- |
//! | free | 0 | free for any thread |
//! | held | 0 | held; the next arrival may overtake the standby |
//! | held | 1 | held; the standby is next |
//! | free | 1 | left to the standby, for up to `OVERRULE_NS` |
//! | reserved | | left to a waiter that was parked, for up to `WAKING_NS` |
//!
//! A waiter does not take every free word. A thread that takes a lock every 200 ns is faster alone
//! than two such threads together, because each change of owner moves lines that the sections need.
//! So a waiter that sees acquisitions this *rapid* leaves the word to the owner, for at most
//! `BARGING_BOUND_NS`. Every wait for a `WATCHED` lock watches the acquisitions, and so does one in
//! `WATCHED_WAITS` of the other waits. A watch sets `WATCHED` and, if the acquisitions are slower,
//! clears it. (SQLite, two threads: 2.4 times the rate.)
//!
//! **Invariant 1.** Mutual exclusion rests on the word alone: a compare-and-swap changes it from
//! free to held, and only the holder changes it back.
//!
//! **Invariant 2.** `demand`, `WATCHED` and a reservation are advice, respected for a bounded time.
//! So a waiter that was preempted, or that a `fork` left behind, blocks no other thread.
//!
//! **Invariant 3.** Every waiter checks the word periodically, and takes it when it stays free. A
//! queued waiter also replaces a standby that does not run. So the queue affects speed only: no
//! thread's progress depends on another queued thread.
//!
//! **Memory orderings.** The acquiring compare-and-swap on the word pairs with the releasing one.
//! The advice orders nothing.

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use super::Contention;
use super::tpmcs::TimePublished;
use super::word::{Word, by_its_word};
use crate::primitive::backoff::Backoff;
use crate::primitive::turn::{Outcome, Turn, Verdict};
use crate::primitive::{Atomic, AtomicInt};
use crate::queue::NodeMemory;
use crate::queue::list::Queue;

/// The bit of `advice` that a standby raises.
const DEMAND: u32 = 1;

/// The bit of `advice` that a waiter sets when it begins to watch acquisitions, and clears when it
/// finds them not rapid.
const WATCHED: u32 = 2;

/// Number of bits of `advice` that this lock uses. The others are for a lock built on this one.
const ADVICE_BITS: u32 = 2;

/// How long an arriving thread polls the word before it queues: a few short critical sections.
const ARRIVAL_NS: u64 = 1_500;

/// How long the standby lets other threads barge. A hand-over costs about 1 us of the lock's time,
/// so this bounds the cost of fairness to about one percent, and a waiter's extra delay to a
/// fraction of a time slice.
const BARGING_BOUND_NS: u64 = 100_000;

/// How long a free word stays reserved for a standby that demands it.
const OVERRULE_NS: u64 = 2_000;

/// How long a free word stays reserved for a waiter that was parked: most wake-ups take less.
const WAKING_NS: u64 = 100_000;

/// Longest mean time between rapid acquisitions: not much more than the time for which a change of
/// owner stops both threads.
const RAPID_NS: u64 = 250;

/// Shortest time over which a waiter counts acquisitions.
const WATCH_NS: u64 = 500;

/// One in this many waits for a lock that is not `WATCHED` begins to watch it.
const WATCHED_WAITS: u64 = 64;

/// How often a queued waiter checks the word.
const CHECK_INTERVAL_NS: u64 = 20_000;

/// A waiter queued for this long, with no `demand` raised, assumes that the standby is not running
/// and takes over its role.
const ABSENT_STANDBY_NS: u64 = 2 * BARGING_BOUND_NS;

const ARRIVAL_BACKOFF_NS: (u64, u64) = (40, 400);
/// Each poll of a held word costs the holder a line transfer of about 100 ns, so the standby polls
/// less and less often.
const STANDBY_BACKOFF_NS: (u64, u64) = (100, 12_000);

/// A barging word with a time-published queue behind it.
///
#[doc = example_of_pair!("loiter::Loiter", "control::Control")]
#[repr(C)]
pub struct Loiter<P: NodeMemory> {
    word: Word<P>,
    advice: P::U32,
    inner: Queue<P, TimePublished>,
}

/// The time since which a waiter has seen the word free but left to another waiter.
#[derive(Default)]
struct Overrule {
    free_since: Cell<Option<u64>>,
}

impl Overrule {
    /// Whether the word has been free for `limit` nanoseconds.
    fn is_due(&self, now: u64, limit: u64) -> bool {
        let since = self.free_since.get().unwrap_or(now);
        self.free_since.set(Some(since));
        now - since >= limit
    }
}

/// A waiter's count of the lock's acquisitions.
struct Watch {
    acquisitions: u32,
    since: u64,
}

impl<P: NodeMemory> Loiter<P> {
    #[inline]
    fn is_demanded(&self) -> bool {
        self.advice.load(Relaxed) & DEMAND != 0
    }

    /// Sets or clears one bit of the advice. Atomic, since two waiters that undid each other's
    /// changes would keep `demand` raised.
    fn advise(&self, bit: u32, is_set: bool) {
        if (self.advice.load(Relaxed) & bit != 0) != is_set {
            if is_set {
                self.advice.fetch_or(bit, Relaxed);
            } else {
                self.advice.fetch_and(!bit, Relaxed);
            }
        }
    }

    /// [`try_lock`](Contention::try_lock) without an atomic read-modify-write.
    ///
    /// # Safety
    ///
    /// The process has one thread.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn try_lock_alone(&self) -> bool {
        self.word.try_lock_alone()
    }

    /// [`unlock`](Contention::unlock) without an atomic read-modify-write.
    ///
    /// # Safety
    ///
    /// The process has one thread, and the calling context holds the lock.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn unlock_alone(&self) -> bool {
        self.word.unlock_alone()
    }

    /// The 30 bits that a lock built on this one keeps here.
    #[inline]
    pub(super) fn advice(&self) -> u32 {
        self.advice.load(Relaxed) >> ADVICE_BITS
    }

    /// Sets the bits that [`advice`](Self::advice) returns. Not atomic: a concurrent change may be
    /// lost.
    #[inline]
    pub(super) fn set_advice(&self, advice: u32) {
        let current = self.advice.load(Relaxed);
        let new = advice << ADVICE_BITS | current & ((1 << ADVICE_BITS) - 1);
        let _ = self.advice.compare_exchange(current, new, Relaxed, Relaxed);
    }

    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.word.is_free()
    }

    /// Takes the word unless it is held or left to another waiter.
    fn barge(&self, overrule: &Overrule, now: u64) -> bool {
        let is_demanded = self.is_demanded();
        let taken = self.take_free(overrule, if is_demanded { OVERRULE_NS } else { 0 }, now);
        if taken && is_demanded {
            // The standby is not running (Invariant 2); when it runs, it raises `demand` again.
            self.advise(DEMAND, false);
        }
        taken
    }

    /// Takes the word once it has been free for `limit` nanoseconds, and longer if it is reserved.
    fn take_free(&self, overrule: &Overrule, limit: u64, now: u64) -> bool {
        if !self.word.is_free() {
            overrule.free_since.set(None);
            return false;
        }
        let limit = if self.word.is_reserved() { WAKING_NS } else { limit };
        (limit == 0 || overrule.is_due(now, limit)) && self.try_lock()
    }

    /// Asks the load manager. While the word is reserved, the waiter yields instead of leaving: if
    /// it left, it would take the word from the woken thread, which may need this processor.
    fn ask(&self, turn: &mut impl Turn, now: u64) -> Verdict {
        let verdict = turn.turn(now);
        if verdict == Verdict::Spin || !self.word.is_reserved() {
            return verdict;
        }
        P::yield_now();
        Verdict::Spin
    }

    /// Begins to watch the lock, if this wait should and acquisitions are counted.
    fn begin_watch(&self, now: u64, turn: &impl Turn) -> Option<Watch> {
        let watches = self.is_watched() || now.is_multiple_of(WATCHED_WAITS);
        let acquisitions = if watches { turn.acquisitions() } else { None }?;
        self.watch();
        Some(Watch { acquisitions, since: now })
    }

    /// Whether a waiter leaves a free word to the owner. Ends the `watch` if acquisitions are not
    /// rapid.
    fn stays_away(&self, watch: &mut Option<Watch>, now: u64, turn: &impl Turn) -> bool {
        let Some(begun) = watch else { return false };
        let elapsed = now - begun.since;
        if elapsed >= WATCH_NS {
            let acquisitions = turn.acquisitions().unwrap_or(begun.acquisitions);
            let count = acquisitions.wrapping_sub(begun.acquisitions);
            let is_rapid = u64::from(count) * RAPID_NS >= elapsed;
            self.advise(WATCHED, is_rapid);
            *watch = is_rapid.then_some(Watch { acquisitions, since: now });
        }
        watch.is_some()
    }

    /// Polls the word before queueing; `None` if the thread should queue.
    fn poll_before_queueing(
        &self,
        watch: &mut Option<Watch>,
        turn: &mut impl Turn,
    ) -> Option<Outcome> {
        let overrule = Overrule::default();
        let mut now = P::now();
        let end = now + ARRIVAL_NS;
        let mut backoff = Backoff::new(ARRIVAL_BACKOFF_NS.0, ARRIVAL_BACKOFF_NS.1, now);
        while now < end {
            if !self.stays_away(watch, now, turn) && self.barge(&overrule, now) {
                return Some(Outcome::Acquired);
            }
            if self.ask(turn, now) == Verdict::Leave {
                return Some(Outcome::Abandoned);
            }
            backoff.wait::<P>();
            now = P::now();
        }
        None
    }

    /// Polls the word as the standby, in a wait that began at `since`.
    fn stand_by(&self, since: u64, mut watch: Option<Watch>, turn: &mut impl Turn) -> Outcome {
        let mut backoff = Backoff::new(STANDBY_BACKOFF_NS.0, STANDBY_BACKOFF_NS.1, since);
        let mut demanded = false;
        let overrule = Overrule::default();
        let outcome = loop {
            let now = P::now();
            let stays_away = !demanded && self.stays_away(&mut watch, now, turn);
            if !stays_away && self.take_free(&overrule, 0, now) {
                break Outcome::Acquired;
            }
            if self.ask(turn, now) == Verdict::Leave {
                break Outcome::Abandoned;
            }
            if now - since > BARGING_BOUND_NS {
                // Repeated each turn, because a waiter that overrules the standby clears `demand`.
                demanded = true;
                self.advise(DEMAND, true);
                P::pause();
            } else {
                backoff.wait::<P>();
            }
        };
        // Lower even the demand of another thread: a parent's standby cannot lower it in a child.
        self.advise(DEMAND, false);
        outcome
    }
}

// SAFETY: Invariant 1 and the orderings above.
unsafe impl<P: NodeMemory> Contention for Loiter<P> {
    fn unlocked() -> Self {
        Loiter { word: Word::unlocked(), advice: P::U32::new(0), inner: Queue::new() }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.word.try_lock() || self.word.take_reserved()
    }

    #[inline]
    fn try_lock_without_barging(&self) -> bool {
        !self.is_demanded() && self.word.try_lock()
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        let mut watch = self.begin_watch(P::now(), turn);
        if let Some(outcome) = self.poll_before_queueing(&mut watch, turn) {
            return outcome;
        }
        // Each turn in the queue asks the load manager, and checks the word when a check is due
        // (Invariant 3).
        let (barged, standby_is_absent) = (Cell::new(false), Cell::new(false));
        let overrule = Overrule::default();
        let joined = P::now();
        let mut next_check = joined + CHECK_INTERVAL_NS;
        let mut waiting = |now| {
            if now >= next_check {
                // A free word that is left to another is checked every turn: the time after which
                // it may be taken counts from the first look.
                barged.set(!self.stays_away(&mut watch, now, turn) && self.barge(&overrule, now));
                if overrule.free_since.get().is_none() {
                    next_check = now + CHECK_INTERVAL_NS;
                }
                standby_is_absent.set(now - joined > ABSENT_STANDBY_NS && !self.is_demanded());
            }
            if barged.get() || standby_is_absent.get() {
                return Verdict::Leave;
            }
            self.ask(turn, now)
        };
        // The queue is held only within this function, and no thread forks inside it.
        let result = self.inner.join(&mut waiting, &core::ptr::null_mut);
        let outcome = match result {
            Ok(_) if barged.get() => Outcome::Acquired,
            Ok(_) => self.stand_by(P::now(), watch, turn),
            Err(_) if barged.get() => Outcome::Acquired,
            Err(_) if standby_is_absent.get() => self.stand_by(joined, watch, turn),
            Err(outcome) => outcome,
        };
        if let Ok(ticket) = result {
            // SAFETY: we are the front of the queue, and this is our ticket.
            let released = unsafe { self.inner.release(ticket) };
            debug_assert!(released.is_ok(), "the queue never has the parked bit");
        }
        outcome
    }

    by_its_word!();

    const RESERVES: bool = true;

    fn reserve(&self) {
        self.word.reserve();
    }

    fn take_reserved(&self) -> bool {
        self.word.take_reserved()
    }

    fn has_contender(&self) -> bool {
        !self.inner.is_empty()
    }

    #[inline]
    fn is_watched(&self) -> bool {
        self.advice.load(Relaxed) & WATCHED != 0
    }

    fn watch(&self) {
        self.advise(WATCHED, true);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
