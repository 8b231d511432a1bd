//! Load managers: which waiting threads should leave the processor, and until when.
//!
//! A load manager knows nothing of queues or lock words. It is called at a wait's beginning and end,
//! is asked once per turn of the waiter's loop, and, once it has said *leave* and the waiter has
//! abandoned its place, passes the time off the processor until the waiter should contend again.

pub mod adaptive;
pub mod backoff;
pub mod context;
pub mod control;
pub mod controller;
pub mod none;
pub mod park;
pub mod passive;
pub mod pinned;
pub mod policy;
pub mod restrict;
pub mod sensor;
pub mod settings;
pub mod state;
#[path = "yield.rs"]
pub mod yielding;

pub use context::{Context, ThreadState, Wait};
pub use state::LoadControl;

use crate::primitive::turn::Verdict;

/// A policy for threads that wait for locks.
pub trait LoadManager: 'static {
    /// What it remembers of one wait.
    type Waiter;

    /// The controller's interval unless the user sets another, nanoseconds.
    const INTERVAL_NS: u64 = settings::INTERVAL_NS;

    /// A thread begins to wait.
    fn begin_wait<X: Context>(wait: &Wait<'_, X>, now: u64) -> Self::Waiter;

    /// Keep spinning, or leave? Asked once per turn, also while the lock may come at any moment.
    fn turn<X: Context>(waiter: &mut Self::Waiter, wait: &Wait<'_, X>, now: u64) -> Verdict;

    /// Passes the time after [`turn`](Self::turn) said leave and the waiter has abandoned its place,
    /// until it should contend again, or until the deadline. True if it acquired the lock on the way.
    fn block<X: Context>(waiter: &mut Self::Waiter, wait: &Wait<'_, X>) -> bool;

    /// The wait is over, with the lock or without it: whatever was claimed for it is given back.
    fn end_wait<X: Context>(waiter: Self::Waiter, wait: &Wait<'_, X>) -> WaitSummary;

    /// A wait has ended without the lock. Wakes another waiter, if others sleep because this one
    /// contended for the lock in their stead.
    fn give_up<X: Context>(wait: &Wait<'_, X>) {
        let _ = wait;
    }
}

/// What a wait came to, for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitSummary {
    /// How often the waiter left the processor because its load manager said so.
    pub sleeps: u32,
    /// Whether it was ever parked at the lock, and so stands for others that may be
    /// ([`Eventcount`](crate::parking::eventcount::Eventcount), Invariant 2).
    pub parked: bool,
}
