//! Figure 2: lock implementations on 64 contexts.

use super::locks::lines_of;
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::Size;
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-damon-2",
    paper: Paper::Damon(2),
    title: "Lock implementations on 64 contexts (simulated)",
    remark: "The paper's: DaMoN 2009, section 3.3, Figure 2; as Figure 1 with all 64 contexts. mcs, tpmcs and yield behave as before. The pthread mutex stops scaling at about 39 threads, and schedctl becomes nearly useless.",
    minutes: 9,
    made: Made::Simulated(Simulated { plan, claims, across: "threads", panels: view::throughput, table: None }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 16, 24, 31, 37, 39, 47, 56, 63, 72, 80, 96, 128][..], &[31, 39, 63, 96]);
    lines_of("64 contexts", "niagara2-64", threads, size.of(2.0, 1.5))
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let panel = "64 contexts";
    let against = |one: &str, other: &str, x: f64| results.ratio(panel, (one, x), (other, x));
    claims! {
        "pthread has its peak at 31 to 47 threads", results.peak_at(panel, "pthread"), 31.0..=47.0;
        "at 63 threads tpmcs has 1.4 times what pthread has or more (paper: 2)",
            against("tpmcs", "pthread", 63.0), 1.4..=ANY;
        "mcs freezes: at most .1 of its peak at 96 threads",
            results.kept(panel, "mcs", 96.0), 0.0..=0.1;
        "tpmcs falls: at most .6 of its peak at 96 threads",
            results.kept(panel, "tpmcs", 96.0), 0.0..=0.6;
        "schedctl hardly helps: at most 1.3 times tpmcs at 96 threads",
            against("schedctl", "tpmcs", 96.0), 0.0..=1.3;
        "yielding makes tpmcs no better: at most 1.05 times",
            against("yield", "tpmcs", 96.0), 0.0..=1.05;
    }
}
