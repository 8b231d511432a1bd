//! `contention-aware`: one contended lock, and what keeps it from collapsing when there are more threads. After Cui, Wang, Chen and Shi, "Lock-Contention-Aware Scheduler" (ACM TACO 9(4), 2013), Figure 3 and sections 4.8 to
//! 4.10, whose single counter is the kernel's; this one is a program's, so that the locks can be chosen.
//!
//! A field takes two runs: one for throughput and processor time, and one with statistics for the time that is waited, which cost something themselves.

use std::fs;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::{Value, json};
use unconvoy_measure::arguments::{thread_count, threads};
use unconvoy_measure::cells::Samples;
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::context::processors;
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::{Spread, short, shown};
use unconvoy_measure::table::Table;

use crate::figure::{Figure, Made, Native, Paper};
use unconvoy::catalogue::environment;
use unconvoy_bench::energy;
use unconvoy_bench::grid::cell::{self, Cell};
use unconvoy_bench::grid::each_once;
use unconvoy_bench::grid::workload::COUNTER;
use unconvoy_bench::options::SessionOptions;
use unconvoy_bench::programs::Programs;
use unconvoy_bench::run::{self, Job, Values};
use unconvoy_bench::scratch::Scratch;
use unconvoy_bench::setup::{Pair, Setup};

/// The table, on this machine.
pub const NATIVE: Figure = Figure {
    name: "contention-aware",
    paper: Paper::Taco(8),
    title: "Ways to keep a contended lock from collapsing",
    remark: "The paper's: TACO 2013, sections 4.8 to 4.10, Figures 3, 8, 9 and 10. The scheduler and the requester-based lock do far better than mutex and adaptive lock in throughput and energy.",
    minutes: 1,
    made: Made::Native(Native { benchmarks: &[&["contention-aware"]], ..Native::MEDIANS }),
};

/// Among what is measured: the part of the threads' time that they wait for the lock.
const WAITING: &str = "waiting_share";
/// What the program does before it has threads, seconds: it measures the rate of its clock, `calibrate_ticks_per_ns` of workloads/measure.h.
const CALIBRATION: f64 = 0.02;
/// A window in which a run shows whether the library knows of special sets.
const TRIAL_SECONDS: f64 = 0.01;

/// Options of `contention-aware`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    session: SessionOptions,
    /// Thread counts [default: from 1 to the number of processors]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads)]
    threads: Vec<u32>,
    /// Length of the critical section, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    cs: u64,
    /// Time between two acquires, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    think: u64,
}

/// A way to have the threads wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Remedy {
    /// The paper's name for it.
    name: &'static str,
    pair: Pair,
    /// Whether threads that wait have a special set of cores.
    has_set: bool,
}

const fn remedy(name: &'static str, lock: &'static str, load: &'static str, has_set: bool) -> Remedy {
    Remedy { name, pair: Pair { lock, load }, has_set }
}

/// The paper's contenders, what all are compared with first. Its MCS lock alone is from Figure 10.
const REMEDIES: [Remedy; 7] = [
    remedy("default", "ttas", "none", false),
    remedy("mutex", "futex", "none", false),
    remedy("adaptive", "ttas", "adaptive", false),
    remedy("requester-based", "requester", "none", false),
    remedy("scheduler", "ttas", "none", true),
    remedy("MCS", "mcs", "none", false),
    remedy("scheduler with MCS", "mcs", "none", true),
];

impl Remedy {
    /// `ttas+none --confine`: what to give `unconvoy run`.
    fn recipe(&self) -> String {
        format!("{}{}", self.pair.name(), if self.has_set { " --confine" } else { "" })
    }
}

/// Measures, prints and writes.
///
/// # Errors
///
/// The program is missing, the record to continue is another's, or the results cannot be written.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let programs = options.session.places.find(&[COUNTER.program], &[])?;
    let scratch = Scratch::make(None, 0)?;
    let bench = Bench { options, programs: &programs, scratch: &scratch };
    let counts = if options.threads.is_empty() { (1..=processors()).collect() } else { each_once(&options.threads) };
    let (rows, missing) = bench.rows();
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let cells = cell::product(&names, &counts);
    let common = &options.session.common;
    let parameters = json!({
        "workload": COUNTER.name, "threads": counts, "section_ns": options.cs, "think_ns": options.think,
        "configurations": names, "seconds": common.seconds, "runs": common.runs(),
    });
    let mut record = Record::begin("contention-aware", common.seed, parameters);
    record.notes.push(format!(
        "{}, for {} ns, with {} ns between two acquires. Waiting: of the time of all threads, the part in which they wait for the lock, in a run of its own with statistics.",
        COUNTER.what, options.cs, options.think
    ));
    record.notes.push(energy::note());
    record.notes.extend(missing);
    options.session.session(&cells).run(
        record,
        |cell| bench.measure(rows[cell.row], cell.threads, common.seconds),
        |record, samples| record.tables = Figures { rows: &rows, counts: &counts, cells: &cells, samples }.tables(),
    )
}

