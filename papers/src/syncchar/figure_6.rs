//! Figure 6: projected speed-up by data independence and by conflict density.

use super::programs::{CHANGES, at, plan, projected, published_plan};
use crate::claim::{ANY, Claim, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::view::{Lines, Quantity};
use unconvoy_sim::experiment::Projection;
use unconvoy_sim::grid::Result;

pub const SIMULATED: Figure = Figure {
    name: "sim-syncchar-6",
    paper: Paper::Syncchar(6),
    title: "Projected speed-up by data independence and by conflict density (simulated)",
    remark: "Paper: Porter, Hofmann, Witchel, 2008, section 5, Figure 6; the same programs. All \
        of Prob's projected speed-up is data independence; every section of RW conflicts at least \
        once, yet its speed-up is substantial; RB-Tree gains from both.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "processors",
        panels,
        changes: CHANGES,
        ..Simulated::MEDIANS
    }),
};

/// The figure with the locks of the paper's kernel.
pub const PUBLISHED: Figure = Figure {
    name: "sim-syncchar-6-published",
    paper: Paper::Syncchar(6),
    title: "Projected speed-up with the paper's locks (simulated)",
    remark: "Paper: Porter, Hofmann, Witchel, 2008, section 5, Figure 6; the programs of \
        Figure 5 under test-and-set locks.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan: published_plan,
        claims,
        across: "processors",
        panels,
        ..Simulated::MEDIANS
    }),
};

const SPEED_UPS: [Quantity<Projection>; 3] = [
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
    let gained =
        |program: &str| at(results, program, 32.0).map(|one| one.locked_ns / one.transacted_ns);
    claims! {
        "Prob: at 32 processors at most .05 of the speed-up comes from conflict density",
            by_density("Prob"), 0.0..=0.05;
        "RW: at 32 processors the data independence is at most 1.5",
            at(results, "RW", 32.0).map(|one| one.estimate.independence), 1.0..=1.5;
        "RW: at 32 processors transactions are at least 8 times as fast as the lock",
            gained("RW"), 8.0..=ANY;
        "RB-Tree: at 32 processors .2 to .8 of the speed-up comes from conflict density",
            by_density("RB-Tree"), 0.2..=0.8;
        "RB-Tree: at 32 processors transactions are at least 8 times as fast as the lock",
            gained("RB-Tree"), 8.0..=ANY;
    }
}
