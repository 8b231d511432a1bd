//! Load managers: which waiting threads should leave the processor, and until when.
//!
//! A load manager knows nothing of queues or lock words. It is told of a wait's beginning and end,
//! is asked once per turn of the waiter's loop, and, once it has said *leave* and the waiter has
//! left, passes the time off the processor until the waiter should contend again.

pub mod adaptive;
pub mod awaited;
pub mod backoff;
pub mod control;
pub mod controller;
pub mod gate;
pub mod none;
pub mod park;
pub mod passive;
pub mod policy;
pub mod restrict;
pub mod sensor;
pub mod slots;
#[path = "yield.rs"]
pub mod yielding;

use crate::contention::Verdict;
use crate::platform::Platform;
use gate::{Gate, Spot};

/// A policy for threads that wait for locks.
pub trait LoadManager<P: Platform>: 'static {
    /// What it remembers of one wait.
    type Waiter;

    /// The controller's interval unless the user sets another, nanoseconds.
    const INTERVAL_NS: u64 = control::settings::INTERVAL_NS;

    /// A thread begins to wait at `place`, a number that tells locks apart.
    fn arrive(now: u64, place: u64) -> Self::Waiter;

    /// Keep spinning, or leave? Asked once per turn, also while the lock may come at any moment.
    fn turn(waiter: &mut Self::Waiter, now: u64, spot: &dyn Spot) -> Verdict;

    /// Passes the time after [`turn`](Self::turn) said leave and the waiter has left its lock,
    /// until it should contend again, or until `deadline`. True if it came by the lock on the
    /// way.
    fn away(waiter: &mut Self::Waiter, gate: &Gate<P>, spot: &dyn Spot, deadline: Option<u64>) -> bool;

    /// The wait is over, with the lock or without it: whatever was claimed for it is given back.
    fn depart(waiter: Self::Waiter) -> Departure;

    /// A wait for the lock whose gate is at `place` has ended without the lock. Wakes another
    /// waiter, if others sleep because this one contended for the lock in their stead.
    fn give_up(place: u64, spot: &dyn Spot) {
        let _ = (place, spot);
    }
}

/// What a wait came to, for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Departure {
    /// How often the waiter left the processor at its load manager's word.
    pub sleeps: u32,
    /// Whether it was ever parked at the gate, and so stands for others that may be ([`Gate`],
    /// Invariant 2).
    pub parked: bool,
}
