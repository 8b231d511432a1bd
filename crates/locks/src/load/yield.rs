//! Yield: a waiter yields the processor between polls.
//!
//! This is `yield` of the DaMoN 2009 paper (section 3.1), which found that spinning threads mostly
//! yield to other spinning threads (section 3.2).

use super::{Context, LoadManager, Wait, WaitSummary};
use crate::primitive::Threads as _;
use crate::primitive::turn::Verdict;

/// Polling time before the first yield. A yield takes about as long, so yielding at most doubles a
/// short wait.
const SPIN_NS: u64 = 1_000;

/// Yield each turn, after a short spin.
///
#[doc = example_of_pair!("tpmcs::TpMcs", "yielding::Yield")]
pub struct Yield;

/// When the wait began.
#[doc(hidden)]
pub struct Arrival(u64);

// SAFETY: `block` acquires nothing.
unsafe impl LoadManager for Yield {
    type Waiter = Arrival;

    fn begin_wait<X: Context>(_: &Wait<'_, X>, now: u64) -> Arrival {
        Arrival(now)
    }

    fn turn<X: Context>(&mut Arrival(since): &mut Arrival, _: &Wait<'_, X>, now: u64) -> Verdict {
        if now.saturating_sub(since) > SPIN_NS {
            X::Machine::yield_now();
        }
        Verdict::Spin
    }

    fn block<X: Context>(_: &mut Arrival, _: &Wait<'_, X>) -> bool {
        false
    }

    fn end_wait<X: Context>(_: Arrival, _: &Wait<'_, X>) -> WaitSummary {
        WaitSummary::default()
    }
}
