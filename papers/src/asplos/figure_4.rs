//! Figure 4: throughput and context switches of a blocking mutex.

use crate::claim::{Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{BLOCKING, Size, tm1_lines};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-4",
    paper: Paper::Asplos(4),
    title: "Throughput and context switches of a blocking mutex (simulated)",
    remark: "Paper: ASPLOS 2010, section 2.2, Figure 4; TM-1 with the Solaris mutex on 64 \
        contexts. Below some 37 threads no thread blocks, and a transaction takes one context \
        switch, for the log. Beyond that more and more threads reach the end of their spin and \
        block, until every hand-over takes a context switch, and throughput falls steadily.",
    minutes: 2,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads",
        panels: view::switches,
        ..Simulated::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads = size.of(
        &[1_u32, 8, 16, 24, 31, 35, 37, 39, 43, 47, 56, 63, 80, 96, 128][..],
        &[16, 31, 37, 47, 63],
    );
    tm1_lines(&[("blocking", BLOCKING)], threads, size)
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let per_transaction = |x: f64| {
        results.at("TM-1", "blocking", x).map(|outcome| outcome.switches_per_s / outcome.per_s)
    };
    let low = per_transaction(16.0);
    claims! {
        "at 16 threads there are .8 to 1.3 switches per transaction (paper: 1)", low, 0.8..=1.3;
        "at 47 threads there are 2 to 4 times as many switches per transaction as at 31 (DaMoN \
            2009, section 3.3: more than twice as many as at 37)",
            per_transaction(47.0).zip(per_transaction(31.0))
                .map(|(one, other)| one / other), 2.0..=4.0;
        "at 63 threads throughput is at most .9 of its peak",
            results.kept("TM-1", "blocking", 63.0), 0.0..=0.9;
    }
}
