//! What an algorithm may ask of a machine: small traits, each about one thing.
//!
//! Every lock, load manager and controller of this crate is generic over [`Primitive`], so that the
//! code which ships ([`Native`]) is the code which a model checker explores and which a simulated
//! machine runs. An algorithm that needs something more of its machine extends one of these traits;
//! it never looks past them.

pub mod atomics;
pub mod backoff;
pub mod turn;

#[cfg(not(loom))]
pub mod native;
#[cfg(not(loom))]
pub use native::Native;

#[cfg(loom)]
pub mod checked;
#[cfg(loom)]
pub use checked::Checked;

pub use atomics::{Atomic, AtomicInt, Atomics};

/// The time.
pub trait Clock {
    /// Nanoseconds on a clock that never goes back.
    fn now() -> u64;
}

/// Ways to pass some time on the processor.
pub trait Spin: Atomics + Clock {
    /// Tells the processor that this thread polls.
    fn pause();

    /// As [`pause`](Self::pause), in a loop that ends after a number of turns and not by the clock or what it reads:
    /// a machine that lets time pass faster for those that only look must not do so here.
    #[inline(always)]
    fn pause_counted() {
        Self::pause();
    }

    /// Busy-waits about `ns` nanoseconds, without touching shared memory.
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

    /// Polls as [`pause`](Self::pause) does, but for up to some microseconds, in a state that saves
    /// power where the processor has one, while `word` holds `seen`. May return at any time.
    fn umwait(word: &Self::U64, seen: u64) {
        let _ = (word, seen);
        Self::pause();
    }
}

/// Sleep until a word changes.
pub trait Parking: Atomics + Clock {
    /// Sleeps while `word` holds `expected`, until [`unpark`](Self::unpark) or until `deadline` on
    /// the clock of [`now`](Clock::now). May wake for no reason.
    fn park(word: &Self::U32, expected: u32, deadline: Option<u64>);

    /// Wakes up to `count` threads parked on `word`. `word` may be gone already: it is an address,
    /// and is not read.
    fn unpark(word: *const Self::U32, count: u32);
}

/// Who runs, and who else could.
pub trait Threads {
    /// A number that no other live thread of the process has, never 0.
    fn thread_id() -> u32;

    /// Whether the calling thread has a real-time policy: its waits are not load control's to
    /// lengthen.
    fn is_real_time() -> bool {
        false
    }

    /// Gives the processor to another runnable thread, if there is one.
    ///
    /// Also what a thread does that waits for another to finish a few instructions: if that one was
    /// preempted in them, it must run.
    fn yield_now();
}

/// Forks.
pub trait Generation {
    /// How many `fork`s lie between this process and the first, and one: waiters of an earlier
    /// generation do not exist here. Never 0.
    #[inline(always)]
    fn generation() -> u32 {
        1
    }
}

/// How the beginning of a transaction went. One that is aborted comes back to its beginning a second
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// What follows is inside it.
    Started,
    /// It was begun, and has been undone.
    Aborted(Abort),
    /// This machine has none.
    Unavailable,
}

/// Why a transaction was undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// The same may go through if tried again, as after a conflict with another thread.
    pub may_succeed_on_retry: bool,
}

/// Hardware transactions; unless a machine says otherwise it has none.
pub trait Transactions {
    /// Begins a transaction: all that the thread does until it ends takes effect at once, or not at
    /// all. They nest; the outermost decides.
    #[inline(always)]
    fn begin_transaction() -> Begun {
        Begun::Unavailable
    }

    /// Whether the calling thread is inside a transaction.
    #[inline(always)]
    fn in_transaction() -> bool {
        false
    }

    /// Ends the innermost transaction. The caller is inside one.
    #[inline(always)]
    fn end_transaction() {}

    /// Undoes the outermost transaction; does nothing outside of one.
    #[inline(always)]
    fn abort_transaction() {}
}

/// Longer time slices; unless a machine says otherwise it has none.
pub trait SliceExtension {
    /// Asks the scheduler to let the calling thread, which has acquired a lock, run on for a moment
    /// when its time slice ends.
    #[inline(always)]
    fn begin_slice_extension() {}

    /// Takes that back, and gives the processor up if the time was granted.
    #[inline(always)]
    fn end_slice_extension() {}
}

/// A machine: all of the above.
pub trait Primitive: Atomics + Spin + Parking + Threads + Generation + Transactions + SliceExtension {}

impl<M: Atomics + Spin + Parking + Threads + Generation + Transactions + SliceExtension> Primitive for M {}
