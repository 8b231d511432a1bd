//! A reader-writer lock: readers share, a writer is exclusive.
//!
//! One word holds the number of readers and the writer bit. A second word counts the waiting
//! writers, which keep out readers of a writer-preferring lock only, and the polling threads.
//! Waiters poll with backoff and ask the load manager each turn, like the waiters of a mutex.
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | free |
//! | n, up to [`MAX_READERS`] | n readers |
//! | `WRITER + n` | a writer, and n readers that counted themselves and then found the writer |
//! | n, `+ PARKED` | n readers; the last one's release must wake parked waiters |
//! | `WRITER + n`, `+ PARKED` | a writer; its release must wake parked waiters |
//! | any of these, `+ URGENT` | the same; others are asked to [give way](super::give_way) |
//!
//! **Invariant 1.** A reader counts itself with an addition, which never fails and so scales when
//! readers arrive on every processor. The reader then holds the lock if no writer does. Otherwise
//! it subtracts itself with a compare-and-swap that requires the writer bit; if the writer has
//! released meanwhile, the counted reader holds the lock. So a counted reader excludes the next
//! writer from the reader's first access to its last, and a try fails only because of a thread that
//! holds the lock or is about to hold it.
//!
//! **Invariant 2.** A writer holds the lock from the compare-and-swap that found 0, or `URGENT`
//! alone.
//!
//! **Invariant 3.** Once the cause of their wait ends, parked readers are woken, and one writer,
//! which wakes the next with its release, or as it gives up. (a) A writer blocked them: its release
//! finds the parked bit, even if it hands the lock to a counted reader, which may hold it
//! indefinitely. (b) Readers blocked a writer: the last reader's release finds the bit. (c) Waiting
//! writers blocked a reader: if the last of them acquires the lock, its release wakes the reader;
//! if it gives up, [`end_wait`](RwWord::end_wait) returns true, and it wakes the reader.
//!
//! *Not* guaranteed: that a child of a `fork` forgets the parent's waiters, as for the other locks.
//! A writer that waits in the parent keeps [`Share::ReadAfterWriters`] out in the child. A reader
//! of the parent that has just counted itself under a writer keeps writers out. (glibc 2.36 counts
//! waiters too: after the child unlocks a lock with waiters, neither readers nor writers get it.)
//!
//! **Memory orderings.** Acquisitions have acquire ordering, and releases have release ordering.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::primitive::backoff::Backoff;
use crate::primitive::turn::{Outcome, Turn, Verdict};
use crate::primitive::{Atomic, AtomicInt, Primitive};

const WRITER: u32 = 1 << 31;
const PARKED: u32 = 1 << 30;
const URGENT: u32 = 1 << 29;

/// Most readers at a time: glibc's limit, above which it returns `EAGAIN`. The next bit leaves room
/// for the same number of readers that are withdrawing.
pub const MAX_READERS: u32 = (1 << 28) - 1;
const TOO_MANY: u32 = MAX_READERS + 1;

/// Less than [`MAX_READERS`] by more than the readers that the word of a
/// [biased](super::biased_rw) lock does not count.
const NEARLY_MAX_READERS: u32 = MAX_READERS - (1 << 16);

/// As in [`ttas`](super::ttas): a line transfer, and some microseconds.
pub(super) const BACKOFF_NS: (u64, u64) = (50, 8_000);

/// A waiter's first delay for each thread that polls already: about the time of one poll. Otherwise
/// the polls of many threads would occupy the word's cache line. (256 simulated contexts and
/// threads, 1 % changes: 5.4 M/s, 5.1 without; 128 threads 6.8 and 6.6.)
const PER_POLLER_NS: u64 = 20;

/// How a thread wants the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Shared, even past waiting writers: a thread may hold the lock twice.
    Read,
    /// Shared, but not past a waiting writer.
    ReadAfterWriters,
    /// Exclusive.
    Write,
}

/// Result of [`RwWord::release_reader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReaderRelease {
    /// The hold is released.
    Released,
    /// The lock is still held: the caller must first wake parked waiters (Invariant 3).
    MustWake,
    /// The word counts no reader that holds the lock.
    NoReader,
}

/// A reader-writer lock in 8 bytes, all zeroes when free.
#[repr(C)]
pub struct RwWord<P: Primitive> {
    word: P::U32,
    /// Low half: writers that wait, polling or asleep. High half, in units of [`ONE_POLLER`]:
    /// threads that poll, but for [`Share::ReadAfterWriters`].
    waiting: P::U32,
}

