//! Figure 3: throughput of the lock-contention-aware scheduler.

use super::programs::{
    COLLAPSING, DEFAULT, FULL, MCS, REQUESTER, SPECIAL, all, collapse, default, line, special,
    sustained,
};
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Native, Paper, Simulated};
use crate::over_threads;
use crate::plan::Size;
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-taco-3",
    paper: Paper::Taco(3),
    title: "Throughput of the lock-contention-aware scheduler (simulated)",
    remark: "Paper: TACO 2013, sections 4.5, 4.9.2 and 4.10, Figures 3 and 10. Where the default \
        collapses (mmapbench, sockbench, postmark, grep), the scheduler detects the start of the \
        collapse and sustains the maximum. kernbench does not collapse and is as fast with both. \
        find, with short-lived processes, falls slightly beyond 15 cores.",
    minutes: 8,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "cores",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

/// The figure on this machine, under its default scheduler and, where it can run, under `unconvoy
/// sched`.
pub const NATIVE: Figure = Figure {
    name: "taco-3",
    paper: Paper::Taco(3),
    title: "Throughput of the lock-contention-aware scheduler",
    remark: SIMULATED.remark,
    minutes: 10,
    made: Made::Native(Native {
        benchmarks: &[
            &["mmapbench"],
            &["sockbench"],
            &["postmark"],
            &["find"],
            &["grep"],
            &["compile"],
        ],
        draw: Some(over_threads::draw),
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let mut cells = Vec::new();
    for program in all() {
        cells.extend(default(program, size.of(FULL, &[4, 8, 10, 12, 16, 32]), size));
        cells.extend(special(program, size.of(FULL, &[32]), size));
        if size == Size::Full || ["mmapbench", "sockbench"].contains(&program) {
            cells.extend(line(
                program,
                "requester-based",
                REQUESTER,
                None,
                size.of(FULL, &[8, 32]),
                size,
            ));
        }
        if size == Size::Full || ["mmapbench", "find"].contains(&program) {
            cells.extend(line(program, "mcs", MCS, None, size.of(FULL, &[8, 12, 32]), size));
        }
    }
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let against =
        |program: &str, other: &str| results.ratio(program, (SPECIAL, 32.0), (other, 32.0));
    let mut claims = Vec::new();
    for program in COLLAPSING {
        claims.extend(collapse(&results, program));
    }
    claims.extend(claims! {
        "find: at 32 cores the default keeps at most .7 of its peak",
            results.kept("find", DEFAULT, 32.0), 0.0..=0.7;
        "find: at 32 cores the scheduler has at least 1.1 times the default's throughput",
            against("find", DEFAULT), 1.1..=ANY;
        "find: at 32 cores the scheduler sustains at least .6 of the default's peak, but not all \
            of it",
            sustained(&results, "find"), 0.6..=1.0;
        "kernbench: at 32 cores the default has at least 1.5 times its throughput at 16",
            results.ratio("kernbench", (DEFAULT, 32.0), (DEFAULT, 16.0)), 1.5..=ANY;
        "kernbench: at 32 cores the scheduler has the default's throughput, to .02",
            against("kernbench", DEFAULT), 0.98..=1.02;
        "find: at 32 cores MCS keeps at least .9 of its peak (Figure 10)",
            results.kept("find", "mcs", 32.0), 0.9..=1.0;
        "mmapbench: at 32 cores MCS keeps .5 to .98 of its peak (Figure 10)",
            results.kept("mmapbench", "mcs", 32.0), 0.5..=0.98;
    });
    for program in ["mmapbench", "sockbench"] {
        claims.extend(claims! {
            format!("{program}: at 32 cores requester-based locks keep at least .7 of their peak"),
                results.kept(program, "requester-based", 32.0), 0.7..=1.0;
            format!("{program}: at 32 cores the scheduler has more throughput than requester-based \
                locks"),
                against(program, "requester-based"), 1.0..=ANY;
        });
    }
    claims
}
