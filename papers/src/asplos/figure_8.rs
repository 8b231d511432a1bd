//! Figure 8: bump test: threads that are awake after changes of the sleep target.

use super::series;
use crate::claim::{ANY, Claim, claims};
use crate::figure::{Figure, Made, Native, Paper, Simulated};
use crate::plan::{CONTROLLED, Size, machine};
use crate::record_view::{first_round, over_time, stepped};
use crate::view::Lines;
use anyhow::ensure;
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::chart::{colour, index_of};
use unconvoy_measure::record::Record;
use unconvoy_sim::experiment::Task;
use unconvoy_sim::experiment::{Bump, Measured, Reaction};
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::workload;

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-8",
    paper: Paper::Asplos(8),
    title: "Bump test: threads that are awake after changes of the sleep target (simulated)",
    remark: "The paper's: ASPLOS 2010, section 5.1, Figure 8; a microbenchmark with one lock on 64 contexts. The number of active threads follows each change at once: the first thread reacts within 30 us, and the new level is reached within 200 us.",
    minutes: 1,
    made: Made::Simulated(Simulated { plan, claims, across: "us after the change", panels, table: None }),
};

/// The figure on this machine.
pub const NATIVE: Figure = Figure {
    name: "asplos-8",
    paper: Paper::Asplos(8),
    title: "Bump test: threads that are not asleep after changes of the sleep target",
    remark: "The paper's: ASPLOS 2010, section 5.1, Figure 8; a microbenchmark with one lock on a Sun Niagara II of 64 contexts. The number of active threads follows each step of the target at once, in both directions: the first thread reacts within 30 us, and the new level is reached and kept within 200 us.",
    minutes: 1,
    made: Made::Native(Native { benchmarks: &[&["bump"]], draw: Some(draw), is_first_round: true, ..Native::MEDIANS }),
};

fn plan(size: Size) -> Vec<Cell> {
    let targets = size.of(vec![8, 24, 48, 32, 40, 16, 0], vec![24, 48, 16]);
    let bump = Bump {
        machine: machine("niagara2-64"),
        // Sections so long that who waits for 15 others has waited for 20 us: before that, a waiter does not ask load
        // control (with the 60 ns of the paper's microbenchmark, 63 make it 10 us).
        workload: workload::counter(1_500, 1_000, 0),
        lock: CONTROLLED.to_string(),
        threads: 63, // and one context for who sets the target
        targets,
        hold_ns: 5_000_000,
        seed: 0,
    };
    vec![Cell { panel: "bump".to_string(), series: "load control".to_string(), x: 0.0, task: Task::Bump(bump) }]
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let reactions = results.iter().find_map(|result| match &result.measured {
        Measured::Reactions(reactions) => Some(reactions),
        _ => None,
    });
    // What never came took for ever.
    let worst = |of: fn(&Reaction) -> Option<u64>| {
        reactions.filter(|reactions| !reactions.is_empty()).map(|reactions| {
            reactions.iter().map(|reaction| of(reaction).map_or(ANY, |ns| ns as f64 / 1e3)).fold(0.0, f64::max)
        })
    };
    claims! {
        "the first thread reacts within 60 us (paper: 30)",
            worst(|reaction| reaction.first_ns), 0.0..=60.0;
        "the number is within a twentieth of what it should be after 400 us (paper: 200)",
            worst(|reaction| reaction.settled_ns), 0.0..=400.0;
    }
}

/// Microseconds after a change that are drawn.
const DRAWN_US: f64 = 1_000.0;

fn panels(results: &[Result]) -> Vec<Lines> {
    let reactions = results.iter().find_map(|result| match &result.measured {
        Measured::Reactions(reactions) => Some(reactions),
        _ => None,
    });
    let line = |reaction: &Reaction| {
        let places = reaction.awake.iter().map(|&(ns, count)| (ns as f64 / 1e3, f64::from(count)));
        (format!("{} to {} asleep", reaction.from, reaction.to), places.filter(|place| place.0 <= DRAWN_US).collect())
    };
    vec![("threads awake".to_string(), reactions.into_iter().flatten().map(line).collect())]
}

/// The threads that are not asleep in the first round, one change after the other, and what was asked for.
fn draw(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let measured = first_round(record).filter_map(|run| run.get("measured").cloned());
    let changes: Vec<series::Series> = measured.filter_map(|measured| serde_json::from_value(measured).ok()).collect();
    ensure!(!changes.is_empty(), "this record has no time series");
    let (mut asked, mut awake, mut begin) = (Vec::new(), Vec::new(), 0);
    for change in &changes {
        let ms = |ns: u64| (begin + ns) as f64 / 1e6;
        asked.extend([(ms(0), change.expected), (ms(change.end_ns), change.expected)]);
        let mut last = change.before;
        awake.push((ms(0), last));
        for step in &change.points {
            // Level until the moment of the change.
            awake.extend([(ms(step.ns), last), (ms(step.ns), step.awake)]);
            last = step.awake;
        }
        awake.push((ms(change.end_ns), last));
        begin += change.end_ns;
    }
    let most = asked.iter().chain(&awake).map(|&(_, count)| count).max().unwrap_or(1);
    let mut line = |name: &str, counts| stepped(colour(index_of(name, names)), counts);
    let series = vec![line("asked for", asked), line("not asleep", awake)];
    let across = "ms sampled, the rests between the changes left out";
    Ok(over_time("threads", across, begin as f64 / 1e6, most, series))
}
