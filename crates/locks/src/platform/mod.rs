//! What an algorithm may ask of a machine.
//!
//! Every lock, load manager and controller of this crate is generic over [`Platform`], so that the
//! code which ships ([`Native`]) is the code which a model checker explores and which a simulated
//! machine runs. An algorithm that needs something more of its machine extends this trait; it never
//! looks past it.

use core::sync::atomic::Ordering;

use crate::contention::queue::Node;
use crate::load::control::LoadControl;
use crate::load::sensor::LiveLoad;

#[cfg(not(loom))]
pub mod native;
#[cfg(not(loom))]
pub use native::Native;

#[cfg(loom)]
pub mod checked;
#[cfg(loom)]
pub use checked::Checked;

/// What load control remembers of a thread between two of its waits. Zeroes in a new thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadNote {
    /// When it last came back from a sleep, on the platform's clock; 0 if it never slept.
    pub awake_since: u64,
    /// Nanoseconds that it polled and nobody has been told of yet.
    pub polled: u64,
    /// Until when it may hold a lock at which others are parked, as far as it knows; 0 if it does not.
    pub owes_until: u64,
    /// When it last released a lock at which others were parked.
    pub settled: u64,
    /// Running average of the nanoseconds that its spins took ([adaptive](crate::load::adaptive)).
    pub spun: u64,
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

/// An atomic cell, with the operations that the algorithms use.
///
/// The orderings mean what `core::sync::atomic` says; `new` yields the cell that lock states start
/// from.
pub trait Atomic<T: Copy>: Send + Sync {
    /// A cell that holds `value`.
    fn new(value: T) -> Self;
    /// Reads the cell.
    fn load(&self, order: Ordering) -> T;
    /// Writes the cell.
    fn store(&self, value: T, order: Ordering);
    /// Writes the cell and returns what it held.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` if the cell holds `current`; `Ok` and `Err` carry what it held.
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
}

/// An atomic integer: [`Atomic`] and arithmetic that wraps around.
pub trait AtomicInt<T: Copy>: Atomic<T> {
    /// Adds, returning the value before.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Subtracts, returning the value before.
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    /// Bitwise or, returning the value before.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    /// Bitwise and, returning the value before.
    fn fetch_and(&self, value: T, order: Ordering) -> T;
}

/// A machine: its atomics, its clock, and its ways to wait.
pub trait Platform: Sized + Send + Sync + 'static {
    /// The word that threads may park on.
    type U32: AtomicInt<u32>;
    /// Timestamps and bit sets.
    type U64: AtomicInt<u64>;
    /// A pointer to a queue node.
    type NodePtr: Atomic<*mut Node<Self>>;

    /// A memory fence.
    fn fence(order: Ordering);

    /// Nanoseconds on a clock that never goes back.
    fn now() -> u64;

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

    /// A number that tells places in memory apart, of which it says nothing else: its address, but on a
    /// machine that is to do the same twice.
    #[inline(always)]
    fn place<T>(of: &T) -> u64 {
        core::ptr::from_ref(of).addr() as u64
    }

    /// Polls as [`pause`](Self::pause) does, but for up to some microseconds, in a state that saves
    /// power where the processor has one, while `word` holds `seen`. May return at any time.
    fn doze(word: &Self::U64, seen: u64);

    /// Gives the processor to another runnable thread, if there is one.
    ///
    /// Also what a thread does that waits for another to finish a few instructions: if that one was
    /// preempted in them, it must run.
    fn yield_now();

    /// Begins a transaction: all that the thread does until it ends takes effect at once, or not at
    /// all. They nest; the outermost decides.
    fn begin_transaction() -> Begun;

    /// Whether the calling thread is inside a transaction.
    fn in_transaction() -> bool;

    /// Ends the innermost transaction. The caller is inside one.
    fn end_transaction();

    /// Undoes the outermost transaction; does nothing outside of one.
    fn abort_transaction();

    /// Asks the scheduler to let the calling thread, which has come by a lock, run on for a moment
    /// when its time slice ends, if this machine knows how.
    fn begin_slice_extension();

    /// Takes that back, and gives the processor up if the time was granted.
    fn end_slice_extension();

    /// Sleeps while `word` holds `expected`, until [`unpark`](Self::unpark) or until `deadline` on
    /// the clock of [`now`](Self::now). May wake for no reason.
    fn park(word: &Self::U32, expected: u32, deadline: Option<u64>);

    /// Wakes up to `count` threads parked on `word`. `word` may be gone already: it names a place,
    /// and is not read.
    fn unpark(word: *const Self::U32, count: u32);

    /// A number that no other live thread of the process has, never 0.
    fn thread_id() -> u32;

    /// What load control remembers of the calling thread between two waits.
    fn thread_note() -> ThreadNote;

    /// Whether the calling thread has a real-time policy: its waits are not load control's to
    /// lengthen.
    fn is_real_time() -> bool;

    /// Sets [`thread_note`](Self::thread_note).
    fn set_thread_note(note: ThreadNote);

    /// How many `fork`s lie between this process and the first: waiters of an earlier generation do
    /// not exist here.
    fn generation() -> u32;

    /// A queue node that nobody else has. Node memory is type-stable: once a node, always a node.
    fn take_node() -> *mut Node<Self>;

    /// Takes a node back.
    ///
    /// # Safety
    ///
    /// `node` came from [`take_node`](Self::take_node), and no queue and no thread will write to it
    /// again.
    unsafe fn give_node(node: *mut Node<Self>);

    /// The load control of this machine's process: one for all of its locks (paper, section 3, last
    /// bullet).
    fn load_control() -> &'static LoadControl<Self>;

    /// Sees to it that a controller serves [`load_control`](Self::load_control). Cheap when one
    /// does.
    fn ensure_controller();

    /// Whether the machine wants to be told how long threads [wait](Self::waited).
    #[inline(always)]
    fn counts_waits() -> bool {
        false
    }

    /// The calling thread has waited for locks for `ns` nanoseconds of processor time that it has not told of yet.
    #[inline(always)]
    fn waited(ns: u64) {
        let _ = ns;
    }

    /// The load at this moment, where the machine tells of each change. Cheap where it does not.
    #[inline(always)]
    fn live_load() -> Option<LiveLoad> {
        None
    }
}
