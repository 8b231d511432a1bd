//! `contention-aware`: one contended lock, and remedies that keep throughput from collapsing as
//! threads are added. It follows Cui, Wang, Chen and Shi, "Lock-Contention-Aware Scheduler" (ACM
//! TACO 9(4), 2013), Figure 3 and sections 4.8 to 4.10. In the paper, a kernel lock protects a
//! counter. Here the program `counter` uses a lock of its own, so that each remedy can replace it.
//!
//! A cell takes two runs: one for throughput and processor time, and one for the waiting time,
//! because the library's statistics cost time themselves.

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
use crate::messages;
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
    remark: "Paper: TACO 2013, sections 4.8 to 4.10, Figures 3, 8, 9 and 10. On a \
        single counter, as here, the scheduler and the requester-based lock scale worse than mutex \
        and adaptive lock and take more energy; on the paper's kernel workloads they do better.",
    minutes: 1,
    made: Made::Native(Native { benchmarks: &[&["contention-aware"]], ..Native::MEDIANS }),
};

/// Name of a measured value: the fraction of the threads' time spent waiting for the lock.
const WAITING: &str = "waiting_share";
/// Seconds in which the program measures the rate of its clock before it starts its threads
/// (`calibrate_ticks_per_ns` in crates/bench/workloads/clock.h).
const CALIBRATION: f64 = 0.02;
/// Window of the trial run, which checks that the library supports special sets.
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
    #[arg(long, value_name = "NS", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    cs: u64,
    /// Time between two acquires, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    think: u64,
}

/// A remedy against collapse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Remedy {
    /// The paper's name for it.
    name: &'static str,
    pair: Pair,
    /// Whether waiting threads are confined to a special set of cores.
    has_set: bool,
}

const fn remedy(
    name: &'static str,
    lock: &'static str,
    load: &'static str,
    has_set: bool,
) -> Remedy {
    Remedy { name, pair: Pair { lock, load }, has_set }
}

/// The paper's remedies. The first is the baseline. The two with MCS locks are from Figure 10.
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
    /// The options for `unconvoy run`, such as `ttas+none --confine`.
    fn recipe(&self) -> String {
        format!("{}{}", self.pair.name(), if self.has_set { " --confine" } else { "" })
    }
}

/// Runs `contention-aware`: measures, prints and writes the record.
///
/// # Errors
///
/// Fails if the program is missing, the record to resume has another plan, or the results cannot be
/// written.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let programs = options.session.places.find(&[COUNTER.program], &[])?;
    let scratch = Scratch::make(None, 0)?;
    let bench = Bench { options, programs: &programs, scratch: &scratch };
    let counts = if options.threads.is_empty() {
        (1..=processors()).collect()
    } else {
        each_once(&options.threads)
    };
    let (rows, missing) = bench.rows();
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let cells = cell::product(&names, &counts);
    let common = &options.session.common;
    let parameters = json!({
        "workload": COUNTER.name, "threads": counts, "section_ns": options.cs,
        "think_ns": options.think,
        "configurations": names, "seconds": common.seconds, "runs": common.runs(),
    });
    let mut record = Record::begin("contention-aware", common.seed, parameters);
    record.notes.push(format!(
        "{}, for {} ns, with {} ns between two acquires. Waiting: the fraction of all threads' \
            time spent waiting for the lock, from a separate run with statistics.",
        COUNTER.what, options.cs, options.think
    ));
    record.notes.push(energy::note());
    record.notes.extend(missing);
    options.session.session(&cells).run(
        record,
        |cell| bench.measure(rows[cell.row], cell.threads, common.seconds),
        |record, samples| {
            record.tables =
                Figures { rows: &rows, counts: &counts, cells: &cells, samples }.tables()
        },
    )
}

struct Bench<'a> {
    options: &'a Options,
    programs: &'a Programs,
    scratch: &'a Scratch,
}

