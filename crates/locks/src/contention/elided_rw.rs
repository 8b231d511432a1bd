//! A [reader-writer lock](super::rw) that elides the sections of readers and of writers, as
//! [`elided`](super::elided) does for a mutex.
//!
//! A reader that takes the lock writes to its word, so readers on different processors wait for
//! each other's cache lines. Elided readers only read the word. Elided writers run beside readers
//! and other writers of different data.
//!
//! | word | an elided reader | an elided writer |
//! | --- | --- | --- |
//! | free | enters | enters |
//! | readers hold the lock | enters | waits |
//! | a writer holds the lock | waits | waits |
//!
//! A reader that enters beside readers reads the word, too: it aborts once a reader takes or
//! releases the lock. It could take the lock instead. But then no reader would find the word free
//! again while there are many readers, and all of them would take the lock from then on.
//!
//! Often only one side's sections fit into a transaction: readers look something up, and writers
//! allocate. What the lock has [learnt](super::learning) applies to both sides, because each
//! side gains little while the other one takes the lock. So each side also counts its own
//! [hopeless](Abort::Hopeless) aborts, and then takes the lock for a number of [`Skips`].
//!
//! **Invariant 1.** Inside a transaction, the thread has recorded the lock that it has elided. It
//! records one lock of this kind at a time, and only by eliding it. The unlock of the recorded lock
//! ends the elided section, whichever side the section is on. Every other unlock releases the lock.
//! (The word does not say which is which: a thread that takes the lock as a reader, begins a
//! transaction, and unlocks, finds the same word as an elided reader beside another reader.)
//!
//! **Invariant 2.** A thread with a recorded lock aborts if it takes, tries or tests a lock of this
//! kind, the same one or another. The section starts over with the lock taken. So a second lock of
//! the same thread finds the first one, and waits or fails as without elision.
//!
//! **Invariant 3.** Inside a transaction, no thread takes a lock of this kind.
//!
//! **Invariant 4.** The end of the transaction is the release: the thread accesses nothing of the
//! lock after it.
//!
//! **Memory orderings.** A transaction takes effect as one atomic step. The underlying lock orders
//! everything else.

use core::sync::atomic::Ordering::Relaxed;

use super::elision::Elidable;
use super::rw::{RwWord, Share};
use crate::primitive::{Abort, Atomic, Primitive};

/// The sections of one side that take the lock after a hopeless abort. An interrupt also causes
/// such an abort, so the first one skips a single section. Each further one, without a success in
/// between, skips twice as many, up to [`MOST`](Self::MOST).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Skips {
    /// Sections still to skip.
    left: u8,
    /// Sections that the last abort skipped; 0 after a success.
    length: u8,
}

impl Skips {
    /// At one try in 65 sections, tries that are all in vain take 1.5 % of the time.
    const MOST: u8 = 64;

    fn after_failure(self) -> Self {
        let length = if self.length == 0 { 1 } else { (2 * self.length).min(Self::MOST) };
        Skips { left: length, length }
    }
}

/// A reader-writer lock in 16 bytes, all zeroes when free, that elides its sections where that
/// works. A user that never elides uses [`lock`](Self::lock) alone.
#[repr(C)]
pub struct ElidedRw<P: Primitive> {
    lock: RwWord<P>,
    advice: P::U32,
    /// The [`Skips`] of the readers in the lower half, and of the writers. Concurrent changes may
    /// be lost.
    skips: P::U32,
}

/// A section of a thread that wants the lock.
struct Section<'a, P: Primitive>(&'a ElidedRw<P>, Share);

impl<P: Primitive> Elidable<P> for Section<'_, P> {
    #[inline]
    fn is_open(&self) -> bool {
        self.0.lock.admits(self.1)
    }

    #[inline]
    fn advice(&self) -> u32 {
        self.0.advice.load(Relaxed)
    }

    #[inline]
    fn set_advice(&self, advice: u32) {
        self.0.advice.store(advice, Relaxed);
    }

    #[inline]
    fn entered(&self) {
        P::set_elided_lock(self.0.address());
    }

    #[cold]
    fn record_hopeless(&self) {
        self.set_skips(self.skips().after_failure());
    }
}