/// One polling thread in `waiting`. Both counts in that word are advisory.
const ONE_POLLER: u32 = 1 << 16;

impl<P: Primitive> RwWord<P> {
    /// Returns a free lock.
    pub fn unlocked() -> Self {
        RwWord { word: P::U32::new(0), waiting: P::U32::new(0) }
    }

    /// Acquires the lock if that is possible at once.
    #[inline(always)]
    pub fn try_acquire(&self, share: Share) -> bool {
        match share {
            Share::Write => match self.word.compare_exchange(0, WRITER, Acquire, Relaxed) {
                Ok(_) => true,
                Err(seen) => seen == URGENT && self.take_urgent(),
            },
            Share::ReadAfterWriters if self.has_waiting_writer() => false,
            Share::Read | Share::ReadAfterWriters => self.keep_or_withdraw(self.count_reader()),
        }
    }

    /// Acquires the lock as a writer if it is free and no writer has asked for it.
    #[inline(always)]
    pub(super) fn take_free(&self) -> bool {
        self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }

    /// Acquires a free lock that a writer has asked for. The request ends, whoever made it.
    #[cold]
    fn take_urgent(&self) -> bool {
        // Another thread may end the request at this moment.
        let written = |seen: u32| (seen & !URGENT == 0).then_some(WRITER);
        self.word.modify(Acquire, Relaxed, written).is_ok()
    }

    /// Asks others to give way to a waiting writer.
    pub(crate) fn request(&self) {
        self.word.fetch_or(URGENT, Relaxed);
    }

    /// Whether a word with the value `before` asked others to give way.
    #[inline(always)]
    pub(super) fn is_urgent(before: u32) -> bool {
        before & URGENT != 0
    }

    /// Whether others are asked to give way.
    #[inline(always)]
    pub(crate) fn has_request(&self) -> bool {
        Self::is_urgent(self.word.load(Relaxed))
    }

    /// Sleeps until `deadline`. No release ends the sleep.
    pub(super) fn sleep_until(&self, deadline: u64) {
        P::park(&self.word, self.word.load(Relaxed), Some(deadline));
    }

    /// Ends the request, if there is one.
    pub(crate) fn drop_request(&self) {
        if self.has_request() {
            self.word.fetch_and(!URGENT, Relaxed);
        }
    }

    /// Counts the caller as a reader, and returns the word before. 0 means that the caller holds
    /// the lock; otherwise [`keep_or_withdraw`](Self::keep_or_withdraw) decides.
    #[inline(always)]
    pub(super) fn count_reader(&self) -> u32 {
        self.word.fetch_add(1, Acquire)
    }

    /// Whether a reader holds the lock that counted itself in a word with the value `before`.
    #[inline(always)]
    pub(super) fn keep_or_withdraw(&self, before: u32) -> bool {
        before.wrapping_add(1) & (WRITER | TOO_MANY) == 0 || self.withdraw()
    }

    /// Whether a word with the value `before` had nearly [`MAX_READERS`] readers.
    #[inline(always)]
    pub(super) fn is_nearly_full(before: u32) -> bool {
        before & !(WRITER | PARKED | URGENT) >= NEARLY_MAX_READERS
    }

    /// Withdraws a counted reader, unless it turns out to hold the lock (Invariant 1).
    #[cold]
    fn withdraw(&self) -> bool {
        let counted = |seen: u32| (seen & (WRITER | TOO_MANY) != 0).then(|| seen - 1);
        self.word.modify(Acquire, Acquire, counted).is_err()
    }

    /// Whether `try_acquire` is worth a write to the word.
    pub(super) fn seems_free(&self, share: Share) -> bool {
        match share {
            Share::Write => self.word.load(Relaxed) & !URGENT == 0,
            _ => self.word.load(Relaxed) & WRITER == 0,
        }
    }

    /// Whether `try_acquire` would acquire the lock at this moment.
    #[inline]
    pub(super) fn admits(&self, share: Share) -> bool {
        let seen = self.word.load(Relaxed);
        match share {
            Share::Write => seen & !URGENT == 0,
            Share::ReadAfterWriters if self.has_waiting_writer() => false,
            Share::Read | Share::ReadAfterWriters => seen & !(PARKED | URGENT) < MAX_READERS,
        }
    }

