//! The threads that have waited for locks: what each of them waited, and how it stands with the special set.
//!
//! A thread comes by its record with its first wait, and finds it again through a word of thread-local storage. The
//! controller gives it back when the thread is gone.
//!
//! | status | meaning | who leaves it |
//! | --- | --- | --- |
//! | `FREE` | the thread has the mask that the program gave it | controller, thread |
//! | `PLACED` | it has the special set's | controller, thread |
//! | `BUSY` | its mask is just being changed | who set it |
//! | `OUTSIDE` | it is to keep the program's until it waits for a lock again: it begins a thread or another program, which inherit it | the thread |
//! | `ALONE` | the program has chosen a mask for it, and that is that | nobody |
//!
//! **Invariant 1.** Only who moved the status to `BUSY` changes the mask of the thread, and then the status.
//!
//! **Memory orderings.** `thread` is stored with release when a record is ready, and loaded with acquire. A status is moved
//! to `BUSY` with acquire and from it with release: the kernel's work comes between.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use unconvoy_locks::primitive::{Native, Threads as _};
use unconvoy_locks::runtime;

use super::mask::SharedMask;

/// Threads that are told apart. Those beyond are not scheduled.
pub(super) const MOST: usize = 4096;

/// What a thread has to have run before its slice ends. Slices of the paper's kernel are some milliseconds; where many
/// threads share one processor, each has a part of the controller's 7 ms.
pub(super) const SLICE_NS: u64 = 1_000_000;

/// A thread that has waited for so long since it last said so has the controller stay: the threshold of section 3.2, a
/// tenth, of a slice.
const TELL_EVERY_NS: u64 = SLICE_NS / 10;

pub(super) const FREE: u32 = 0;
pub(super) const PLACED: u32 = 1;
pub(super) const BUSY: u32 = 2;
pub(super) const OUTSIDE: u32 = 3;
pub(super) const ALONE: u32 = 4;

/// Looks at a `BUSY` status; two system calls are over by then.
const PATIENCE: u32 = 10_000;

/// In `thread`: somebody is just filling the record in.
const BEING_FILLED: u32 = u32::MAX;

/// One thread.
#[repr(align(64))]
pub(super) struct Record {
    /// The kernel's id; 0: nobody's.
    thread: AtomicU32,
    /// Which of all records that there were: ids and places are used again.
    pub(super) serial: AtomicU32,
    /// Nanoseconds that it waited so far. Written by the thread.
    pub(super) waited: AtomicU64,
    /// Of these, those that the controller was kept for.
    told: AtomicU64,
    pub(super) status: AtomicU32,
    /// Whether it may ever have had the set's mask. Stored before that is set.
    was_placed: AtomicBool,
    /// Whether the thread is in a call that begins a thread or a program.
    is_held: AtomicBool,
}

pub(super) struct Records {
    all: [Record; MOST],
    /// All below this were somebody's.
    used: AtomicU32,
    serials: AtomicU32,
}

/// What `PLACED` threads get back.
pub(super) static GIVEN: SharedMask = SharedMask::empty();

/// The mask that they are to believe that they have.
pub(super) static SHOWN: SharedMask = SharedMask::empty();

/// Whether masks may have been changed in this process.
pub(super) static IS_ON: AtomicBool = AtomicBool::new(false);

pub(super) static RECORDS: Records = Records::new();

impl Record {
    const fn new() -> Self {
        Record {
            thread: AtomicU32::new(0),
            serial: AtomicU32::new(0),
            waited: AtomicU64::new(0),
            told: AtomicU64::new(0),
            status: AtomicU32::new(FREE),
            was_placed: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
        }
    }

    /// The kernel's id of the thread, if it is somebody's.
    pub(super) fn thread(&self) -> Option<u32> {
        match self.thread.load(Acquire) {
            0 | BEING_FILLED => None,
            thread => Some(thread),
        }
    }

    /// The thread is gone.
    pub(super) fn give_back(&self) {
        self.thread.store(0, Release);
    }

    /// Takes the mask in hand, if the status is `from`.
    pub(super) fn take(&self, from: u32) -> bool {
        self.status.compare_exchange(from, BUSY, Acquire, Relaxed).is_ok()
    }

    /// It is about to get the set's mask.
    pub(super) fn expect_placing(&self) {
        self.was_placed.store(true, Release);
    }

    /// In a child that has inherited the mask of this record's thread: gives it the user's, if that may be needed. What the status
    /// says may be later than what was inherited.
    fn restore_child(&self) {
        if self.was_placed.load(Acquire) && self.status.load(Relaxed) != ALONE {
            let _ = GIVEN.load().set(0);
        }
    }

    /// Lets go of what was [taken](Self::take).
    pub(super) fn release(&self, status: u32) {
        self.status.store(status, Release);
    }

    /// Whether the kernel has another mask for it than the program believes.
    pub(super) fn is_placed(&self) -> bool {
        matches!(self.status.load(Relaxed), PLACED | BUSY)
    }

