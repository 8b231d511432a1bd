//! Figure 8: bump test: threads awake after changes of the sleep target.

use super::series;
use crate::claim::{ANY, Claim, claims};
use crate::figure::{Change, Figure, Made, Native, Paper, Simulated};
use crate::messages;
use crate::plan::{CONTROLLED, Size, cell, machine};
use crate::record_view::{first_round, over_time, stepped};
use crate::view::Lines;
use anyhow::ensure;
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::chart::{Sign, index_of};
use unconvoy_measure::record::Record;
use unconvoy_sim::experiment::Task;
use unconvoy_sim::experiment::{Bump, Measured, Reaction};
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::workload;

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-8",
    paper: Paper::Asplos(8),
    title: "Bump test: threads awake after changes of the sleep target (simulated)",
    remark: "Paper: ASPLOS 2010, section 5.1, Figure 8; a microbenchmark with one lock on 64 \
        contexts. The number of active threads follows each change at once: the first thread \
        reacts within 30 us, and the new level is reached within 200 us.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "us after the change",
        panels,
        changes: CHANGES,
        is_first_seed: true,
        ..Simulated::MEDIANS
    }),
};

const CHANGES: &[Change] = &[
    Change {
        paper: "a section of 40 to 80 ns (section 4)",
        here: "a section of 1.5 us",
        why: "waiters here consult load control only after 20 us, and the last of 63 queued \
            threads would acquire a lock with sections of 60 ns after 10 us; with 1.5 us a waiter \
            behind 15 others waits for 20 us",
    },
    Change {
        paper: "up to 64 threads (the axis of the figure)",
        here: "63 threads",
        why: "the thread that sets the target has the 64th context, and need not wait for one",
    },
    Change {
        paper: "a pattern of 75 ms that leaves 24 to 64 threads running (the axes)",
        here: "targets for 5 ms each that leave 15 to 63 running",
        why: "the number of threads is stable after .1 ms, and more and larger changes are a \
            harder test",
    },
];

/// The figure with the paper's parameters, under load control as published and as shipped.
pub const PUBLISHED: Figure = Figure {
    name: "sim-asplos-8-published",
    paper: Paper::Asplos(8),
    title: "Bump test with the paper's parameters: threads awake (simulated)",
    remark: "Paper: ASPLOS 2010, section 5.1, Figure 8; sections of 60 ns, and targets that leave \
        24 to 64 threads running, 15 ms each. Load control as published claims a sleep slot at \
        once, as shipped only after a wait of 20 us. With 64 threads the setter of the target has \
        no context of its own, and waits for one.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan: published_plan,
        claims: published_claims,
        across: "us after the change",
        panels: published_panels,
        is_first_seed: true,
        ..Simulated::MEDIANS
    }),
};

/// Series, lock and threads of the figure with the paper's parameters.
const PUBLISHED_SERIES: [(&str, &str, u32); 4] = [
    ("63 threads, as published", "tpmcs+published", 63),
    ("63 threads, as shipped", CONTROLLED, 63),
    ("64 threads, as published", "tpmcs+published", 64),
    ("64 threads, as shipped", CONTROLLED, 64),
];

pub const NATIVE: Figure = Figure {
    name: "asplos-8",
    paper: Paper::Asplos(8),
    title: "Bump test: threads awake after changes of the sleep target",
    remark: "Paper: ASPLOS 2010, section 5.1, Figure 8; a microbenchmark with one lock on a Sun \
        Niagara II of 64 contexts. The number of active threads follows each step of the target \
        at once, in both directions: the first thread reacts within 30 us, and the new level is \
        reached and kept within 200 us.",
    minutes: 1,
    made: Made::Native(Native {
        benchmarks: &[&["bump"]],
        draw: Some(draw),
        is_first_round: true,
        ..Native::MEDIANS
    }),
};

fn bump(lock: &str, section_ns: u64, threads: u32, targets: Vec<u32>, hold_ns: u64) -> Bump {
    Bump {
        machine: machine("niagara2-64"),
        workload: workload::counter(section_ns, 1_000, 0),
        lock: lock.to_string(),
        threads,
        targets,
        hold_ns,
        seed: 0,
    }
}

fn plan(size: Size) -> Vec<Cell> {
    let targets = size.of(vec![8, 24, 48, 32, 40, 16, 0], vec![24, 48, 16]);
    let bump = bump(CONTROLLED, 1_500, 63, targets, 5_000_000);
    vec![cell("bump", "load control", 0.0, Task::Bump(bump))]
}

