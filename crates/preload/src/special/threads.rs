//! The threads that have waited for locks: how long each waited, and its state in the special set.
//!
//! A thread claims a record at its first wait, and finds it again through a word of thread-local
//! storage. The controller frees the record after the thread has ended.
//!
//! | status | meaning | ended by |
//! | --- | --- | --- |
//! | `FREE` | the thread has the program's mask | controller, thread |
//! | `PLACED` | it has the special set's mask | controller, thread |
//! | `BUSY` | its mask is being changed | the thread that began it |
//! | `OUTSIDE` | it starts a thread or program: the program's mask stays until its next wait for a lock | the thread |
//! | `ALONE` | the program chose its mask | never |
//!
//! **Invariant 1.** Only the thread that moved a status to `BUSY` changes the mask, and then the
//! status.
//!
//! **Memory orderings.** `thread` is stored with release when a record is ready, and loaded with
//! acquire. A status moves to `BUSY` with acquire and leaves it with release; the system calls
//! happen in between.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use unconvoy_locks::primitive::{Native, Threads as _};
use unconvoy_locks::runtime;

use super::mask::SharedMask;

/// Capacity, in threads. Further threads never join the set.
pub(super) const MOST: usize = 4096;

/// Processor time after which a thread's slice ends. Slices of the paper's kernel are some
/// milliseconds long; where many threads share one processor, each runs for a part of the
/// controller's interval of 7 ms.
pub(super) const SLICE_NS: u64 = 1_000_000;

/// A thread keeps the controller alive whenever it has waited this long since it last did so: a
/// tenth of a slice, the threshold of section 3.2.
const KEEP_CONTROLLER_EVERY_NS: u64 = SLICE_NS / 10;

pub(super) const FREE: u32 = 0;
pub(super) const PLACED: u32 = 1;
pub(super) const BUSY: u32 = 2;
pub(super) const OUTSIDE: u32 = 3;
pub(super) const ALONE: u32 = 4;

/// Number of yields before giving up on a `BUSY` status. The two system calls of a change end well
/// before that.
const MAX_YIELDS: u32 = 10_000;

/// In `thread`: a thread is filling the record.
const BEING_FILLED: u32 = u32::MAX;

#[repr(align(64))]
pub(super) struct Record {
    /// The kernel's id; 0 if the record is free.
    thread: AtomicU32,
    /// Unique number of this use of the record: ids and records are reused.
    pub(super) serial: AtomicU32,
    /// Total wait in nanoseconds. Written by the thread.
    pub(super) waited: AtomicU64,
    /// `waited` when the thread last kept the controller alive.
    kept_at: AtomicU64,
    pub(super) status: AtomicU32,
    /// Whether the thread may ever have had the set's mask. Stored before that mask is set.
    was_placed: AtomicBool,
    /// Whether the thread is in a call that starts a thread or a program.
    is_held: AtomicBool,
}

pub(super) struct Records {
    all: [Record; MOST],
    /// Every record that was ever claimed is below this index.
    used: AtomicU32,
    serials: AtomicU32,
}

/// The mask that `PLACED` threads get back.
pub(super) static GIVEN: SharedMask = SharedMask::empty();

/// The mask that `PLACED` threads see as their own.
pub(super) static SHOWN: SharedMask = SharedMask::empty();

/// Whether this process schedules, so that masks may have been changed.
pub(super) static IS_ON: AtomicBool = AtomicBool::new(false);

pub(super) static RECORDS: Records = Records::new();

impl Record {
    const fn new() -> Self {
        Record {
            thread: AtomicU32::new(0),
            serial: AtomicU32::new(0),
            waited: AtomicU64::new(0),
            kept_at: AtomicU64::new(0),
            status: AtomicU32::new(FREE),
            was_placed: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
        }
    }

    /// The kernel's id of the thread; `None` if the record is free.
    pub(super) fn thread(&self) -> Option<u32> {
        match self.thread.load(Acquire) {
            0 | BEING_FILLED => None,
            thread => Some(thread),
        }
    }

    /// Frees the record. The thread has ended.
    pub(super) fn give_back(&self) {
        self.thread.store(0, Release);
    }

    /// Claims the right to change the mask, if the status is `from`.
    pub(super) fn take(&self, from: u32) -> bool {
        self.status.compare_exchange(from, BUSY, Acquire, Relaxed).is_ok()
    }

    /// Call before the thread gets the set's mask.
    pub(super) fn announce_placement(&self) {
        self.was_placed.store(true, Release);
    }

    /// In a child that has inherited the mask of this record's thread: restores the user's mask, if
    /// the child may have the set's. The status alone cannot show that, since it may have changed
    /// after the fork.
    fn restore_child(&self) {
        if self.was_placed.load(Acquire) && self.status.load(Relaxed) != ALONE {
            let _ = GIVEN.load().set(0);
        }
    }

    /// Ends what [`take`](Self::take) began.
    pub(super) fn release(&self, status: u32) {
        self.status.store(status, Release);
    }

    /// Whether the thread's mask in the kernel differs from the mask that the program sees.
    pub(super) fn is_placed(&self) -> bool {
        matches!(self.status.load(Relaxed), PLACED | BUSY)
    }

    /// Restores the program's mask: until the thread's next wait (`OUTSIDE`) or for good (`ALONE`).
    fn leave_set(&self, status: u32) {
        for _ in 0..MAX_YIELDS {
            match self.status.load(Relaxed) {
                PLACED if self.take(PLACED) => {
                    // A failure is ignored: the thread has ended, or masks can no longer be set
                    // here.
                    let _ = self.thread().map(|thread| GIVEN.load().set(thread));
                    return self.release(status);
                }
                FREE if self.status.compare_exchange(FREE, status, Acquire, Relaxed).is_ok() => {
                    return;
                }
                OUTSIDE if status == ALONE => self.release(ALONE),
                OUTSIDE | ALONE => return,
                _ => Native::yield_now(), // a change lasts some microseconds
            }
        }
        // Only a signal handler that interrupted its own thread's change gets here. That change is
        // about to restore the right mask.
    }

