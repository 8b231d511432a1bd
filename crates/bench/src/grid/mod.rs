//! Grids: a workload under every configuration at every thread count, as a basis for choosing
//! locks.
//!
//! [`workload`] lists the programs, [`unconvoy_measure::session`] measures, [`matrix`] computes,
//! and [`tables`] and [`judge`] present.

pub mod cell;
pub mod judge;
pub mod matrix;
pub mod tables;
pub mod workload;

use std::path::Path;

use anyhow::ensure;
use clap::Args;
use serde_json::json;
use unconvoy_measure::arguments::threads;
use unconvoy_measure::failure::Usage;
use unconvoy_measure::record::Record;

use crate::energy;
use crate::messages;
use crate::options::{Places, SessionOptions};
use crate::programs::Programs;
use crate::run::{self, Job, Values};
use crate::setup::{Choice, Configuration, configurations};
use matrix::Matrix;
use workload::{NESTED, Workload};

/// Options of a grid.
#[derive(Debug, Args)]
pub struct GridOptions {
    /// Rounds, seconds and files.
    #[command(flatten)]
    pub session: SessionOptions,
    /// Thread counts
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,3,4,8,16,32,64",
          value_parser = threads)]
    pub threads: Vec<u32>,
    /// Rows besides libc's and the default: LOCK+LOAD, default@POLICY, default@SENSOR, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub locks: Vec<Choice>,
}

/// A workload with the options of its subcommand.
pub struct Grid<'a> {
    /// The workload's description.
    pub workload: &'a Workload,
    /// Title for headings, such as `leveldb fillrandom`.
    pub title: String,
    /// Options besides the workload's own.
    pub words: Vec<String>,
    /// Whether the goals of retention and fairness apply.
    pub is_saturated: bool,
}

impl Grid<'_> {
    /// Creates a grid of a workload without further options.
    pub fn of(workload: &Workload) -> Grid<'_> {
        Grid { workload, title: workload.name.to_string(), words: Vec::new(), is_saturated: false }
    }

    /// Measures, prints and writes the record.
    ///
    /// # Errors
    ///
    /// A program or package is missing, the record to resume has another plan, or the results
    /// cannot be written.
    pub fn run(&self, options: &GridOptions) -> anyhow::Result<Record> {
        let workload = self.workload;
        let programs = find(workload, &options.session.places)?;
        let (rows, left_out) =
            configurations(&options.locks, workload.has_kind).map_err(Usage::text)?;
        let common = &options.session.common;
        let counts = each_once(&options.threads);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let cells = cell::product(&names, &counts);
        let parameters = json!({
            "workload": workload.name, "title": self.title, "program": workload.program,
            "options": self.program_options(),
            "metric": workload.metric.name, "heading": workload.metric.heading,
            "lower_is_better": workload.metric.lower_is_better,
            "threads": counts, "configurations": names, "seconds": common.seconds,
            "runs": common.runs(),
        });
        let mut record = Record::begin(workload.name, common.seed, parameters);
        record.notes.push(format!("{}: {}.", self.title, workload.what));
        record.notes.push(energy::note());
        record.notes.extend(left_out);
        options.session.session(&cells).run(
            record,
            |cell| self.measure(&rows[cell.row], cell.threads, &options.session, &programs),
            |record, samples| {
                let find = |row, threads| cell::position(&cells, row, threads);
                let matrix =
                    Matrix::new(&names, &counts, find, samples, workload.metric, common.seconds);
                self.digest(record, &matrix);
            },
        )
    }

    fn program_options(&self) -> Vec<String> {
        self.workload
            .options
            .iter()
            .map(ToString::to_string)
            .chain(self.words.iter().cloned())
            .collect()
    }

    fn measure(
        &self,
        row: &Configuration,
        threads: u32,
        session: &SessionOptions,
        programs: &Programs,
    ) -> anyhow::Result<Values> {
        let mut words = self.program_options();
        words.extend(run::options([("threads", threads.to_string())]));
        if self.workload.is_timed {
            words.extend(run::options([("seconds", session.common.seconds.to_string())]));
        }
        if row.is_adaptive {
            words.extend(run::options([("kind", "adaptive".to_string())]));
        }
        let Workload { program, metric, .. } = self.workload;
        let values = Job::new(program, words, row.setup, session.time_limit()).run(programs)?;
        ensure!(values.get(metric.name).is_some(), messages::metric_missing(program, metric.name));
        Ok(values)
    }

    fn digest(&self, record: &mut Record, matrix: &Matrix) {
        let tables = tables::tables(matrix, &self.title, self.workload.details);
        record.tables = tables.all;
        record.shown = Some(tables.shown);
        record.judgements = vec![judge::near_the_best(matrix, &self.title)];
        if self.workload.name == NESTED.name {
            record.judgements.extend(judge::nested(matrix));
        }
        if self.is_saturated {
            record.judgements.extend(judge::saturated(matrix, &self.title));
        }
    }
}

/// Finds the programs and files of a workload.
///
/// # Errors
///
/// A file is missing; the message has the remedy.
pub fn find(workload: &Workload, places: &Places) -> anyhow::Result<Programs> {
    if let Some(file) = workload.needs_file {
        ensure!(
            Path::new(file).exists(),
            messages::file_missing(workload.name, file, workload.packages)
        );
    }
    places.find(&[workload.program], workload.packages)
}

/// Returns the counts in order, without repetitions.
pub fn each_once(counts: &[u32]) -> Vec<u32> {
    let mut once: Vec<u32> = Vec::new();
    for &count in counts {
        if !once.contains(&count) {
            once.push(count);
        }
    }
    once
}

/// Options of `leveldb`.
#[derive(Debug, Args)]
pub struct LeveldbOptions {
    #[command(flatten)]
    grid: GridOptions,
    /// Workload of the threads
    #[arg(long, value_name = "NAME", default_value = "readrandom",
          value_parser = ["fillrandom", "readrandom", "readwhilewriting"])]
    workload: String,
}

/// Runs `leveldb`: measures, prints and writes the record.
///
/// # Errors
///
/// As [`Grid::run`].
pub fn leveldb(options: &LeveldbOptions) -> anyhow::Result<Record> {
    let grid = Grid {
        title: format!("LevelDB {}", options.workload),
        words: vec!["--workload".to_string(), options.workload.clone()],
        ..Grid::of(&workload::LEVELDB)
    };
    grid.run(&options.grid)
}
