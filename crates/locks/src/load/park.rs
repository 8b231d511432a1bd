//! Spin-then-park: a waiter polls for about the cost of a context switch, then sleeps until a
//! release.
//!
//! This is the classic hybrid (Ousterhout 1982; Karlin et al. 1991: a spin as long as blocking
//! costs is within twice the optimum), and the `pthread` row of the ASPLOS 2010 paper. Each waiter
//! decides from its own wait alone. A lock may have a bound of its own ([`Context::spin_ns`]).

use super::{Context, LoadManager, Wait, WaitSummary};
use crate::primitive::Clock as _;
use crate::primitive::turn::Verdict;

/// Two context switches and a wake-up, on current machines.
const SPIN_NS: u64 = 10_000;

/// Park after a bounded spin.
///
#[doc = example_of_pair!("tpmcs::TpMcs", "park::Park")]
pub struct Park;

/// One wait under [`Park`].
#[doc(hidden)]
pub struct Waiter {
    spin_since: u64,
    spin_ns: u64,
    sleeps: u32,
}

// SAFETY: `block` returns what `park` did.
unsafe impl LoadManager for Park {
    type Waiter = Waiter;

    fn begin_wait<X: Context>(wait: &Wait<'_, X>, now: u64) -> Waiter {
        let spin_ns = wait.process.spin_ns().unwrap_or(SPIN_NS);
        Waiter { spin_since: now, spin_ns, sleeps: 0 }
    }

    fn turn<X: Context>(waiter: &mut Waiter, _: &Wait<'_, X>, now: u64) -> Verdict {
        let is_over = now.saturating_sub(waiter.spin_since) > waiter.spin_ns;
        if is_over { Verdict::Leave } else { Verdict::Spin }
    }

    fn block<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>) -> bool {
        waiter.sleeps += 1;
        let acquired = wait.park();
        waiter.spin_since = X::Machine::now();
        acquired
    }

    fn end_wait<X: Context>(waiter: Waiter, _: &Wait<'_, X>) -> WaitSummary {
        WaitSummary { sleeps: waiter.sleeps, parked: waiter.sleeps > 0 }
    }
}
