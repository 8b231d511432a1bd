//! `bump`: how fast threads follow the sleep target; Johnson, Stoica, Ailamaki and Mowry (ASPLOS
//! 2010), Figure 8.
//!
//! Threads of this process contend for one mutex. The real controller does not interfere, because
//! its interval is set to an hour before the first contention starts it. Instead, a driver changes
//! the target in a fixed pattern and counts the awake threads.
//!
//! The number of awake threads comes from the sleep-slot buffer: all threads less the `S - W`
//! sleepers. A sleeper counts as awake as soon as its slot is cleared, before the kernel runs the
//! thread. When the target shrinks, the measured time therefore ends at the wake-up and not at the
//! thread's first instruction.
//!
//! By default the driver polls. Polling takes a processor, and the driver is preempted now and
//! then, so the largest gap between two samples is part of the result. With `--realtime` the driver
//! keeps its processor, and the threads have one processor less. With `--sampler contenders` the
//! lock's holder counts the awake threads, and the driver sleeps.

mod sampler;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use unconvoy::load::control::Control;
use unconvoy::runtime::controller_report;
use unconvoy::runtime::load_control;
use unconvoy_measure::arguments::threads;
use unconvoy_measure::cells::{Sample, Samples};
use unconvoy_measure::context::processors;
use unconvoy_measure::goal::{Goal, Judgement};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::{with_suffix, write};
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::{short, shown};
use unconvoy_measure::table::Table;

use crate::asplos::series::Series;
use crate::messages;
use sampler::{Sampler, Watch};
use unconvoy_bench::goals;
use unconvoy_bench::options::Common;
use unconvoy_bench::process;
use unconvoy_bench::threads::Threads;

/// Longer than any benchmark.
const NEVER_NS: u64 = 3_600_000_000_000;
/// Length of the sampling after a change.
const SAMPLED: Duration = Duration::from_millis(5);
/// Pause after the sampling, so that the driver's use of a processor does not count as load.
const REST: Duration = Duration::from_millis(20);
/// Time before the first change.
const SETTLE: Duration = Duration::from_millis(200);
const SECTION: Duration = Duration::from_nanos(100);
/// Least number of rounds for a verdict.
const ENOUGH: u32 = 20;

/// Options of `bump`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Number of contending threads [default: 4 per processor]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<u32>,
    /// How to count awake threads
    #[arg(long, value_enum, default_value_t = Sampler::Driver)]
    sampler: Sampler,
    /// Run the sampler with real-time priority, so that no contender preempts it; needs
    /// CAP_SYS_NICE
    #[arg(long)]
    realtime: bool,
}

/// One change of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Change {
    from: u32,
    to: u32,
}

impl Change {
    fn name(&self) -> String {
        format!("{} to {}", self.from, self.to)
    }
}

/// Numbers of threads that should sleep: all but two, half, all but two, none.
fn pattern(threads: u32) -> Vec<Change> {
    let targets = [threads.saturating_sub(2), threads / 2, threads.saturating_sub(2), 0];
    let from = [0].into_iter().chain(targets);
    from.zip(targets).map(|(from, to)| Change { from, to }).collect()
}

/// Runs `bump`: measures, prints and writes the record. With `--out` the time series go to
/// BASENAME.csv.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let common = &options.common;
    let rounds = common.runs.unwrap_or(ENOUGH);
    let threads = options.threads.unwrap_or(4 * processors());
    let parameters = json!({
        "threads": threads, "runs": rounds, "realtime": options.realtime,
        "sampler": options.sampler, "section_ns": SECTION.as_nanos() as u64,
        "sampled_ns": SAMPLED.as_nanos() as u64,
    });
    let mut record = common.begin("bump", parameters)?;
    let changes = pattern(threads);
    let samples = measure(&changes, threads, rounds, options.sampler, options.realtime)?;
    record.take(&changes, &samples)?;
    record.judgements = judge(&changes, &samples, rounds);
    record.tables = vec![table(&changes, &samples, threads)];
    record.notes.push(
        "If a count was never steady, its time is the length of the sampling, 5 ms or more, \
        which is a lower bound. For the goal of the first reaction, a change without a reaction \
        counts in the same way."
            .to_string(),
    );
    record.notes.push(
        "--seconds and --seed have no effect: the pattern and its timing are fixed.".to_string(),
    );
    if let Some(out) = &common.out {
        write(&with_suffix(out, ".csv"), &csv(&changes, &samples)?)?;
    }
    record.finish(common.out.as_deref())
}

