//! No load management: waiters spin until they have the lock.

use super::{Context, LoadManager, Wait, WaitSummary};
use crate::primitive::turn::Verdict;

/// Never leave.
///
#[doc = example_of_pair!("tpmcs::TpMcs", "none::NoManager")]
pub struct NoManager;

// SAFETY: `block` acquires nothing.
unsafe impl LoadManager for NoManager {
    type Waiter = ();

    fn begin_wait<X: Context>(_: &Wait<'_, X>, _now: u64) {}

    fn turn<X: Context>((): &mut (), _: &Wait<'_, X>, _now: u64) -> Verdict {
        Verdict::Spin
    }

    fn block<X: Context>((): &mut (), _: &Wait<'_, X>) -> bool {
        false
    }

    fn end_wait<X: Context>((): (), _: &Wait<'_, X>) -> WaitSummary {
        WaitSummary::default()
    }
}
