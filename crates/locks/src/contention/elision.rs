//! Enters critical sections as transactions: which tries follow a failed one, and when the lock is
//! taken instead. Mutexes ([`elided`](super::elided)) and reader-writer locks
//! ([`elided_rw`](super::elided_rw)) share this module.
//!
//! A thread that takes the lock aborts every transaction, and threads that react by taking the lock
//! themselves keep all others from eliding: the lemming effect (Dice et al., *Applications of the
//! Adaptive Transactional Memory Test Platform*, TRANSACT 2008). Three rules prevent it:
//!
//! | cause of the abort | the thread |
//! | --- | --- |
//! | the lock was held | waits until it is free, at most [`HELD_WAIT_NS`], and tries again |
//! | a conflict | waits a random time, longer each time, and tries again, [`CONFLICTS`] times |
//! | anything else | takes the lock |
//!
//! After too many failures elision has to prove that it is faster than the lock; see
//! [`learning`](super::learning). The result is kept in the lock's `advice` word. Few sections
//! write to that word: those with a [hopeless](Abort::Hopeless) abort, and a sample of those that
//! are counted or conflict repeatedly.
//!
//! **Memory orderings.** The advice orders nothing, and concurrent changes of it may be lost.

use super::learning::Learnt;
use crate::primitive::backoff::Backoff;
use crate::primitive::{Abort, Begun, Primitive, SAMPLED};

/// How long a thread waits for a held lock to become free before it joins the lock's queue. A
/// thread in the queue takes the lock, which aborts all others, so this wait is as long as load
/// control lets a waiter spin. (Red-black tree, 8 simulated processors, sections of 1.3 us: a value
/// of 1.5 us gave .6 of the throughput.)
const HELD_WAIT_NS: u64 = 20_000;

/// An acquisition takes the lock after this many conflicts.
const CONFLICTS: u32 = 4;

/// A sample of the acquisitions with this many conflicts is recorded as failures. A single
/// conflict says little about whether elision pays. With two threads, sections of 300 ns and 8
/// keys, elision gains a factor of 1.6, although 6 % of the acquisitions conflict, and .2 %
/// conflict twice. With one key, elision loses: 59 % conflict, and 8 % conflict twice.
const REPEATED: u32 = 2;
/// The weight of one such sample: a quarter of the [`SAMPLED`] acquisitions that it represents.
const REPEATED_WEIGHT: u32 = SAMPLED / 4;

/// After this time an acquisition takes the lock, whatever made its tries fail, for example a
/// nested lock that stays held.
const LONGEST_NS: u64 = 2 * HELD_WAIT_NS;

/// Waits after a conflict: from a fraction of a short section to the length of a longer one.
const CONFLICT_BACKOFF_NS: (u64, u64) = (50, 1_000);

/// A lock, as a section that may be elided sees it.
pub(super) trait Elidable<P: Primitive> {
    /// Whether the section can enter without waiting for a thread that holds the lock. The result
    /// depends on words of the lock alone, so a change of it aborts a transaction that read them.
    fn is_open(&self) -> bool;

    /// The lock's 30 bits for [`Learnt`].
    fn advice(&self) -> u32;

    /// Sets the bits that [`advice`](Self::advice) returns. A concurrent change may be lost.
    fn set_advice(&self, advice: u32);

    /// Called inside the transaction, once the section has entered.
    #[inline(always)]
    fn entered(&self) {}

    /// Called after a [hopeless](Abort::Hopeless) abort, outside a transaction.
    fn record_hopeless(&self) {}

    #[inline]
    fn learnt(&self) -> Learnt {
        Learnt(self.advice())
    }

    /// Aborts the transaction that the caller is in, if any.
    #[inline]
    fn refuse_in_transaction(&self) {
        if P::in_transaction() {
            P::abort_transaction(Abort::Hopeless);
        }
    }

