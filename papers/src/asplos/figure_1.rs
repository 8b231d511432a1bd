//! Figure 1: spinning and blocking as threads are added.

use super::FULL_LOAD;
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Change, Figure, Made, Paper, Simulated};
use crate::plan::{BLOCKING, SPINNING, Size, tm1_lines};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-1",
    paper: Paper::Asplos(1),
    title: "Spinning and blocking as threads are added (simulated)",
    remark: "Paper: Johnson, Stoica, Ailamaki, Mowry, ASPLOS 2010, section 1, Figure 1; TM-1 on a \
        Sun Niagara II of 64 contexts. Blocking performs poorly beyond 32 threads, because it \
        overwhelms the scheduler. Spinning scales to the machine's 64 contexts and then \
        collapses, because lock holders are preempted.",
    minutes: 20,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads",
        panels: view::throughput,
        changes: CHANGES,
        ..Simulated::MEDIANS
    }),
};

const CHANGES: &[Change] = &[
    FULL_LOAD,
    Change {
        paper: "up to 192 threads",
        here: "up to 128",
        why: "each further overloaded point takes minutes to simulate, and the claims are about \
            the fall up to 128",
    },
];

/// The figure at the paper's numbers of threads: the peaks, full load, and overload.
pub const PUBLISHED: Figure = Figure {
    name: "sim-asplos-1-published",
    paper: Paper::Asplos(1),
    title: "Spinning and blocking at the paper's numbers of threads (simulated)",
    remark: "Paper: ASPLOS 2010, section 1, Figure 1; TM-1 on 64 contexts, with 64 threads at full \
        load and up to 192.",
    minutes: 12,
    made: Made::Simulated(Simulated {
        plan: |size| plan_of(size.of(&[1_u32, 32, 64, 128, 192][..], &[32, 64, 192]), size),
        claims: |results| claims_at(results, 64.0, 192.0),
        across: "threads",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    plan_of(
        size.of(&[1_u32, 8, 16, 24, 32, 40, 48, 56, 63, 72, 80, 96, 128][..], &[8, 32, 63, 128]),
        size,
    )
}

fn plan_of(threads: &[u32], size: Size) -> Vec<Cell> {
    tm1_lines(&[("spinning", SPINNING), ("blocking", BLOCKING)], threads, size)
}

fn claims(results: &[Result]) -> Vec<Claim> {
    claims_at(results, 63.0, 128.0)
}

/// The claims, with the thread counts of full load and of the highest load.
fn claims_at(results: &[Result], full: f64, last: f64) -> Vec<Claim> {
    let results = Results(results);
    claims! {
        "blocking peaks at 24 to 48 threads (paper: 32)",
            results.peak_at("TM-1", "blocking"), 24.0..=48.0;
        format!("at {full} threads blocking has at most .7 of spinning's throughput"),
            results.ratio("TM-1", ("blocking", full), ("spinning", full)), 0.0..=0.7;
        format!("at {full} threads spinning has at least 1.7 times its throughput at 32"),
            results.ratio("TM-1", ("spinning", full), ("spinning", 32.0)), 1.7..=ANY;
        "at 128 threads spinning keeps .2 to .5 of its peak (paper, Figure 11: less than .4, about \
            .3 in its figure)",
            results.kept("TM-1", "spinning", 128.0), 0.2..=0.5;
        format!("at {last} threads blocking keeps at least .3 of its peak"),
            results.kept("TM-1", "blocking", last), 0.3..=1.0;
    }
}
