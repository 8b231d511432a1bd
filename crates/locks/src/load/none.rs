//! No load management: waiters spin for as long as it takes.

use super::gate::{Gate, Spot};
use super::{Departure, LoadManager};
use crate::contention::Verdict;
use crate::platform::Platform;

/// Never leave.
pub struct NoManager;

impl<P: Platform> LoadManager<P> for NoManager {
    type Waiter = ();

    fn arrive(_now: u64, _place: u64) {}

    fn turn((): &mut (), _now: u64, _spot: &dyn Spot) -> Verdict {
        Verdict::Spin
    }

    fn away((): &mut (), _: &Gate<P>, _: &dyn Spot, _: Option<u64>) -> bool {
        false
    }

    fn depart((): ()) -> Departure {
        Departure::default()
    }
}
