//! What hardware transactions cost on this machine, for the projection ([`TransactionCosts`]).

use std::hint::{black_box, spin_loop};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

use unconvoy::catalogue::{Availability, availability};
use unconvoy::contention::Contention;
use unconvoy::contention::elided::Elided;
use unconvoy::contention::loiter::Loiter;
use unconvoy::primitive::{Begun, Clock as _, Native, Transactions as _};
use unconvoy_syncchar::TransactionCosts;

/// Number of measurements of each cost. Their median counts.
const TRIES: usize = 15;

/// Measures for about 50 ms. `None` if transactions do not commit here, or with one processor.
pub fn measure() -> Option<TransactionCosts> {
    let commits = availability("elided") == Availability::Full;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (commits && processors > 1).then(|| TransactionCosts {
        pair_ns: (elided_pair() - locked_pair()).max(0.0),
        transfer_ns: transfer(),
        interrupts_per_s: interrupts(),
        clock_ns: per_call(|| _ = black_box(Native::now())),
    })
}

fn median(mut measure: impl FnMut() -> f64) -> f64 {
    let mut values: Vec<f64> = (0..TRIES).map(|_| measure()).collect();
    values.sort_by(f64::total_cmp);
    values[TRIES / 2]
}

/// Nanoseconds of a call.
fn per_call(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 20_000;
    median(|| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
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

/// Transfer of a cache line that another processor has written. Two threads take turns; a round has
/// four transfers, a copy and an invalidation in each direction.
fn transfer() -> f64 {
    const ROUNDS: u64 = 1_000;
    #[repr(align(128))]
    struct Line(AtomicU64);
    let line = Line(AtomicU64::new(0));
    let until = |value| {
        while line.0.load(Acquire) != value {
            spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS * TRIES as u64 {
                until(2 * round + 1);
                line.0.store(2 * round + 2, Release);
            }
        });
        let mut round = 0;
        median(|| {
            let begin = Instant::now();
            for _ in 0..ROUNDS {
                line.0.store(2 * round + 1, Release);
                round += 1;
                until(2 * round);
            }
            begin.elapsed().as_nanos() as f64 / ROUNDS as f64
        }) / 4.0
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
            return println!("skipped: transactions do not commit here, or one processor");
        };
        assert!((0.0..200.0).contains(&costs.pair_ns), "{costs:?}");
        assert!((5.0..20_000.0).contains(&costs.transfer_ns), "{costs:?}");
        assert!((0.0..1e6).contains(&costs.interrupts_per_s), "{costs:?}");
        assert!((1.0..2_000.0).contains(&costs.clock_ns), "{costs:?}");
    }
}
