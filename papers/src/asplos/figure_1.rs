//! Figure 1: spinning and blocking as threads are added.

use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{BLOCKING, SPINNING, Size, tm1_lines};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-1",
    paper: Paper::Asplos(1),
    title: "Spinning and blocking as threads are added (simulated)",
    remark: "The paper's: Johnson, Stoica, Ailamaki, Mowry, ASPLOS 2010, section 1, Figure 1; TM-1 on a Sun Niagara II of 64 contexts. Blocking performs poorly beyond 32 threads, because it overwhelms the scheduler; spinning scales to the machine's 64 contexts, and beyond that its performance drops off drastically, because lock holders are preempted.",
    minutes: 20,
    made: Made::Simulated(Simulated { plan, claims, across: "threads", panels: view::throughput, table: None }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 8, 16, 24, 32, 40, 48, 56, 63, 72, 80, 96, 128][..], &[8, 32, 63, 128]);
    tm1_lines(&[("spinning", SPINNING), ("blocking", BLOCKING)], threads, size)
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let last = results.largest_x();
    claims! {
        "blocking has its peak at 24 to 48 threads",
            results.peak_at("TM-1", "blocking"), 24.0..=48.0;
        "at 63 threads blocking has at most .7 of spinning",
            results.ratio("TM-1", ("blocking", 63.0), ("spinning", 63.0)), 0.0..=0.7;
        "spinning at 63 threads has at least 1.7 times what it has at 32",
            results.ratio("TM-1", ("spinning", 63.0), ("spinning", 32.0)), 1.7..=ANY;
        "at 128 threads spinning keeps at most .5 of its peak",
            results.kept("TM-1", "spinning", 128.0), 0.0..=0.5;
        "blocking falls, but does not collapse: .3 of its peak or more at the most threads",
            results.kept("TM-1", "blocking", last), 0.3..=1.0;
    }
}
