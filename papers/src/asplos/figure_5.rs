//! Figure 5: running threads at a fixed target.

use super::steadiness;
use crate::claim::{ANY, Claim, claims};
use crate::figure::{Figure, Made, Native, Paper, Simulated};
use crate::messages;
use crate::plan::{BACKOFF, CONTROLLED, SPINNING, Size, machine, mix, point};
use crate::record_view::{first_round, over_time, stepped};
use crate::view::Lines;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::chart::{Sign, index_of};
use unconvoy_measure::record::Record;
use unconvoy_sim::experiment::Measured;
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::workload::Workload;

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-5",
    paper: Paper::Asplos(5),
    title: "Running threads at a fixed target (simulated)",
    remark: "Paper: ASPLOS 2010, section 2.3, Figure 5; TM-1 with 63 clients on 64 contexts, the \
        target set to 32 by hand. Under load-triggered backoff the number of running threads \
        swings far to both sides of the target and wanders for long stretches below it, because a \
        sleeper wakes only when its time is over, and many wake at the same clock tick.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "s",
        panels,
        is_first_seed: true,
        ..Simulated::MEDIANS
    }),
};

pub const NATIVE: Figure = Figure {
    name: "asplos-5",
    paper: Paper::Asplos(5),
    title: "Running threads at a fixed target",
    remark: "Paper: Johnson, Stoica, Ailamaki, Mowry, ASPLOS 2010, section 2.3, Figure 5; TM-1 \
        with 63 clients on a Sun Niagara II of 64 contexts, the target set to 32 by hand. Until \
        load-triggered backoff is switched on, the number of running threads is fairly even; from \
        then on it swings far to both sides of the target and wanders for long stretches below \
        it, because a sleeper wakes only when its time is over, and many wake at the same clock \
        tick.",
    minutes: 1,
    made: Made::Native(Native {
        benchmarks: &[&["steadiness"]],
        draw: Some(draw),
        is_first_round: true,
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let at = |(series, lock, workload): (&str, &str, Workload)| Cell {
        panel: "TM-1".to_string(),
        series: series.to_string(),
        x: 63.0,
        task: Task::Watched(
            point(&machine("niagara2-64"), &workload, lock, 63, size.of(4.0, 1.5)),
            32.0,
            size.of(2_000_000, 2_000_000),
        ),
    };
    let (plain, with_checkpoints) = (mix("tm1"), mix("tm1").with_checkpoints());
    [
        ("no control", SPINNING, plain.clone()),
        ("backoff", BACKOFF, with_checkpoints.clone()),
        ("load control", CONTROLLED, plain),
        ("load control, checkpoints", CONTROLLED, with_checkpoints),
    ]
    .map(at)
    .into()
}

/// The counts of a line, without the first third, which is warm-up.
pub(super) fn sampled(results: &[Result], series: &str) -> Option<Vec<f64>> {
    let result = results.iter().find(|result| result.series == series)?;
    let Measured::Counts(counts) = &result.measured else { return None };
    Some(counts[counts.len() / 3..].iter().map(|&(_, count)| f64::from(count)).collect())
}

pub(super) fn mean(counts: &[f64]) -> f64 {
    counts.iter().sum::<f64>() / counts.len().max(1) as f64
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let counts = |series| sampled(results, series);
    let deviation = |counts: Vec<f64>| {
        let mean = mean(&counts);
        (counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>()
            / counts.len().max(1) as f64)
            .sqrt()
    };
    let (none, backoff, control) = (
        counts("no control").map(deviation),
        counts("backoff").map(deviation),
        counts("load control").map(deviation),
    );
    claims! {
        "under backoff the number of running threads varies at least twice as much as without \
            control (standard deviations)",
            backoff.zip(none).map(|(one, other)| one / other.max(0.1)), 2.0..=ANY;
        "under backoff the number varies at least 1.5 times as much as under load control",
            backoff.zip(control).map(|(one, other)| one / other.max(0.1)), 1.5..=ANY;
        "under backoff the number strays at least 16 threads from the target of 32",
            counts("backoff").map(|counts| {
                counts.iter().map(|count| (count - 32.0).abs()).fold(0.0, f64::max)
            }), 16.0..=ANY;
    }
}

pub(super) fn panels(results: &[Result]) -> Vec<Lines> {
    let line = |result: &Result| match &result.measured {
        Measured::Counts(counts) => {
            let places = counts.iter().map(|&(ns, count)| (ns as f64 / 1e9, f64::from(count)));
            Some((result.series.clone(), places.collect()))
        }
        _ => None,
    };
    vec![("threads that run or wait to run".to_string(), results.iter().filter_map(line).collect())]
}

/// Draws the awake threads over time in the first round, one line per load manager.
fn draw(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let mut series = Vec::new();
    let (mut end, mut most) = (0.0_f64, 0);
    for run in first_round(record) {
        let manager = run
            .get("cell")
            .and_then(Value::as_str)
            .with_context(|| messages::record_lacks("the load manager of a run"))?;
        let measured = run
            .get("measured")
            .cloned()
            .with_context(|| messages::record_lacks("the measurement of a run"))?;
        let counted: steadiness::Series = serde_json::from_value(measured)
            .with_context(|| messages::record_lacks("the counts of a run"))?;
        let ms = |ns: u64| ns as f64 / 1e6;
        let counts: Vec<(f64, u32)> =
            counted.counts.iter().map(|count| (ms(count.ns), count.awake)).collect();
        end = counts.iter().fold(end, |end, &(at, _)| end.max(at));
        most = counts.iter().fold(most, |most, &(_, count)| most.max(count));
        if series.is_empty() {
            series.push(stepped(
                Sign::of(index_of("target", names)),
                vec![(0.0, counted.target), (end, counted.target)],
            ));
        }
        series.push(stepped(Sign::of(index_of(manager, names)), counts));
    }
    ensure!(!series.is_empty(), messages::record_lacks("its time series"));
    Ok(over_time("threads awake", "ms", end, most, series))
}
