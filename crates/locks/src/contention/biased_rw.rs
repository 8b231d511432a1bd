//! A [reader-writer lock](super::rw) whose readers scale with processors while no writer comes: it
//! is biased towards readers, which publish their holds in a table of the process
//! ([`visible`](super::visible)) and write nothing to the lock.
//!
//! The bias is that of BRAVO (Dice and Kogan, *BRAVO: Biased Locking for Reader-Writer Locks*,
//! USENIX ATC 2019, section 3). A reader sets it, and a writer revokes it: the writer lets further
//! readers take the lock's word, waits until no published hold is left, and then takes the word as
//! before. The pause until the next bias is at least a multiple of the time that the revocation
//! took, without the wait for readers inside ([`bias`](super::bias)).
//!
//! | mode | a reader | a writer |
//! | --- | --- | --- |
//! | `UNBIASED` | takes the word | takes the word |
//! | `BIASED` | publishes its hold; takes the word if its slot is in use | begins to drain |
//! | `DRAINING` | takes the word | waits for the published holds, then ends the bias |
//!
//! BRAVO's writer drains while it holds the underlying lock. A reader may take this lock twice, so
//! a writer here must not keep readers out while it waits for them: it drains first. Several
//! writers may drain at a time, and a writer that gives up leaves the lock `DRAINING`.
//!
//! A thread sets the bias only after it has found other readers inside, several times. So a lock
//! without such readers is never biased.
//!
//! **Invariant 1.** A hold is in the word or in a slot, and holds are interchangeable: a release
//! withdraws any hold of the caller's row, or else one from the word. Each row contains at most as
//! many holds as its threads have, so the word contains the caller's if the row has none. A reader
//! that publishes too late, and then finds its hold gone, therefore holds the lock: the thread of
//! the same row that withdrew the hold has left its own in the word. (POSIX lets only the thread
//! that locked unlock. A release by another thread, which glibc allows, is found in any row.)
//!
//! **Invariant 2.** A writer holds the lock only while it is unbiased. A reader changes `UNBIASED`
//! to `BIASED` only while its hold is in the word. So a writer that has taken the word and then
//! finds the lock unbiased excludes every further bias. If it finds a bias, it releases the word
//! and drains again.
//!
//! **Invariant 3.** A published hold counts if its reader, afterwards, finds the bias that it had
//! seen before. Otherwise the reader withdraws the hold (Invariant 1) and takes the word. A drain
//! looks at the slots after it has changed the mode. Both orders are `SeqCst`, so either the reader
//! finds the drain, or the drain finds the hold. Each bias has a version, and a drain ends only the
//! bias for which it has seen all slots empty.
//!
//! **Invariant 4.** With published holds, the word may contain the writer bit of a writer that is
//! about to find the bias. So a release looks for a bias first, and only then for the bit.
//!
//! **Invariant 5.** While a writer waits, no reader sets the bias, unless the process has more
//! threads than processors. So a writer drains once, and once more at most for each reader that was
//! about to set the bias. With more threads than processors, a waiting writer may lack a processor,
//! and would prevent the bias for time slices. Readers then set the bias although a writer waits,
//! and only the pause separates two drains, until the writer asks readers to
//! [give way](super::give_way): they set no bias while the request stands. (Workload `rwlock`, 8
//! threads on two processors, .1 % changes: 76 M/s. If every waiting writer prevents the bias, and
//! the pause includes the wait for readers inside: 25 M/s. libc: 27 M/s. Medians of 7 runs.)
//!
//! *Not* guaranteed: that a child of a `fork` forgets the holds of the parent's other threads, as
//! for the word. A child forgets the published ones if a fork handler
//! [clears](super::visible::Row::clear) the rows of the other threads. A writer of the parent that
//! was about to find a bias keeps the word in the child.
//!
//! **Memory orderings.** An access that begins a hold, or finds one gone, has acquire ordering. An
//! access that ends a hold, sets the bias or ends it has release ordering. So a reader that finds
//! the bias sees what its setter saw, and with it the last writer's section. Invariant 3 needs
//! `SeqCst`.

use super::bias::Bias;
pub use super::drain::Drain;
use super::give_way::GIVE_WAY_NS;
use super::rw::{MAX_READERS, ReaderRelease, RwWord, Share};
use super::visible::{Hold, Row, VisibleReaders};
use crate::parking::eventcount::Eventcount;
use crate::primitive::turn::{Outcome, Turn};
use crate::primitive::{Kind, Primitive};

