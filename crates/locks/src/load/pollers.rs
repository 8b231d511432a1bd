//! The threads that poll for events, and how many may.
//!
//! The controller publishes the number of processors that no other thread wants, and at most that
//! many threads poll for long. Without a controller, the limit is the number of processors less
//! one.

use core::sync::atomic::Ordering::Relaxed;

use super::sensor::Reading;
use crate::primitive::{Atomic, AtomicInt, Primitive};

/// A free fraction of at least `1 - ROUND_UP` of a processor counts as a whole one. Two threads
/// that wake each other run at the same time for a while, and leave half a processor free.
const ROUND_UP: f64 = 0.8;

/// Polling time that a thread collects before it reports the sum.
const PORTION_NS: u64 = 50_000;

/// A thread that collects a portion within this time polls for at least 1 % of its time. The
/// controller takes less than that.
const DENSE_NS: u64 = 100 * PORTION_NS;

/// At this interval, a release wakes all waiters that its thread has signalled. Otherwise threads
/// that poll for their signals could go on many times while a signalled sleeper waits to be woken.
/// (LevelDB's writes on 2 processors, Jain's index over half a second, without and with this rule:
/// .80 and .91 with 16 threads, .56 and .81 with 32; throughput 1.04 and 1.00 times. An interval of
/// 500 us gives .87 with 32 threads, and .86 times the throughput.)
const ALL_EVERY_NS: u64 = 1_000_000;

/// Stands for the number of signalled waiters after a broadcast.
pub const BROADCAST: u32 = u32::MAX;

/// Number of requeued waiters per processor that are awake after a broadcast: one runs, and the
/// other is ready, so that the processor does not become idle. (A wake-up on an idle processor
/// takes 11 us on a virtual machine, and 2 us on a busy one. Rounds of a broadcast to 64 waiters on
/// 2 processors, relative to libc: .7 with one waiter awake, 1.5 with 2, 2.7 with 4, 2.9 with all;
/// to 8 waiters: .57, .80, .90, .83.)
const AWAKE_PER_PROCESSOR: u32 = 2;

/// The threads of a process that poll for events.
#[repr(align(128))]
pub struct Pollers<P: Primitive> {
    /// Number of threads that poll.
    polling: P::U32,
    /// Number of threads that may poll.
    room: P::U32,
    /// Number of processors that the process may use; 0 if unknown.
    processors: P::U32,
    /// Nanoseconds that threads have polled since the process began, as far as they have reported.
    polled: P::U64,
    /// When a release last woke all signalled waiters.
    all_woken_at: P::U64,
}

/// A thread's polling time that it has not reported yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Portion {
    /// Nanoseconds.
    polled: u64,
    /// When the first of them began.
    since: u64,
}

impl<P: Primitive> Pollers<P> {
    pub(super) fn new() -> Self {
        let [polling, room, processors] = [0, 0, 0].map(P::U32::new);
        let [polled, all_woken_at] = [0, 0].map(P::U64::new);
        Pollers { polling, room, processors, polled, all_woken_at }
    }

    /// Counts the calling thread as a poller, if there is room for one more.
    #[inline]
    pub(super) fn enter(&self) -> bool {
        let room = self.room.load(Relaxed);
        self.polling.load(Relaxed) < room && {
            let has_room = self.polling.fetch_add(1, Relaxed) < room;
            if !has_room {
                self.polling.fetch_sub(1, Relaxed);
            }
            has_room
        }
    }

    /// Ends the count of the calling thread as a poller.
    #[inline]
    pub(super) fn leave(&self) {
        self.polling.fetch_sub(1, Relaxed);
    }

    /// Number of requeued threads to wake at once: one for each processor that neither a thread nor
    /// a poller wants, but at least one, and every [`ALL_EVERY_NS`] all that the caller has
    /// `signalled`. After a [`BROADCAST`], the number depends on the processors alone.
    pub(crate) fn wakeable(&self, signalled: u32, now: u64) -> u32 {
        if signalled == BROADCAST {
            return AWAKE_PER_PROCESSOR * self.processors.load(Relaxed).max(1);
        }
        let free = self.room.load(Relaxed).saturating_sub(self.polling.load(Relaxed)).max(1);
        if signalled > free && now.saturating_sub(self.all_woken_at.load(Relaxed)) > ALL_EVERY_NS {
            self.all_woken_at.store(now, Relaxed);
            return signalled;
        }
        free
    }

