//! Figure 4: where the contexts' time goes: spinning, backoff, blocking.

use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{BACKOFF, BLOCKING, SPINNING, Size, tm1_lines};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-damon-4",
    paper: Paper::Damon(4),
    title: "Where the contexts' time goes: spinning, backoff, blocking (simulated)",
    remark: "Paper: DaMoN 2009, section 4, Figure 4; TM-1 on 64 contexts. tpmcs saturates the \
        machine with spinning, a growing part of which is due to preempted holders. The pthread \
        mutex never uses the whole machine: about 60 % between 31 and 47 threads, and less \
        beyond. Backoff has both wasted spinning, though much less than tpmcs, and low \
        utilisation.",
    minutes: 3,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads",
        panels: view::contexts,
        ..Simulated::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads = size.of(&[15_u32, 31, 39, 47, 63, 79, 95, 127][..], &[31, 47, 95]);
    tm1_lines(&[("tpmcs", SPINNING), ("backoff", BACKOFF), ("pthread", BLOCKING)], threads, size)
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let at = |series: &str, x: f64| results.at("TM-1", series, x);
    let used = |series: &str, x: f64| {
        at(series, x).map(|outcome| {
            (outcome.contexts.working + outcome.contexts.spinning + outcome.contexts.inverted)
                / 64.0
        })
    };
    let wasted =
        |series: &str, x: f64| at(series, x).map(|outcome| outcome.contexts.inverted / 64.0);
    claims! {
        "at 95 threads tpmcs uses at least .95 of the machine",
            used("tpmcs", 95.0), 0.95..=ANY;
        "at 95 threads tpmcs wastes at least .4 of the machine on spinning for preempted holders",
            wasted("tpmcs", 95.0), 0.4..=ANY;
        "at 47 threads pthread uses .45 to .75 of the machine (paper: about .6)",
            used("pthread", 47.0), 0.45..=0.75;
        "at 95 threads pthread uses no more of the machine than at 47, to a tenth",
            used("pthread", 95.0).zip(used("pthread", 47.0))
                .map(|(one, other)| one / other), 0.0..=1.1;
        "at 95 threads backoff wastes at most half as much of the machine as tpmcs",
            wasted("backoff", 95.0).zip(wasted("tpmcs", 95.0))
                .map(|(one, other)| one / other), 0.0..=0.5;
        "at 95 threads backoff uses at most .9 of the machine",
            used("backoff", 95.0), 0.0..=0.9;
    }
}
