//! Figure 2: lock implementations on 64 contexts.

use super::locks::lines_of;
use crate::claim::{Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::Size;
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-damon-2",
    paper: Paper::Damon(2),
    title: "Lock implementations on 64 contexts (simulated)",
    remark: "Paper: DaMoN 2009, section 3.3, Figure 2; as Figure 1, with all 64 contexts. mcs, \
        tpmcs and yield behave as on 16. The pthread mutex stops scaling at about 39 threads, and \
        schedctl becomes nearly useless.",
    minutes: 9,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads =
        size.of(&[1_u32, 16, 24, 31, 37, 39, 47, 56, 63, 72, 80, 96, 128][..], &[31, 39, 63, 96]);
    lines_of("64 contexts", "niagara2-64", threads, size.of(2.0, 1.5), size.of(2.0, 0.1))
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let panel = "64 contexts";
    let against = |one: &str, other: &str, x: f64| results.ratio(panel, (one, x), (other, x));
    claims! {
        "pthread peaks at 31 to 47 threads", results.peak_at(panel, "pthread"), 31.0..=47.0;
        "at 63 threads tpmcs has 1.4 to 2.8 times pthread's throughput (paper: 2)",
            against("tpmcs", "pthread", 63.0), 1.4..=2.8;
        "at 96 threads mcs keeps at most .1 of its peak",
            results.kept(panel, "mcs", 96.0), 0.0..=0.1;
        "at 96 threads tpmcs keeps at most .6 of its peak",
            results.kept(panel, "tpmcs", 96.0), 0.0..=0.6;
        "at 96 threads schedctl has at most 1.3 times tpmcs's throughput",
            against("schedctl", "tpmcs", 96.0), 0.0..=1.3;
        "at 96 threads yielding gives tpmcs at most 1.05 times its throughput",
            against("yield", "tpmcs", 96.0), 0.0..=1.05;
    }
}