impl Bench<'_> {
    /// The remedies that can run here, and the reason if some cannot.
    fn rows(&self) -> (Vec<Remedy>, Option<String>) {
        let with_set = REMEDIES.into_iter().find(|remedy| remedy.has_set);
        let Some(why) = with_set.and_then(|remedy| self.waiting(remedy, 1, TRIAL_SECONDS).err())
        else {
            return (REMEDIES.to_vec(), None);
        };
        let rows = REMEDIES.into_iter().filter(|remedy| !remedy.has_set).collect();
        (rows, Some(messages::no_special_set(&why)))
    }

    fn measure(&self, remedy: Remedy, threads: u32, seconds: f64) -> anyhow::Result<Values> {
        let mut values = self.once(remedy, threads, seconds, None)?;
        values.supply(WAITING, self.waiting(remedy, threads, seconds)?);
        Ok(values)
    }

    /// The fraction of the threads' time spent waiting.
    fn waiting(&self, remedy: Remedy, threads: u32, seconds: f64) -> anyhow::Result<f64> {
        let path = self.scratch.path().join("statistics.json");
        let values = self.once(
            remedy,
            threads,
            seconds,
            Some((environment::STATS.name, path.display().to_string())),
        )?;
        let text = fs::read_to_string(&path).with_context(|| messages::no_statistics(&path))?;
        fs::remove_file(&path)?;
        // Divide by the time of the whole run and not of the window: the statistics cover the run,
        // and threads in a strict queue may run long after the end of the window.
        let wall = values
            .get("process_wall_seconds")
            .with_context(|| messages::no_metric(COUNTER.program, "process_wall_seconds"))?;
        let lived = f64::from(threads) * (wall - CALIBRATION);
        share(&text, remedy.has_set, lived)
    }

    fn once(
        &self,
        remedy: Remedy,
        threads: u32,
        seconds: f64,
        more: Option<(&str, String)>,
    ) -> anyhow::Result<Values> {
        let Options { cs, think, session, .. } = self.options;
        let words = run::options([
            ("threads", threads.to_string()),
            ("cs", cs.to_string()),
            ("think", think.to_string()),
            ("seconds", seconds.to_string()),
        ]);
        let mut job =
            Job::new(COUNTER.program, words, Setup::Named(remedy.pair), session.time_limit());
        job.name.push_str(&format!(" under {}", remedy.recipe()));
        job.environment.extend(
            more.into_iter()
                .chain(remedy.has_set.then(|| (environment::SPECIAL_SET.name, "1".to_string()))),
        );
        job.run(self.programs)
    }
}

/// Waiting time for all locks, from the library's statistics, as a fraction of `lived` seconds.
fn share(statistics: &str, has_set: bool, lived: f64) -> anyhow::Result<f64> {
    let statistics: Value = serde_json::from_str(statistics)
        .with_context(|| messages::bad_statistics("are not JSON"))?;
    ensure!(
        !has_set || statistics["special"].is_object(),
        messages::bad_statistics("name no special set")
    );
    let locks = statistics["locks"]
        .as_array()
        .with_context(|| messages::bad_statistics("have no locks"))?;
    let waited: f64 = locks.iter().filter_map(|lock| lock["wait_ns"].as_f64()).sum();
    Ok(waited / 1e9 / lived)
}

/// The measurements, for the tables.
struct Figures<'a> {
    rows: &'a [Remedy],
    counts: &'a [u32],
    cells: &'a [Cell],
    samples: &'a Samples<Values>,
}

type Show = fn(f64) -> String;

/// Columns: name of the measured value, heading, format.
const COLUMNS: [(&str, &str, Show); 4] = [
    ("ops_per_sec", "operations/s", |value| Unit::Plain.show(value)),
    (WAITING, "waiting, percent", |value| short(100.0 * value)),
    ("cpu_ns_per_op", "processor time per operation, ns", short),
    (energy::PER_OPERATION, "energy per operation, nJ", |value| short(value * 1e9)),
];

