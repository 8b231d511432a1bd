//! Yield: a waiter gives the processor away between polls.
//!
//! The `yield` of the DaMoN 2009 paper (section 3.1), and its finding (section 3.2): spinning
//! threads mostly yield to other spinning threads.

use super::gate::{Gate, Spot};
use super::{Departure, LoadManager};
use crate::contention::Verdict;
use crate::platform::Platform;

/// How long a waiter polls before its first yield: a yield costs about this much, so that it at
/// most doubles a short wait.
const SPIN_NS: u64 = 1_000;

/// Yield each turn, after a short spin.
pub struct Yield;

/// When the wait began.
pub struct Arrival(u64);

impl<P: Platform> LoadManager<P> for Yield {
    type Waiter = Arrival;

    fn arrive(now: u64, _place: u64) -> Arrival {
        Arrival(now)
    }

    fn turn(&mut Arrival(since): &mut Arrival, now: u64, _spot: &dyn Spot) -> Verdict {
        if now.saturating_sub(since) > SPIN_NS {
            P::yield_now();
        }
        Verdict::Spin
    }

    fn away(_: &mut Arrival, _: &Gate<P>, _: &dyn Spot, _: Option<u64>) -> bool {
        false
    }

    fn depart(_: Arrival) -> Departure {
        Departure::default()
    }
}
