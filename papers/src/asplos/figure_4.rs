//! Figure 4: throughput and context switches of a blocking mutex.

use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{BLOCKING, Size, tm1_lines};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-4",
    paper: Paper::Asplos(4),
    title: "Throughput and context switches of a blocking mutex (simulated)",
    remark: "The paper's: ASPLOS 2010, section 2.2, Figure 4; TM-1 with the Solaris mutex on 64 contexts. Below some 37 threads nobody blocks: there is one context switch per transaction, for the log. Beyond, more and more threads run out of patience and block, until every hand-over takes a context switch, and throughput falls steadily.",
    minutes: 2,
    made: Made::Simulated(Simulated { plan, claims, across: "threads", panels: view::switches, table: None }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 8, 16, 24, 31, 35, 37, 39, 43, 47, 56, 63, 80, 96, 128][..], &[16, 31, 37, 47, 63]);
    tm1_lines(&[("blocking", BLOCKING)], threads, size)
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let per_transaction =
        |x: f64| results.at("TM-1", "blocking", x).map(|outcome| outcome.switches_per_s / outcome.per_s);
    let low = per_transaction(16.0);
    claims! {
        "at 16 threads there are at most 1.3 switches per transaction", low, 0.0..=1.3;
        "at 47 threads twice as many per transaction as at 31 or more",
            per_transaction(47.0).zip(per_transaction(31.0)).map(|(one, other)| one / other), 2.0..=ANY;
        "at 63 threads throughput is below the peak: at most .9",
            results.kept("TM-1", "blocking", 63.0), 0.0..=0.9;
    }
}