fn published_plan(size: Size) -> Vec<Cell> {
    let targets = size.of(vec![8, 24, 40, 16, 0], vec![24, 40, 16]);
    let of = |(series, lock, threads): (&str, &str, u32)| {
        let bump = bump(lock, 60, threads, targets.clone(), 15_000_000);
        cell("bump", series, 0.0, Task::Bump(bump))
    };
    PUBLISHED_SERIES.map(of).into()
}

fn reactions_of<'a>(results: &'a [Result], series: &str) -> Option<&'a Vec<Reaction>> {
    let result = results.iter().find(|result| result.series == series)?;
    if let Measured::Reactions(reactions) = &result.measured { Some(reactions) } else { None }
}

/// The slowest reaction, microseconds. A reaction that never came counts as infinite, as does a
/// test in which the setter never ran.
fn slowest(reactions: Option<&Vec<Reaction>>, of: fn(&Reaction) -> Option<u64>) -> Option<f64> {
    let us = |reaction: &Reaction| of(reaction).map_or(ANY, |ns| ns as f64 / 1e3);
    reactions.map(|reactions| reactions.iter().map(us).reduce(f64::max).unwrap_or(ANY))
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let reactions = reactions_of(results, "load control");
    claims! {
        "the first thread reacts within 15 to 60 us (paper: 30)",
            slowest(reactions, |reaction| reaction.first_ns), 15.0..=60.0;
        "the number of awake threads comes within a twentieth of its new level in 100 to 400 us \
            (paper: 200)",
            slowest(reactions, |reaction| reaction.converged_ns), 100.0..=400.0;
    }
}

fn published_claims(results: &[Result]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (series, ..) in PUBLISHED_SERIES {
        let reactions = reactions_of(results, series);
        claims.extend(claims! {
            format!("{series}: the first thread reacts within 15 to 60 us (paper: 30)"),
                slowest(reactions, |reaction| reaction.first_ns), 15.0..=60.0;
            format!("{series}: the number of awake threads comes within a twentieth of its new \
                level in 100 to 400 us (paper: 200)"),
                slowest(reactions, |reaction| reaction.converged_ns), 100.0..=400.0;
        });
    }
    claims
}

/// Microseconds drawn after a change.
const DRAWN_US: f64 = 1_000.0;

fn panels(results: &[Result]) -> Vec<Lines> {
    vec![awake("threads awake".to_string(), reactions_of(results, "load control"))]
}

fn published_panels(results: &[Result]) -> Vec<Lines> {
    let panel = |(series, _, _): (&str, &str, u32)| {
        awake(format!("threads awake: {series}"), reactions_of(results, series))
    };
    PUBLISHED_SERIES.map(panel).into()
}

/// The number of awake threads after each change.
fn awake(title: String, reactions: Option<&Vec<Reaction>>) -> Lines {
    let line = |reaction: &Reaction| {
        let places = reaction.awake.iter().map(|&(ns, count)| (ns as f64 / 1e3, f64::from(count)));
        (
            format!("{} to {} asleep", reaction.from, reaction.to),
            places.filter(|place| place.0 <= DRAWN_US).collect(),
        )
    };
    (title, reactions.into_iter().flatten().map(line).collect())
}

/// Draws target and awake threads of the first round, one change after the other.
fn draw(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let measured = first_round(record).filter_map(|run| run.get("measured").cloned());
    let changes: Vec<series::Series> =
        measured.filter_map(|measured| serde_json::from_value(measured).ok()).collect();
    ensure!(!changes.is_empty(), messages::record_lacks("its time series"));
    let (mut asked, mut awake, mut begin) = (Vec::new(), Vec::new(), 0);
    for change in &changes {
        let ms = |ns: u64| (begin + ns) as f64 / 1e6;
        asked.extend([(ms(0), change.expected), (ms(change.end_ns), change.expected)]);
        let mut last = change.before;
        awake.push((ms(0), last));
        for step in &change.points {
            // The count is level until the change.
            awake.extend([(ms(step.ns), last), (ms(step.ns), step.awake)]);
            last = step.awake;
        }
        awake.push((ms(change.end_ns), last));
        begin += change.end_ns;
    }
    let most = asked.iter().chain(&awake).map(|&(_, count)| count).max().unwrap_or(1);
    let mut line = |name: &str, counts| stepped(Sign::of(index_of(name, names)), counts);
    let series = vec![line("asked for", asked), line("not asleep", awake)];
    let across = "ms sampled, the rests between the changes left out";
    Ok(over_time("threads", across, begin as f64 / 1e6, most, series))
}