/// How long a reader sleeps that a waiting writer keeps out of a free lock: a few times as long as
/// a thread takes to wake up.
const KEPT_OUT_NS: u64 = 200_000;

/// Result of the inline part of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The caller holds the lock.
    Held,
    /// The caller does not hold the lock.
    Failed,
    /// The caller must call [`BiasedRw::end_read`] with this word, or [`BiasedRw::end_write`].
    Undecided(u32),
}

/// A reader-writer lock, with the eventcount of its parked waiters and a bias, if it has room for
/// one.
pub struct BiasedRw<'a, P: Primitive> {
    word: &'a RwWord<P>,
    bias: Option<Bias<'a, P>>,
    eventcount: &'a Eventcount<P>,
}

impl<P: Primitive> Clone for BiasedRw<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Primitive> Copy for BiasedRw<'_, P> {}

impl<'a, P: Primitive> BiasedRw<'a, P> {
    /// A lock with a bias.
    #[inline(always)]
    pub fn new(word: &'a RwWord<P>, bias: Bias<'a, P>, eventcount: &'a Eventcount<P>) -> Self {
        BiasedRw { word, bias: Some(bias), eventcount }
    }

    /// A lock that is never biased.
    #[inline(always)]
    pub fn unbiased(word: &'a RwWord<P>, eventcount: &'a Eventcount<P>) -> Self {
        BiasedRw { word, bias: None, eventcount }
    }

    /// The word that readers without a published hold, and writers, take.
    #[inline(always)]
    pub fn word(&self) -> &'a RwWord<P> {
        self.word
    }

    /// Where waiters park.
    #[inline(always)]
    pub fn eventcount(&self) -> &'a Eventcount<P> {
        self.eventcount
    }
}

