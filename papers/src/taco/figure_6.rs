//! Figure 6: lock-waiting time under the default and the lock-contention-aware scheduler.

use super::programs::{DEFAULT, FULL, SPECIAL, default, share, special};
use crate::claim::{Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::Size;
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-taco-6",
    paper: Paper::Taco(6),
    title: "Lock-waiting time under the default and the lock-contention-aware scheduler (simulated)",
    remark: "The paper's: TACO 2013, section 4.7, Figure 6. Once there is a collapse the scheduler reduces the waiting share, the more the more tasks there are, at 32 tasks by up to 84 %.",
    minutes: 1,
    made: Made::Simulated(Simulated { plan, claims, across: "tasks", panels: view::waits, table: None }),
};

fn plan(size: Size) -> Vec<Cell> {
    let mut cells = Vec::new();
    for program in ["mmapbench", "postmark", "kernbench"] {
        cells.extend(default(program, size.of(FULL, &[8, 24, 32]), size));
        cells.extend(special(program, size.of(FULL, &[8, 24, 32]), size));
    }
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let share = |program: &str, series: &str, tasks: f64| share(&results, program, series, tasks);
    let less = |program: &str, tasks: f64| Some(share(program, DEFAULT, tasks)? - share(program, SPECIAL, tasks)?);
    let part = |program: &str| Some(less(program, 32.0)? / share(program, DEFAULT, 32.0)?);
    let most = part("mmapbench").zip(part("postmark")).map(|(one, other)| one.max(other));
    claims! {
        "at 32 tasks the waiting share falls by .74 to .94 where it falls most (paper: up to .84)",
            most, 0.74..=0.94;
        "postmark: .85 to .97 by default on 32 cores (paper, section 2: .9224)",
            share("postmark", DEFAULT, 32.0), 0.85..=0.97;
        "postmark: before the collapse, on 8 cores, both are alike, to .1",
            less("postmark", 8.0), -0.1..=0.1;
        "postmark: the more tasks the larger the reduction: more at 32 than at 24",
            less("postmark", 32.0).zip(less("postmark", 24.0)).map(|(one, other)| one - other), 0.0..=1.0;
        "mmapbench: the same",
            less("mmapbench", 32.0).zip(less("mmapbench", 24.0)).map(|(one, other)| one - other), 0.0..=1.0;
        "kernbench: at most .1 by default on 32 cores", share("kernbench", DEFAULT, 32.0), 0.0..=0.1;
        "kernbench: the scheduler changes nothing, to .02", less("kernbench", 32.0), -0.02..=0.02;
    }
}
