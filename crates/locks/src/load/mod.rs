//! Load managers: which waiting threads should leave the processor, and until when.
//!
//! A load manager knows nothing of queues or lock words. A waiter asks it once per turn whether to
//! spin on or to leave. A waiter that leaves abandons its place in the lock's queue; the load
//! manager then keeps the thread off the processor until it should contend again.

pub mod adaptive;
pub mod backoff;
pub mod checkpoint;
pub mod context;
pub mod control;
pub mod controller;
pub mod event;
pub mod history;
pub mod none;
mod notice;
pub mod park;
pub mod passive;
pub mod pinned;
pub mod policy;
pub mod pollers;
pub mod published;
pub mod restrict;
pub mod rules;
pub mod sensor;
pub mod settings;
pub mod state;
#[path = "yield.rs"]
pub mod yielding;

pub use checkpoint::Holds;
pub use context::{Context, ThreadState, Wait};
pub use state::LoadControl;

use crate::primitive::turn::Verdict;

/// A policy for threads that wait for locks.
pub trait LoadManager: 'static {
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
    /// meanwhile.
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
    #[inline]
    fn checkpoint<X: Context>(process: X, holds: impl FnOnce() -> Holds) -> bool {
        let _ = (process, holds);
        false
    }
}

/// What happened during one wait, for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitSummary {
    /// How often the waiter left the processor at its load manager's request.
    pub sleeps: u32,
    /// Whether the waiter ever parked at the lock, and so must pass the parked bit on to other
    /// parked waiters ([`Eventcount`](crate::parking::eventcount::Eventcount), Invariant 2).
    pub parked: bool,
}