impl<P: VisibleReaders> BiasedRw<'_, P> {
    #[inline(always)]
    fn hold(&self) -> Hold {
        Hold::of(P::address(self.word))
    }

    /// Acquires the lock as a [`Share::Read`] by publishing a hold, if it is biased.
    #[inline(always)]
    pub fn try_publish(&self) -> bool {
        self.bias.is_some_and(|bias| bias.biased().is_some_and(|seen| self.publish(bias, seen)))
    }

    /// Begins to acquire the lock's word as a [`Share::Read`]: the inline part of a fast path.
    #[inline(always)]
    pub fn begin_read(&self) -> Begun {
        match self.word.count_reader() {
            0 => Begun::Held,
            before => Begun::Undecided(before),
        }
    }

    /// Ends what [`begin_read`](Self::begin_read) left undecided. Returns whether the caller holds
    /// the lock; if not, it may have given way to a writer. `may_bias` says whether the caller may
    /// set the bias.
    #[inline]
    pub fn end_read(&self, undecided: u32, may_bias: impl FnOnce() -> bool) -> bool {
        let is_held = self.decide_read(undecided, may_bias);
        // SAFETY: the caller holds the lock as a reader.
        let leave = || unsafe { self.word.leave_to_writer(|| self.is_biased()) };
        is_held && !(RwWord::<P>::is_urgent(undecided) && leave())
    }

    #[inline]
    fn decide_read(&self, undecided: u32, may_bias: impl FnOnce() -> bool) -> bool {
        let is_held = self.word.keep_or_withdraw(undecided);
        if RwWord::<P>::is_nearly_full(undecided) {
            return is_held && self.keep_below_limit();
        }
        // The caller delays other threads here, so the count comes before the other conditions.
        if is_held && P::own_row().is_some_and(Row::count_overlap) && may_bias() {
            self.set_bias();
        }
        is_held
    }

    /// Acquires the lock as a [`Share::Read`] if that is possible at once, or gives way to a writer
    /// and returns false. For `may_bias` see [`end_read`](Self::end_read).
    #[inline(always)]
    pub fn read(&self, may_bias: impl FnOnce() -> bool) -> bool {
        self.try_publish()
            || match self.begin_read() {
                Begun::Held => true,
                Begun::Failed => false,
                Begun::Undecided(undecided) => self.end_read(undecided, may_bias),
            }
    }

    /// As [`read`](Self::read), for either side of a lock without a bias.
    #[inline(always)]
    pub fn acquire_at_once(&self, share: Share) -> bool {
        match share {
            Share::Read => self.read(|| false),
            Share::ReadAfterWriters => self.word.try_acquire(share),
            Share::Write => self.word.take_free(),
        }
    }

    /// Gives way to a writer that has asked for it, before an acquisition that does not look for
    /// requests.
    #[inline]
    pub fn give_way(&self, share: Share) {
        if self.word.has_request() {
            match share {
                Share::Read => self.word.give_way_now(|| self.is_biased()),
                Share::ReadAfterWriters => (), // it waits for the writer anyway
                Share::Write => self.word.give_way_to_waiter(),
            }
        }
    }

    /// As [`read`](Self::read), without giving way.
    pub fn try_read(&self, may_bias: impl FnOnce() -> bool) -> bool {
        self.try_publish()
            || match self.begin_read() {
                Begun::Held => true,
                Begun::Failed => false,
                Begun::Undecided(undecided) => self.decide_read(undecided, may_bias),
            }
    }

    /// Publishes a hold under the bias `seen`. Returns false if the caller must take the word.
    #[inline(always)]
    fn publish(&self, bias: Bias<'_, P>, seen: u32) -> bool {
        let Some(row) = P::own_row() else { return false };
        if !row.publish(self.hold()) {
            return false;
        }
        P::order_seq_cst(); // pairs with `Drain::revoke`
        bias.is_still(seen) || self.undo(row)
    }

    /// Undoes a publication that came too late. True if the caller holds the lock nevertheless
    /// (Invariant 1).
    #[cold]
    fn undo(&self, row: &Row<P>) -> bool {
        !row.withdraw(self.hold())
    }

    /// Number of readers, those with published holds included.
    fn readers(&self) -> u32 {
        let published = P::rows().iter().filter(|row| row.has(self.hold())).count();
        self.word.readers() + published as u32
    }

    /// Whether the lock has [`MAX_READERS`] readers.
    pub fn is_full(&self) -> bool {
        self.readers() >= MAX_READERS
    }

    /// Releases the caller's hold, which is in the word, if the lock has too many readers. Returns
    /// whether the caller holds the lock.
    #[cold]
    fn keep_below_limit(&self) -> bool {
        if self.readers() <= MAX_READERS {
            return true;
        }
        // SAFETY: the caller holds the lock. It is not the last reader.
        unsafe { self.word.release_reader() };
        false
    }

    /// Sets the bias if it is worthwhile (Invariant 5). The caller's hold is in the word
    /// (Invariant 2).
    #[cold]
    fn set_bias(&self) {
        if let Some(bias) = self.bias
            && let Some(state) = bias.unbiased()
            && P::runs_in_parallel()
            && (P::is_crowded() || !self.word.has_waiting_writer())
            && !self.word.has_request()
            && Hold::may_be_of(P::address(self.word))
        {
            bias.set(state);
        }
    }

    /// Begins to acquire the lock as a writer: the inline part of a fast path. If the result is
    /// undecided, the caller calls [`end_write`](Self::end_write). The caller has found the lock
    /// unbiased; otherwise the writer would keep readers out for a moment without need.
    #[inline(always)]
    pub fn begin_write(&self) -> Begun {
        self.begin_with(self.word.take_free())
    }

    #[inline(always)]
    fn begin_with(&self, has_word: bool) -> Begun {
        if !has_word {
            Begun::Failed
        } else if self.is_biased() {
            Begun::Undecided(0)
        } else {
            Begun::Held
        }
    }

    /// Ends an acquisition that [`begin_write`](Self::begin_write) left undecided: releases the
    /// word, since the lock is biased (Invariant 2). The caller does not hold the lock.
    #[cold]
    pub fn end_write(&self) {
        let release = || {
            // SAFETY: the caller took the word, and has it until this returns true.
            unsafe { self.word.release() }
        };
        // SAFETY: as above.
        let clear = || unsafe { self.word.clear_parked_bit() };
        if !release() {
            self.eventcount.release_shared(clear, release);
        }
    }

    fn try_write_at_once(&self) -> bool {
        let begun = self.begin_with(self.word.try_acquire(Share::Write));
        if matches!(begun, Begun::Undecided(_)) {
            self.end_write();
        }
        begun == Begun::Held
    }

    /// Acquires the lock as a writer if that is possible at once.
    #[inline]
    pub fn try_write(&self, drain: &Drain) -> bool {
        self.is_drained(drain) && self.word.seems_free(Share::Write) && self.try_write_at_once()
    }

    /// Acquires the lock if that is possible at once, without setting the bias.
    pub fn try_acquire(&self, share: Share, drain: &Drain) -> bool {
        match share {
            Share::Read | Share::ReadAfterWriters => self.word.try_acquire(share),
            Share::Write => self.try_write(drain),
        }
    }

    /// Ends the bias if no published hold is left. Returns whether the lock is unbiased.
    #[inline]
    fn is_drained(&self, drain: &Drain) -> bool {
        self.bias.is_none_or(|bias| !bias.is_in_use() || drain.revoke(bias, self.hold()))
    }

    /// Sleeps while the caller is kept out although the word is free: a writer by a published hold,
    /// until `deadline`; a [`Share::ReadAfterWriters`] for a moment by a waiting writer, which may
    /// need this processor. May return at any time.
    pub fn sleep_on_hidden(&self, share: Share, drain: &Drain, deadline: Option<u64>) {
        match share {
            Share::Write if !self.is_drained(drain) => {
                if let Some(row) = drain.holder::<P>(self.hold()) {
                    row.sleep_until_withdrawn(self.hold(), deadline);
                }
            }
            Share::ReadAfterWriters => {
                // As a reader, so that it takes no writer's wake-up.
                let (sequence, end) = (self.eventcount.sequence(), P::now() + KEPT_OUT_NS);
                P::park_as(Kind::Shared, self.eventcount.word(), sequence, Some(end));
            }
            _ => {}
        }
    }

    /// Contends until the lock is acquired or `turn` says to leave.
    pub fn attempt(&self, share: Share, drain: &Drain, turn: &mut impl Turn) -> Outcome {
        match share {
            Share::Write => self
                .word
                .attempt_by(share, turn, || self.try_write(drain) || self.ask_readers(drain)),
            Share::Read | Share::ReadAfterWriters => self.word.attempt(share, turn),
        }
    }

    /// Asks readers to give way if it is time to. Returns whether the caller, a writer, holds the
    /// lock.
    fn ask_readers(&self, drain: &Drain) -> bool {
        let (now, is_written) = (P::now(), self.word.is_written());
        let is_late = drain.late.is_late(now);
        if is_written && is_late {
            drain.late.postpone();
        }
        if is_written || !(drain.late.take_owed(now) || is_late) {
            return false;
        }
        if self.word.has_request() {
            drain.late.owe(); // another waiter insists
            return false;
        }
        let is_held = self.word.insist(drain.deadline, || self.try_write(drain));
        if !is_held && P::now() < now + GIVE_WAY_NS {
            drain.late.owe(); // another writer has taken the lock with the request
        }
        is_held
    }

    /// Whether a release must look for a published hold first (Invariant 4).
    #[inline(always)]
    pub fn is_biased(&self) -> bool {
        self.bias.is_some_and(|bias| bias.is_in_use())
    }

    /// Releases the caller's hold if its row has one. If so, nothing of the lock is accessed
    /// afterwards.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock for reading.
    #[inline(always)]
    pub unsafe fn release_published(&self) -> bool {
        P::own_row().is_some_and(|row| row.withdraw(self.hold()))
    }

    /// Releases the caller's hold. Returns false, with the lock still held, if the caller must
    /// first wake parked waiters.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock, for reading or for writing.
    #[inline]
    pub unsafe fn release(&self) -> bool {
        // SAFETY: as promised. A lock with a bias is held for reading (Invariant 2).
        unsafe { if self.is_biased() { self.release_biased() } else { self.word.release() } }
    }

    /// # Safety
    ///
    /// As for `release_published`.
    #[cold]
    unsafe fn release_biased(&self) -> bool {
        // Looks first: most callers have already tried to withdraw, and a write is expensive.
        if P::own_row().is_some_and(|row| row.has(self.hold()) && row.withdraw(self.hold())) {
            return true;
        }
        // SAFETY: as promised; a hold that is in the word is released there.
        match unsafe { self.word.release_reader() } {
            ReaderRelease::Released => true,
            ReaderRelease::MustWake => false,
            // Another thread published the hold. A lock without a holder stays as it is.
            ReaderRelease::NoReader => {
                P::rows().iter().any(|row| row.withdraw(self.hold()));
                true
            }
        }
    }

    /// Drops the holds of a lock that its user initialises again.
    pub fn forget_published(&self) {
        // Looks first: a withdrawal takes the line from the row's threads.
        let forget = |row: &Row<P>| while row.has(self.hold()) && row.withdraw(self.hold()) {};
        P::rows().iter().for_each(forget);
    }
}
