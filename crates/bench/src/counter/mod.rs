//! `counter`: threads take one lock in a loop, with and without think time between sections.
//!
//! The unit of throughput is the *serial limit*: the throughput of one thread under libc's normal
//! mutex without think time, measured in the same round. With think time the limit is computed as
//! `min(processors / (section + think), 1 / section)`.

mod grid;
mod judge;
mod tables;

use clap::Args;
use serde_json::json;
use unconvoy_measure::context::processors;
use unconvoy_measure::failure::Usage;
use unconvoy_measure::record::Record;

use crate::energy;
use crate::grid::workload::COUNTER;
use crate::grid::{GridOptions, judge as matrix_judge, tables as matrix_tables};
use crate::options::SessionOptions;
use crate::run::{self, Job};
use crate::setup::{Configuration, configurations};
use grid::{Cell, Grid};

/// Largest number of rows for which tables with absolute values are printed, not only recorded.
const FEW: usize = 17;

/// Options of `counter`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    grid: GridOptions,
    /// Length of the critical section, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    cs: u64,
    /// Time between two acquisitions, in nanoseconds
    #[arg(long, value_name = "NS", value_delimiter = ',', default_value = "0",
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    think: Vec<u64>,
    /// Measure the time to acquire; adds two clock readings to every operation
    #[arg(long)]
    latency: bool,
}

/// Measures, prints and writes the record.
///
/// # Errors
///
/// A program is missing, the record to resume has another plan, or the results cannot be written.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let programs = options.grid.session.places.find(&[COUNTER.program], &[])?;
    let common = &options.grid.session.common;
    let (rows, left_out) =
        configurations(&options.grid.locks, COUNTER.has_kind).map_err(Usage::text)?;
    let cells = grid::cells(&rows, &options.grid.threads, &options.think);
    let metric = COUNTER.metric;
    let parameters = json!({
        "workload": COUNTER.name, "title": COUNTER.name, "metric": metric.name,
        "heading": metric.heading,
        "lower_is_better": metric.lower_is_better, "threads": options.grid.threads,
        "section_ns": options.cs, "think_ns": options.think,
        "seconds": common.seconds, "runs": common.runs(), "latency": options.latency,
        "configurations": rows.iter().map(|row| &row.name).collect::<Vec<_>>(),
    });
    let mut record = Record::begin(COUNTER.name, common.seed, parameters);
    record.notes.push(format!("{}: {}.", COUNTER.name, COUNTER.what));
    record.notes.push(energy::note());
    record.notes.extend(left_out);
    options.grid.session.session(&cells).run(
        record,
        |cell| {
            job(cell, &rows[cell.row], options.cs, options.latency, &options.grid.session)
                .run(&programs)
        },
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
        let title = if think == 0 {
            COUNTER.name.to_string()
        } else {
            format!("{}, think {think} ns", COUNTER.name)
        };
        let tables = matrix_tables::tables(&matrix, &title, &[]);
        record.tables.extend(tables.all);
        shown.extend(tables.shown);
        record.judgements.push(matrix_judge::near_the_best(&matrix, &title));
        if think == 0 {
            record.judgements.extend(matrix_judge::saturated(&matrix, &title));
        }
    }
    record.shown = Some(shown);
}

/// Returns a cell's run, with sections of `cs` nanoseconds.
fn job(
    cell: &Cell,
    row: &Configuration,
    cs: u64,
    has_latency: bool,
    session: &SessionOptions,
) -> Job<'static> {
    let kind = if row.is_adaptive { "adaptive" } else { "normal" };
    let mut words = run::options([
        ("threads", cell.threads.to_string()),
        ("cs", cs.to_string()),
        ("think", cell.think.to_string()),
        ("kind", kind.to_string()),
        ("seconds", session.common.seconds.to_string()),
    ]);
    words.extend(has_latency.then(|| "--latency".to_string()));
    Job::new(COUNTER.program, words, row.setup, session.time_limit())
}
