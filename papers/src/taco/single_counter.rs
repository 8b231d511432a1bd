//! The single counter of Figures 3 and 4.

use super::programs::{
    DEFAULT, FULL, REQUESTER, SPECIAL, default, line, of_set, special, sustained,
};
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::Size;
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-taco-3-counter",
    paper: Paper::Taco(3),
    title: "A single counter under the lock-contention-aware scheduler (simulated)",
    remark: "Paper: TACO 2013, sections 4.5, 4.6 and 4.9.2, Figures 3 (a) and 4 (a). The default \
        collapses with the second core. The scheduler avoids this, but mostly allocates two cores \
        and so does not sustain the maximum. Requester-based locks have less throughput.",
    minutes: 2,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "cores",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

/// Its workload.
pub const PROGRAM: &str = "single-counter";

fn plan(size: Size) -> Vec<Cell> {
    let tasks = size.of(FULL, &[1, 2, 8, 32]);
    let mut cells = default(PROGRAM, tasks, size);
    cells.extend(special(PROGRAM, tasks, size));
    cells.extend(line(PROGRAM, "requester-based", REQUESTER, None, tasks, size));
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let against = |other: &str| results.ratio(PROGRAM, (SPECIAL, 32.0), (other, 32.0));
    claims! {
        "the default has its highest throughput on one core",
            results.peak_at(PROGRAM, DEFAULT), 1.0..=1.0;
        "at 32 cores the scheduler has at least 1.1 times the default's throughput",
            against(DEFAULT), 1.1..=ANY;
        "at 32 cores the scheduler does not sustain .9 of the default's peak",
            sustained(&results, PROGRAM), 0.0..=0.9;
        "the search finds 2 cores for 32 tasks",
            of_set(&results, PROGRAM, SPECIAL, 32.0, |set| f64::from(set.bound)), 2.0..=2.0;
        "at 32 cores the scheduler has more throughput than requester-based locks",
            against("requester-based"), 1.0..=ANY;
    }
}