    /// Contends until the lock is acquired or `turn` says to leave.
    pub fn attempt(&self, share: Share, turn: &mut impl Turn) -> Outcome {
        self.attempt_by(share, turn, || self.seems_free(share) && self.try_acquire(share))
    }

    /// As [`attempt`](Self::attempt); `acquire` tries to acquire the lock.
    pub(super) fn attempt_by(
        &self,
        share: Share,
        turn: &mut impl Turn,
        mut acquire: impl FnMut() -> bool,
    ) -> Outcome {
        // A writer may sleep for load if another thread contends. A `ReadAfterWriters` reader does
        // not count as a contender: a waiting writer keeps it out, even while the writer sleeps.
        let counted = if share == Share::ReadAfterWriters { 0 } else { ONE_POLLER };
        let pollers = self.waiting.fetch_add(counted, Relaxed) / ONE_POLLER;
        let first = BACKOFF_NS.0.max(u64::from(pollers) * PER_POLLER_NS).min(BACKOFF_NS.1);
        let mut backoff = Backoff::new(first, BACKOFF_NS.1, P::address(turn));
        let outcome = loop {
            if acquire() {
                break Outcome::Acquired;
            }
            if turn.turn(P::now()) == Verdict::Leave {
                break Outcome::Abandoned;
            }
            backoff.wait::<P>();
        };
        self.waiting.fetch_sub(counted, Relaxed);
        outcome
    }

    /// Whether a thread polls for the lock at this moment and would acquire it on release.
    pub fn has_contender(&self) -> bool {
        self.waiting.load(Relaxed) >= ONE_POLLER
    }

    /// Whether a writer waits, polling or asleep.
    pub(crate) fn has_waiting_writer(&self) -> bool {
        self.waiting.load(Relaxed) % ONE_POLLER != 0
    }

    /// Records that the calling thread begins to wait. Called once per wait, whether the thread
    /// polls or sleeps.
    pub fn begin_wait(&self, share: Share) {
        if share == Share::Write {
            self.waiting.fetch_add(1, Relaxed);
        }
    }

    /// Records the end of the wait, with or without the lock. True if the caller was the last
    /// waiting writer: readers that it blocked may enter, and a caller without the lock must wake
    /// them (Invariant 3).
    #[must_use]
    pub fn end_wait(&self, share: Share) -> bool {
        share == Share::Write && self.waiting.fetch_sub(1, Relaxed) % ONE_POLLER == 1
    }

    /// Releases the caller's hold. Returns false, with the lock still held, if the caller must
    /// first wake parked waiters (Invariant 3).
    ///
    /// # Safety
    ///
    /// The calling context holds the lock, for reading or for writing.
    #[inline]
    pub unsafe fn release(&self) -> bool {
        // SAFETY: the caller holds the lock until one of the two calls returns true.
        unsafe { self.release_at_once() || self.release_contended() }
    }

    /// Tries [`release`](Self::release) once. Returns false, with no effect, if the parked bit or a
    /// request is set, the lock is free, or the word changed meanwhile.
    ///
    /// # Safety
    ///
    /// As for `release`.
    #[inline(always)]
    pub unsafe fn release_at_once(&self) -> bool {
        let seen = self.word.load(Relaxed);
        // The bit identifies the caller's mode: no reader holds the lock under the writer bit, and
        // no writer without it.
        let freed = if seen & WRITER != 0 { seen & !WRITER } else { seen.wrapping_sub(1) };
        seen & (PARKED | URGENT) == 0
            && seen != 0
            && self.word.compare_exchange(seen, freed, Release, Relaxed).is_ok()
    }

    /// # Safety
    ///
    /// As for `release`.
    #[cold]
    unsafe fn release_contended(&self) -> bool {
        let freed = |seen: u32| {
            // A lock without a holder stays as it is.
            let is_writers = seen & WRITER != 0;
            let freed = match seen & !(PARKED | URGENT) {
                0 => seen,
                _ if is_writers => seen & !WRITER,
                _ => seen - 1,
            };
            (freed & !URGENT != PARKED && (!is_writers || freed & PARKED == 0)).then_some(freed)
        };
        self.word.modify(Release, Relaxed, freed).is_ok()
    }

