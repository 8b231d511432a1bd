//! `unconvoy sim --validate`: what was measured on this machine, simulated, and how far apart the two are.
//!
//! | part | what |
//! | --- | --- |
//! | [`record`] | what `unconvoy bench` measured |
//! | [`judge`] | errors and winners |
//! | [`report`] | tables |
//!
//! The simulated machine has the parameters that it was calibrated with, and none is fitted to the record.

mod judge;
mod record;
mod report;

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::bail;
use serde::Serialize;

use crate::experiment::Task;
use crate::grid::{Cell, Ended};
use crate::outcome::Point;
use crate::parameters::Parameters;
pub use judge::{Compared, NEAR, Repeatability, Verdict, Winner};
use record::Record;

/// Threads beyond which rows are left out: the goal is for 1 to 32.
pub const MOST_THREADS: u32 = 32;

/// Of the programs of `unconvoy bench`, before they measure (`window_run` in their measure.h); seconds.
const WARM_UP: f64 = 0.05;

/// What is compared.
#[derive(Debug)]
pub struct Validation {
    machine: Parameters,
    records: Vec<Record>,
}

/// What is left behind.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// That half of the numbers were not measured.
    pub simulated: bool,
    /// Of this command.
    pub unconvoy: &'static str,
    /// What was simulated, and when it was calibrated.
    pub machine: &'a Parameters,
    /// Simulated seconds of each row.
    pub seconds: Option<f64>,
    /// Seed of the simulation.
    pub seed: u64,
    /// The command line.
    pub command: Vec<String>,
    /// The records: file, machine and date.
    pub records: Vec<[String; 2]>,
    /// Rows of them that cannot be simulated.
    pub left_out: Vec<String>,
    /// Whether all others were.
    pub complete: bool,
    /// Simulations that failed.
    pub failures: &'a [String],
    /// What it comes to.
    pub verdict: Verdict,
    /// Who wins where.
    pub winners: Vec<Winner>,
    /// Every row.
    pub rows: Vec<Compared>,
}

/// How the simulation is run.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// Simulated seconds of a row, if not as many as were measured.
    pub seconds: Option<f64>,
    /// Of all that is left to chance.
    pub seed: u64,
}

impl Validation {
    /// Reads the records, for `machine`.
    ///
    /// # Errors
    ///
    /// One cannot be read, or is none that can be simulated.
    pub fn of(machine: Parameters, paths: &[PathBuf]) -> anyhow::Result<Self> {
        if paths.is_empty() {
            bail!(
                "--validate needs a record of this machine; make one with\n  \
                 unconvoy bench counter --locks all --threads 1,2,4,8,16,32 --out counter\n  \
                 unconvoy sim --validate counter.json"
            );
        }
        let read = |path: &PathBuf| record::read(path, &machine, MOST_THREADS);
        let records = paths.iter().map(read).collect::<anyhow::Result<Vec<Record>>>()?;
        Ok(Validation { machine, records })
    }

    /// What may make the comparison meaningless.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        match &self.machine.calibrated {
            None => warnings.push(
                "this machine was not calibrated: its parameters are what is usual; unconvoy sim --calibrate measures them"
                    .to_string(),
            ),
            Some(calibrated) if calibrated.busy => {
                warnings.push("the machine was busy when it was calibrated; do it again when it is idle".to_string());
            }
            Some(_) => {}
        }
        let contexts = self.machine.topology.contexts();
        for record in &self.records {
            if record.processors as usize != contexts {
                let (file, processors) = (&record.file, record.processors);
                warnings
                    .push(format!("{file} is of a machine with {processors} processors, and this one has {contexts}"));
            }
        }
        warnings
    }

    /// What is to be simulated, row by row.
    pub fn cells(&self, how: How) -> Vec<Cell> {
        let cell = |(number, record): (usize, &Record)| {
            let cell = |row: &record::Row| Cell {
                panel: format!("{number} {}", row.title),
                series: row.lock.clone(),
                x: f64::from(row.threads),
                task: Task::Point(Point {
                    machine: self.machine.clone(),
                    workload: row.workload.clone(),
                    lock: row.lock.clone(),
                    threads: row.threads,
                    seconds: how.seconds.unwrap_or(record.seconds),
                    seed: how.seed,
                    warm_up: Some(WARM_UP),
                    interval_ns: None,
                }),
            };
            record.rows.iter().map(cell).collect::<Vec<_>>()
        };
        self.records.iter().enumerate().flat_map(cell).collect()
    }

    /// Both sides of what has been simulated.
    fn rows(&self, ended: &Ended) -> Vec<Compared> {
        let place = |result: &'_ crate::grid::Result| (result.panel.clone(), result.series.clone(), result.x as u32);
        let outcome = |result| Some((place(result), result.measured.outcome()?.per_s));
        let outcomes: HashMap<(String, String, u32), f64> = ended.results.iter().filter_map(outcome).collect();
        let simulated = |number: usize, row: &record::Row| {
            outcomes.get(&(format!("{number} {}", row.title), row.lock.clone(), row.threads)).copied()
        };
        let several = self.records.len() > 1;
        let compared = |(number, record): (usize, &Record)| {
            let compared = |row: &record::Row| {
                let simulated = simulated(number, row)?;
                // Two records of one workload are two sets of points.
                let again =
                    self.records[..number].iter().flat_map(|record| &record.rows).any(|other| other.title == row.title);
                let title =
                    if several && again { format!("{} ({})", row.title, record.file) } else { row.title.clone() };
                Some(Compared::new(title, row.lock.clone(), row.threads, (row.measured, row.runs.clone()), simulated))
            };
            record.rows.iter().filter_map(compared).collect::<Vec<_>>()
        };
        self.records.iter().enumerate().flat_map(compared).collect()
    }

    /// What has been simulated so far, compared.
    pub fn report<'a>(&'a self, ended: &'a Ended, how: How) -> Report<'a> {
        let rows = self.rows(ended);
        let winners = judge::winners(&rows);
        Report {
            simulated: true,
            unconvoy: env!("CARGO_PKG_VERSION"),
            machine: &self.machine,
            seconds: how.seconds,
            seed: how.seed,
            command: std::env::args().collect(),
            records: self.records.iter().map(|record| [record.file.clone(), record.machine.clone()]).collect(),
            left_out: self.records.iter().flat_map(|record| record.left_out.clone()).collect(),
            complete: ended.complete,
            failures: &ended.failures,
            verdict: judge::judge(&rows, &winners),
            winners,
            rows,
        }
    }
}
