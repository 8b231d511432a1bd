//! Figure 6: lock-waiting time under the default and the lock-contention-aware scheduler.

use super::programs::{DEFAULT, FULL, SPECIAL, default, share, special};
use crate::claim::{Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::Size;
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-taco-6",
    paper: Paper::Taco(6),
    title: "Lock-waiting time under the default and the lock-contention-aware scheduler \
        (simulated)",
    remark: "Paper: TACO 2013, section 4.7, Figure 6. After the collapse the scheduler reduces \
        the waiting share. The reduction grows with the number of tasks, up to 84 % at 32 tasks.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "tasks",
        panels: view::waits,
        ..Simulated::MEDIANS
    }),
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
    let less = |program: &str, tasks: f64| {
        Some(share(program, DEFAULT, tasks)? - share(program, SPECIAL, tasks)?)
    };
    let part = |program: &str| Some(less(program, 32.0)? / share(program, DEFAULT, 32.0)?);
    let most = part("mmapbench").zip(part("postmark")).map(|(one, other)| one.max(other));
    claims! {
        "at 32 tasks the scheduler cuts the waiting share by .74 to .94 in the best case (paper: \
            up to .84)",
            most, 0.74..=0.94;
        "postmark: at 32 tasks the default's waiting share is .85 to .97 (paper, section 2: .9224)",
            share("postmark", DEFAULT, 32.0), 0.85..=0.97;
        "postmark: before the collapse, at 8 tasks, the scheduler's waiting share is the \
            default's, to .1",
            less("postmark", 8.0), -0.1..=0.1;
        "postmark: the scheduler reduces the waiting share more at 32 tasks than at 24",
            less("postmark", 32.0).zip(less("postmark", 24.0))
                .map(|(one, other)| one - other), 0.0..=1.0;
        "mmapbench: the scheduler reduces the waiting share more at 32 tasks than at 24",
            less("mmapbench", 32.0).zip(less("mmapbench", 24.0))
                .map(|(one, other)| one - other), 0.0..=1.0;
        "kernbench: at 32 tasks the default's waiting share is at most .1",
            share("kernbench", DEFAULT, 32.0), 0.0..=0.1;
        "kernbench: at 32 tasks the scheduler's waiting share is the default's, to .02",
            less("kernbench", 32.0), -0.02..=0.02;
    }
}