    /// Has the thread keep the program's mask: until it waits again, or for good.
    fn leave_set(&self, status: u32) {
        for _ in 0..PATIENCE {
            match self.status.load(Relaxed) {
                PLACED if self.take(PLACED) => {
                    // Nothing can be done about a failure: then the thread is gone, or nobody may set masks here any more.
                    let _ = self.thread().map(|thread| GIVEN.load().set(thread));
                    return self.release(status);
                }
                FREE if self.status.compare_exchange(FREE, status, Acquire, Relaxed).is_ok() => return,
                OUTSIDE if status == ALONE => self.release(ALONE),
                OUTSIDE | ALONE => return,
                _ => Native::yield_now(), // some microseconds
            }
        }
        // A signal handler on the very thread that is in the middle of this; its mask is about to be the right one.
    }

    #[inline]
    fn wait(&self, ns: u64) {
        let waited = self.waited.load(Relaxed) + ns;
        self.waited.store(waited, Relaxed);
        if self.status.load(Relaxed) == OUTSIDE && !self.is_held.load(Relaxed) {
            self.release(FREE);
        }
        if waited - self.told.load(Relaxed) >= TELL_EVERY_NS {
            self.told.store(waited, Relaxed);
            runtime::keep_controller();
        }
    }
}

impl Records {
    pub(super) const fn new() -> Self {
        Records { all: [const { Record::new() }; MOST], used: AtomicU32::new(0), serials: AtomicU32::new(0) }
    }

    /// All that are or were somebody's.
    pub(super) fn used(&self) -> &[Record] {
        &self.all[..(self.used.load(Acquire) as usize).min(MOST)]
    }

    /// That of `thread`.
    pub(super) fn find(&self, thread: u32) -> Option<&Record> {
        self.used().iter().find(|record| record.thread() == Some(thread))
    }

    /// A record for `thread`, which has none: where it is.
    pub(super) fn claim(&self, thread: u32) -> Option<usize> {
        let free = |record: &Record| record.thread.compare_exchange(0, BEING_FILLED, Acquire, Relaxed).is_ok();
        let place = self.all.iter().position(free)?;
        let record = &self.all[place];
        record.serial.store(self.serials.fetch_add(1, Relaxed).wrapping_add(1), Relaxed);
        record.waited.store(0, Relaxed);
        record.told.store(0, Relaxed);
        record.status.store(FREE, Relaxed);
        record.was_placed.store(false, Relaxed);
        record.is_held.store(false, Relaxed);
        record.thread.store(thread, Release);
        self.used.fetch_max(place as u32 + 1, Release);
        Some(place)
    }

    /// The place that the word of a thread's storage names, if it is still that thread's.
    #[inline]
    fn named(&self, word: u64) -> Option<&Record> {
        let (thread, place) = ((word >> 32) as u32, (word as u32).wrapping_sub(1));
        let record = self.all.get(place as usize)?;
        (record.thread.load(Relaxed) == thread).then_some(record)
    }

    /// The caller's, if it has one. In the child of a `vfork`, the record of the parent.
    pub(super) fn own(&self) -> Option<&Record> {
        self.named(runtime::word())
    }
}

/// In the word of a thread's storage: it found no place.
const NOWHERE: u64 = u32::MAX as u64;

/// The calling thread has waited for `ns` nanoseconds more.
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

/// The calling thread is about to begin another thread or program, which inherits its mask: it has the program's from
/// here to its next wait for a lock. Also the child of a `vfork`, or of a `clone` that nobody has noticed.
pub(super) fn step_outside() {
    let Some(record) = RECORDS.own() else { return };
    if record.thread() == Some(Native::thread_id()) {
        record.leave_set(OUTSIDE);
    } else {
        record.restore_child();
    }
}

/// Has the calling thread stay outside for a call, whatever it waits for in it.
pub(super) fn outside<R>(call: impl FnOnce() -> R) -> R {
    stay_outside();
    let result = call();
    come_back();
    result
}

/// Has the calling thread stay outside, whatever it waits for, until [`come_back`].
pub(super) fn stay_outside() {
    hold(true);
    step_outside();
}

/// The calling thread is anybody's again when it waits.
pub(super) fn come_back() {
    hold(false);
}

fn hold(is_held: bool) {
    RECORDS.own().into_iter().for_each(|record| record.is_held.store(is_held, Relaxed));
}

/// The program chooses a mask for `thread`, 0 being the caller.
pub(super) fn leave_alone(thread: u32) {
    let record = if thread == 0 { RECORDS.own() } else { RECORDS.find(thread) };
    if let Some(record) = record {
        record.leave_set(ALONE);
    }
}

/// Whether `thread`, 0 being the caller, has the special set's mask now.
pub(super) fn is_placed(thread: u32) -> bool {
    let record = if thread == 0 { RECORDS.own() } else { RECORDS.find(thread) };
    record.is_some_and(Record::is_placed)
}

/// In the child of a fork: of the parent's threads there is one, and it is another one here.
pub(super) fn forked() {
    RECORDS.own().into_iter().for_each(Record::restore_child);
    RECORDS.used().iter().for_each(Record::give_back);
    RECORDS.used.store(0, Relaxed);
    runtime::set_word(0);
}
