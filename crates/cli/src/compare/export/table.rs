//! The summary as a terminal table with a conclusion below it.

use comfy_table::{Cell, CellAlignment, Table, presets};
use unconvoy_measure::chart::quantity::{Unit, seconds};
use unconvoy_measure::statistics::{FEWEST_RUNS, Spread};

use super::super::configuration::Configuration;
use super::super::record::Record;
use super::super::summary::Summary;

/// Number of configurations side by side if the width of standard output is unknown.
const SIDE_BY_SIDE: usize = 3;
/// Approximate width of one configuration's columns.
const COLUMNS_WIDTH: usize = 58;
/// Approximate width of the thread counts' column.
const THREADS_WIDTH: usize = 11;

/// Renders title, table, context and conclusion.
pub fn render(record: &Record) -> String {
    let mut text = String::new();
    if let Some(title) = &record.title {
        text.push_str(&format!("{title}\n"));
    }
    if !record.summary.is_empty() {
        let names = &record.plan.configurations;
        for names in names.chunks(side_by_side()) {
            text.push_str(&format!("{}\n", table(record, names)));
        }
        text.push_str(&format!("{}\n", legend(record)));
    }
    if let Some(why) = record.ended_by.as_ref().filter(|_| !record.complete) {
        text.push_str(&format!("INCOMPLETE: {why}\n"));
    }
    text.push_str(&format!("{}\n{}\n", record.context.line(), record.conclusion));
    text
}

fn side_by_side() -> usize {
    let width = console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    width.map_or(SIDE_BY_SIDE, |width| (width.saturating_sub(THREADS_WIDTH) / COLUMNS_WIDTH).max(1))
}

/// Builds one row per thread count, with the columns of each configuration in `names`.
fn table(record: &Record, names: &[Configuration]) -> Table {
    let has_fairness = record.summary.iter().any(|summary| summary.fairness.is_some());
    let mut header = vec!["threads".to_string()];
    for name in names {
        header.push(format!("{name}\n{}", record.metric.name));
        header.push(format!("{name}\n{}", cpu_heading(record)));
        if has_fairness {
            header.push(format!("{name}\nfairness"));
        }
        if *name != record.plan.configurations[0] {
            header.push(format!("{name}\nvs {}", record.plan.configurations[0]));
        }
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header);
    for &threads in &record.plan.threads {
        let mut row = vec![right(threads.map_or("-".to_string(), |count| count.to_string()))];
        for name in names {
            let summary = record
                .summary
                .iter()
                .find(|summary| summary.threads == threads && summary.configuration == name.name);
            row.push(right(summary.map_or_else(none, |summary| metric(record, &summary.metric))));
            row.push(right(summary.map_or_else(none, cpu)));
            if has_fairness {
                let fairness = summary.and_then(|summary| summary.fairness);
                row.push(right(
                    fairness.map_or_else(none, |spread| format!("{:.2}", spread.median)),
                ));
            }
            if *name != record.plan.configurations[0] {
                row.push(right(summary.map_or_else(none, ratio)));
            }
        }
        table.add_row(row);
    }
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn none() -> String {
    "-".to_string()
}

/// Returns whether any run has processor time per operation.
fn is_per_operation(record: &Record) -> bool {
    record.summary.iter().any(|summary| summary.cpu_per_operation_s.is_some())
}

fn cpu_heading(record: &Record) -> &'static str {
    if is_per_operation(record) { "cpu per op" } else { "cpu per run" }
}

fn metric(record: &Record, spread: &Spread) -> String {
    let unit = if record.metric.is_wall_time() { Unit::Seconds } else { Unit::Plain };
    let median = unit.show(spread.median);
    if spread.count < 2 {
        return median; // one run shows no spread
    }
    format!("{median} ± {:.1} %", 100.0 * spread.relative())
}

fn cpu(summary: &Summary) -> String {
    seconds(summary.cpu_per_operation_s.unwrap_or(summary.cpu_s).median)
}

fn ratio(summary: &Summary) -> String {
    match summary.ratio {
        Some(ratio) if ratio.differs => ratio.text(),
        Some(ratio) => format!("~ {}", ratio.text()),
        None => none(),
    }
}

fn legend(record: &Record) -> String {
    let better = if record.metric.lower_is_better { "lower" } else { "higher" };
    let runs = record.run_count();
    let mut text = format!(
        "{}: median of {runs} ± median absolute deviation, {better} is better",
        record.metric.name
    );
    if record.plan.configurations.len() > 1 {
        text.push_str(match record.plan.runs as usize {
            ..FEWEST_RUNS => "\nratios: within rounds; above 1 is better, ~ is not significant",
            _ => "\nratios: within rounds, with 95 % intervals; above 1 is better, ~ includes 1",
        });
    }
    text
}
