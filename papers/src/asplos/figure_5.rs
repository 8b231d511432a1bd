//! Figure 5: running threads at a fixed target.

use super::steadiness;
use crate::claim::{ANY, Claim, claims};
use crate::figure::{Figure, Made, Native, Paper, Simulated};
use crate::plan::{BACKOFF, CONTROLLED, SPINNING, Size, machine, mix, point};
use crate::record_view::{first_round, over_time, stepped};
use crate::view::Lines;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::chart::{colour, index_of};
use unconvoy_measure::record::Record;
use unconvoy_sim::experiment::Measured;
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::{Cell, Result};

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-5",
    paper: Paper::Asplos(5),
    title: "Running threads at a fixed target (simulated)",
    remark: "The paper's: ASPLOS 2010, section 2.3, Figure 5; TM-1 with 63 clients on 64 contexts, the target set to 32 by hand. Under load-triggered backoff the number of running threads swings far to both sides of the target and wanders for long stretches below it, because a sleeper comes back only when its time is over, and many come back at the same clock tick.",
    minutes: 1,
    made: Made::Simulated(Simulated { plan, claims, across: "s", panels, table: None }),
};

/// The figure on this machine.
pub const NATIVE: Figure = Figure {
    name: "asplos-5",
    paper: Paper::Asplos(5),
    title: "Running threads at a fixed target",
    remark: "The paper's: Johnson, Stoica, Ailamaki, Mowry, ASPLOS 2010, section 2.3, Figure 5; TM-1 with 63 clients on a Sun Niagara II of 64 contexts, the target set to 32 by hand. Until load-triggered backoff is switched on, the number of running threads is fairly even; from then on it swings far to both sides of the target and wanders for long stretches below it, because a sleeper comes back only when its time is over, and many come back at the same clock tick.",
    minutes: 1,
    made: Made::Native(Native {
        benchmarks: &[&["steadiness"]],
        draw: Some(draw),
        is_first_round: true,
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let at = |(series, lock): (&str, &str)| Cell {
        panel: "TM-1".to_string(),
        series: series.to_string(),
        x: 63.0,
        task: Task::Watched(
            point(&machine("niagara2-64"), &mix("tm1"), lock, 63, size.of(4.0, 1.5)),
            32.0,
            size.of(2_000_000, 2_000_000),
        ),
    };
    [("no control", SPINNING), ("backoff", BACKOFF), ("load control", CONTROLLED)].map(at).into()
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let counts = |series: &str| {
        results.iter().find(|result| result.series == series).and_then(|result| match &result.measured {
            Measured::Counts(counts) => {
                // The first third is the beginning.
                Some(counts[counts.len() / 3..].iter().map(|&(_, count)| f64::from(count)).collect::<Vec<_>>())
            }
            _ => None,
        })
    };
    let mean = |counts: &Vec<f64>| counts.iter().sum::<f64>() / counts.len().max(1) as f64;
    let deviation = |counts: Vec<f64>| {
        let mean = mean(&counts);
        (counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len().max(1) as f64).sqrt()
    };
    let (none, backoff, control) =
        (counts("no control").map(deviation), counts("backoff").map(deviation), counts("load control").map(deviation));
    claims! {
        "backoff's number of running threads varies twice as much as without it or more (standard deviations)",
            backoff.zip(none).map(|(one, other)| one / other.max(0.1)), 2.0..=ANY;
        "and 1.5 times as much as under load control or more",
            backoff.zip(control).map(|(one, other)| one / other.max(0.1)), 1.5..=ANY;
        "it strays 16 threads or more from the target of 32",
            counts("backoff").map(|counts| counts.iter().map(|count| (count - 32.0).abs()).fold(0.0, f64::max)), 16.0..=ANY;
    }
}

fn panels(results: &[Result]) -> Vec<Lines> {
    let line = |result: &Result| match &result.measured {
        Measured::Counts(counts) => {
            let places = counts.iter().map(|&(ns, count)| (ns as f64 / 1e9, f64::from(count)));
            Some((result.series.clone(), places.collect()))
        }
        _ => None,
    };
    vec![("threads that run or wait to run".to_string(), results.iter().filter_map(line).collect())]
}

/// The threads awake over time in the first round, under each load manager.
fn draw(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let mut series = Vec::new();
    let (mut end, mut most) = (0.0_f64, 0);
    for run in first_round(record) {
        let manager = run.get("cell").and_then(Value::as_str).context("a run of no load manager")?;
        let measured = run.get("measured").cloned().context("a run without a measurement")?;
        let counted: steadiness::Series = serde_json::from_value(measured).context("a run without counts")?;
        let ms = |ns: u64| ns as f64 / 1e6;
        let counts: Vec<(f64, u32)> = counted.counts.iter().map(|count| (ms(count.ns), count.awake)).collect();
        end = counts.iter().fold(end, |end, &(at, _)| end.max(at));
        most = counts.iter().fold(most, |most, &(_, count)| most.max(count));
        if series.is_empty() {
            series.push(stepped(colour(index_of("target", names)), vec![(0.0, counted.target), (end, counted.target)]));
        }
        series.push(stepped(colour(index_of(manager, names)), counts));
    }
    ensure!(!series.is_empty(), "this record has no time series");
    Ok(over_time("threads awake", "ms", end, most, series))
}
