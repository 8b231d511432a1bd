//! Load managers: which waiting threads should leave the processor, and until when.
//!
//! A load manager knows nothing of queues or lock words. A waiter asks it once per turn whether to
//! spin on or to leave. A waiter that leaves abandons its place in the lock's queue; the load
//! manager then keeps the thread off the processor until it should contend again.

pub mod adaptive;
pub mod backoff;
#[doc(hidden)]
pub mod checkpoint;
pub mod context;
pub mod control;
#[doc(hidden)]
pub mod controller;
#[doc(hidden)]
pub mod event;
#[doc(hidden)]
pub mod history;
pub mod none;
mod notice;
#[cfg(all(test, not(loom)))]
pub(crate) mod one_thread;
pub mod park;
#[doc(hidden)]
pub mod passive;
#[doc(hidden)]
pub mod pinned;
#[doc(hidden)]
pub mod policy;
#[doc(hidden)]
pub mod pollers;
pub mod published;
pub mod restrict;
#[doc(hidden)]
pub mod rules;
#[doc(hidden)]
pub mod sensor;
#[doc(hidden)]
pub mod settings;
#[doc(hidden)]
pub mod state;
#[path = "yield.rs"]
pub mod yielding;

#[doc(hidden)]
pub use checkpoint::Holds;
#[doc(hidden)]
pub use context::ThreadState;
pub use context::{Context, Wait};
#[doc(hidden)]
pub use state::LoadControl;

use crate::primitive::turn::Verdict;

/// A policy for threads that wait for locks.
///
/// # Safety
///
/// [`block`](Self::block) returns true only if the calling thread acquired the wait's lock in this
/// call.
///
/// ```
/// use unconvoy::contention::ttas::Ttas;
/// use unconvoy::load::{Context, LoadManager, Wait, WaitSummary};
/// use unconvoy::primitive::Native;
/// use unconvoy::primitive::turn::Verdict;
/// use unconvoy::raw::RawLock;
///
/// /// Polls a hundred times, then sleeps until a release.
/// struct Hundred;
///
/// struct Waiter {
///     polls: u32,
///     sleeps: u32,
/// }
///
/// // SAFETY: `block` returns what `park` did.
/// unsafe impl LoadManager for Hundred {
///     type Waiter = Waiter;
///
///     fn begin_wait<X: Context>(_: &Wait<'_, X>, _now: u64) -> Waiter {
///         Waiter { polls: 0, sleeps: 0 }
///     }
///
///     fn turn<X: Context>(waiter: &mut Waiter, _: &Wait<'_, X>, _now: u64) -> Verdict {
///         waiter.polls += 1;
///         if waiter.polls < 100 { Verdict::Spin } else { Verdict::Leave }
///     }
///
///     fn block<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>) -> bool {
///         *waiter = Waiter { polls: 0, sleeps: waiter.sleeps + 1 };
///         wait.park()
///     }
///
///     fn end_wait<X: Context>(waiter: Waiter, _: &Wait<'_, X>) -> WaitSummary {
///         WaitSummary { sleeps: waiter.sleeps, parked: waiter.sleeps > 0 }
///     }
/// }
///
/// type Pair = RawLock<Ttas<Native>, Hundred>;
/// static HITS: lock_api::Mutex<Pair, u64> = lock_api::Mutex::new(0);
///
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *HITS.lock() += 1);
///     }
/// });
/// assert_eq!(*HITS.lock(), 4);
/// ```
pub unsafe trait LoadManager: 'static {
    /// State of one wait.
    type Waiter;

    /// The controller's default interval in nanoseconds.
    const INTERVAL_NS: u64 = settings::INTERVAL_NS;

    /// Begins a wait at the time `now`.
    fn begin_wait<X: Context>(wait: &Wait<'_, X>, now: u64) -> Self::Waiter;

    /// Decides whether to keep spinning or to leave. Called once per turn, even if the waiter may
    /// acquire the lock at any moment.
    fn turn<X: Context>(waiter: &mut Self::Waiter, wait: &Wait<'_, X>, now: u64) -> Verdict;

    /// Waits off the processor after [`turn`](Self::turn) said leave, until the thread should
    /// contend again or the deadline passes. Returns true if the thread acquired the lock
    /// meanwhile, by [`Wait::park`].
    fn block<X: Context>(waiter: &mut Self::Waiter, wait: &Wait<'_, X>) -> bool;

    /// Ends a wait, with the lock or without, and gives back every claim made for it.
    fn end_wait<X: Context>(waiter: Self::Waiter, wait: &Wait<'_, X>) -> WaitSummary;

    /// Called when a wait ends without the lock. Wakes a waiter that sleeps because the calling
    /// thread contended.
    fn give_up<X: Context>(wait: &Wait<'_, X>) {
        let _ = wait;
    }

    /// Called by a thread between two units of its work, where it waits for no lock and should hold
    /// none. The thread may sleep here for load. `holds` says which locks it holds, and is asked
    /// only under load. Returns whether the thread slept.
    #[doc(hidden)]
    #[inline]
    fn checkpoint<X: Context>(process: X, holds: impl FnOnce() -> Holds) -> bool {
        let _ = (process, holds);
        false
    }
}

/// What happened during one wait, for the statistics.
///
/// ```
/// use unconvoy::load::WaitSummary;
///
/// // A wait in which the thread only polled.
/// let summary = WaitSummary::default();
/// assert_eq!((summary.sleeps, summary.parked), (0, false));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitSummary {
    /// How often the waiter left the processor at its load manager's request.
    pub sleeps: u32,
    /// Whether the waiter ever parked at the lock, and so must pass the parked bit on to other
    /// parked waiters ([`Eventcount`](crate::parking::eventcount::Eventcount), Invariant 2).
    pub parked: bool,
}

#[cfg(all(test, not(loom)))]
mod tests;