struct Bench<'a> {
    options: &'a Options,
    programs: &'a Programs,
    scratch: &'a Scratch,
}

impl Bench<'_> {
    /// The remedies that there are here, and why others are left out.
    fn rows(&self) -> (Vec<Remedy>, Option<String>) {
        let with_set = REMEDIES.into_iter().find(|remedy| remedy.has_set);
        let Some(why) = with_set.and_then(|remedy| self.waiting(remedy, 1, TRIAL_SECONDS).err()) else {
            return (REMEDIES.to_vec(), None);
        };
        let rows = REMEDIES.into_iter().filter(|remedy| !remedy.has_set).collect();
        (rows, Some(format!("Without a special set of cores, which cannot be had here: {why:#}")))
    }

    fn measure(&self, remedy: Remedy, threads: u32, seconds: f64) -> anyhow::Result<Values> {
        let mut values = self.once(remedy, threads, seconds, None)?;
        values.supply(WAITING, self.waiting(remedy, threads, seconds)?);
        Ok(values)
    }

    /// The part of the threads' time that they wait.
    fn waiting(&self, remedy: Remedy, threads: u32, seconds: f64) -> anyhow::Result<f64> {
        let path = self.scratch.path().join("statistics.json");
        let values =
            self.once(remedy, threads, seconds, Some((environment::STATS.name, path.display().to_string())))?;
        let text = fs::read_to_string(&path).with_context(|| format!("the library wrote no {}", path.display()))?;
        fs::remove_file(&path)?;
        // Not the window: the statistics are of the whole run, and threads in a strict queue may outlive their window by far.
        let wall = values.get("process_wall_seconds").context("a run without a length")?;
        let lived = f64::from(threads) * (wall - CALIBRATION);
        share(&text, remedy.has_set, lived)
    }

    fn once(&self, remedy: Remedy, threads: u32, seconds: f64, more: Option<(&str, String)>) -> anyhow::Result<Values> {
        let Options { cs, think, session, .. } = self.options;
        let words = run::options([
            ("threads", threads.to_string()),
            ("cs", cs.to_string()),
            ("think", think.to_string()),
            ("seconds", seconds.to_string()),
        ]);
        let mut job = Job::new(COUNTER.program, words, Setup::Named(remedy.pair), session.patience());
        job.name.push_str(&format!(" under {}", remedy.recipe()));
        job.environment
            .extend(more.into_iter().chain(remedy.has_set.then(|| (environment::SPECIAL_SET.name, "1".to_string()))));
        job.run(self.programs)
    }
}

/// From the library's statistics: time waited for all locks, of `lived` seconds.
fn share(statistics: &str, has_set: bool, lived: f64) -> anyhow::Result<f64> {
    let statistics: Value = serde_json::from_str(statistics).context("the library's statistics are no JSON")?;
    ensure!(!has_set || statistics["special"].is_object(), "the library knows of none");
    let locks = statistics["locks"].as_array().context("the library's statistics have no locks")?;
    let waited: f64 = locks.iter().filter_map(|lock| lock["wait_ns"].as_f64()).sum();
    Ok(waited / 1e9 / lived)
}

/// What was measured, for the tables.
struct Figures<'a> {
    rows: &'a [Remedy],
    counts: &'a [u32],
    cells: &'a [Cell],
    samples: &'a Samples<Values>,
}

/// How a number of one cell is shown.
type Show = fn(f64) -> String;

/// The columns: name among what is measured, heading, format.
const COLUMNS: [(&str, &str, Show); 4] = [
    ("ops_per_sec", "operations/s", |value| Unit::Plain.show(value)),
    (WAITING, "waiting, percent", |value| short(100.0 * value)),
    ("cpu_ns_per_op", "processor time per operation, ns", short),
    (energy::PER_OPERATION, "energy per operation, nJ", |value| short(value * 1e9)),
];

