//! `idle`: checks that unconvoy does nothing without contention.
//!
//! Three phases of this process are interleaved: threads that sleep in a loop; the same with an
//! uncontended mutex per thread; and the time after contention, once the controller has exited.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use unconvoy::Mutex;
use unconvoy::runtime::controller_report;
use unconvoy::runtime::load_control;
use unconvoy_measure::cells::Samples;
use unconvoy_measure::context::processors;
use unconvoy_measure::goal::{Goal, Judgement};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::{short, shown};
use unconvoy_measure::table::Table;

use crate::controller;
use crate::goals;
use crate::options::Common;
use crate::process;
use crate::threads::Threads;

/// Threads of the first two phases, and their sleep per iteration.
const THREADS: u32 = 4;
const NAP: Duration = Duration::from_millis(1);
/// Time from a phase's start to its window.
const SETTLE: Duration = Duration::from_millis(50);
/// Duration of the contention before the third phase.
const CONTENTION: Duration = Duration::from_millis(300);

/// Options of `idle`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
}

/// Activity during the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    WithoutLocks,
    OwnLocks,
    AfterContention,
}

const PHASES: [Phase; 3] = [Phase::WithoutLocks, Phase::OwnLocks, Phase::AfterContention];

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::WithoutLocks => "4 threads that sleep in a loop",
            Self::OwnLocks => "the same, each with a mutex of its own",
            Self::AfterContention => "after contention, the controller gone",
        }
    }
}

/// Counts during one window.
#[derive(Debug, Clone, Serialize)]
struct Counts {
    /// Controllers started.
    starts: u32,
    /// Controllers' wake-ups.
    ticks: u32,
    /// Sleepers woken by unconvoy.
    woken: u32,
    /// Threads at the end, besides those of the phase.
    extra_threads: i64,
    /// Context switches of the process per second.
    switches_per_s: f64,
    /// Controllers started by the contention before the window.
    starts_before: u32,
}

impl Counts {
    /// Returns the sum of all counts that should be zero.
    fn unwanted(&self) -> f64 {
        f64::from(self.starts)
            + f64::from(self.ticks)
            + f64::from(self.woken)
            + self.extra_threads as f64
    }
}

/// Counts for `seconds`, with `own` threads besides the main thread.
fn window(seconds: f64, own: usize, starts_before: u32) -> anyhow::Result<Counts> {
    let slots = &load_control().slots;
    let (begin, switches, report, totals) =
        (Instant::now(), process::context_switches()?, controller_report(), slots.totals());
    Interrupts::of_process()?.sleep(Duration::from_secs_f64(seconds))?;
    let (report_after, totals_after) = (controller_report(), slots.totals());
    let switches = process::context_switches()? - switches;
    Ok(Counts {
        starts: report_after.starts.wrapping_sub(report.starts),
        ticks: report_after.ticks.wrapping_sub(report.ticks),
        woken: totals_after.woken.wrapping_sub(totals.woken),
        extra_threads: process::threads()? as i64 - own as i64 - 1,
        switches_per_s: switches as f64 / begin.elapsed().as_secs_f64(),
        starts_before,
    })
}

fn measure(phase: Phase, seconds: f64) -> anyhow::Result<Counts> {
    match phase {
        Phase::WithoutLocks => napping(seconds, false),
        Phase::OwnLocks => napping(seconds, true),
        Phase::AfterContention => after_contention(seconds),
    }
}

fn napping(seconds: f64, locking: bool) -> anyhow::Result<Counts> {
    let _nappers = Threads::start(THREADS, None, || {
        let mutex = Mutex::new(0_u64);
        move || {
            if locking {
                *mutex.lock() += 1;
            }
            thread::sleep(NAP);
        }
    })?;
    thread::sleep(SETTLE);
    window(seconds, THREADS as usize, 0)
}

fn after_contention(seconds: f64) -> anyhow::Result<Counts> {
    let starts = controller_report().starts;
    let contenders = Threads::contend(4 * processors(), Duration::from_nanos(100))?;
    thread::sleep(CONTENTION);
    drop(contenders);
    controller::await_exit()?;
    thread::sleep(SETTLE);
    window(seconds, 0, controller_report().starts.wrapping_sub(starts))
}

/// Measures, prints and writes the record.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let common = &options.common;
    let parameters = json!({
        "threads": THREADS, "nap_ns": NAP.as_nanos() as u64, "seconds": common.seconds,
        "runs": common.runs(),
    });
    let mut record = common.begin("idle", parameters)?;
    let name = |phase: &Phase| phase.name().to_string();
    let samples =
        common.interleave(&mut record, &PHASES, name, |&phase| measure(phase, common.seconds))?;
    record.judgements = vec![judge(&goals::IDLE, &samples, 1), judge_gone(&samples)];
    record.tables = vec![table(&samples)];
    record.finish(common.out.as_deref())
}

/// Judges the worst window instead of the median, because a single wake-up is too many.
fn judge(goal: &Goal, samples: &Samples<Counts>, phase: usize) -> Judgement {
    match samples.spread(phase, |counts| Some(counts.unwanted())) {
        Some(spread) => goal.judge(
            spread.max,
            format!(
                "largest of {} windows: starts + controller wake-ups + sleepers woken + extra \
                 threads",
                spread.count
            ),
        ),
        None => goal.not_judged("nothing was measured"),
    }
}

fn judge_gone(samples: &Samples<Counts>) -> Judgement {
    let judgement = judge(&goals::GONE, samples, 2);
    let started = samples.spread(2, |counts| Some(f64::from(counts.starts_before)));
    if started.is_some_and(|started| started.min >= 1.0) {
        judgement
    } else {
        judgement.without_verdict("contention started no controller in some window")
    }
}

fn table(samples: &Samples<Counts>) -> Table {
    let mut table = Table::new(
        "While there is nothing to do: median (min..max) per window",
        [
            "phase",
            "controller starts",
            "controller wake-ups",
            "sleepers woken",
            "threads beyond the program's",
            "context switches/s",
            "controllers started by the contention before",
        ],
    );
    for (index, phase) in PHASES.into_iter().enumerate() {
        let metrics: [fn(&Counts) -> f64; 6] = [
            |counts| counts.starts.into(),
            |counts| counts.ticks.into(),
            |counts| counts.woken.into(),
            |counts| counts.extra_threads as f64,
            |counts| counts.switches_per_s,
            |counts| counts.starts_before.into(),
        ];
        let text = |metric: fn(&Counts) -> f64| {
            shown(samples.spread(index, |counts| Some(metric(counts))), short)
        };
        table.line(phase.name(), metrics.map(text));
    }
    table
}
