//! Figure 6: projected speed-up by data independence and by conflict density.

use super::programs::{PredictedLine, at, plan, projected};
use crate::claim::{ANY, Claim, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::view::Lines;
use unconvoy_sim::grid::Result;

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-syncchar-6",
    paper: Paper::Syncchar(6),
    title: "Projected speed-up by data independence and by conflict density (simulated)",
    remark: "The paper's: Porter, Hofmann, Witchel, 2008, section 5, Figure 6; the same programs. All of Prob's projected speed-up is data independence; every section of RW conflicts at least once, yet its speed-up is substantial; RB-Tree has both.",
    minutes: 1,
    made: Made::Simulated(Simulated { plan, claims, across: "processors", panels: panels, table: None }),
};

const SPEED_UPS: [PredictedLine; 3] = [
    ("by data independence", |projection| projection.estimate.independence),
    ("and by conflict density", |projection| projection.estimate.speed_up()),
    ("transactions", |projection| projection.locked_ns / projection.transacted_ns),
];

fn panels(results: &[Result]) -> Vec<Lines> {
    projected(results, "speed-up over the lock", &SPEED_UPS)
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let by_density = |program: &str| {
        let estimate = at(results, program, 32.0)?.estimate;
        Some(1.0 - estimate.independence / estimate.speed_up())
    };
    let gained = |program: &str| at(results, program, 32.0).map(|one| one.locked_ns / one.transacted_ns);
    claims! {
        "Prob: at 32 processors all is independence: at most .05 by density",
            by_density("Prob"), 0.0..=0.05;
        "RW: every section conflicts: at 32 processors an independence of 1.5 at most",
            at(results, "RW", 32.0).map(|one| one.estimate.independence), 1.0..=1.5;
        "RW: and yet transactions gain 8 times or more", gained("RW"), 8.0..=ANY;
        "RB-Tree: both: .2 to .8 by density at 32 processors", by_density("RB-Tree"), 0.2..=0.8;
        "RB-Tree: transactions gain 8 times or more at 32 processors", gained("RB-Tree"), 8.0..=ANY;
    }
}
