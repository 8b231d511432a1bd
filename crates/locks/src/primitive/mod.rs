//! What an algorithm may ask of a machine: small traits, one subject each.
//!
//! Every lock, load manager and controller of this crate is generic over [`Primitive`], so the
//! shipped code ([`Native`]) is also the code that a model checker explores and that a simulated
//! machine runs. An algorithm that needs more of its machine extends one of these traits and never
//! bypasses them.

#[doc(hidden)]
pub mod atomics;
#[doc(hidden)]
pub mod backoff;
#[doc(hidden)]
pub mod generation;
pub mod turn;

#[cfg(not(loom))]
pub mod native;
#[cfg(not(loom))]
pub use native::Native;

#[cfg(loom)]
pub mod checked;
#[cfg(loom)]
pub use checked::Checked;

use core::sync::atomic::Ordering::Relaxed;

#[doc(hidden)]
pub use atomics::{Atomic, AtomicInt, Atomics};

/// The clock.
///
/// ```
/// use unconvoy::primitive::{Clock, Native};
///
/// let begin = Native::now();
/// std::thread::sleep(std::time::Duration::from_millis(1));
/// assert!(Native::now() - begin >= 1_000_000);
/// ```
pub trait Clock {
    /// Nanoseconds on a monotonic clock.
    fn now() -> u64;

    /// Whether `deadline` has passed at `now`.
    #[inline(always)]
    fn has_passed(deadline: u64, now: u64) -> bool {
        now >= deadline
    }

    /// The time on the clock of [`now`](Self::now) at which `deadline` passes, as far as is known.
    #[inline(always)]
    fn expected(deadline: u64) -> u64 {
        deadline
    }
}

/// Ways to pass time on the processor.
#[doc(hidden)]
pub trait Spin: Atomics + Clock {
    /// Signals to the processor that this thread polls.
    fn pause();

    /// Like [`pause`](Self::pause), for a loop bounded by its number of iterations, not by the
    /// clock or by the value it reads. A machine that lets time pass faster for polling threads
    /// must not do so here.
    #[inline(always)]
    fn pause_counted() {
        Self::pause();
    }

    /// Busy-waits for about `ns` nanoseconds without touching shared memory.
    #[inline]
    fn delay(ns: u64) {
        let end = Self::now() + ns;
        loop {
            Self::pause();
            if Self::now() >= end {
                return;
            }
        }
    }
}

/// Waiting for a write to a word, as `monitor` and `mwait` do.
#[doc(hidden)]
pub trait Monitor: Spin {
    /// Waits while `word` holds `seen`, in a low-power state if the processor has one. Returns when
    /// another thread changes the word, and may return at any time.
    fn wait_for_change(word: &Self::U64, seen: u64) {
        poll_for_change::<Self>(word, seen);
    }
}

/// Number of pauses that stand in for one wait in a low-power state.
const PAUSES: u32 = 100;

/// Pauses between two reads of the word, because the holder needs the word's cache line.
const PAUSES_PER_LOOK: u32 = 20;

/// [`Monitor::wait_for_change`] of a processor without such an instruction: a bounded series of
/// pauses, with a look at the word now and then.
#[doc(hidden)]
pub fn poll_for_change<S: Spin>(word: &S::U64, seen: u64) {
    for pause in 0..PAUSES {
        S::pause_counted();
        if pause % PAUSES_PER_LOOK == 0 && word.load(Relaxed) != seen {
            return;
        }
    }
}

/// What a parked thread waits for.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A lock that several such threads can hold at a time.
    Shared = 1,
    /// A lock that no other thread holds.
    Exclusive = 2,
}

/// Sleeping until a word changes.
#[doc(hidden)]
pub trait Parking: Atomics + Clock {
    /// Sleeps while `word` holds `expected`, until [`unpark`](Self::unpark) or until `deadline`
    /// [has passed](Clock::has_passed). May return spuriously.
    fn park(word: &Self::U32, expected: u32, deadline: Option<u64>);

    /// Wakes up to `count` threads parked on `word`. Only the address is used, so `word` may
    /// already be freed.
    fn unpark(word: *const Self::U32, count: u32);

    /// As [`park`](Self::park), for a wake-up that may name the thread's kind.
    fn park_as(kind: Kind, word: &Self::U32, expected: u32, deadline: Option<u64>) {
        let _ = kind;
        Self::park(word, expected, deadline);
    }

    /// As [`unpark`](Self::unpark), for threads that parked [as](Self::park_as) this kind. May wake
    /// others, too.
    fn unpark_kind(kind: Kind, word: *const Self::U32, count: u32) {
        let _ = (kind, count);
        Self::unpark(word, u32::MAX);
    }

    /// Wakes the longest parked thread of [`Kind::Exclusive`], then all of [`Kind::Shared`]. One of
    /// these may take the caller's processor at once, and wait there for the first.
    fn unpark_shared(word: *const Self::U32) {
        Self::unpark_kind(Kind::Exclusive, word, 1);
        Self::unpark_kind(Kind::Shared, word, u32::MAX);
    }

