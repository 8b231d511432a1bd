//! Figure 3: where processor time goes under a spin lock.

use crate::claim::{Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{SPINNING, Size, tm1_lines};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::outcome::{Outcome, Parts};

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-3",
    paper: Paper::Asplos(3),
    title: "Where processor time goes under a spin lock (simulated)",
    remark: "Paper: ASPLOS 2010, section 2, Figure 3; TM-1 with TP-MCS on 64 contexts. At the \
        peak, less than 10 % of processor time goes into spinning on contended locks. Above 100 % \
        utilisation priority inversions soon dominate, and waste up to 85 % of processor time.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads",
        panels: view::contexts,
        ..Simulated::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads =
        size.of(&[1_u32, 16, 32, 48, 56, 63, 66, 72, 80, 96, 112, 128][..], &[32, 63, 128]);
    tm1_lines(&[("spinning", SPINNING)], threads, size)
}

/// A part as a fraction of the used processor time.
fn part(outcome: Option<&Outcome>, of: impl Fn(&Parts) -> f64) -> Option<f64> {
    outcome.map(|outcome| {
        let contexts = &outcome.contexts;
        of(contexts) / (contexts.working + contexts.spinning + contexts.inverted)
    })
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let at = |x: f64| results.at("TM-1", "spinning", x);
    claims! {
        "at 63 threads at most .1 of the time is spent spinning on locks whose holders run",
            part(at(63.0), |parts| parts.spinning), 0.0..=0.1;
        "at 63 threads at most .1 of the time is lost to inversion",
            part(at(63.0), |parts| parts.inverted), 0.0..=0.1;
        "at 128 threads inversion takes .6 to .95 of the time (paper: up to .85)",
            part(at(128.0), |parts| parts.inverted), 0.6..=0.95;
        "at 128 threads at most .1 of the time is spent spinning on locks whose holders run",
            part(at(128.0), |parts| parts.spinning), 0.0..=0.1;
    }
}
