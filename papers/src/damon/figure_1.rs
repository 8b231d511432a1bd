//! Figure 1: lock implementations on 16 contexts.

use super::locks::lines_of;
use crate::claim::{ANY, Claim, Results, claim, claims};
use crate::figure::{Figure, Made, Native, Paper, Records, Simulated};
use crate::over_threads;
use crate::plan::Size;
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

/// The paper's locks; libc's and the default are always measured.
const LOCKS: &str = "mcs+none,tpmcs+none,tpmcs-yield+none,tpmcs-slice+none";

pub const SIMULATED: Figure = Figure {
    name: "sim-damon-1",
    paper: Paper::Damon(1),
    title: "Lock implementations on 16 contexts (simulated)",
    remark: "Paper: Johnson, Athanassoulis, Stoica, Ailamaki, DaMoN 2009, section 3.2, Figure 1; \
        TM-1 on a Sun Niagara II restricted to 16 contexts. Up to 100 % load all locks scale \
        linearly and alike. Beyond that the pthread mutex is best by far; schedctl comes next, \
        TP-MCS falls rapidly, yielding makes TP-MCS worse, and MCS collapses at once.",
    minutes: 6,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

pub const NATIVE: Figure = Figure {
    name: "damon-1",
    paper: Paper::Damon(1),
    title: "Throughput of lock algorithms as threads are added",
    remark: "Paper: Johnson, Athanassoulis, Stoica, Ailamaki, DaMoN 2009, section 3.2, Figure 1; \
        TM-1 in Shore-MT on a Sun T5220 (Niagara II) restricted to 16 contexts, one per pipeline. \
        Up to 100 % load all locks scale linearly and alike. Beyond that the adaptive pthread \
        mutex is best by far; TP-MCS with schedctl comes next, TP-MCS falls rapidly, yielding \
        makes TP-MCS worse, and plain MCS collapses at once.",
    minutes: 10,
    made: Made::Native(Native {
        benchmarks: &[&["tatp", "--locks", LOCKS]],
        records: Records::Grids,
        draw: Some(over_threads::draw),
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 4, 8, 12, 15, 16, 18, 20, 24, 28, 32][..], &[8, 15, 32]);
    let seconds = size.of(4.0, 2.0);
    lines_of("16 contexts", "niagara2-16", threads, seconds, seconds)
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let panel = "16 contexts";
    let against = |one: &str, other: &str, x: f64| results.ratio(panel, (one, x), (other, x));
    let mut claims: Vec<Claim> = ["mcs", "tpmcs", "yield", "schedctl"]
        .map(|lock| {
            claim(
                format!("at 15 threads {lock} is as fast as pthread, to a tenth"),
                against(lock, "pthread", 15.0),
                0.9..=1.1,
            )
        })
        .into();
    claims.extend(claims! {
        "at 32 threads pthread has at least 1.1 times schedctl's throughput",
            against("pthread", "schedctl", 32.0), 1.1..=ANY;
        "at 32 threads schedctl has more throughput than tpmcs",
            against("schedctl", "tpmcs", 32.0), 1.0..=ANY;
        "at 32 threads yielding gives tpmcs at most 1.05 times its throughput",
            against("yield", "tpmcs", 32.0), 0.0..=1.05;
        "at 32 threads mcs keeps at most .1 of its peak",
            results.kept(panel, "mcs", 32.0), 0.0..=0.1;
        "at 32 threads tpmcs keeps at most .6 of its peak",
            results.kept(panel, "tpmcs", 32.0), 0.0..=0.6;
        "at 32 threads tpmcs has at least twice mcs's throughput",
            against("tpmcs", "mcs", 32.0), 2.0..=ANY;
    });
    claims
}
