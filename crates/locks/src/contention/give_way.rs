//! A bound on a writer's wait for a [reader-writer lock](super::biased_rw).
//!
//! Readers may enter past a waiting writer, because a thread may take the lock twice, or hold it
//! while it waits for another reader. So overlapping readers can keep a writer out for ever, as
//! they can under glibc. A writer that has waited for [`LATE_AFTER_NS`] therefore asks readers to
//! give way: a reader that finds the request leaves the lock alone until a writer has taken it.
//!
//! A reader gives way for a bounded time, and then drops the request and enters. While the lock may
//! be held, the bound is [`GIVE_WAY_NS`]: the writer may be waiting for this very reader, directly
//! or through other readers. Once no thread holds the lock, no bias hides a reader, and a writer
//! polls, the bound is [`RESERVED_NS`]: the writer may lack a processor. A writer with a request
//! does not ask its load manager.
//!
//! If the readers' sections take no longer than [`GIVE_WAY_NS`], a writer thus waits for at most
//! the sum of [`LATE_AFTER_NS`], [`GIVE_WAY_NS`], the sections of writers before it, and the time
//! for which it lacks a processor. Where readers are preempted inside, the writer asks again, and
//! no bound is known.
//!
//! Readers of a lock that prefers writers do not enter past them. Tries and timed acquisitions do
//! not give way.
//!
//! **Behind a writer,** a late writer asks readers once that writer has released the lock: each
//! writer's release wakes one. But while it wakes, the last writer may have taken the lock again. A
//! writer or reader that this has kept out for long [reserves](crate::load::Wait::park) the lock,
//! by the same request: a writer that arrives leaves the free lock alone for
//! [`WRITER_GIVES_WAY_NS`], or until the request ends.

use core::cell::Cell;

use super::rw::{BACKOFF_NS, ReaderRelease, RwWord};
use super::visible::VisibleReaders;
use crate::primitive::backoff::Backoff;

/// Wait of a writer before it first asks readers to give way.
pub const LATE_AFTER_NS: u64 = 1_000_000;

/// Longest time between two requests of a writer. In each such interval, a writer behind a long
/// section keeps its request for [`RESERVED_NS`], and tries the lock about a hundred times.
const LONGEST_INTERVAL_NS: u64 = 1024 * LATE_AFTER_NS;

/// Longest time until a late writer that was behind another one looks again whether readers must be
/// asked: a parked writer wakes this often.
const POSTPONED_NS: u64 = 16 * LATE_AFTER_NS;

/// Longest time for which a reader gives way beside other readers. A request delays a thread that
/// takes the lock a second time by as much.
pub const GIVE_WAY_NS: u64 = 1_000_000;

/// Longest time for which a reader gives way once only a polling writer can be about to take the
/// lock, and for which a writer keeps its request: some time slices, because either may lack a
/// processor.
const RESERVED_NS: u64 = 20_000_000;

/// Longest time for which a writer gives way, some wake-ups: the lock is idle meanwhile.
const WRITER_GIVES_WAY_NS: u64 = 100_000;

/// A thread that gives way or insists polls for this time. Then it sleeps for this time between two
/// looks.
const POLL_NS: u64 = 200_000;

/// Says when a waiting writer asks readers to give way: after [`LATE_AFTER_NS`], and then after
/// twice as long each time.
#[derive(Debug)]
pub(super) struct LateWriter {
    /// The time of the last request or, before the first, of the first call; 0 before that.
    since: Cell<u64>,
    length: Cell<u64>,
    /// Whether a request is due that another writer has put off or used.
    is_owed: Cell<bool>,
}

impl Default for LateWriter {
    fn default() -> Self {
        LateWriter {
            since: Cell::new(0),
            length: Cell::new(LATE_AFTER_NS),
            is_owed: Cell::new(false),
        }
    }
}

impl LateWriter {
    /// Whether it is time for a request.
    pub(super) fn is_late(&self, now: u64) -> bool {
        if self.since.get() == 0 {
            self.since.set(now);
        }
        let is_late = now >= self.late_at();
        if is_late {
            self.since.set(now);
            self.length.set((2 * self.length.get()).min(LONGEST_INTERVAL_NS));
        }
        is_late
    }

    /// Puts a request off that is due behind a writer: the next look is soon.
    pub(super) fn postpone(&self) {
        self.owe();
        self.length.set(self.length.get().min(POSTPONED_NS));
    }

    /// Makes a request due at the next look.
    pub(super) fn owe(&self) {
        self.is_owed.set(true);
    }

    /// Whether a request was put off. If so, it counts as made `now`.
    pub(super) fn take_owed(&self, now: u64) -> bool {
        let is_owed = self.is_owed.replace(false);
        if is_owed {
            self.since.set(now);
        }
        is_owed
    }

    pub(super) fn late_at(&self) -> u64 {
        self.since.get() + self.length.get()
    }
}

