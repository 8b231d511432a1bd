//! `counter`: every thread takes one lock in a loop, with and without time to think in between.
//!
//! The unit of throughput is the *serial limit*: what one thread alone reaches under libc's normal mutex without think time, measured in the same round. With
//! think time the limit is computed: `min(processors / (section + think), 1 / section)`.

mod judge;
mod tables;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::cells::{Samples, interleave};
use crate::cli::{Common, Places, threads};
use crate::context::processors;
use crate::programs::Programs;
use crate::record::Record;
use crate::run::{Job, Values};
use crate::setup::{Pair, Setup};

/// Options of `counter`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    places: Places,
    /// Thread counts
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,3,4,8,16,32,64", value_parser = threads)]
    threads: Vec<u32>,
    /// Locks beside libc's and the default, by name
    #[arg(long, value_name = "LOCK+LOAD", value_delimiter = ',')]
    locks: Vec<Pair>,
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

/// One row of the table: a kind of lock.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    name: String,
    kind: &'static str,
    setup: Setup,
}

/// Rows that are always there, by index.
const NORMAL: usize = 0;
const ADAPTIVE: usize = 1;
const DEFAULT: usize = 2;

fn rows(locks: &[Pair]) -> Vec<Row> {
    let row = |name: &str, kind, setup| Row { name: name.to_string(), kind, setup };
    let fixed = [
        row("libc normal", "normal", Setup::Libc),
        row("libc adaptive", "adaptive", Setup::Libc),
        row("default", "normal", Setup::Default),
    ];
    let named = locks.iter().map(|&pair| row(&pair.name(), "normal", Setup::Named(pair)));
    fixed.into_iter().chain(named).collect()
}

/// One field of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cell {
    #[serde(skip)]
    row: usize,
    /// The row's name.
    lock: String,
    threads: u32,
    /// Nanoseconds.
    think: u64,
}

/// The table: its axes, and what was measured.
pub(crate) struct Grid {
    rows: Vec<Row>,
    threads: Vec<u32>,
    thinks: Vec<u64>,
    cells: Vec<Cell>,
    samples: Samples<Values>,
    processors: u32,
    /// Nanoseconds.
    section: u64,
    /// Of one window.
    seconds: f64,
}

/// All cells, the one of the serial limit first.
fn cells(rows: &[Row], threads: &[u32], thinks: &[u64]) -> Vec<Cell> {
    let cell = |row: usize, threads, think| Cell { row, lock: rows[row].name.clone(), threads, think };
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
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let programs = Programs::find(&options.places, &["counter"])?;
    let common = &options.common;
    let rows = rows(&options.locks);
    let cells = cells(&rows, &options.threads, &options.think);
    let parameters = json!({
        "threads": options.threads, "section_ns": options.cs, "think_ns": options.think, "seconds": common.seconds,
        "runs": common.runs(), "latency": options.latency, "locks": rows.iter().map(|row| &row.name).collect::<Vec<_>>(),
    });
    let mut record = Record::begin("counter", common.seed, parameters);
    let name = |cell: &Cell| format!("{}, {} threads, think {} ns", cell.lock, cell.threads, cell.think);
    let samples = interleave(&cells, common.runs(), common.seed, name, |cell| {
        let row = rows.get(cell.row).context("a cell of no row")?;
        job(row, cell, options).run(&programs)
    })?;
    record.take(&cells, &samples)?;
    let grid = Grid {
        rows,
        threads: options.threads.clone(),
        thinks: options.think.clone(),
        cells,
        samples,
        processors: processors(),
        section: options.cs,
        seconds: common.seconds,
    };
    record.judgements = judge::judge(&grid);
    record.tables = tables::tables(&grid);
    record.finish(common.out.as_deref())
}

fn job(row: &Row, cell: &Cell, options: &Options) -> Job {
    let pairs = [
        ("--threads", cell.threads.to_string()),
        ("--cs", options.cs.to_string()),
        ("--think", cell.think.to_string()),
        ("--kind", row.kind.to_string()),
    ];
    let mut words: Vec<String> = pairs.into_iter().flat_map(|(name, value)| [name.to_string(), value]).collect();
    if options.latency {
        words.push("--latency".to_string());
    }
    Job { program: "counter", options: words, setup: row.setup, seconds: options.common.seconds }
}

/// Operations per second.
fn throughput(values: &Values) -> Option<f64> {
    values.get("ops_per_sec")
}

impl Grid {
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
        let rows = rows(&[]);
        let plain = cells(&rows, &[1, 2], &[0]);
        assert_eq!((plain.len(), plain[0].threads), (6, 1));
        assert_eq!(cells(&rows, &[2], &[1000]).len(), 4);
    }
}
