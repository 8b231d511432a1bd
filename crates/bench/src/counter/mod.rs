//! `counter`: every thread takes one lock in a loop, with and without time to think in between.
//!
//! The unit of throughput is the *serial limit*: what one thread alone reaches under libc's normal mutex without think time, measured in the same round. With
//! think time the limit is computed: `min(processors / (section + think), 1 / section)`.

mod judge;
mod tables;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::cells::Samples;
use crate::cli::thread_count;
use crate::context::processors;
use crate::energy;
use crate::grid;
use crate::grid::matrix::Matrix;
use crate::grid::workload::COUNTER;
use crate::programs::Programs;
use crate::record::Record;
use crate::run::{Values, start};
use crate::session::{Place, Session};
use crate::setup::{Configuration, configurations};

/// More rows than this, and the tables with absolute figures are for the record only.
const FEW: usize = 17;

/// Options of `counter`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    grid: grid::GridOptions,
    /// Length of the critical section, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    cs: u64,
    /// Time between two acquires, in nanoseconds
    #[arg(long, value_name = "NS", value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    think: Vec<u64>,
    /// Measure the time to acquire too; costs every operation two readings of the clock, the serial limit's as well
    #[arg(long)]
    latency: bool,
}

/// Rows that are always there, by index.
const NORMAL: usize = 0;
const ADAPTIVE: usize = 1;
const DEFAULT: usize = 2;

/// One field of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cell {
    #[serde(skip)]
    row: usize,
    /// The row's name.
    configuration: String,
    threads: u32,
    /// Nanoseconds.
    think: u64,
}

impl Place for Cell {
    fn name(&self) -> String {
        format!("{}, {}, think {} ns", self.configuration, thread_count(self.threads), self.think)
    }

    fn row(&self) -> &str {
        &self.configuration
    }
}

/// The table: its axes, and what was measured.
pub(crate) struct Grid<'a> {
    rows: &'a [Configuration],
    threads: &'a [u32],
    thinks: &'a [u64],
    cells: &'a [Cell],
    samples: &'a Samples<Values>,
    processors: u32,
    /// Nanoseconds.
    section: u64,
    /// Of one window.
    seconds: f64,
}

/// All cells, the one of the serial limit first.
fn cells(rows: &[Configuration], threads: &[u32], thinks: &[u64]) -> Vec<Cell> {
    let cell = |row: usize, threads, think| Cell { row, configuration: rows[row].name.clone(), threads, think };
    let mut cells = vec![cell(NORMAL, 1, 0)];
    for &think in thinks {
        for &threads in threads {
            for row in 0..rows.len() {
                let cell = cell(row, threads, think);
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
            }
        }
    }
    cells
}

/// Measures, prints and writes.
///
/// # Errors
///
/// A program is missing, the record to continue is another's, or the results cannot be written.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let programs = Programs::find(&options.grid.session.places, &[COUNTER.program])?;
    let common = &options.grid.session.common;
    let (rows, left_out) = configurations(&options.grid.locks, COUNTER.has_kind).map_err(anyhow::Error::msg)?;
    let cells = cells(&rows, &options.grid.threads, &options.think);
    let metric = COUNTER.metric;
    let parameters = json!({
        "workload": COUNTER.name, "title": COUNTER.name, "metric": metric.name, "heading": metric.heading,
        "lower_is_better": metric.lower_is_better, "threads": options.grid.threads, "section_ns": options.cs, "think_ns": options.think,
        "seconds": common.seconds, "runs": common.runs(), "latency": options.latency,
        "configurations": rows.iter().map(|row| &row.name).collect::<Vec<_>>(),
    });
    let mut record = Record::begin(COUNTER.name, common.seed, parameters);
    record.notes.push(format!("{}: {}.", COUNTER.name, COUNTER.what));
    record.notes.push(energy::note());
    record.notes.extend(left_out);
    let session = Session { cells: &cells, options: &options.grid.session };
    session.run(
        record,
        |cell| measure(&rows[cell.row], cell, options, &programs),
        |record, samples| {
            let grid = Grid {
                rows: &rows,
                threads: &options.grid.threads,
                thinks: &options.think,
                cells: &cells,
                samples,
                processors: processors(),
                section: options.cs,
                seconds: common.seconds,
            };
            digest(record, &grid);
        },
    )
}

