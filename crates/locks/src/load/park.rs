//! Spin-then-park: a waiter polls for about the cost of a context switch, then sleeps until a
//! release.
//!
//! The classic hybrid (Ousterhout 1982; Karlin et al. 1991: spinning as long as blocking costs is
//! within twice the optimum), and the ASPLOS 2010 paper's `pthread` row. It decides from its own
//! wait alone.

use super::gate::{Gate, Spot};
use super::{Departure, LoadManager};
use crate::contention::Verdict;
use crate::platform::Platform;

/// Two context switches and a wake-up, on current machines.
const SPIN_NS: u64 = 10_000;

/// Park after a bounded spin.
pub struct Park;

/// One wait under [`Park`].
pub struct Waiter {
    spin_since: u64,
    sleeps: u32,
}

impl<P: Platform> LoadManager<P> for Park {
    type Waiter = Waiter;

    fn arrive(now: u64, _place: u64) -> Waiter {
        Waiter { spin_since: now, sleeps: 0 }
    }

    fn turn(waiter: &mut Waiter, now: u64, _spot: &dyn Spot) -> Verdict {
        if now.saturating_sub(waiter.spin_since) > SPIN_NS { Verdict::Leave } else { Verdict::Spin }
    }

    fn away(waiter: &mut Waiter, gate: &Gate<P>, spot: &dyn Spot, deadline: Option<u64>) -> bool {
        waiter.sleeps += 1;
        let acquired = gate.wait(spot, deadline);
        waiter.spin_since = P::now();
        acquired
    }

    fn depart(waiter: Waiter) -> Departure {
        Departure { sleeps: waiter.sleeps, parked: waiter.sleeps > 0 }
    }
}