impl<P: Primitive> Section<'_, P> {
    /// The place of this side's skips.
    #[inline]
    fn shift(&self) -> u32 {
        if self.1 == Share::Write { 16 } else { 0 }
    }

    #[inline]
    fn skips(&self) -> Skips {
        let [left, length] = ((self.0.skips.load(Relaxed) >> self.shift()) as u16).to_le_bytes();
        Skips { left, length }
    }

    fn set_skips(&self, skips: Skips) {
        let bits = u32::from(u16::from_le_bytes([skips.left, skips.length])) << self.shift();
        let others = self.0.skips.load(Relaxed) & !(0xFFFF << self.shift());
        self.0.skips.store(others | bits, Relaxed);
    }

    /// Whether the section takes the lock because of earlier aborts.
    #[inline]
    fn is_skipped(&self) -> bool {
        let skips = self.skips();
        if skips.left != 0 {
            self.set_skips(Skips { left: skips.left - 1, ..skips });
        }
        skips.left != 0
    }

    /// Forgets earlier aborts if the section is elided and does not abort.
    #[inline]
    fn elide(&self) -> bool {
        let elided = !self.is_skipped() && self.elide_section();
        if elided && self.skips() != (Skips { left: 0, length: 0 }) {
            // Part of the transaction: an abort restores the skips.
            self.set_skips(Skips { left: 0, length: 0 });
        }
        elided
    }

    #[inline]
    fn elide_at_once(&self) -> bool {
        self.skips() == (Skips { left: 0, length: 0 }) && self.elide_section_at_once()
    }

    #[inline]
    fn lock_at_once(&self) -> bool {
        let takes = (self.learnt().only_takes_lock() || self.is_skipped())
            && !P::in_transaction()
            && !self.0.lock.has_request()
            && self.0.lock.try_acquire(self.1);
        if takes {
            self.record_locked(self.learnt());
        }
        takes
    }
}

impl<P: Primitive> ElidedRw<P> {
    /// Returns a free lock.
    pub fn unlocked() -> Self {
        let [advice, skips] = [0, 0].map(P::U32::new);
        ElidedRw { lock: RwWord::unlocked(), advice, skips }
    }

    /// The lock that sections take if they are not elided. Before a thread takes, tries or tests
    /// it, the thread calls [`refuse_in_transaction`](Self::refuse_in_transaction).
    #[inline(always)]
    pub fn lock(&self) -> &RwWord<P> {
        &self.lock
    }

    #[inline]
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Aborts the transaction that the caller is in, if any (Invariants 2 and 3).
    #[inline]
    pub fn refuse_in_transaction(&self) {
        Section(self, Share::Read).refuse_in_transaction();
    }

    /// Aborts if the caller's transaction has elided a lock of this kind (Invariant 2).
    #[inline]
    fn refuse_second(&self) {
        if P::elided_lock() != 0 {
            P::abort_transaction(Abort::Hopeless);
        }
    }

    /// Enters a section without taking the lock. If a thread takes the lock before the section ends
    /// and excludes it thereby, the section is undone, resumes inside this call, and starts over.
    /// Returns false if the caller must take the lock.
    #[inline]
    pub fn elide(&self, share: Share) -> bool {
        self.refuse_second();
        Section(self, share).elide()
    }

    /// Like [`elide`](Self::elide), but returns false if that needs more than one try.
    #[inline]
    pub fn elide_at_once(&self, share: Share) -> bool {
        self.refuse_second();
        Section(self, share).elide_at_once()
    }

    /// Takes the lock if elision is not worthwhile. Returns false if that needs more than one try,
    /// or if the caller must give way.
    #[inline]
    pub fn lock_at_once(&self, share: Share) -> bool {
        Section(self, share).lock_at_once()
    }

    /// Records that the caller has taken the lock.
    #[inline]
    pub fn record_locked(&self) {
        let section = Section(self, Share::Read);
        section.record_locked(section.learnt());
    }

    /// Ends a section that [`elide`](Self::elide) entered. Returns false, with no effect, if the
    /// caller holds the lock instead.
    ///
    /// # Safety
    ///
    /// The calling context is in a section of this lock.
    #[inline]
    pub unsafe fn end_elided(&self) -> bool {
        if P::elided_lock() != self.address() {
            return false;
        }
        P::set_elided_lock(0);
        Section(self, Share::Read).end();
        true
    }
}
