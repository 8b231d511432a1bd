//! Figure 3: throughput of the lock-contention-aware scheduler.

use super::programs::{COLLAPSING, DEFAULT, FULL, MCS, REQUESTER, SPECIAL, all, default, line, special};
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Native, Paper, Simulated};
use crate::over_threads;
use crate::plan::Size;
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-taco-3",
    paper: Paper::Taco(3),
    title: "Throughput of the lock-contention-aware scheduler (simulated)",
    remark: "The paper's: TACO 2013, sections 4.5, 4.9.2 and 4.10, Figures 3 and 10. Where the default collapses (mmapbench, sockbench, postmark, grep) the scheduler captures the start of the collapse and sustains the maximum; kernbench does not collapse, and has the same with both; find, whose processes are short-lived, decreases slightly beyond 15 cores.",
    minutes: 8,
    made: Made::Simulated(Simulated { plan, claims, across: "cores", panels: view::throughput, table: None }),
};

/// The figure on this machine, under its own scheduler and, where it can run, under `unconvoy sched`.
pub const NATIVE: Figure = Figure {
    name: "taco-3",
    paper: Paper::Taco(3),
    title: "Throughput of the lock-contention-aware scheduler",
    remark: SIMULATED.remark,
    minutes: 10,
    made: Made::Native(Native {
        benchmarks: &[&["mmapbench"], &["sockbench"], &["postmark"], &["find"], &["grep"], &["compile"]],
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
            cells.extend(line(program, "requester-based", REQUESTER, None, size.of(FULL, &[8, 32]), size));
        }
        if size == Size::Full || ["mmapbench", "find"].contains(&program) {
            cells.extend(line(program, "mcs", MCS, None, size.of(FULL, &[8, 12, 32]), size));
        }
    }
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let against_peak = |program: &str| Some(results.per_s(program, SPECIAL, 32.0)? / results.peak(program, DEFAULT)?);
    let against = |program: &str, other: &str| results.ratio(program, (SPECIAL, 32.0), (other, 32.0));
    let mut claims = Vec::new();
    for program in COLLAPSING {
        claims.extend(claims! {
            format!("{program}: the default falls to .7 of its peak or less at 32 cores"),
                results.kept(program, DEFAULT, 32.0), 0.0..=0.7;
            format!("{program}: the scheduler sustains the default's peak: .9 of it or more at 32 cores"),
                against_peak(program), 0.9..=ANY;
        });
    }
    claims.extend(claims! {
        "find: the default falls to .7 of its peak or less at 32 cores",
            results.kept("find", DEFAULT, 32.0), 0.0..=0.7;
        "find: the scheduler has 1.1 times the default or more at 32 cores",
            against("find", DEFAULT), 1.1..=ANY;
        "find: but decreases slightly: .6 of the default's peak or more, and less than the peak",
            against_peak("find"), 0.6..=1.0;
        "kernbench: the default does not collapse: 1.5 times on 32 cores what it has on 16 or more",
            results.ratio("kernbench", (DEFAULT, 32.0), (DEFAULT, 16.0)), 1.5..=ANY;
        "kernbench: the scheduler has as much as the default, to .02",
            against("kernbench", DEFAULT), 0.98..=1.02;
        "find: MCS does not collapse: .9 of its peak or more at 32 cores (Figure 10)",
            results.kept("find", "mcs", 32.0), 0.9..=1.0;
        "mmapbench: MCS loses a little: .5 to .98 of its peak are left (Figure 10)",
            results.kept("mmapbench", "mcs", 32.0), 0.5..=0.98;
    });
    for program in ["mmapbench", "sockbench"] {
        claims.extend(claims! {
            format!("{program}: requester-based locks do not collapse: .7 of their peak or more at 32 cores"),
                results.kept(program, "requester-based", 32.0), 0.7..=1.0;
            format!("{program}: the scheduler has more than they have at 32 cores"),
                against(program, "requester-based"), 1.0..=ANY;
        });
    }
    claims
}