    #[inline]
    fn wait(&self, ns: u64) {
        let waited = self.waited.load(Relaxed) + ns;
        self.waited.store(waited, Relaxed);
        if self.status.load(Relaxed) == OUTSIDE && !self.is_held.load(Relaxed) {
            self.release(FREE);
        }
        if waited - self.kept_at.load(Relaxed) >= KEEP_CONTROLLER_EVERY_NS {
            self.kept_at.store(waited, Relaxed);
            runtime::keep_controller();
        }
    }
}

impl Records {
    pub(super) const fn new() -> Self {
        Records {
            all: [const { Record::new() }; MOST],
            used: AtomicU32::new(0),
            serials: AtomicU32::new(0),
        }
    }

    /// All records that are or were in use.
    pub(super) fn used(&self) -> &[Record] {
        &self.all[..(self.used.load(Acquire) as usize).min(MOST)]
    }

    pub(super) fn find(&self, thread: u32) -> Option<&Record> {
        self.used().iter().find(|record| record.thread() == Some(thread))
    }

    /// Claims a record for `thread`, which has none. Returns its index; `None` if all are in use.
    pub(super) fn claim(&self, thread: u32) -> Option<usize> {
        let free = |record: &Record| {
            record.thread.compare_exchange(0, BEING_FILLED, Acquire, Relaxed).is_ok()
        };
        let place = self.all.iter().position(free)?;
        let record = &self.all[place];
        record.serial.store(self.serials.fetch_add(1, Relaxed).wrapping_add(1), Relaxed);
        record.waited.store(0, Relaxed);
        record.kept_at.store(0, Relaxed);
        record.status.store(FREE, Relaxed);
        record.was_placed.store(false, Relaxed);
        record.is_held.store(false, Relaxed);
        record.thread.store(thread, Release);
        self.used.fetch_max(place as u32 + 1, Release);
        Some(place)
    }

    /// The record that a thread-local `word` names, if it is still that thread's.
    #[inline]
    fn named(&self, word: u64) -> Option<&Record> {
        let (thread, place) = ((word >> 32) as u32, (word as u32).wrapping_sub(1));
        let record = self.all.get(place as usize)?;
        (record.thread.load(Relaxed) == thread).then_some(record)
    }

    /// The caller's record, if any. In the child of a `vfork`, the parent's record.
    pub(super) fn own(&self) -> Option<&Record> {
        self.named(runtime::word())
    }
}

/// In the thread-local word: the thread found no free record.
const NOWHERE: u64 = u32::MAX as u64;

/// Adds `ns` nanoseconds to the calling thread's waiting time.
#[inline]
pub(super) fn waited(ns: u64) {
    match RECORDS.own() {
        Some(record) => record.wait(ns),
        None if runtime::word() == NOWHERE => {}
        None => waited_first(ns),
    }
}

#[cold]
fn waited_first(ns: u64) {
    let thread = Native::thread_id();
    match RECORDS.claim(thread) {
        Some(place) => {
            runtime::set_word(u64::from(thread) << 32 | (place as u64 + 1));
            RECORDS.all[place].wait(ns);
        }
        None => runtime::set_word(NOWHERE),
    }
}

/// Restores the program's mask for the calling thread until its next wait for a lock: it is about
/// to start a thread or a program, which inherits the mask. Also called in the child of a `vfork`,
/// or of a `clone` that has not been detected.
pub(super) fn step_outside() {
    let Some(record) = RECORDS.own() else { return };
    if record.thread() == Some(Native::thread_id()) {
        record.leave_set(OUTSIDE);
    } else {
        record.restore_child();
    }
}

/// Keeps the calling thread outside of the set during `call`, even if it waits for locks.
pub(super) fn outside<R>(call: impl FnOnce() -> R) -> R {
    stay_outside();
    let result = call();
    come_back();
    result
}

/// Keeps the calling thread outside of the set, even if it waits for locks, until [`come_back`].
pub(super) fn stay_outside() {
    hold(true);
    step_outside();
}

/// Lets the calling thread join the set again at its next wait.
pub(super) fn come_back() {
    hold(false);
}

fn hold(is_held: bool) {
    RECORDS.own().into_iter().for_each(|record| record.is_held.store(is_held, Relaxed));
}

/// Records that the program chooses a mask for `thread`, 0 being the caller.
pub(super) fn leave_alone(thread: u32) {
    if let Some(record) = record_of(thread) {
        record.leave_set(ALONE);
    } else if thread == 0 {
        step_outside();
    }
}

/// The record of `thread`, 0 being the caller. The child of a `vfork`, which has its parent's, has
/// none.
fn record_of(thread: u32) -> Option<&'static Record> {
    if thread != 0 {
        return RECORDS.find(thread);
    }
    RECORDS.own().filter(|record| record.thread() == Some(Native::thread_id()))
}

/// Whether `thread`, 0 being the caller, has the special set's mask now.
pub(super) fn is_placed(thread: u32) -> bool {
    record_of(thread).is_some_and(Record::is_placed)
}

/// In the child of a fork: only the forking thread exists, under another id.
pub(super) fn forked() {
    RECORDS.own().into_iter().for_each(Record::restore_child);
    RECORDS.used().iter().for_each(Record::give_back);
    RECORDS.used.store(0, Relaxed);
    runtime::set_word(0);
}