impl Figures<'_> {
    /// One table of all remedies at the largest count, then each quantity over the counts.
    fn tables(&self) -> Vec<Table> {
        let measured = |&&(name, ..): &&(&str, &str, Show)| {
            name != energy::PER_OPERATION
                || self.samples.all.iter().any(|sample| sample.value.get(name).is_some())
        };
        let columns: Vec<_> = COLUMNS.iter().filter(measured).collect();
        let most = self.counts.iter().copied().max().unwrap_or(1);
        let header = ["", "lock", "to default"]
            .into_iter()
            .chain(columns.iter().map(|(_, heading, _)| *heading));
        let mut tables =
            vec![Table::new(format!("{}; median (smallest..largest)", thread_count(most)), header)];
        for (row, remedy) in self.rows.iter().enumerate() {
            let relative = || {
                self.samples.ratio(self.cell(row, most)?, self.cell(0, most)?, |values| {
                    values.get(COLUMNS[0].0)
                })
            };
            let fields =
                columns.iter().map(|(name, _, show)| shown(self.spread(row, most, name), show));
            let first = [remedy.name.to_string(), remedy.recipe(), shown(relative(), multiple)];
            tables[0].row(first.into_iter().chain(fields));
        }
        if self.counts.len() > 1 {
            for (name, heading, show) in columns {
                let title = format!("{heading}; threads across; median (smallest..largest)");
                let mut table = Table::across(title, &[""], self.counts);
                for (row, remedy) in self.rows.iter().enumerate() {
                    let fields = self
                        .counts
                        .iter()
                        .map(|&threads| shown(self.spread(row, threads, name), show));
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

/// Formats a ratio. A strict queue with more threads than processors may be thousands of times
/// slower than the baseline, and its ratio must not show as zero.
fn multiple(value: f64) -> String {
    if value > 0.0 && value < 0.01 { format!("{value:.1e}") } else { short(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_measure::cells::Sample;

    #[test]
    fn every_remedy_is_in_catalogue() {
        for remedy in REMEDIES {
            // A lock that cannot run on this machine must still be in the catalogue.
            if let Err(error) = remedy.pair.name().parse::<Pair>() {
                assert!(error.contains("not available here"), "{error}");
            }
        }
    }

    #[test]
    fn share_divides_by_time_of_all_threads() {
        let statistics =
            r#"{"locks":[{"wait_ns":3000000000},{"wait_ns":1000000000}],"special":{"bound":1}}"#;
        assert_eq!(share(statistics, true, 8.0).expect("a share"), 0.5);
        let old = r#"{"locks":[]}"#;
        assert_eq!(share(old, false, 8.0).expect("a share"), 0.0);
        assert!(share(old, true, 8.0).expect_err("no set").to_string().contains("no special set"));
    }

    #[test]
    fn tiny_ratio_is_not_shown_as_zero() {
        assert_eq!([0.0001, 0.5, 2.0, 0.0].map(multiple), ["1.0e-4", "0.500", "2.00", "0"]);
    }

    #[test]
    fn first_table_has_every_remedy() {
        let counts = [1, 4];
        let cells = cell::product(&REMEDIES.map(|remedy| remedy.name), &counts);
        let value = |cell: usize| {
            let text = format!(
                "ops_per_sec {}\nwaiting_share 0.25\ncpu_ns_per_op 200\n",
                100 * (cells[cell].row + 1)
            );
            Values::parse(&text)
        };
        let all = (0..cells.len()).map(|cell| Sample::new(cell, 1, value(cell))).collect();
        let samples = Samples { all, ended_by: None };
        let figures =
            Figures { rows: &REMEDIES, counts: &counts, cells: &cells, samples: &samples };
        let tables = figures.tables();
        assert_eq!(tables.len(), 4, "no table of energy that was not measured");
        assert_eq!(tables[0].rows.len(), REMEDIES.len());
        assert_eq!(
            tables[0].rows[1][..4],
            ["mutex", "futex+none", "2.00 (2.00..2.00)", "200 (200..200)"]
        );
        assert_eq!(tables[2].rows[0], ["default", "25.0 (25.0..25.0)", "25.0 (25.0..25.0)"]);
    }
}