    /// Whether no thread may poll.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.room.load(Relaxed) == 0
    }

    /// Adds a poll to a thread's portion. Returns whether the thread polls for a noticeable part of
    /// its time.
    #[inline]
    pub(super) fn report(&self, portion: &mut Portion, begin: u64, now: u64) -> bool {
        if portion.polled == 0 {
            portion.since = begin;
        }
        portion.polled += now - begin;
        portion.polled > PORTION_NS && {
            self.polled.fetch_add(core::mem::take(&mut portion.polled), Relaxed);
            now - portion.since < DENSE_NS
        }
    }

    /// Nanoseconds that threads have polled, as far as they have reported.
    pub(super) fn polled(&self) -> u64 {
        self.polled.load(Relaxed)
    }

    /// Publishes the number of processors that no thread wants, from a reading without pollers
    /// and the sleep target that it led to.
    pub(super) fn set_room(&self, reading: Reading, target: u32) {
        // At least one thread must run to bring the events about.
        let room = reading.capacity - reading.runnable.max(1.0) - f64::from(target);
        self.room.store((room + ROUND_UP).max(0.0) as u32, Relaxed);
    }

    /// Records that the process may use `processors`, and sets its room without a controller.
    pub fn assume_processors(&self, processors: u32) {
        self.room.store(processors.saturating_sub(1), Relaxed);
        self.processors.store(processors, Relaxed);
    }

    /// Forgets the pollers of a parent process, and what its controller found.
    pub(super) fn reset(&self) {
        self.polling.store(0, Relaxed);
        self.assume_processors(self.processors.load(Relaxed));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::Native;

    fn room(runnable: f64, capacity: f64, target: u32) -> u32 {
        let pollers = Pollers::<Native>::new();
        pollers.set_room(Reading::of_runnable(runnable, capacity), target);
        pollers.room.load(Relaxed)
    }

    #[test]
    fn room_is_the_processors_that_no_thread_wants() {
        assert_eq!(room(1.0, 2.0, 0), 1);
        assert_eq!(room(1.5, 2.0, 0), 1, "waking threads overlap");
        assert_eq!(room(0.0, 2.0, 0), 1, "one thread brings the events about");
        assert_eq!(room(3.0, 16.0, 0), 13);
        assert_eq!(room(2.0, 2.0, 0), 0);
        assert_eq!(room(64.0, 2.0, 0), 0);
        assert_eq!(room(1.0, 2.0, 5), 0, "threads sleep for load");
        assert_eq!(room(0.5, 1.0, 0), 0);
    }

    #[test]
    fn as_many_threads_are_woken_as_processors_are_free() {
        let pollers = Pollers::<Native>::new();
        let wakeable = || pollers.wakeable(1, 2 * ALL_EVERY_NS);
        assert_eq!(wakeable(), 1, "always one");
        pollers.assume_processors(16);
        assert_eq!(wakeable(), 15);
        assert!(pollers.enter());
        assert_eq!(wakeable(), 14);
    }

    #[test]
    fn broadcast_wakes_two_threads_per_processor() {
        let pollers = Pollers::<Native>::new();
        assert_eq!(pollers.wakeable(BROADCAST, 0), 2);
        pollers.assume_processors(16);
        assert_eq!(pollers.wakeable(BROADCAST, 0), 32);
    }

    #[test]
    fn all_signalled_threads_are_woken_at_an_interval() {
        let pollers = Pollers::<Native>::new();
        let now = 2 * ALL_EVERY_NS;
        assert_eq!(pollers.wakeable(8, now), 8);
        assert_eq!(pollers.wakeable(8, now + ALL_EVERY_NS), 1);
        assert_eq!(pollers.wakeable(8, now + ALL_EVERY_NS + 1), 8);
        pollers.assume_processors(16);
        assert_eq!(pollers.wakeable(8, 2 * now), 15, "not fewer than processors are free");
    }

    #[test]
    fn child_process_has_its_parents_processors_but_not_its_load() {
        let pollers = Pollers::<Native>::new();
        pollers.assume_processors(2);
        pollers.set_room(Reading::of_runnable(64.0, 2.0), 0);
        assert!(pollers.is_crowded());
        pollers.reset();
        assert!(!pollers.is_crowded() && pollers.enter());
    }

    #[test]
    fn portion_is_dense_if_collected_fast() {
        let pollers = Pollers::<Native>::new();
        let mut portion = Portion::default();
        assert!(!pollers.report(&mut portion, 0, PORTION_NS));
        assert!(pollers.report(&mut portion, 2 * PORTION_NS, 3 * PORTION_NS));
        assert_eq!(pollers.polled(), 2 * PORTION_NS);
        assert!(!pollers.report(&mut portion, 0, PORTION_NS));
        assert!(!pollers.report(&mut portion, DENSE_NS, DENSE_NS + PORTION_NS), "rarely");
    }
}
