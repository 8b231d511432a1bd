//! The default: a lock word open to barging, with a time-published queue of waiters behind it.
//!
//! A strict hand-off moves the lock's line, and the data it protects, to another processor for
//! every critical section. On few processors that costs more than the section itself; so the word
//! can be taken by whoever comes, and the thread that released it last usually does. Behind the
//! word waits a TP-MCS queue, and only its front, the *standby* thread, polls the word. The
//! composition is that of LOITER (Dice, *Malthusian Locks*, EuroSys 2017, section 5: outer word,
//! inner queue); the queue is the one of [`tpmcs`](super::tpmcs), and waiters abandon it when load
//! control asks them to.
//!
//! ```text
//!   arrivals --barge--> [ word | demand ] <--polls-- standby <--TP-MCS-- waiter <-- waiter <-- tail
//! ```
//!
//! Unfairness is bounded: after [`BARGING_BOUND_NS`] the standby raises `demand`, from when on arrivals
//! leave the word to it.
//!
//! | word held | demand | meaning |
//! | --- | --- | --- |
//! | 0 | 0 | free for all |
//! | 1 | 0 | held; the next arrival may get it before the standby |
//! | 1 | 1 | held; the standby is next |
//! | 0 | 1 | the standby's, unless it does not come for [`OVERRULE_NS`] |
//!
//! **Invariant 1.** Mutual exclusion rests on the word alone: it goes from free to held by
//! compare-and-swap, and back by its holder only.
//!
//! **Invariant 2.** `demand` is advice. Nobody waits for it for ever, so that a standby which was
//! preempted, or vanished in a `fork`, blocks nobody.
//!
//! **Invariant 3.** Every waiter, wherever it stands in the queue, looks at the word now and then,
//! takes it when it lies free, and steps in for a standby that does not do its work. So the queue
//! is for speed; no thread in it is needed for another's progress.
//!
//! **Memory orderings.** The acquiring compare-and-swap on the word pairs with the one that
//! releases. `demand` orders nothing.

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use super::Contention;
use super::tpmcs::TimePublished;
use super::word::{Word, by_its_word};
use crate::primitive::Atomic;
use crate::primitive::backoff::Backoff;
use crate::primitive::turn::{Outcome, Turn, Verdict};
use crate::queue::NodeMemory;
use crate::queue::list::Queue;

const NO: u32 = 0;
const YES: u32 = 1;

/// How long an arrival polls the word before it queues: some short critical sections' time.
const ARRIVAL_NS: u64 = 1_500;

/// How long the standby lets others barge. A hand-over costs about 1 us of the lock's time, so this
/// bounds the cost of fairness to some percent, and a waiter's extra delay to a fraction of a time
/// slice.
const BARGING_BOUND_NS: u64 = 100_000;

/// How long the word may lie free before anybody takes it although the standby demands it.
const OVERRULE_NS: u64 = 2_000;

/// How often a waiter in the queue looks at the word.
const GLANCE_NS: u64 = 20_000;

/// A waiter that has been in the queue for so long, without the standby demanding the word, takes
/// it that the standby is not running, and does its work.
const ORPHANED_NS: u64 = 2 * BARGING_BOUND_NS;

const ARRIVAL_BACKOFF_NS: (u64, u64) = (40, 400);
/// Each poll of a held word costs its holder a line transfer of some 100 ns, so the standby polls
/// ever more rarely.
const STANDBY_BACKOFF_NS: (u64, u64) = (100, 12_000);

/// A barging word with a time-published queue behind it.
#[repr(C)]
pub struct Loiter<P: NodeMemory> {
    word: Word<P>,
    demand: P::U32,
    inner: Queue<P, TimePublished>,
}

/// Since when a waiter has seen the word free but demanded by the standby.
#[derive(Default)]
struct Overrule {
    free_since: Cell<Option<u64>>,
}

