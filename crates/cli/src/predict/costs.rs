//! What hardware transactions cost on this machine, for the projection ([`TransactionCosts`]).

use std::hint::black_box;
use std::time::Instant;

use unconvoy::catalogue::{Availability, availability};
use unconvoy::contention::Contention;
use unconvoy::contention::elided::Elided;
use unconvoy::contention::loiter::Loiter;
use unconvoy::primitive::{Begun, Clock as _, Native, Transactions as _};
use unconvoy_measure::transfer::line_transfer_ns;
use unconvoy_measure::tries::per_call;
use unconvoy_syncchar::TransactionCosts;

/// Measures for about 20 ms. `None` if transactions do not commit here, or if no two processors are
/// free.
pub fn measure() -> Option<TransactionCosts> {
    let commits = availability("elided") == Availability::Full;
    if !commits {
        return None;
    }
    Some(TransactionCosts {
        pair_ns: (elided_pair() - locked_pair()).max(0.0),
        // A move has two transfers: a copy and an invalidation.
        transfer_ns: f64::from(line_transfer_ns()?) / 2.0,
        interrupts_per_s: interrupts(),
        clock_ns: per_call(|| _ = black_box(Native::now())),
    })
}

fn locked_pair() -> f64 {
    let lock = Loiter::<Native>::unlocked();
    per_call(|| {
        if lock.try_lock() {
            // SAFETY: held.
            unsafe { lock.unlock() };
        }
    })
}

fn elided_pair() -> f64 {
    let lock = Elided::<Native>::unlocked();
    per_call(|| {
        if lock.elide() {
            // SAFETY: in a section of this lock.
            unsafe { lock.unlock() };
        }
    })
}

/// Aborts per second inside transactions that nothing else disturbs.
fn interrupts() -> f64 {
    let (mut aborts, begin) = (0u32, Instant::now());
    while begin.elapsed().as_millis() < 20 {
        match Native::begin_transaction() {
            Begun::Started => {
                (0..1_000).for_each(|step: u32| _ = black_box(step));
                Native::end_transaction();
            }
            Begun::Aborted(_) => aborts += 1,
            Begun::Unavailable => break,
        }
    }
    f64::from(aborts) / begin.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_plausible_or_absent() {
        let Some(costs) = measure() else {
            return println!(
                "skipped: transactions do not commit here, or no two processors are free"
            );
        };
        assert!((0.0..200.0).contains(&costs.pair_ns), "{costs:?}");
        assert!((5.0..20_000.0).contains(&costs.transfer_ns), "{costs:?}");
        assert!((0.0..1e6).contains(&costs.interrupts_per_s), "{costs:?}");
        assert!((1.0..2_000.0).contains(&costs.clock_ns), "{costs:?}");
    }
}
