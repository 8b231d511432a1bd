//! `unconvoy sim --validate`: simulates what was measured on this machine, and compares the two.
//!
//! | part | contents |
//! | --- | --- |
//! | [`record`] | measurements of `unconvoy bench` |
//! | [`judge`] | errors and winners |
//! | [`tail`] | the worst errors, and the order of the locks |
//! | [`report`] | tables |
//!
//! The simulated machine has its calibrated parameters. None of them is fitted to the record.

mod judge;
mod record;
mod report;
mod tail;

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::experiment::{Measured, Task};
use crate::grid::{Cell, Ended};
use crate::messages;
use crate::outcome::Point;
use crate::parameters::Parameters;
pub use judge::{Compared, NEAR, Repeatability, Verdict, Winner};
use record::Record;
pub use tail::{Ranks, Tail};

/// Rows with more threads are left out: the accuracy goal covers 1 to 32 threads.
pub const MOST_THREADS: u32 = 32;

/// Warm-up of the programs of `unconvoy bench` (`window_run` in their measure.h), in seconds.
const WARM_UP: f64 = 0.05;

/// Records to compare with a simulated machine.
#[derive(Debug)]
pub struct Validation {
    machine: Parameters,
    records: Vec<Record>,
}

/// The report of a validation.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// Always true: half of the numbers were not measured.
    pub simulated: bool,
    /// Version of this command.
    pub unconvoy: &'static str,
    /// The simulated machine, with the date of its calibration.
    pub machine: &'a Parameters,
    /// Simulated seconds per row; `None`: as recorded.
    pub seconds: Option<f64>,
    /// Seed of the simulation.
    pub seed: u64,
    /// The command line.
    pub command: Vec<String>,
    /// File and machine of each record.
    pub records: Vec<[String; 2]>,
    /// Rows that cannot be simulated, with reasons.
    pub left_out: Vec<String>,
    /// Whether all other rows were simulated.
    pub complete: bool,
    /// Failed simulations.
    pub failures: &'a [String],
    /// Summary of the comparison.
    pub verdict: Verdict,
    /// The tail of the errors.
    pub tail: Tail,
    /// Winners by workload and thread count.
    pub winners: Vec<Winner>,
    /// All compared rows.
    pub rows: Vec<Compared>,
}

/// Options of the simulation.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Simulated seconds per row, if not as recorded.
    pub seconds: Option<f64>,
    /// Random seed.
    pub seed: u64,
}

impl Validation {
    /// Reads the records and pairs them with `machine`.
    ///
    /// # Errors
    ///
    /// A record cannot be read or simulated.
    pub fn of(machine: Parameters, paths: &[PathBuf]) -> anyhow::Result<Self> {
        let read = |path: &PathBuf| record::read(path, &machine, MOST_THREADS);
        let records = paths.iter().map(read).collect::<anyhow::Result<Vec<Record>>>()?;
        Ok(Validation { machine, records })
    }

    /// Warnings that cast doubt on the comparison.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        match &self.machine.calibrated {
            None => warnings.push(messages::not_calibrated().to_string()),
            Some(calibrated) if calibrated.busy => {
                warnings.push(messages::calibrated_while_busy().to_string());
            }
            Some(_) => {}
        }
        let contexts = self.machine.topology.contexts();
        for record in &self.records {
            if record.processors as usize != contexts {
                warnings.push(messages::other_machine(&record.file, record.processors, contexts));
            }
        }
        warnings
    }

    /// The cells to simulate, one per row, or per two rows of two processes.
    pub fn cells(&self, options: Options) -> Vec<Cell> {
        let cell = |(number, record): (usize, &Record)| {
            let cell = |row: &record::Row| {
                let point = Point {
                    machine: self.machine.clone(),
                    workload: row.workload.clone(),
                    lock: row.lock.clone(),
                    threads: row.threads,
                    seconds: options.seconds.unwrap_or(record.seconds),
                    seed: options.seed,
                    warm_up: Some(WARM_UP),
                    interval_ns: None,
                };
                let task = match &row.beside {
                    None => Task::Point(point),
                    Some(other) => Task::Beside(point, other.lock.clone(), other.threads),
                };
                let (panel, series) = (row.panel(number), row.lock.clone());
                Cell { panel, series, x: f64::from(row.threads), task }
            };
            record.rows.iter().filter(|row| !row.is_of_other()).map(cell).collect::<Vec<_>>()
        };
        self.records.iter().enumerate().flat_map(cell).collect()
    }

    /// Measured and simulated throughput of the simulated rows.
    fn rows(&self, ended: &Ended) -> Vec<Compared> {
        let place = |result: &'_ crate::grid::Result| {
            (result.panel.clone(), result.series.clone(), result.x as u32)
        };
        let outcomes: HashMap<(String, String, u32), &Measured> =
            ended.results.iter().map(|result| (place(result), &result.measured)).collect();
        let simulated = |number: usize, row: &record::Row| {
            let place = (row.panel(number), row.lock.clone(), row.threads);
            match (outcomes.get(&place)?, &row.beside) {
                (Measured::Outcome(outcome), None) => Some(outcome.per_s),
                (Measured::Shares(shares), Some(beside)) => Some(match beside.of {
                    record::Process::Own => shares.own_per_s,
                    record::Process::Other => shares.other_per_s,
                }),
                _ => None,
            }
        };
        let several = self.records.len() > 1;
        let compared = |(number, record): (usize, &Record)| {
            let compared = |row: &record::Row| {
                let simulated = simulated(number, row)?;
                // A second record of a workload forms a separate set of points.
                let again = self.records[..number]
                    .iter()
                    .flat_map(|record| &record.rows)
                    .any(|other| other.title == row.title);
                let title = if several && again {
                    format!("{} ({})", row.title, record.file)
                } else {
                    row.title.clone()
                };
                Some(Compared::new(
                    title,
                    row.measured_lock(),
                    row.threads,
                    (row.measured, row.runs.clone()),
                    simulated,
                ))
            };
            record.rows.iter().filter_map(compared).collect::<Vec<_>>()
        };
        self.records.iter().enumerate().flat_map(compared).collect()
    }

    /// Compares the rows simulated so far.
    pub fn report<'a>(&'a self, ended: &'a Ended, options: Options) -> Report<'a> {
        let rows = self.rows(ended);
        let winners = judge::winners(&rows);
        Report {
            simulated: true,
            unconvoy: env!("CARGO_PKG_VERSION"),
            machine: &self.machine,
            seconds: options.seconds,
            seed: options.seed,
            command: std::env::args().collect(),
            records: self
                .records
                .iter()
                .map(|record| [record.file.clone(), record.machine.clone()])
                .collect(),
            left_out: self.records.iter().flat_map(|record| record.left_out.clone()).collect(),
            complete: ended.complete,
            failures: &ended.failures,
            verdict: judge::judge(&rows, &winners),
            tail: tail::tail(&rows),
            winners,
            rows,
        }
    }
}
