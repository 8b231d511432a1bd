//! `steadiness`: how steadily the number of running threads stays at a fixed target, under load
//! control and under load-triggered backoff; Johnson, Stoica, Ailamaki and Mowry (ASPLOS 2010),
//! section 2.3 and Figure 5.
//!
//! Threads of this process contend for one lock of the default kind, first under one load manager
//! and then under the other. As in the paper, the target is set by hand. The real controller does
//! not interfere, because its interval is an hour. A driver takes its place, and reads the number
//! of awake threads instead of a sensor. The driver passes the number of threads that should sleep
//! to load control, or the overload to backoff.
//!
//! The managers themselves know the number of awake threads. The lock's holder reads that number,
//! at most once per [`SPACING`], so that only the driver takes a processor from the contenders.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use unconvoy::load::LoadManager;
use unconvoy::load::backoff::{Backoff, running_average};
use unconvoy::load::control::Control;
use unconvoy::load::sensor::Reading;
use unconvoy::primitive::{Clock as _, Native};
use unconvoy::runtime::load_control;
use unconvoy_measure::arguments::threads;
use unconvoy_measure::failure::Usage;
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::{short, shown};
use unconvoy_measure::table::Table;

use super::series::Point;
use crate::messages;
use unconvoy_bench::goals;
use unconvoy_bench::options::Common;
use unconvoy_bench::threads::Threads;

/// Longer than any benchmark.
const NEVER_NS: u64 = 3_600_000_000_000;
/// Shortest time between two counts.
const SPACING: Duration = Duration::from_micros(500);
/// Time before the first count: several of backoff's mean sleeps.
const SETTLE: Duration = Duration::from_millis(500);
const SECTION: Duration = Duration::from_nanos(100);

/// Options of `steadiness`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Number of contending threads (the paper has 63)
    #[arg(long, value_name = "N", default_value_t = 63, value_parser = threads)]
    threads: u32,
    /// Number of threads that should stay awake (the paper has 32)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = threads)]
    target: u32,
}

/// The load manager that keeps the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manager {
    #[serde(rename = "control")]
    Control,
    #[serde(rename = "backoff")]
    Backoff,
}

/// The rows of the table.
const MANAGERS: [Manager; 2] = [Manager::Control, Manager::Backoff];

/// Counts of one manager in one window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series {
    /// Threads that should have stayed awake.
    pub target: u32,
    /// All counts, in order of time.
    pub counts: Vec<Point>,
}

impl Series {
    /// Mean and standard deviation of the count, each value weighted by how long it lasted. `None`
    /// for fewer than two counts.
    fn mean_and_deviation(&self) -> Option<(f64, f64)> {
        let weighted = || {
            self.counts
                .windows(2)
                .map(|pair| (f64::from(pair[0].awake), (pair[1].ns - pair[0].ns) as f64))
        };
        let length: f64 = weighted().map(|(_, length)| length).sum();
        let mean = weighted().map(|(awake, length)| awake * length).sum::<f64>() / length;
        let variance =
            weighted().map(|(awake, length)| (awake - mean).powi(2) * length).sum::<f64>() / length;
        (length > 0.0).then_some((mean, variance.sqrt()))
    }
}

/// Counts awake threads. The lock's holder calls it.
struct Counter {
    manager: Manager,
    threads: u32,
    begin: Instant,
    is_open: AtomicBool,
    next: AtomicU64,
    counts: Mutex<Vec<Point>>,
}

impl Counter {
    fn awake(&self) -> u32 {
        let control = load_control();
        let asleep = match self.manager {
            Manager::Control => control.slots.sleeping(),
            Manager::Backoff => control.backed_off.load(Relaxed),
        };
        self.threads.saturating_sub(asleep)
    }

    fn count(&self) {
        if !self.is_open.load(Relaxed) {
            return;
        }
        let ns = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if ns >= self.next.load(Relaxed) {
            self.next.store(ns + SPACING.as_nanos() as u64, Relaxed);
            // The driver holds this mutex only at the start and the end.
            if let Ok(mut counts) = self.counts.try_lock() {
                counts.push(Point { ns, awake: self.awake() });
            }
        }
    }
}