impl<P: VisibleReaders> RwWord<P> {
    /// Asks readers to give way, and tries to `acquire` the lock until they no longer do, or until
    /// `deadline`. Returns whether the caller, a writer, holds the lock.
    #[cold]
    pub(super) fn insist(&self, deadline: Option<u64>, acquire: impl Fn() -> bool) -> bool {
        self.request();
        let left = deadline.map_or(u64::MAX, |end| P::expected(end).saturating_sub(P::now()));
        let longest = left.min(RESERVED_NS);
        self.poll(longest, |waited| {
            let is_held = acquire();
            (is_held || !self.has_request() || waited >= longest).then_some(is_held)
        })
    }

    /// Releases the caller's hold and gives way. Returns false if the caller keeps the hold: it
    /// must wake parked waiters when it releases the lock, the writer among them. `is_biased` says
    /// whether readers may hold the lock without being counted in the word.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock as a reader.
    #[cold]
    pub(super) unsafe fn leave_to_writer(&self, is_biased: impl Fn() -> bool) -> bool {
        // SAFETY: as promised.
        let is_released = unsafe { self.release_reader() } == ReaderRelease::Released;
        if is_released {
            self.give_way_now(is_biased);
        }
        is_released
    }

    /// Longest time for which a reader gives way to a writer.
    fn limit(&self, is_biased: bool) -> u64 {
        let waits_for_writer_only = !self.is_locked() && !is_biased && self.has_contender();
        if waits_for_writer_only { RESERVED_NS } else { GIVE_WAY_NS }
    }

    /// Waits until a writer has taken the lock. After [`GIVE_WAY_NS`], or [`RESERVED_NS`] if only a
    /// polling writer is left, drops the request instead. A bias may hide other readers.
    #[cold]
    pub(super) fn give_way_now(&self, is_biased: impl Fn() -> bool) {
        self.poll(RESERVED_NS, |waited| {
            let is_over = waited >= self.limit(is_biased());
            if is_over {
                self.drop_request();
            }
            (is_over || !self.has_request() || self.is_written()).then_some(())
        });
    }

    /// Waits until a waiter has taken the lock that one has asked for, but no longer than
    /// [`WRITER_GIVES_WAY_NS`].
    #[cold]
    pub(super) fn give_way_to_waiter(&self) {
        self.poll(WRITER_GIVES_WAY_NS, |waited| {
            let is_over = waited >= WRITER_GIVES_WAY_NS;
            (is_over || !self.has_request() || self.is_locked()).then_some(())
        });
    }

