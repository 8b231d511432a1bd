//! Figure 6: how the number of active threads varies within half a second.

use super::figure_5::{mean, panels, sampled};
use crate::claim::{Claim, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{SPINNING, Size, cell, machine, mix, point};
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::{Cell, Result};

const CLIENTS: u32 = 32;

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-6",
    paper: Paper::Asplos(6),
    title: "Active threads within half a second (simulated)",
    remark: "Paper: ASPLOS 2010, section 2.4, Figure 6; TPC-C with 32 clients on 64 contexts, each \
        context switch recorded by DTrace. Most of the time between 12 and 24 clients are active, \
        with the average near 16. The mix `tpcc` is fitted to this average, but not to the \
        variation. The first quarter of a second is warm-up.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "s",
        panels,
        is_first_seed: true,
        ..Simulated::MEDIANS
    }),
};

fn plan(_: Size) -> Vec<Cell> {
    let point = point(&machine("niagara2-64"), &mix("tpcc"), SPINNING, CLIENTS, 0.75);
    // Without a controller, the number aimed at has no effect.
    let watched = Task::Watched(point, f64::from(CLIENTS), 500_000);
    vec![cell("TPC-C", "active", f64::from(CLIENTS), watched)]
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let counts = sampled(results, "active");
    let share = |counts: &Vec<f64>| {
        let usual = counts.iter().filter(|count| (12.0..=24.0).contains(*count)).count();
        usual as f64 / counts.len().max(1) as f64
    };
    claims! {
        "between 12 and 24 of 32 clients are active for more than half of the time",
            counts.as_ref().map(share), 0.5..=1.0;
        "14 to 18 are active on average (paper: near 16)",
            counts.as_ref().map(|counts| mean(counts)), 14.0..=18.0;
    }
}