impl Figures<'_> {
    /// All remedies at the largest count in one table, then each quantity over the counts.
    fn tables(&self) -> Vec<Table> {
        let measured = |&&(name, ..): &&(&str, &str, Show)| {
            name != energy::PER_OPERATION || self.samples.all.iter().any(|sample| sample.value.get(name).is_some())
        };
        let columns: Vec<_> = COLUMNS.iter().filter(measured).collect();
        let most = self.counts.iter().copied().max().unwrap_or(1);
        let header = ["", "as", "to default"].into_iter().chain(columns.iter().map(|(_, heading, _)| *heading));
        let mut tables = vec![Table::new(format!("{}; median (smallest..largest)", thread_count(most)), header)];
        for (row, remedy) in self.rows.iter().enumerate() {
            let relative =
                || self.samples.ratio(self.cell(row, most)?, self.cell(0, most)?, |values| values.get(COLUMNS[0].0));
            let fields = columns.iter().map(|(name, _, show)| shown(self.spread(row, most, name), show));
            let first = [remedy.name.to_string(), remedy.recipe(), shown(relative(), multiple)];
            tables[0].row(first.into_iter().chain(fields));
        }
        if self.counts.len() > 1 {
            for (name, heading, show) in columns {
                let title = format!("{heading}; threads across; median (smallest..largest)");
                let mut table = Table::across(title, &[""], self.counts);
                for (row, remedy) in self.rows.iter().enumerate() {
                    let fields = self.counts.iter().map(|&threads| shown(self.spread(row, threads, name), show));
                    table.line(remedy.name, fields);
                }
                tables.push(table);
            }
        }
        tables
    }

    fn cell(&self, row: usize, threads: u32) -> Option<usize> {
        cell::position(self.cells, row, threads)
    }

    fn spread(&self, row: usize, threads: u32, name: &str) -> Option<Spread> {
        self.samples.spread(self.cell(row, threads)?, |values| values.get(name))
    }
}

/// A remedy may be thousands of times slower: a strict queue with more threads than processors.
fn multiple(value: f64) -> String {
    if value > 0.0 && value < 0.01 { format!("{value:.1e}") } else { short(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_measure::cells::Sample;

    #[test]
    fn every_remedy_is_in_the_catalogue() {
        for remedy in REMEDIES {
            // A lock that this machine cannot run at all is no misspelling.
            if let Err(error) = remedy.pair.name().parse::<Pair>() {
                assert!(error.contains("not available here"), "{error}");
            }
        }
    }

    #[test]
    fn waiting_is_of_all_threads_time() {
        let statistics = r#"{"locks":[{"wait_ns":3000000000},{"wait_ns":1000000000}],"special":{"bound":1}}"#;
        assert_eq!(share(statistics, true, 8.0).expect("a share"), 0.5);
        let old = r#"{"locks":[]}"#;
        assert_eq!(share(old, false, 8.0).expect("a share"), 0.0);
        assert!(share(old, true, 8.0).expect_err("no set").to_string().contains("knows of none"));
    }

    #[test]
    fn a_collapse_is_no_zero() {
        assert_eq!([0.0001, 0.5, 2.0, 0.0].map(multiple), ["1.0e-4", "0.500", "2.00", "0"]);
    }

    #[test]
    fn all_are_in_one_table() {
        let counts = [1, 4];
        let cells = cell::product(&REMEDIES.map(|remedy| remedy.name), &counts);
        let value = |cell: usize| {
            let text = format!("ops_per_sec {}\nwaiting_share 0.25\ncpu_ns_per_op 200\n", 100 * (cells[cell].row + 1));
            Values::parse(&text)
        };
        let all = (0..cells.len()).map(|cell| Sample { cell, round: 1, value: value(cell) }).collect();
        let samples = Samples { all, ended_by: None };
        let figures = Figures { rows: &REMEDIES, counts: &counts, cells: &cells, samples: &samples };
        let tables = figures.tables();
        assert_eq!(tables.len(), 4, "no table of energy that was not measured");
        assert_eq!(tables[0].rows.len(), REMEDIES.len());
        assert_eq!(tables[0].rows[1][..4], ["mutex", "futex+none", "2.00 (2.00..2.00)", "200 (200..200)"]);
        assert_eq!(tables[2].rows[0], ["default", "25.0 (25.0..25.0)", "25.0 (25.0..25.0)"]);
    }
}
