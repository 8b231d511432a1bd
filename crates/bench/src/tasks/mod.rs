//! Loads on the kernel's own locks: tasks that all do the same, under the scheduler in force and, where it can run, under `unconvoy sched`.
//!
//! Cui, Wang, Chen and Shi, "Lock-Contention-Aware Scheduler" (ACM TACO 9(4), 2013), section 4.2: as many tasks as cores, swept from one to all of them. The program is workloads/tasks, which runs in a guest as well.

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

use crate::energy;
use crate::grid::matrix::Matrix;
use crate::programs::Programs;
use crate::run::{self, Job, Values};
use crate::scratch::{self, Scratch};
use crate::setup::Setup;
use load::{Describes, Load};
use options::{LoadOptions, TasksOptions};
use scheduler::Row;

/// One field of the table.
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
pub fn run<L: Args + Describes>(options: &LoadOptions<L>) -> anyhow::Result<Record> {
    let (load, options) = (options.load.load(), &options.tasks);
    let programs = options.session.places.find(&[load.workload.program], &[])?;
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
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let parameters = json!({
        "workload": workload.name, "title": load.title, "program": workload.program, "options": load.words,
        "metric": workload.metric.name, "heading": workload.metric.heading, "lower_is_better": workload.metric.lower_is_better,
        "tasks": counts, "configurations": names,
        "seconds": common.seconds, "warm_up": options.warm_up, "runs": common.runs(),
    });
    let mut record = Record::begin(workload.name, common.seed, parameters);
    record.notes.push(format!("{}: {}.", load.title, workload.what));
    record.notes.push(energy::note());
    record.notes.extend(missing);
    options.session.session(&cells).run(
        record,
        |cell| measure(job(&load, cell.tasks, options, scratch.as_ref()), &rows[cell.row], &programs),
        |record, samples| {
            let find = |row, tasks| cells.iter().position(|cell| (cell.row, cell.tasks) == (row, tasks));
            let matrix = Matrix::new(&names, &counts, find, samples, workload.metric, common.seconds);
            record.tables = tables::tables(&matrix, &load.title);
        },
    )
}

/// What a row's scheduler makes of one field.
fn measure(job: Job, row: &Row, programs: &Programs) -> anyhow::Result<Values> {
    let loaded = row.loader.as_ref().map(scheduler::Loader::start).transpose()?;
    let values = job.run(programs)?;
    ensure!(
        loaded.as_ref().is_none_or(scheduler::Loaded::is_in_force),
        "{}: the kernel has unloaded the scheduler meanwhile",
        row.name
    );
    Ok(values)
}

/// One run of the load.
fn job(load: &Load, tasks: u32, options: &TasksOptions, scratch: Option<&Scratch>) -> Job<'static> {
    let mut words = vec![load.workload.name.to_string()];
    words.extend(load.words.iter().cloned());
    words.extend(run::options([
        ("tasks", tasks.to_string()),
        ("seconds", options.session.common.seconds.to_string()),
        ("warm-up", options.warm_up.to_string()),
    ]));
    if let Some(scratch) = scratch {
        words.extend(run::options([("directory", scratch.path().display().to_string())]));
    }
    Job::new(load.workload.program, words, Setup::Libc, options.patience(tasks))
}
