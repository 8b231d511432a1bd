//! Workload by configuration by number of threads: the table that says which lock is good for what.
//!
//! [`workload`] is the list of programs, [`crate::session`] measures, [`matrix`] computes, [`tables`] and [`judge`] present.

pub mod cell;
pub mod database;
pub mod judge;
pub mod matrix;
pub mod tables;
pub mod workload;

use std::path::Path;

use anyhow::ensure;
use clap::Args;
use serde_json::json;

use crate::cells::Samples;
use crate::cli::{Places, threads};
use crate::context::processors;
use crate::energy;
use crate::programs::Programs;
use crate::record::Record;
use crate::run::{Values, start};
use crate::session::{Session, SessionOptions};
use crate::setup::{Choice, Configuration, configurations};
use cell::Cell;
use matrix::Matrix;
use workload::{NESTED, Workload};

/// Options of a grid.
#[derive(Debug, Args)]
pub struct GridOptions {
    #[command(flatten)]
    pub session: SessionOptions,
    /// Thread counts
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,3,4,8,16,32,64", value_parser = threads)]
    pub threads: Vec<u32>,
    /// Rows beside libc's locks and the default: LOCK+LOAD, default@POLICY, default@SENSOR, or `all` for every pair that this machine can run
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub locks: Vec<Choice>,
}

/// A workload as the options of its subcommand make it.
pub struct Grid<'a> {
    /// The program.
    pub workload: &'a Workload,
    /// For the headings, such as `leveldb fillrandom`.
    pub title: String,
    /// Its options beside those of the workload's own.
    pub words: Vec<String>,
    /// Whether retention and fairness are promised.
    pub is_saturated: bool,
}

impl Grid<'_> {
    /// Of a workload without options of its own.
    pub fn of(workload: &Workload) -> Grid<'_> {
        Grid { workload, title: workload.name.to_string(), words: Vec::new(), is_saturated: false }
    }

    /// Measures, prints and writes.
    ///
    /// # Errors
    ///
    /// A program or package is missing, the record to continue is another's, or the results cannot be written.
    pub fn run(&self, options: &GridOptions) -> anyhow::Result<Record> {
        let workload = self.workload;
        let programs = find(workload, &options.session.places)?;
        let (rows, left_out) = configurations(&options.locks, workload.has_kind).map_err(anyhow::Error::msg)?;
        let common = &options.session.common;
        let counts = each_once(&options.threads);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let cells = cell::product(&names, &counts);
        let parameters = json!({
            "workload": workload.name, "title": self.title, "program": workload.program, "options": self.program_options(),
            "metric": workload.metric.name, "heading": workload.metric.heading, "lower_is_better": workload.metric.lower_is_better,
            "threads": counts, "configurations": names, "seconds": common.seconds, "runs": common.runs(),
        });
        let mut record = Record::begin(workload.name, common.seed, parameters);
        record.notes.push(format!("{}: {}.", self.title, workload.what));
        record.notes.push(energy::note());
        record.notes.extend(left_out);
        let session = Session { cells: &cells, options: &options.session };
        session.run(
            record,
            |cell| self.measure(&rows[cell.row], cell.threads, options, &programs),
            |record, samples| self.digest(record, &matrix(&rows, &counts, &cells, samples, workload, common.seconds)),
        )
    }

    fn program_options(&self) -> Vec<String> {
        self.workload.options.iter().map(ToString::to_string).chain(self.words.iter().cloned()).collect()
    }

    fn measure(
        &self,
        row: &Configuration,
        threads: u32,
        options: &GridOptions,
        programs: &Programs,
    ) -> anyhow::Result<Values> {
        let window = options.session.common.seconds;
        let mut words = self.program_options();
        words.extend(["--threads".to_string(), threads.to_string()]);
        if self.workload.is_timed {
            words.extend(["--seconds".to_string(), window.to_string()]);
        }
        if row.is_adaptive {
            words.extend(["--kind".to_string(), "adaptive".to_string()]);
        }
        let name = format!("{} {}", self.workload.program, words.join(" "));
        let patience = options.session.patience();
        let values = start(programs, self.workload.program, &words, row.setup, &[], name, patience)?.finish()?;
        let metric = self.workload.metric.name;
        ensure!(values.get(metric).is_some(), "{} printed no {metric}", self.workload.program);
        Ok(values)
    }

    fn digest(&self, record: &mut Record, matrix: &Matrix) {
        let tables = tables::tables(matrix, &self.title, self.workload.details);
        record.tables = tables.all;
        record.shown = Some(tables.shown);
        record.judgements = vec![judge::near_the_best(matrix, &self.title)];
        if self.workload.name == NESTED.name {
            record.judgements.push(judge::outer_wait(matrix));
        }
        if self.is_saturated {
            record.judgements.extend(judge::saturated(matrix, &self.title));
        }
    }
}

/// The programs of a workload and whatever else it needs to run.
fn find(workload: &Workload, places: &Places) -> anyhow::Result<Programs> {
    if let Some(file) = workload.needs_file {
        ensure!(
            Path::new(file).exists(),
            "{} needs {file}: `apt-get install {}`",
            workload.name,
            workload.packages.join(" ")
        );
    }
    Programs::find_with(places, &[workload.program], workload.packages)
}

/// The counts without repetitions, in their order.
pub fn each_once(counts: &[u32]) -> Vec<u32> {
    let mut once: Vec<u32> = Vec::new();
    for &count in counts {
        if !once.contains(&count) {
            once.push(count);
        }
    }
    once
}

fn matrix<'a>(
    rows: &[Configuration],
    counts: &[u32],
    cells: &[Cell],
    samples: &'a Samples<Values>,
    workload: &Workload,
    seconds: f64,
) -> Matrix<'a> {
    let find = |row: usize, threads: u32| cell::position(cells, row, threads);
    Matrix {
        rows: rows.iter().map(|row| row.name.clone()).collect(),
        threads: counts.to_vec(),
        cells: (0..rows.len()).map(|row| counts.iter().map(|&threads| find(row, threads)).collect()).collect(),
        samples,
        metric: workload.metric,
        processors: processors(),
        seconds,
    }
}

/// Options of `leveldb`.
#[derive(Debug, Args)]
pub struct LeveldbOptions {
    #[command(flatten)]
    grid: GridOptions,
    /// What the threads do
    #[arg(long, value_name = "NAME", default_value = "readrandom",
          value_parser = clap::builder::PossibleValuesParser::new(["fillrandom", "readrandom", "readwhilewriting"]))]
    workload: String,
}

/// `leveldb`: measures, prints and writes.
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
