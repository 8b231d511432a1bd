//! Loads on the kernel's own locks: identical tasks, under the scheduler in force and, where it can
//! run, under `unconvoy sched`.
//!
//! As in Cui, Wang, Chen and Shi, "Lock-Contention-Aware Scheduler" (ACM TACO 9(4), 2013), section
//! 4.2, the number of tasks grows from one to the number of cores. The program is
//! papers/workloads/tasks, which also runs in a guest.

pub mod load;
pub mod options;
mod scheduler;
mod tables;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use unconvoy_measure::record::Record;
use unconvoy_measure::session::Field;

use crate::messages;
use load::{Describes, Load};
use options::LoadOptions;
use scheduler::Row;
use unconvoy_bench::energy;
use unconvoy_bench::grid::matrix::Matrix;
use unconvoy_bench::programs::Programs;
use unconvoy_bench::run::{self, Job, Values};
use unconvoy_bench::scratch::{self, Scratch};
use unconvoy_bench::setup::Setup;

#[derive(Debug, Clone, Serialize)]
struct Cell {
    /// The scheduler.
    configuration: String,
    tasks: u32,
    #[serde(skip)]
    row: usize,
}

impl Field for Cell {
    fn name(&self) -> String {
        let tasks =
            if self.tasks == 1 { "1 task".to_string() } else { format!("{} tasks", self.tasks) };
        format!("{}, {tasks}", self.configuration)
    }

    fn row(&self) -> &str {
        &self.configuration
    }
}

/// Runs a load: measures, prints and writes the record.
///
/// # Errors
///
/// Fails if a program is missing, the load's files do not fit, the record to resume has another
/// plan, or the results cannot be written.
pub fn run<L: Args + Describes>(options: &LoadOptions<L>) -> anyhow::Result<Record> {
    let (load, options) = (options.load.load(), &options.tasks);
    let programs = options.session.places.find(&[load.workload.program], &[])?;
    if let Some((tool, package)) = &load.tool {
        scratch::installed(tool, package)?;
    }
    let counts = options.counts();
    let most = counts.iter().copied().max().unwrap_or(1);
    let scratch = match load.room {
        Some((all, each)) => Some(Scratch::make(
            options.directory.as_deref(),
            all.saturating_add(each.saturating_mul(u64::from(most))),
        )?),
        None => None,
    };
    let (rows, missing) = scheduler::rows();
    let words = every_run(&load, options.session.common.seconds, options.warm_up, scratch.as_ref());
    let cells: Vec<Cell> = counts
        .iter()
        .flat_map(|&tasks| (0..rows.len()).map(move |row| (row, tasks)))
        .map(|(row, tasks)| Cell { configuration: rows[row].name.clone(), tasks, row })
        .collect();
    let common = &options.session.common;
    let workload = load.workload;
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let parameters = json!({
        "workload": workload.name, "title": load.title, "program": workload.program,
        "options": load.words,
        "metric": workload.metric.name, "heading": workload.metric.heading,
        "lower_is_better": workload.metric.lower_is_better,
        "tasks": counts, "configurations": names,
        "seconds": common.seconds, "warm_up": options.warm_up, "runs": common.runs(),
    });
    let mut record = Record::begin(workload.name, common.seed, parameters);
    record.notes.push(format!("{}: {}.", load.title, workload.what));
    record.notes.push(energy::note());
    record.notes.extend(missing);
    options.session.session(&cells).run(
        record,
        |cell| {
            let words =
                [words.as_slice(), &run::options([("tasks", cell.tasks.to_string())])].concat();
            let job =
                Job::new(workload.program, words, Setup::Libc, options.time_limit(cell.tasks));
            measure(job, &rows[cell.row], &programs)
        },
        |record, samples| {
            let find =
                |row, tasks| cells.iter().position(|cell| (cell.row, cell.tasks) == (row, tasks));
            let matrix =
                Matrix::new(&names, &counts, find, samples, workload.metric, common.seconds);
            record.tables = tables::tables(&matrix, &load.title);
        },
    )
}

/// Runs one cell under its row's scheduler.
fn measure(job: Job, row: &Row, programs: &Programs) -> anyhow::Result<Values> {
    let loaded = row.loader.as_ref().map(scheduler::Loader::start).transpose()?;
    let values = job.run(programs)?;
    ensure!(
        loaded.as_ref().is_none_or(scheduler::Loaded::is_in_force),
        messages::scheduler_unloaded(&row.name)
    );
    Ok(values)
}

/// Arguments that every run of the load has.
fn every_run(load: &Load, seconds: f64, warm_up: f64, scratch: Option<&Scratch>) -> Vec<String> {
    let mut words = vec![load.workload.name.to_string()];
    words.extend(load.words.iter().cloned());
    words
        .extend(run::options([("seconds", seconds.to_string()), ("warm-up", warm_up.to_string())]));
    words.extend(
        scratch.into_iter().flat_map(|scratch| {
            run::options([("directory", scratch.path().display().to_string())])
        }),
    );
    words
}
