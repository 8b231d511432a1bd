//! A reader-writer lock: readers share, a writer is alone.
//!
//! One word counts the readers and holds the writer's bit; a second counts the writers that wait,
//! which only readers of a writer-preferring lock heed. Waiters of both kinds poll with backoff and
//! ask the load manager each turn, like those of a mutex.
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | free |
//! | n, below `WRITER` | n readers |
//! | `WRITER` | a writer |
//! | any but 0, `+ MARK` | and the release that would leave 0 must wake parked waiters |
//!
//! **Invariant 1.** A reader holds the lock from an increment of a word without a writer's bit; a
//! writer from a compare-and-swap that found 0. Both are one access.
//!
//! **Memory orderings.** Acquisitions acquire, releases release.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::backoff::Backoff;
use super::{Outcome, Turn, Verdict};
use crate::platform::{Atomic, AtomicInt, Platform};

const WRITER: u32 = 1 << 31;
const MARK: u32 = 1 << 30;

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
pub struct RwWord<P: Platform> {
    word: P::U32,
    writers_waiting: P::U32,
}

impl<P: Platform> RwWord<P> {
    /// A free lock.
    pub fn unlocked() -> Self {
        RwWord { word: P::U32::new(0), writers_waiting: P::U32::new(0) }
    }

    /// Takes the lock if that is possible at once.
    #[inline]
    pub fn try_acquire(&self, share: Share) -> bool {
        match share {
            Share::Write => self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok(),
            Share::ReadAfterWriters if self.writers_waiting.load(Relaxed) != 0 => false,
            Share::Read | Share::ReadAfterWriters => {
                let mut seen = self.word.load(Relaxed);
                while seen & WRITER == 0 {
                    match self.word.compare_exchange(seen, seen + 1, Acquire, Relaxed) {
                        Ok(_) => return true,
                        Err(now) => seen = now,
                    }
                }
                false
            }
        }
    }

    /// Contends until acquired, or until `turn` says to leave.
    pub fn attempt(&self, share: Share, turn: &mut impl Turn) -> Outcome {
        let mut backoff = Backoff::new(BACKOFF_NS.0, BACKOFF_NS.1, core::ptr::from_ref(turn).addr() as u64);
        loop {
            if self.try_acquire(share) {
                return Outcome::Acquired;
            }
            if turn.turn(P::now()) == Verdict::Leave {
                return Outcome::Left;
            }
            backoff.wait::<P>();
        }
    }

    /// A thread begins to wait for the lock. Said once per wait, whether the thread polls or
    /// sleeps.
    pub fn begin_wait(&self, share: Share) {
        if share == Share::Write {
            self.writers_waiting.fetch_add(1, Relaxed);
        }
    }

    /// The wait is over, with the lock or without it.
    pub fn end_wait(&self, share: Share) {
        if share == Share::Write {
            self.writers_waiting.fetch_sub(1, Relaxed);
        }
    }

    /// Releases what the caller holds, unless that would free a marked lock: then it stays held,
    /// and the answer is false.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock, for reading or for writing.
    #[inline]
    pub unsafe fn release(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        loop {
            // A reader cannot see the writer's bit while it holds the lock, nor a writer a clear one. A lock
            // that nobody holds stays as it is.
            let freed = if seen & WRITER != 0 { seen & !WRITER } else { seen.saturating_sub(1) };
            if freed == MARK {
                return false;
            }
            match self.word.compare_exchange(seen, freed, Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Clears the mark; the lock stays held.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock.
    pub unsafe fn clear_mark(&self) {
        self.word.fetch_and(!MARK, Relaxed);
    }

    /// Marks the lock if it is held at this moment; false if it is free.
    pub fn mark(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen != 0 {
            match self.word.compare_exchange(seen, seen | MARK, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
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

    /// How many readers hold the lock at this moment.
    pub fn readers(&self) -> u32 {
        self.word.load(Relaxed) & !(WRITER | MARK)
    }
}