    /// Records that the caller has taken the lock, whose state was `learnt` just before.
    #[inline]
    fn record_locked(&self, learnt: Learnt) {
        if learnt.counts_locked() && P::is_sampled() {
            self.count_unit();
        }
    }

    #[cold]
    fn count_unit(&self) {
        self.set_advice(self.learnt().count_unit(P::now).0);
    }

    /// Ends the caller's elided section. The caller accesses nothing of the lock afterwards.
    #[inline]
    fn end(&self) {
        let learnt = self.learnt();
        if learnt.is_trial() && P::is_sampled() {
            // Before the end, as part of the transaction.
            self.set_advice(learnt.count_trial_unit().0);
        }
        P::end_transaction();
    }

    #[cold]
    fn record_failure(&self, weight: u32) {
        self.set_advice(self.learnt().failed(weight, P::now()).0);
    }

    /// Evaluates a trial that is over. Returns whether elision won it.
    #[cold]
    fn decide(&self) -> bool {
        if !P::in_transaction() {
            self.set_advice(self.learnt().decided(P::now()).0);
        }
        !self.learnt().takes_lock()
    }

    #[cold]
    fn wait_until_open(&self, deadline: u64) -> bool {
        loop {
            P::pause();
            if self.is_open() {
                return true;
            }
            if P::now() >= deadline {
                return false;
            }
        }
    }

    #[inline]
    fn begin(&self) -> Begun {
        let begun = P::begin_transaction();
        if begun == Begun::Started {
            if !self.is_open() {
                // Execution resumes in `begin_transaction`, which returns the reason.
                P::abort_transaction(Abort::Held);
            }
            self.entered();
        }
        begun
    }

    /// Enters the section as a transaction. Returns false if the caller must take the lock.
    #[inline]
    fn elide_section(&self) -> bool {
        let learnt = self.learnt();
        if learnt.takes_lock() && !(learnt.decides_next() && self.decide()) {
            return false;
        }
        if !self.is_open() {
            return self.elide_contended(Abort::Held);
        }
        match self.begin() {
            Begun::Started => true,
            Begun::Aborted(abort) => self.elide_contended(abort),
            Begun::Unavailable => P::has_transactions() && self.elide_contended(Abort::Held),
        }
    }

    /// Like [`elide_section`](Self::elide_section), but returns false if that needs more than one
    /// try.
    #[inline]
    fn elide_section_at_once(&self) -> bool {
        !self.learnt().takes_lock() && self.is_open() && self.begin() == Begun::Started
    }

    /// Continues after a first try that failed with `abort` or found the lock held.
    #[cold]
    fn elide_contended(&self, mut abort: Abort) -> bool {
        if P::in_transaction() {
            P::abort_transaction(Abort::Held);
        }
        let begin = P::now();
        if self.learnt().is_lost(begin) {
            self.decide();
            return false;
        }
        let mut backoff = Backoff::new(CONFLICT_BACKOFF_NS.0, CONFLICT_BACKOFF_NS.1, begin);
        let mut conflicts = 0;
        loop {
            match abort {
                Abort::Held => {}
                Abort::Conflict => {
                    conflicts += 1;
                    if conflicts == REPEATED && P::is_sampled() {
                        self.record_failure(REPEATED_WEIGHT);
                    }
                    if conflicts == CONFLICTS {
                        return false;
                    }
                    backoff.wait::<P>();
                }
                Abort::Hopeless => {
                    self.record_hopeless();
                    self.record_failure(1);
                    return false;
                }
            }
            if !self.is_open() && !self.wait_until_open(P::now() + HELD_WAIT_NS) {
                return false;
            }
            match self.begin() {
                Begun::Started => return true,
                Begun::Aborted(next) => abort = next,
                Begun::Unavailable if P::has_transactions() => {}
                Begun::Unavailable => return false,
            }
            if P::now() - begin > LONGEST_NS {
                return false;
            }
        }
    }
}