impl<P: NodeMemory> Loiter<P> {
    /// Takes the word unless it is held, or left to the standby.
    fn barge(&self, overrule: &Overrule, now: u64) -> bool {
        if !self.word.is_free() {
            overrule.free_since.set(None);
            return false;
        }
        if self.demand.load(Relaxed) == YES {
            let since = overrule.free_since.get().unwrap_or(now);
            overrule.free_since.set(Some(since));
            if now - since < OVERRULE_NS {
                return false;
            }
            self.demand.store(NO, Relaxed); // its standby is not running (Invariant 2); it demands again when it does
        }
        self.try_lock()
    }

    /// Polls as an arrival; `None` if that did not decide it.
    fn arrive(&self, turn: &mut impl Turn) -> Option<Outcome> {
        let overrule = Overrule::default();
        let mut now = P::now();
        let end = now + ARRIVAL_NS;
        let mut backoff = Backoff::new(ARRIVAL_BACKOFF_NS.0, ARRIVAL_BACKOFF_NS.1, now);
        while now < end {
            if self.barge(&overrule, now) {
                return Some(Outcome::Acquired);
            }
            if turn.turn(now) == Verdict::Leave {
                return Some(Outcome::Abandoned);
            }
            backoff.wait::<P>();
            now = P::now();
        }
        None
    }

    /// Polls as the front of the queue does, a wait that began at `since`.
    fn stand_by(&self, since: u64, turn: &mut impl Turn) -> Outcome {
        let mut backoff = Backoff::new(STANDBY_BACKOFF_NS.0, STANDBY_BACKOFF_NS.1, since);
        let mut demanded = false;
        let outcome = loop {
            if self.word.is_free() && self.try_lock() {
                break Outcome::Acquired;
            }
            let now = P::now();
            if turn.turn(now) == Verdict::Leave {
                break Outcome::Abandoned;
            }
            if now - since > BARGING_BOUND_NS {
                // Again each turn: a waiter that overruled it has lowered it.
                demanded = true;
                if self.demand.load(Relaxed) == NO {
                    self.demand.store(YES, Relaxed);
                }
                P::pause();
            } else {
                backoff.wait::<P>();
            }
        };
        if demanded {
            self.demand.store(NO, Relaxed);
        }
        outcome
    }
}

// SAFETY: Invariant 1, and the orderings above.
unsafe impl<P: NodeMemory> Contention for Loiter<P> {
    fn unlocked() -> Self {
        Loiter { word: Word::unlocked(), demand: P::U32::new(NO), inner: Queue::new() }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.word.try_lock()
    }

    #[inline]
    fn try_lock_politely(&self) -> bool {
        self.demand.load(Relaxed) == NO && self.try_lock()
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        if let Some(outcome) = self.arrive(turn) {
            return outcome;
        }
        // In the queue: asks on behalf of the waiter, and looks at the word now and then (Invariant 3).
        let (barged, orphaned) = (Cell::new(false), Cell::new(false));
        let overrule = Overrule::default();
        let joined = P::now();
        let mut glance = joined + GLANCE_NS;
        let mut waiting = |now| {
            if now >= glance {
                // While it lies free but demanded, watch it closely: OVERRULE_NS counts from the first look.
                barged.set(self.barge(&overrule, now));
                if overrule.free_since.get().is_none() {
                    glance = now + GLANCE_NS;
                }
                orphaned.set(now - joined > ORPHANED_NS && self.demand.load(Relaxed) == NO);
            }
            if barged.get() || orphaned.get() { Verdict::Leave } else { turn.turn(now) }
        };
        // Nobody holds the queue beyond this function, and nobody forks inside it.
        let result = self.inner.join(&mut waiting, &core::ptr::null_mut);
        let outcome = match result {
            Ok(_) if barged.get() => Outcome::Acquired,
            Ok(_) => self.stand_by(P::now(), turn),
            Err(_) if barged.get() => Outcome::Acquired,
            Err(_) if orphaned.get() => self.stand_by(joined, turn),
            Err(outcome) => outcome,
        };
        if let Ok(ticket) = result {
            // SAFETY: the ticket is that of the queue's front, which we are.
            let released = unsafe { self.inner.release(ticket) };
            debug_assert!(released.is_ok(), "only the word ever has the parked bit");
        }
        outcome
    }

    by_its_word!();

    fn has_contender(&self) -> bool {
        !self.inner.is_empty()
    }
}
