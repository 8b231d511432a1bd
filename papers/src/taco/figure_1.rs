//! Figure 1: throughput and lock-waiting time of parallel postmark.

use super::programs::{DEFAULT, default, share};
use crate::claim::{Claim, Results, claims};
use crate::figure::{Figure, Made, Native, Paper, Simulated};
use crate::over_threads;
use crate::plan::Size;
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-taco-1",
    paper: Paper::Taco(1),
    title: "Throughput and lock-waiting time of parallel postmark (simulated)",
    remark: "Paper: Cui, Wang, Chen, Shi, ACM TACO 9(4), 2013, sections 1 and 2, Figure 1; \
        postmark with a thread per core on 32 AMD cores and ticket spin locks. Up to 16 cores the \
        waiting share grows slowly, from 3.81 % to 21.77 %; beyond that throughput collapses, and \
        the share grows to 92.24 %.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "cores",
        panels: view::collapse,
        ..Simulated::MEDIANS
    }),
};

/// The figure on this machine, under its default scheduler and, where it can run, under `unconvoy
/// sched`.
pub const NATIVE: Figure = Figure {
    name: "taco-1",
    paper: Paper::Taco(1),
    title: "Throughput of parallel postmark",
    remark: SIMULATED.remark,
    minutes: 2,
    made: Made::Native(Native {
        benchmarks: &[&["postmark"]],
        draw: Some(over_threads::draw),
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    default(
        "postmark",
        size.of(
            &[1, 2, 4, 6, 8, 10, 12, 14, 15, 16, 17, 18, 20, 22, 24, 26, 28, 30, 32],
            &[1, 2, 8, 12, 14, 16, 18, 20, 24, 32],
        ),
        size,
    )
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let waiting = |tasks: f64| share(&results, "postmark", DEFAULT, tasks);
    claims! {
        "throughput peaks at 14 to 20 cores (paper: 16)",
            results.peak_at("postmark", DEFAULT), 14.0..=20.0;
        "on 2 cores .015 to .1 of the time goes into waiting for locks (the paper's smallest: \
            .0381)",
            waiting(2.0), 0.015..=0.1;
        "on 16 cores .12 to .32 of the time goes into waiting for locks (paper: .2177)",
            waiting(16.0), 0.12..=0.32;
        "on 32 cores .85 to .97 of the time goes into waiting for locks (paper: .9224)",
            waiting(32.0), 0.85..=0.97;
        "on 32 cores throughput is .1 to .4 of its peak (by the paper's waiting shares: .2)",
            results.kept("postmark", DEFAULT, 32.0), 0.1..=0.4;
    }
}
