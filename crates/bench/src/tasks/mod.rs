//! Loads on the kernel's own locks: tasks that all do the same, under the scheduler in force and, where it can run, under `unconvoy sched`.
//!
//! Cui, Wang, Chen and Shi, "Lock-Contention-Aware Scheduler" (ACM TACO 9(4), 2013), section 4.2: as many tasks as cores, swept from one to all of them. The program is workloads/tasks, which runs in a guest as well.

pub mod load;
mod scheduler;
mod tables;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::cells::Samples;
use crate::cli::threads;
use crate::context::processors;
use crate::energy;
use crate::grid::each_once;
use crate::grid::matrix::Matrix;
use crate::programs::Programs;
use crate::record::Record;
use crate::run::{Values, start};
use crate::scratch::{self, Scratch};
use crate::session::{Place, Session, SessionOptions};
use crate::setup::Setup;
use load::{Describes, Load};
use scheduler::Row;

/// The program of all loads.
pub const PROGRAM: &str = "tasks";
/// What making and removing one task's files may take beyond the window.
const PER_TASK: Duration = Duration::from_secs(5);

/// Options of every load.
#[derive(Debug, Args)]
pub struct TasksOptions {
    #[command(flatten)]
    session: SessionOptions,
    /// Numbers of tasks [default: from 1 to the number of processors]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads)]
    tasks: Vec<u32>,
    /// Time before the window in which the tasks run already and a scheduler settles, in seconds; one operation of each task at least
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = warm_up)]
    warm_up: f64,
    /// Where files are made, and removed [default: /dev/shm, or where temporary files go]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: Option<PathBuf>,
}

fn warm_up(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    value.ok_or_else(|| "expected a number from 0 to 3600".to_string())
}

impl TasksOptions {
    fn counts(&self) -> Vec<u32> {
        if self.tasks.is_empty() { (1..=processors()).collect() } else { each_once(&self.tasks) }
    }

    fn patience(&self, tasks: u32) -> Duration {
        let patience = self.session.patience();
        if self.session.timeout.is_some() {
            return patience;
        }
        patience + Duration::from_secs_f64(self.warm_up) + PER_TASK * tasks
    }
}

/// One field of the table.
#[derive(Debug, Clone, Serialize)]
struct Cell {
    /// The scheduler.
    configuration: String,
    tasks: u32,
    #[serde(skip)]
    row: usize,
}

impl Place for Cell {
    fn name(&self) -> String {
        let tasks = if self.tasks == 1 { "1 task".to_string() } else { format!("{} tasks", self.tasks) };
        format!("{}, {tasks}", self.configuration)
    }

    fn row(&self) -> &str {
        &self.configuration
    }
}

/// Measures, prints and writes.
///
/// # Errors
///
/// A program is missing, there is no room for the load's files, the record to continue is another's, or the results cannot be written.
pub fn run(options: &impl Describes) -> anyhow::Result<Record> {
    let (load, options) = (options.load(), options.tasks());
    let programs = Programs::find(&options.session.places, &[PROGRAM])?;
    if let Some((tool, package)) = &load.tool {
        scratch::installed(tool, package)?;
    }
    let counts = options.counts();
    let most = counts.iter().copied().max().unwrap_or(1);
    let scratch = match load.room {
        Some((all, each)) => {
            Some(Scratch::make(options.directory.as_deref(), all.saturating_add(each.saturating_mul(u64::from(most))))?)
        }
        None => None,
    };
    let (rows, missing) = scheduler::rows();
    let cells: Vec<Cell> = counts
        .iter()
        .flat_map(|&tasks| (0..rows.len()).map(move |row| (row, tasks)))
        .map(|(row, tasks)| Cell { configuration: rows[row].name.clone(), tasks, row })
        .collect();
    let common = &options.session.common;
    let workload = load.workload;
    let parameters = json!({
        "workload": workload.name, "title": load.title, "program": PROGRAM, "options": load.words,
        "metric": workload.metric.name, "heading": workload.metric.heading, "lower_is_better": workload.metric.lower_is_better,
        "tasks": counts, "configurations": rows.iter().map(|row| &row.name).collect::<Vec<_>>(),
        "seconds": common.seconds, "warm_up": options.warm_up, "runs": common.runs(),
    });
    let mut record = Record::begin(workload.name, common.seed, parameters);
    record.notes.push(format!("{}: {}.", load.title, workload.what));
    record.notes.push(energy::note());
    record.notes.extend(missing);
    let session = Session { cells: &cells, options: &options.session };
    session.run(
        record,
        |cell| measure(&load, &rows[cell.row], cell, options, scratch.as_ref(), &programs),
        |record, samples| {
            record.tables =
                tables::tables(&matrix(&rows, &counts, &cells, samples, &load, common.seconds), &load.title);
        },
    )
}

fn measure(
    load: &Load,
    row: &Row,
    cell: &Cell,
    options: &TasksOptions,
    scratch: Option<&Scratch>,
    programs: &Programs,
) -> anyhow::Result<Values> {
    let common = &options.session.common;
    let mut words = vec![load.workload.name.to_string()];
    words.extend(load.words.iter().cloned());
    for (name, value) in [
        ("--tasks", cell.tasks.to_string()),
        ("--seconds", common.seconds.to_string()),
        ("--warm-up", options.warm_up.to_string()),
    ] {
        words.extend([name.to_string(), value]);
    }
    if let Some(scratch) = scratch {
        words.extend(["--directory".to_string(), scratch.path().display().to_string()]);
    }
    let name = format!("{PROGRAM} {}", words.join(" "));
    let loaded = row.loader.as_ref().map(scheduler::Loader::start).transpose()?;
    let values = start(programs, PROGRAM, &words, Setup::Libc, &[], name, options.patience(cell.tasks))?.finish()?;
    ensure!(
        loaded.as_ref().is_none_or(scheduler::Loaded::is_in_force),
        "{}: the kernel has unloaded the scheduler meanwhile",
        row.name
    );
    Ok(values)
}

fn matrix<'a>(
    rows: &[Row],
    counts: &[u32],
    cells: &[Cell],
    samples: &'a Samples<Values>,
    load: &Load,
    seconds: f64,
) -> Matrix<'a> {
    let find = |row: usize, tasks: u32| cells.iter().position(|cell| (cell.row, cell.tasks) == (row, tasks));
    Matrix {
        rows: rows.iter().map(|row| row.name.clone()).collect(),
        threads: counts.to_vec(),
        cells: (0..rows.len()).map(|row| counts.iter().map(|&tasks| find(row, tasks)).collect()).collect(),
        samples,
        metric: load.workload.metric,
        processors: processors(),
        seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_may_be_nothing() {
        assert_eq!(warm_up("0"), Ok(0.0));
        assert!(warm_up("-1").is_err() && warm_up("nan").is_err() && warm_up("x").is_err());
    }
}