/// Runs `steadiness`: measures, prints and writes the record.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    if options.target >= options.threads {
        return Err(Usage::of(anyhow::anyhow!(messages::target_not_below_threads())));
    }
    let common = &options.common;
    let parameters = json!({
        "threads": options.threads, "target": options.target, "seconds": common.seconds,
        "runs": common.runs(),
        "section_ns": SECTION.as_nanos() as u64,
    });
    let mut record = common.begin("steadiness", parameters)?;
    load_control().interval.store(NEVER_NS, Relaxed);
    let name = |manager: &Manager| format!("{manager:?}");
    let samples = common.interleave(&mut record, &MANAGERS, name, |&manager| {
        let window = Duration::from_secs_f64(common.seconds);
        match manager {
            Manager::Control => {
                measure::<Control>(manager, options.threads, options.target, window)
            }
            Manager::Backoff => {
                measure::<Backoff>(manager, options.threads, options.target, window)
            }
        }
    })?;
    let deviation = |series: &Series| Some(series.mean_and_deviation()?.1);
    let ratio = samples.ratio(1, 0, deviation);
    record.judgements = vec![ratio.map_or_else(
        || goals::STEADINESS.not_judged("both load managers are needed, and one was not measured"),
        |ratio| {
            goals::STEADINESS
                .judge(ratio.median, format!("median of {}, min {}", ratio.count, short(ratio.min)))
        },
    )];
    let title = format!(
        "{} threads, target {} awake; over {} s, median (min..max)",
        options.threads, options.target, common.seconds
    );
    let mut table = Table::new(title, ["load manager", "mean number awake", "standard deviation"]);
    for (cell, manager) in ["load control", "load-triggered backoff"].into_iter().enumerate() {
        let text = |metric: fn((f64, f64)) -> f64| {
            shown(
                samples.spread(cell, |series: &Series| Some(metric(series.mean_and_deviation()?))),
                short,
            )
        };
        table.row([manager.to_string(), text(|both| both.0), text(|both| both.1)]);
    }
    record.tables = vec![table];
    record.finish(common.out.as_deref())
}

fn measure<L: LoadManager>(
    manager: Manager,
    threads: u32,
    target: u32,
    window: Duration,
) -> anyhow::Result<Series> {
    let control = load_control();
    let counter = Arc::new(Counter {
        manager,
        threads,
        begin: Instant::now() + SETTLE,
        is_open: AtomicBool::new(false),
        next: AtomicU64::new(0),
        counts: Mutex::new(Vec::new()),
    });
    let inside = {
        let counter = Arc::clone(&counter);
        Arc::new(move || counter.count())
    };
    let contenders = Threads::contend_under::<L>(threads, SECTION, inside)?;
    let interval = Duration::from_nanos(L::INTERVAL_NS);
    let (mut overload, mut last) = (0.0, Native::now());
    while counter.begin.elapsed() < window {
        counter.is_open.store(Instant::now() >= counter.begin, Relaxed);
        let runnable = f64::from(counter.awake());
        let capacity = f64::from(target);
        let reading = Reading { runnable, waiting: (runnable - capacity).max(0.0), capacity };
        overload = running_average(overload, reading);
        let now = Native::now();
        match manager {
            Manager::Control => {
                control.slots.set_target(threads - target);
                control.slots.serve_turns(last, now, control.sleep.load(Relaxed));
            }
            Manager::Backoff => control.set_overload(overload),
        }
        last = now;
        thread::sleep(interval);
    }
    counter.is_open.store(false, Relaxed);
    control.set_overload(0.0);
    control.slots.set_target(0);
    drop(contenders);
    let counts =
        std::mem::take(&mut *counter.counts.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Series { target, counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_weights_counts_by_duration() {
        let counts = [(0, 4), (3, 0), (4, 9)].map(|(ns, awake)| Point { ns, awake }).to_vec();
        let (mean, deviation) =
            Series { target: 3, counts }.mean_and_deviation().expect("there are counts");
        assert_eq!(mean, 3.0);
        assert!((deviation - 3.0_f64.sqrt()).abs() < 1e-12, "{deviation}");
        assert!(Series { target: 3, counts: Vec::new() }.mean_and_deviation().is_none());
    }
}
