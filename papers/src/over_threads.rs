//! Draws throughput over thread counts from the record of a grid.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use unconvoy_bench::grid::matrix::Matrix;
use unconvoy_bench::grid::workload;
use unconvoy_bench::readings::readings;
use unconvoy_bench::run::Values;
use unconvoy_measure::arguments::processor_count;
use unconvoy_measure::cells::{Sample, Samples};
use unconvoy_measure::chart::axis::Axis;
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::Spread;

use crate::messages;
use crate::record_view::{Measured, lines};
use crate::workloads::WORKLOADS;

/// Greatest number of lines in a panel: the number of distinct colours.
const LINES: usize = 7;

/// The configurations that are always drawn: the default, and those of the papers.
const ALWAYS: [&str; 6] =
    ["libc", "default", "mcs+none", "tpmcs+none", "tpmcs+control", "tpmcs-yield+none"];

/// Draws the throughput of each configuration over thread counts. If there are more than [`LINES`]
/// configurations, draws those of [`ALWAYS`] and the best of the others.
pub fn draw(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let workloads = || workload::WORKLOADS.iter().chain(WORKLOADS);
    let workload = workloads().find(|workload| workload.name == record.benchmark);
    let workload = workload.with_context(|| {
        let known: Vec<&str> = workloads().map(|workload| workload.name).collect();
        messages::no_throughput_over_threads(&record.benchmark, &known)
    })?;
    let list = |name: &str| record.parameters.get(name).cloned().unwrap_or_default();
    let rows: Vec<String> = serde_json::from_value(list("configurations"))
        .with_context(|| messages::record_lacks("its list of configurations"))?;
    // Loads on the kernel count tasks, which may be threads or processes.
    let counted = if record.parameters.get("tasks").is_some() { "tasks" } else { "threads" };
    let threads: Vec<u32> = serde_json::from_value(list(counted))
        .with_context(|| messages::record_lacks("its thread counts"))?;
    // `counter` may have several think times; the figure shows the first.
    let think = list("think_ns").get(0).cloned();
    let of_think = |cell: &Value| think.is_none() || cell.get("think") == think.as_ref();
    let cell = |row: usize, column: usize| row * threads.len() + column;
    let mut samples: Samples<Values> = Samples { all: Vec::new(), ended_by: None };
    for reading in readings(record).into_iter().filter(|reading| of_think(&reading.cell)) {
        let row =
            reading.text("configuration").and_then(|name| rows.iter().position(|row| row == name));
        let column = reading
            .number(counted)
            .and_then(|count| threads.iter().position(|&known| f64::from(known) == count));
        if let (Some(row), Some(column)) = (row, column) {
            let round = reading.round as u32;
            samples.all.push(Sample::new(cell(row, column), round, reading.values));
        }
    }
    let columns = 0..threads.len();
    let matrix = Matrix {
        cells: (0..rows.len())
            .map(|row| columns.clone().map(|column| Some(cell(row, column))).collect())
            .collect(),
        rows,
        samples: &samples,
        separated: samples.separated(),
        metric: workload.metric,
        processors: record.context.machine.processors,
        seconds: 0.0,
        threads,
    };
    let always: Vec<usize> = ALWAYS.iter().filter_map(|name| matrix.row(name)).collect();
    let others = matrix.ranking().into_iter().filter(|row| !always.contains(row));
    let shown: Vec<usize> = always.iter().copied().chain(others).take(LINES).collect();
    let places: Vec<f64> = matrix.threads.iter().copied().map(f64::from).collect();
    let line = |&row: &usize| {
        let at = |column: usize| Some((places[column], matrix.measured(row, column)?));
        let mut line: Vec<(f64, Spread)> = columns.clone().filter_map(at).collect();
        line.sort_by(|left, right| left.0.total_cmp(&right.0));
        (matrix.rows[row].clone(), line)
    };
    let measured: Vec<Measured> = shown.iter().map(line).collect();
    ensure!(
        measured.iter().any(|(_, line)| !line.is_empty()),
        messages::record_without_runs(&record.benchmark)
    );
    let better = if workload.metric.lower_is_better { " (lower is better)" } else { "" };
    let title = list("title").as_str().unwrap_or(workload.name).to_string();
    let title = format!("{title}: {}{better}", workload.metric.heading);
    let processors = matrix.processors;
    let mark = Some((Axis::at(f64::from(processors)), processor_count(processors)));
    Ok(Panel { mark, ..lines(title, counted, &places, measured, names) })
}