    /// Polls with `end`, which gets the time so far, until it returns a result: after `longest` at
    /// the latest. Lets other threads have the processor meanwhile if there are more threads than
    /// processors.
    fn poll<R>(&self, longest: u64, end: impl Fn(u64) -> Option<R>) -> R {
        let (begin, is_crowded) = (P::now(), P::is_crowded());
        let mut backoff = Backoff::new(BACKOFF_NS.0, BACKOFF_NS.1, P::address(&begin));
        loop {
            let now = P::now();
            if let Some(result) = end(now - begin) {
                return result;
            }
            if now - begin >= POLL_NS {
                self.sleep_until((now + POLL_NS).min(begin + longest));
            } else {
                if is_crowded {
                    P::yield_now();
                }
                backoff.wait::<P>();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::contention::biased_rw::{Begun, BiasedRw, Drain};
    use crate::contention::rw::Share;
    use crate::parking::eventcount::Eventcount;
    use crate::primitive::Native;
    use crate::primitive::turn::Outcome;

    /// Takes the lock as a reader that gives way.
    fn read(lock: &BiasedRw<'_, Native>) -> bool {
        match lock.begin_read() {
            Begun::Undecided(undecided) => lock.end_read(undecided, || false),
            begun => begun == Begun::Held,
        }
    }

    fn release(lock: &BiasedRw<'_, Native>) {
        // SAFETY: the tests release what they hold.
        assert!(unsafe { lock.release() });
    }

    #[test]
    fn writer_is_late_again_and_again() {
        let writer = LateWriter::default();
        let over: Vec<u64> =
            (1..4_000).map(|us| us * 1000).filter(|&ns| writer.is_late(ns)).collect();
        assert_eq!(over, [1_001_000, 3_001_000]);
        assert_eq!(writer.late_at(), 7_001_000);
    }

    #[test]
    fn request_due_behind_a_writer_is_due_again_soon() {
        let writer = LateWriter::default();
        writer.length.set(LONGEST_INTERVAL_NS);
        assert!(!writer.is_late(1) && writer.is_late(1 + LONGEST_INTERVAL_NS));
        assert!(!writer.take_owed(LONGEST_INTERVAL_NS));
        writer.postpone();
        assert_eq!(writer.late_at(), 1 + LONGEST_INTERVAL_NS + POSTPONED_NS);
        assert!(writer.take_owed(2 * LONGEST_INTERVAL_NS) && !writer.take_owed(u64::MAX));
        assert_eq!(writer.late_at(), 2 * LONGEST_INTERVAL_NS + POSTPONED_NS);
    }

    #[test]
    fn writer_that_arrives_gives_way_for_a_while_and_then_takes_the_lock() {
        let (word, eventcount) = (RwWord::<Native>::unlocked(), Eventcount::new());
        let lock = BiasedRw::unbiased(&word, &eventcount);
        word.request();
        assert_eq!(lock.begin_write(), Begun::Failed);
        assert!(!lock.acquire_at_once(Share::Write));
        let begin = <Native as crate::primitive::Clock>::now();
        lock.give_way(Share::Write);
        let waited = <Native as crate::primitive::Clock>::now() - begin;
        assert!(waited >= WRITER_GIVES_WAY_NS && word.has_request(), "{waited} ns");
        assert!(lock.try_write(&Drain::new()) && !word.has_request());
        word.request();
        lock.give_way(Share::Write); // returns at once, because a writer holds the lock
        release(&lock);
    }

    #[test]
    fn reader_gives_way_no_longer_than_the_request_stands() {
        let word = RwWord::<Native>::unlocked();
        let looks = Cell::new(0);
        word.give_way_now(|| {
            looks.set(looks.get() + 1);
            false
        });
        assert_eq!(looks.get(), 1, "there is no request");
    }

    #[test]
    fn reader_gives_way_to_a_request_once() {
        let (word, eventcount) = (RwWord::unlocked(), Eventcount::new());
        let lock = BiasedRw::unbiased(&word, &eventcount);
        assert!(read(&lock));
        word.request();
        assert!(!read(&lock), "a reader enters beside a request");
        assert!(word.readers() == 1 && !word.has_request(), "the request or the hold is left");
        assert!(read(&lock), "no request is left");
        release(&lock);
        release(&lock);
        assert!(!word.is_locked());
    }

    #[test]
    fn writer_insists_until_its_deadline() {
        let word = RwWord::<Native>::unlocked();
        assert!(word.try_acquire(Share::Read));
        let tries = Cell::new(0);
        let fail = || {
            tries.set(tries.get() + 1);
            false
        };
        assert!(!word.insist(Some(1), fail), "acquired a held lock");
        assert_eq!(tries.get(), 1, "the deadline had passed before the first try");
    }

    #[test]
    fn reader_of_a_biased_lock_asks_for_hidden_holders_and_drops_the_request() {
        let (word, asked) = (RwWord::<Native>::unlocked(), Cell::new(0));
        word.request();
        let begin = <Native as crate::primitive::Clock>::now();
        word.give_way_now(|| {
            asked.set(asked.get() + 1);
            true
        });
        let waited = <Native as crate::primitive::Clock>::now() - begin;
        assert!(asked.get() > 0 && !word.has_request());
        assert!(waited >= GIVE_WAY_NS, "it dropped the request after {waited} ns");
    }

    #[test]
    fn reader_gives_way_for_long_only_if_nobody_but_a_polling_writer_is_left() {
        let word = RwWord::<Native>::unlocked();
        assert_eq!(word.limit(false), GIVE_WAY_NS, "the writer may sleep, or be gone");
        word.request();
        let outcome =
            word.attempt_by(Share::Write, &mut |_: u64| unreachable!("the lock is free"), || {
                assert_eq!([false, true].map(|it| word.limit(it)), [RESERVED_NS, GIVE_WAY_NS]);
                word.try_acquire(Share::Write)
            });
        assert_eq!((outcome, word.limit(false)), (Outcome::Acquired, GIVE_WAY_NS));
    }

    #[test]
    fn try_enters_beside_a_request() {
        let (word, eventcount) = (RwWord::unlocked(), Eventcount::new());
        let lock = BiasedRw::unbiased(&word, &eventcount);
        word.request();
        assert!(lock.try_read(|| false) && lock.try_read(|| false));
        release(&lock);
        assert!(word.is_locked() && word.set_parked_bit());
        word.request();
        assert!(!read(&lock) && word.readers() == 1, "a reader gives way beside parked waiters");
        // SAFETY: the test holds it.
        unsafe {
            assert!(!word.release(), "the last reader must wake parked waiters");
            word.clear_parked_bit();
        }
        release(&lock);
        assert!(!word.is_locked());
    }

    #[test]
    fn writer_takes_a_free_lock_with_the_request() {
        let word = RwWord::<Native>::unlocked();
        word.request();
        assert!(!word.is_locked() && !word.set_parked_bit() && word.admits(Share::Write));
        // SAFETY: there is no holder, and so no effect.
        assert!(unsafe { word.release() } && !word.is_locked());
        assert!(word.has_request() && word.try_acquire(Share::Write));
        assert!(!word.has_request() && word.is_written());
        word.request();
        assert!(!word.try_acquire(Share::Read) && word.set_parked_bit());
        // SAFETY: the test holds the lock.
        assert!(unsafe { !word.release() });
    }
}
