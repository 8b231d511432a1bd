//! A reader-writer lock: readers share, a writer is alone.
//!
//! One word counts the readers and holds the writer's bit; a second counts the writers that wait,
//! which only readers of a writer-preferring lock heed. Waiters of both kinds poll with backoff and
//! ask the load manager each turn, like those of a mutex.
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | free |
//! | n, up to [`MAX_READERS`] | n readers |
//! | `WRITER + n` | a writer, and n readers that have just found it there |
//! | n, `+ PARKED` | and the last reader's release must wake parked waiters |
//! | `WRITER + n`, `+ PARKED` | and the writer's release must wake parked waiters |
//!
//! **Invariant 1.** A reader counts itself by an addition, which never fails and so scales where
//! readers come from all sides. It holds the lock if no writer does. Otherwise it takes itself out
//! again, by a compare-and-swap on a word that still has the writer's bit; if the writer released
//! meanwhile, the counted reader holds the lock. So a counted reader keeps the next writer out from
//! its first access to its last, and no try function ever fails for a thread that does not hold
//! the lock in the end.
//!
//! **Invariant 2.** A writer holds the lock from a compare-and-swap that found 0.
//!
//! **Invariant 3.** A parked waiter is woken as soon as what kept it out is gone. A writer kept it
//! out: the writer's release finds the parked bit, even if it hands the lock to a counted reader,
//! which may hold it for ever. Readers kept a writer out: the last one's release finds the bit. Waiting
//! writers kept a reader out: the last one that gives up says so ([`end_wait`](RwWord::end_wait)),
//! and one that gets the lock releases it.
//!
//! **Memory orderings.** Acquisitions acquire, releases release.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::primitive::backoff::Backoff;
use crate::primitive::turn::{Outcome, Turn, Verdict};
use crate::primitive::{Atomic, AtomicInt, Primitive};

const WRITER: u32 = 1 << 31;
const PARKED: u32 = 1 << 30;

/// Most readers at a time: glibc's limit, beyond which it answers `EAGAIN`. The bit above leaves
/// room for as many again that are on their way out.
pub const MAX_READERS: u32 = (1 << 28) - 1;
const TOO_MANY: u32 = MAX_READERS + 1;

/// As for [`ttas`](super::ttas): a line transfer, and some microseconds.
const BACKOFF_NS: (u64, u64) = (50, 8_000);

/// How a thread wants the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Together with other readers, also past waiting writers: a thread may hold it twice.
    Read,
    /// Together with other readers, but not past a waiting writer.
    ReadAfterWriters,
    /// Alone.
    Write,
}

/// A reader-writer lock in 8 bytes, all zeroes when free.
#[repr(C)]
pub struct RwWord<P: Primitive> {
    word: P::U32,
    /// Writers that wait, awake or asleep, and above [`ONE_POLLER`] the threads that poll.
    waiting: P::U32,
}

/// One polling thread, in `waiting`; below it the writers are counted. Both counts are advice.
const ONE_POLLER: u32 = 1 << 16;

impl<P: Primitive> RwWord<P> {
    /// A free lock.
    pub fn unlocked() -> Self {
        RwWord { word: P::U32::new(0), waiting: P::U32::new(0) }
    }

    /// Takes the lock if that is possible at once.
    #[inline(always)]
    pub fn try_acquire(&self, share: Share) -> bool {
        match share {
            Share::Write => self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok(),
            Share::ReadAfterWriters if self.waiting.load(Relaxed) % ONE_POLLER != 0 => false,
            Share::Read | Share::ReadAfterWriters => {
                self.word.fetch_add(1, Acquire).wrapping_add(1) & (WRITER | TOO_MANY) == 0 || self.withdraw()
            }
        }
    }

    /// Takes a counted reader out again, unless it turns out to hold the lock (Invariant 1).
    #[cold]
    fn withdraw(&self) -> bool {
        let counted = |seen: u32| (seen & (WRITER | TOO_MANY) != 0).then(|| seen - 1);
        self.word.modify(Acquire, Acquire, counted).is_err()
    }

