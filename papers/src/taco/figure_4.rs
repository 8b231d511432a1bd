//! Figure 4: cores of the special set and lock-intensive tasks.

use super::programs::{
    COLLAPSING, DEFAULT, FULL, REFINED, SPECIAL, TICKET, all, default, line, of_set, special,
};
use crate::claim::{Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::Size;
use crate::view::{self, Lines, Quantity};
use unconvoy_sched::Parameters as Policy;
use unconvoy_sim::experiment::Measured;
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::outcome::SpecialSet;

pub const SIMULATED: Figure = Figure {
    name: "sim-taco-4",
    paper: Paper::Taco(4),
    title: "Cores of the special set and lock-intensive tasks (simulated)",
    remark: "Paper: TACO 2013, section 4.6, Figure 4. With more than one task, the scheduler \
        finds all tasks of mmapbench, sockbench, postmark and grep lock-intensive, and finds the \
        best number of cores. find's processes end before they are detected, and its number is 8 \
        where 10 is best, because the search doubles. Almost no task of kernbench is found \
        lock-intensive.",
    minutes: 2,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "tasks",
        panels,
        ..Simulated::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let mut cells = Vec::new();
    for program in all() {
        cells.extend(default(program, size.of(FULL, &[2, 4, 8, 10, 12, 16]), size));
        cells.extend(special(program, size.of(FULL, &[8, 32]), size));
    }
    for program in ["find", "grep"] {
        cells.extend(line(
            program,
            REFINED,
            TICKET,
            Some(Policy::refined(32)),
            size.of(FULL, &[32]),
            size,
        ));
    }
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let bound = |program: &str, series: &str| {
        of_set(&results, program, series, 32.0, |set| f64::from(set.bound))
    };
    let off =
        |program: &str| Some((bound(program, REFINED)? - results.peak_at(program, DEFAULT)?).abs());
    let mut claims = Vec::new();
    for program in COLLAPSING {
        let found = |tasks: f64| {
            of_set(&results, program, SPECIAL, tasks, |set| f64::from(set.tasks) / tasks)
        };
        let kept = bound(program, SPECIAL).and_then(|bound| results.kept(program, DEFAULT, bound));
        claims.extend(claims! {
            format!("{program}: all of 8 tasks are found lock-intensive"),
                found(8.0), 1.0..=1.0;
            format!("{program}: all of 32 tasks are found lock-intensive"), found(32.0), 1.0..=1.0;
            format!("{program}: on the number of cores found for 32 tasks, the default has at \
                least .85 of its peak"),
                kept, 0.85..=1.0;
        });
    }
    claims.extend(claims! {
        "postmark: the search finds 16 cores for 32 tasks", bound("postmark", SPECIAL), 16.0..=16.0;
        "find: the search finds 8 cores for 32 tasks, where 10 are best",
            bound("find", SPECIAL), 8.0..=8.0;
        "find: the default peaks at 8 to 12 cores (paper: 10)",
            results.peak_at("find", DEFAULT), 8.0..=12.0;
        "find: the refined search is at most 2 cores off the best (ours)", off("find"), 0.0..=2.0;
        "grep: the refined search is at most 2 cores off the best (ours)", off("grep"), 0.0..=2.0;
        "kernbench: at most 3 of 32 tasks are found lock-intensive",
            of_set(&results, "kernbench", SPECIAL, 32.0, |set| f64::from(set.tasks)), 0.0..=3.0;
    });
    claims
}

fn panels(results: &[Result]) -> Vec<Lines> {
    let set = |of: fn(&SpecialSet) -> f64| {
        move |measured: &Measured| measured.outcome()?.set.as_ref().map(of)
    };
    let shown: [Quantity<SpecialSet>; 2] = [
        ("cores", |set| f64::from(set.bound)),
        ("lock-intensive tasks", |set| f64::from(set.tasks)),
    ];
    view::each(results, |panel, values| {
        let named = |(what, of)| {
            values(&set(of)).into_iter().map(move |line| (format!("{}: {what}", line.0), line.1))
        };
        vec![(format!("{panel}: special set"), shown.into_iter().flat_map(named).collect())]
    })
}