    /// Releases one reader's hold, if the word counts one and no writer is in it.
    ///
    /// # Safety
    ///
    /// As for [`release`](Self::release).
    pub(super) unsafe fn release_reader(&self) -> ReaderRelease {
        let freed = |seen: u32| {
            let has_readers = seen & WRITER == 0 && seen & !(PARKED | URGENT) != 0;
            (has_readers && seen & !URGENT != PARKED + 1).then(|| seen - 1)
        };
        match self.word.modify(Release, Relaxed, freed) {
            Ok(_) => ReaderRelease::Released,
            Err(seen) if seen & !URGENT == PARKED + 1 => ReaderRelease::MustWake,
            Err(_) => ReaderRelease::NoReader,
        }
    }

    /// Clears the parked bit; the lock stays held.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock.
    pub unsafe fn clear_parked_bit(&self) {
        self.word.fetch_and(!PARKED, Relaxed);
    }

    /// Sets the parked bit if the lock is held at this moment; returns false if it is free.
    pub fn set_parked_bit(&self) -> bool {
        let parked = |seen: u32| (seen & !URGENT != 0).then_some(seen | PARKED);
        self.word.modify(Relaxed, Relaxed, parked).is_ok()
    }

    /// Whether a writer holds the lock whose release will find the parked bit.
    pub(crate) fn is_written_and_parked(&self) -> bool {
        self.word.load(Relaxed) & (WRITER | PARKED) == WRITER | PARKED
    }

    /// Whether a writer holds the lock at this moment.
    #[inline]
    pub fn is_written(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0
    }

    /// Whether any thread holds the lock at this moment.
    pub fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & !URGENT != 0
    }

    /// Whether the lock has [`MAX_READERS`] readers.
    pub fn is_full(&self) -> bool {
        self.readers() == MAX_READERS
    }

    /// Number of readers, those that are withdrawing included.
    pub(super) fn readers(&self) -> u32 {
        self.word.load(Relaxed) & !(WRITER | PARKED | URGENT)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::Native;

    fn written() -> RwWord<Native> {
        let lock = RwWord::unlocked();
        assert!(lock.try_acquire(Share::Write));
        lock
    }

    #[test]
    fn only_a_free_lock_is_taken_at_once() {
        assert!(RwWord::<Native>::unlocked().take_free() && !written().take_free());
    }

    fn release(lock: &RwWord<Native>) {
        // SAFETY: the tests release what they hold.
        assert!(unsafe { lock.release() });
    }

    #[test]
    fn reader_beside_a_writer_withdraws() {
        let lock = written();
        assert!(!lock.try_acquire(Share::Read));
        assert_eq!(lock.readers(), 0);
        release(&lock);
        assert!(!lock.is_locked());
    }

    #[test]
    fn counted_reader_holds_the_lock_once_the_writer_has_released() {
        let lock = written();
        let before = lock.count_reader();
        release(&lock);
        assert!(lock.keep_or_withdraw(before));
        assert!(!lock.try_acquire(Share::Write));
        release(&lock);
        assert!(!lock.is_locked());
    }

    #[test]
    fn reader_that_respects_writers_is_no_contender() {
        let lock = written();
        for (share, is_contender) in
            [(Share::Write, true), (Share::Read, true), (Share::ReadAfterWriters, false)]
        {
            let mut seen = None;
            lock.attempt(share, &mut |_now: u64| {
                seen = Some(lock.has_contender());
                Verdict::Leave
            });
            assert_eq!(seen, Some(is_contender), "{share:?}");
        }
        assert!(!lock.has_contender());
    }

    #[test]
    fn waiting_writer_keeps_out_readers_that_respect_it() {
        let lock = RwWord::<Native>::unlocked();
        assert!(!lock.has_waiting_writer());
        lock.begin_wait(Share::Write);
        assert!(!lock.try_acquire(Share::ReadAfterWriters) && lock.try_acquire(Share::Read));
        lock.begin_wait(Share::Write);
        assert!(!lock.end_wait(Share::Write), "another writer waits");
        assert!(lock.end_wait(Share::Write));
        assert!(lock.try_acquire(Share::ReadAfterWriters));
    }

    #[test]
    fn polling_thread_is_a_contender_and_no_waiting_writer() {
        let lock = written();
        assert!(!lock.has_contender());
        let outcome = lock.attempt(Share::Read, &mut |_| {
            assert!(lock.has_contender() && !lock.has_waiting_writer());
            Verdict::Leave
        });
        assert_eq!((outcome, lock.has_contender()), (Outcome::Abandoned, false));
    }
}