    /// Whether `try_acquire` would be worth its write to the word.
    fn seems_free(&self, share: Share) -> bool {
        match share {
            Share::Write => self.word.load(Relaxed) == 0,
            _ => self.word.load(Relaxed) & WRITER == 0,
        }
    }

    /// Contends until acquired, or until `turn` says to leave.
    pub fn attempt(&self, share: Share, turn: &mut impl Turn) -> Outcome {
        self.waiting.fetch_add(ONE_POLLER, Relaxed);
        let mut backoff = Backoff::new(BACKOFF_NS.0, BACKOFF_NS.1, P::address(turn));
        let outcome = loop {
            if self.seems_free(share) && self.try_acquire(share) {
                break Outcome::Acquired;
            }
            if turn.turn(P::now()) == Verdict::Leave {
                break Outcome::Abandoned;
            }
            backoff.wait::<P>();
        };
        self.waiting.fetch_sub(ONE_POLLER, Relaxed);
        outcome
    }

    /// Whether a thread polls for the lock at this moment.
    pub fn has_contender(&self) -> bool {
        self.waiting.load(Relaxed) >= ONE_POLLER
    }

    /// A thread begins to wait for the lock. Said once per wait, whether the thread polls or
    /// sleeps.
    pub fn begin_wait(&self, share: Share) {
        if share == Share::Write {
            self.waiting.fetch_add(1, Relaxed);
        }
    }

    /// The wait is over, with the lock or without it. True if the caller was the last waiting
    /// writer: then readers that it kept out may go in, and a caller without the lock must wake
    /// them (Invariant 3).
    #[must_use]
    pub fn end_wait(&self, share: Share) -> bool {
        share == Share::Write && self.waiting.fetch_sub(1, Relaxed) % ONE_POLLER == 1
    }

    /// Releases what the caller holds, unless parked waiters must be woken for it (Invariant 3):
    /// then it stays held, and the answer is false.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock, for reading or for writing.
    #[inline]
    pub unsafe fn release(&self) -> bool {
        // SAFETY: passed on from the caller.
        unsafe { self.release_at_once() || self.release_contended() }
    }

    /// The same, as far as one try gets; false, and nothing done, where others are at the word.
    ///
    /// # Safety
    ///
    /// As of `release`.
    #[inline(always)]
    pub unsafe fn release_at_once(&self) -> bool {
        let seen = self.word.load(Relaxed);
        // A reader cannot see the writer's bit while it holds the lock, nor a writer a clear one.
        let freed = if seen & WRITER != 0 { seen & !WRITER } else { seen.wrapping_sub(1) };
        seen & PARKED == 0 && seen != 0 && self.word.compare_exchange(seen, freed, Release, Relaxed).is_ok()
    }

    /// # Safety
    ///
    /// As of `release`.
    #[cold]
    unsafe fn release_contended(&self) -> bool {
        let freed = |seen: u32| {
            // A lock that nobody holds stays as it is.
            let is_writers = seen & WRITER != 0;
            let freed = if is_writers { seen & !WRITER } else { seen.saturating_sub(1) };
            (freed != PARKED && (!is_writers || freed & PARKED == 0)).then_some(freed)
        };
        self.word.modify(Release, Relaxed, freed).is_ok()
    }

    /// Clears the parked bit; the lock stays held.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock.
    pub unsafe fn clear_parked_bit(&self) {
        self.word.fetch_and(!PARKED, Relaxed);
    }

    /// Sets the parked bit if the lock is held at this moment; false if it is free.
    pub fn set_parked_bit(&self) -> bool {
        self.word.modify(Relaxed, Relaxed, |seen| (seen != 0).then_some(seen | PARKED)).is_ok()
    }

    /// Whether a writer holds the lock at this moment.
    #[inline]
    pub fn is_written(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0
    }

    /// Whether anybody holds the lock at this moment.
    pub fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != 0
    }

    /// Whether there are as many readers as the word can count.
    pub fn is_full(&self) -> bool {
        self.word.load(Relaxed) & !PARKED == MAX_READERS
    }
}