fn digest(record: &mut Record, grid: &Grid) {
    record.judgements = judge::judge(grid);
    record.tables = tables::tables(grid);
    let mut shown = if grid.rows.len() > FEW { Vec::new() } else { record.tables.clone() };
    for &think in grid.thinks {
        let matrix = grid.matrix(think);
        let title = if think == 0 { COUNTER.name.to_string() } else { format!("{}, think {think} ns", COUNTER.name) };
        let tables = grid::tables::tables(&matrix, &title, &[]);
        record.tables.extend(tables.all);
        shown.extend(tables.shown);
        record.judgements.push(grid::judge::near_the_best(&matrix, &title));
        if think == 0 {
            record.judgements.extend(grid::judge::saturated(&matrix, &title));
        }
    }
    record.shown = Some(shown);
}

fn measure(row: &Configuration, cell: &Cell, options: &Options, programs: &Programs) -> anyhow::Result<Values> {
    let seconds = options.grid.session.common.seconds;
    let pairs = [
        ("--threads", cell.threads.to_string()),
        ("--cs", options.cs.to_string()),
        ("--think", cell.think.to_string()),
        ("--kind", if row.is_adaptive { "adaptive" } else { "normal" }.to_string()),
        ("--seconds", seconds.to_string()),
    ];
    let mut words: Vec<String> = pairs.into_iter().flat_map(|(name, value)| [name.to_string(), value]).collect();
    if options.latency {
        words.push("--latency".to_string());
    }
    let name = format!("{} {}", COUNTER.program, words.join(" "));
    let patience = options.grid.session.patience();
    start(programs, COUNTER.program, &words, row.setup, &[], name, patience)?.finish()
}

/// Operations per second.
fn throughput(values: &Values) -> Option<f64> {
    values.get("ops_per_sec")
}

impl<'a> Grid<'a> {
    /// Locks by threads at one think time.
    fn matrix(&self, think: u64) -> Matrix<'a> {
        let cells = |row| self.threads.iter().map(|&threads| self.find(row, threads, think)).collect();
        Matrix {
            rows: self.rows.iter().map(|row| row.name.clone()).collect(),
            threads: self.threads.to_vec(),
            cells: (0..self.rows.len()).map(cells).collect(),
            samples: self.samples,
            metric: COUNTER.metric,
            processors: self.processors,
            seconds: self.seconds,
        }
    }

    fn find(&self, row: usize, threads: u32, think: u64) -> Option<usize> {
        self.cells.iter().position(|cell| (cell.row, cell.threads, cell.think) == (row, threads, think))
    }

    /// The computed limit of throughput for a think time above 0, operations per second.
    fn computed_limit(&self, think: u64) -> f64 {
        let (section, think) = (self.section as f64 / 1e9, think as f64 / 1e9);
        (f64::from(self.processors) / (section + think)).min(1.0 / section)
    }

    /// Throughput as a fraction of the limit.
    fn fraction(&self, cell: usize) -> Option<crate::statistics::Spread> {
        let think = self.cells.get(cell)?.think;
        if think == 0 {
            self.samples.ratio(cell, 0, throughput)
        } else {
            let limit = self.computed_limit(think);
            self.samples.spread(cell, |values| Some(throughput(values)? / limit))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_serial_limit_is_measured_once_and_first() {
        let (rows, _) = configurations(&[], true).expect("no choice is wrong");
        let plain = cells(&rows, &[1, 2], &[0]);
        assert_eq!((plain.len(), plain[0].threads), (6, 1));
        assert_eq!(cells(&rows, &[2], &[1000]).len(), 4);
    }
}