    /// Sleeps for [`SHORT_SLEEP_NS`], for a thread that waits for a few instructions of another
    /// one. That thread may have a lower real-time priority, and no yield lets it run. `word` may
    /// have any value.
    fn sleep_shortly(word: &Self::U32) {
        Self::park(word, word.load(Relaxed), Some(Self::now() + SHORT_SLEEP_NS));
    }
}

/// A few context switches: long enough for the other thread to run its few instructions.
const SHORT_SLEEP_NS: u64 = 50_000;

/// Threads: identity, scheduling policy, yielding.
#[doc(hidden)]
pub trait Threads {
    /// A number that identifies the thread among the live threads of the process; never 0.
    fn thread_id() -> u32;

    /// Whether the calling thread has a real-time policy. Load control does not extend the waits of
    /// such threads.
    fn is_real_time() -> bool {
        false
    }

    /// Gives the processor to another runnable thread, if there is one.
    ///
    /// Also used while waiting for another thread to finish a few instructions: if that thread was
    /// preempted, it must get a processor.
    fn yield_now();
}

/// Detection of `fork`.
#[doc(hidden)]
pub trait Generation {
    /// One plus the number of `fork`s between the first process and this one; never 0. Waiters of
    /// an earlier generation do not exist in this process.
    #[inline(always)]
    fn generation() -> u32 {
        1
    }
}

/// Result of beginning a transaction. An aborted transaction returns from its beginning a second
/// time.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The code that follows is inside the transaction.
    Started,
    /// The transaction was begun and has been rolled back.
    Aborted(Abort),
    /// This machine has no transactions, or no thread has yet called
    /// [`has_transactions`](Transactions::has_transactions).
    Unavailable,
}

/// Why a transaction aborted.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    /// The section found its lock held. Elision can succeed once the lock is free.
    Held,
    /// Another thread accessed the same data. The transaction can succeed on a retry.
    Conflict,
    /// A system call, an interrupt, a page fault, too much data, or a nested lock that cannot be
    /// elided. A retry usually ends the same way.
    Hopeless,
}

/// One in this many calls of [`Transactions::is_sampled`] is true.
#[doc(hidden)]
pub const SAMPLED: u32 = 16;

/// Hardware transactions. By default a machine has none.
#[doc(hidden)]
pub trait Transactions {
    /// Whether transactions commit on this machine. Until the first call none can begin.
    #[cold]
    fn has_transactions() -> bool {
        false
    }

    /// Begins a transaction: everything that the thread does before its end takes effect at once,
    /// or not at all. Transactions nest; the outermost one decides.
    #[inline(always)]
    fn begin_transaction() -> Begun {
        Begun::Unavailable
    }

    /// Whether the calling thread is inside a transaction.
    #[inline(always)]
    fn in_transaction() -> bool {
        false
    }

    /// The address that the calling thread's transaction has recorded by
    /// [`set_elided_lock`](Self::set_elided_lock); 0 if it has recorded none, and outside a
    /// transaction.
    #[inline(always)]
    fn elided_lock() -> usize {
        0
    }

    /// Records the address of a lock, or 0, until the transaction ends. An abort undoes the record.
    /// The caller must be inside a transaction, and record 0 before it ends.
    #[inline(always)]
    fn set_elided_lock(address: usize) {
        let _ = address;
    }

    /// True for one in [`SAMPLED`] of the calling thread's calls. A call inside a transaction
    /// counts only if the transaction commits.
    #[inline(always)]
    fn is_sampled() -> bool {
        false
    }

    /// Ends the innermost transaction. The caller must be inside one.
    #[inline(always)]
    fn end_transaction() {}

    /// Aborts the outermost transaction, whose [`begin_transaction`](Self::begin_transaction) then
    /// returns `because`. Does nothing outside a transaction. Only the machine itself may abort
    /// with [`Abort::Conflict`].
    #[inline(always)]
    fn abort_transaction(because: Abort) {
        let _ = because;
    }
}

/// Longer time slices. By default a machine has none.
#[doc(hidden)]
pub trait SliceExtension {
    /// Asks the scheduler to let the calling thread, which has acquired a lock, run on briefly at
    /// the end of its time slice.
    #[inline(always)]
    fn begin_slice_extension() {}

    /// Withdraws the request, and yields the processor if the extension was granted.
    #[inline(always)]
    fn end_slice_extension() {}
}

/// A machine: all of the above.
///
/// ```
/// use unconvoy::contention::{Contention, ttas::Ttas};
/// use unconvoy::primitive::{Native, Primitive};
///
/// /// An algorithm runs on the machine that its type names.
/// fn is_free_at_first<P: Primitive>() -> bool {
///     Ttas::<P>::unlocked().try_lock()
/// }
/// assert!(is_free_at_first::<Native>());
/// ```
pub trait Primitive:
    Atomics + Monitor + Parking + Threads + Generation + Transactions + SliceExtension
{
}

impl<M> Primitive for M where
    M: Atomics + Monitor + Parking + Threads + Generation + Transactions + SliceExtension
{
}