fn measure(
    changes: &[Change],
    threads: u32,
    rounds: u32,
    sampler: Sampler,
    is_realtime: bool,
) -> anyhow::Result<Samples<Series>> {
    let interrupts = Interrupts::of_process()?;
    let control = load_control();
    control.interval.store(NEVER_NS, Relaxed);
    let watch = Watch::new(threads);
    let inside: Arc<dyn Fn() + Send + Sync> = match sampler {
        Sampler::Driver => Arc::new(|| {}),
        Sampler::Contenders => Arc::new({
            let watch = Arc::clone(&watch);
            move || watch.sample()
        }),
    };
    let contenders = Threads::contend_under::<Control>(threads, SECTION, inside)?;
    if is_realtime {
        process::enter_realtime().context(messages::realtime_denied())?;
    }
    thread::sleep(SETTLE);
    let mut samples = Samples { all: Vec::new(), ended_by: None };
    'rounds: for round in 1..=rounds {
        for (cell, change) in changes.iter().enumerate() {
            if let Err(error) = interrupts.check() {
                samples.ended_by = Some(error.into());
                break 'rounds;
            }
            let value = watch.change(change.to, sampler, SAMPLED);
            samples.all.push(Sample::new(cell, round, value));
            thread::sleep(REST);
        }
    }
    control.slots.set_target(0);
    drop(contenders);
    anyhow::ensure!(controller_report().ticks == 0, messages::controller_interfered());
    Ok(samples)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Time to a steady count, microseconds; a lower bound if the count never got steady.
fn steady_us(series: &Series) -> f64 {
    us(series.steady().unwrap_or(series.end_ns))
}

/// Time to the first reaction, microseconds; a lower bound if there was none. `None` if the count
/// was the expected one from the start, so that no thread had to react.
fn first_reaction_us(series: &Series) -> Option<f64> {
    let end = || us(series.first_reaction().unwrap_or(series.end_ns));
    (series.before != series.expected).then(end)
}

/// Judges the slowest change, by its median.
fn judge(changes: &[Change], samples: &Samples<Series>, rounds: u32) -> Vec<Judgement> {
    let worst = |goal: &Goal, metric: &dyn Fn(&Series) -> Option<f64>| {
        let medians = changes.iter().enumerate().filter_map(|(cell, change)| {
            let spread = samples.spread(cell, metric)?;
            Some((
                spread.median,
                format!("{}; median of {}, max {}", change.name(), spread.count, short(spread.max)),
            ))
        });
        let judgement = goal.judge_worst(medians);
        if rounds < ENOUGH {
            judgement.without_verdict("needs --runs 20 or more")
        } else {
            judgement
        }
    };
    vec![
        worst(&goals::BUMP_FIRST, &first_reaction_us),
        worst(&goals::BUMP_STEADY, &|series| Some(steady_us(series))),
    ]
}

fn table(changes: &[Change], samples: &Samples<Series>, threads: u32) -> Table {
    let title = format!(
        "{threads} threads, one mutex, sections of 100 ns; after each change of the target, \
            median (min..max), us"
    );
    let mut table = Table::new(
        title,
        [
            "target",
            "first reaction",
            "no reaction",
            "steady (within 1)",
            "never steady",
            "largest gap between samples",
        ],
    );
    let text = |spread| shown(spread, short);
    for (cell, change) in changes.iter().enumerate() {
        let of_cell: Vec<&Series> = samples
            .all
            .iter()
            .filter(|sample| sample.cell == cell)
            .map(|sample| &sample.value)
            .collect();
        let without = |time: fn(&Series) -> Option<u64>| {
            of_cell.iter().filter(|series| time(series).is_none()).count()
        };
        table.row([
            change.name(),
            text(samples.spread(cell, |series| Some(us(series.first_reaction()?)))),
            format!("{} of {}", without(Series::first_reaction), of_cell.len()),
            text(samples.spread(cell, |series| Some(steady_us(series)))),
            format!("{} of {}", without(Series::steady), of_cell.len()),
            text(samples.spread(cell, |series| Some(us(series.largest_gap_ns)))),
        ]);
    }
    table
}

/// All changes of the count, as CSV.
fn csv(changes: &[Change], samples: &Samples<Series>) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["round", "target_before", "target", "time_ns", "awake"])?;
    for sample in &samples.all {
        let change = &changes[sample.cell];
        let first = (0, sample.value.before);
        let points = sample.value.points.iter().map(|point| (point.ns, point.awake));
        for (ns, awake) in [first].into_iter().chain(points) {
            writer.serialize((sample.round, change.from, change.to, ns, awake))?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asplos::series::Point;

    #[test]
    fn pattern_raises_and_lowers_target() {
        let steps: Vec<(u32, u32)> =
            pattern(8).into_iter().map(|change| (change.from, change.to)).collect();
        assert_eq!(steps, [(0, 6), (6, 4), (4, 6), (6, 0)]);
    }

    #[test]
    fn change_without_reaction_counts_against_the_goal() {
        let never = |before| Series { end_ns: 5_000_000, ..Series::new(before, 2) };
        assert_eq!([8, 2].map(|before| first_reaction_us(&never(before))), [Some(5000.0), None]);
        let mut reacts = never(8);
        reacts.points.push(Point { ns: 3_000, awake: 7 });
        assert_eq!(first_reaction_us(&reacts), Some(3.0));
        let sample = |(number, value)| Sample::new(0, number, value);
        let all = (1..=ENOUGH).zip([reacts].into_iter().chain((1..ENOUGH).map(|_| never(8))));
        let samples = Samples { all: all.map(sample).collect(), ended_by: None };
        let judgements = judge(&[Change { from: 0, to: 6 }], &samples, ENOUGH);
        assert_eq!(judgements[0].measured, Some(5000.0));
    }
}
