//! Predicted and simulated gains.

use comfy_table::{CellAlignment, Table, presets as styles};
use serde::Serialize;
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::context::Context;
use unconvoy_sim::experiment::Replayed;
use unconvoy_sim::grid::Result;
use unconvoy_sim::parameters::Parameters;
use unconvoy_sim::workload::replay::Times;
use unconvoy_syncchar::projection::projected_time;

use super::variant::{Described, Variant};

/// What is predicted and simulated for a variant on n processors.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Number of the variant.
    variant: usize,
    /// Whether the recorded time passes between sections. Otherwise none does.
    is_program: bool,
    processors: u32,
    /// The model's speed-up of the sections, by byte and by cache line.
    sections_by_byte: f64,
    sections_by_line: f64,
    /// The predicted gain of the program, by line, from the share of the recorded time that the
    /// lock was held, as in `unconvoy predict`.
    from_trace: Option<f64>,
    /// The predicted gain, by line, from the share of the simulated time that a thread holds the
    /// first lock or waits for it.
    predicted: f64,
    /// The same, at most what the processors could execute if no thread ever waited.
    bounded: f64,
    /// Throughput under the first lock over that of the first trace as recorded.
    to_first: Option<f64>,
    /// Results by lock, in the order of the command's locks.
    results: Vec<Gain>,
}

/// The result under one lock.
#[derive(Debug, Serialize)]
pub struct Gain {
    lock: String,
    /// Throughput over that of the first lock.
    gain: f64,
    #[serde(flatten)]
    replayed: Replayed,
}

/// Everything about a run of the command.
#[derive(Serialize)]
pub struct Record<'a> {
    /// Always true: no gain comes from a real machine.
    pub simulated: bool,
    /// Where and when it was simulated.
    pub context: Context,
    /// The machine, with another number of processors.
    pub machine: &'a Parameters,
    /// Simulated sections per processor.
    pub sections_per_processor: u32,
    /// Whether every point was simulated.
    pub complete: bool,
    /// Errors of the points that failed.
    pub failures: &'a [String],
    /// Traces and changes.
    pub variants: Vec<Described<'a>>,
    /// The results.
    pub rows: Vec<Row>,
}

/// Name of the panel of a variant's results.
pub fn panel_of(variant: usize, is_program: bool) -> String {
    format!("{variant} {}", if is_program { "program" } else { "sections" })
}

/// One row per variant, time between sections, and number of processors, if its first lock was
/// simulated.
pub fn rows(
    variants: &[Variant],
    processors: &[u32],
    locks: &[String],
    results: &[Result],
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, variant) in variants.iter().enumerate() {
        for is_program in [false, true] {
            for &processors in processors {
                let panel = panel_of(number, is_program);
                let result =
                    |lock: &String| Some((lock.clone(), of(results, &panel, lock, processors)?));
                let all: Vec<_> = locks.iter().filter_map(result).collect();
                let estimates = variant.estimates.iter().find(|one| one.processors == processors);
                let of_first_lock = |panel: &str| of(results, panel, locks.first()?, processors);
                let (Some(base), Some(estimates)) = (of_first_lock(&panel), estimates) else {
                    continue;
                };
                let first = of_first_lock(&panel_of(0, is_program));
                let by_line = estimates.line.speed_up();
                let gain = |(lock, replayed): (String, Replayed)| Gain {
                    lock,
                    gain: replayed.per_s / base.per_s,
                    replayed,
                };
                let predicted = gain_of(base.busy, by_line);
                rows.push(Row {
                    variant: number,
                    is_program,
                    processors,
                    sections_by_byte: estimates.byte.speed_up(),
                    sections_by_line: by_line,
                    from_trace: is_program.then(|| gain_of(variant.held, by_line)),
                    predicted,
                    bounded: predicted.min(without_waits(variant, is_program, base)),
                    to_first: first.map(|first| base.per_s / first.per_s),
                    results: all.into_iter().map(gain).collect(),
                });
            }
        }
    }
    rows
}

/// The result of a panel's lock on a number of processors.
fn of(results: &[Result], panel: &str, lock: &str, processors: u32) -> Option<Replayed> {
    let is_it = |result: &&Result| {
        result.panel == panel && result.series == lock && result.x == f64::from(processors)
    };
    results.iter().find(is_it)?.measured.replayed().copied()
}

/// Amdahl's law: the gain if this share of the time shrinks by `speed_up`.
fn gain_of(share: f64, speed_up: f64) -> f64 {
    1.0 / projected_time(1.0, share, speed_up)
}

/// The gain over `base` if no thread waited.
fn without_waits(variant: &Variant, is_program: bool, base: Replayed) -> f64 {
    let Times { section_ns, between_ns } = variant.times;
    let turn_ns = section_ns + if is_program { between_ns } else { 0.0 };
    f64::from(base.threads) * 1e9 / turn_ns / base.per_s
}

/// The terminal's text.
pub fn text(variants: &[Variant], rows: &[Row], locks: &[String], machine: &str) -> String {
    let mut text = String::new();
    for (number, variant) in variants.iter().enumerate() {
        text.push_str(&format!("{}\n{}.\n", variant.name(), variant.sentence()));
        for advice in &variant.advice {
            text.push_str(&format!("  -> {advice}\n"));
        }
        let of_variant = rows.iter().filter(|row| row.variant == number);
        text.push_str(&format!("{}\n\n", table(of_variant, locks)));
    }
    let first = &locks[0];
    text.push_str(&format!(
        "Simulated on processors of {machine}, with a thread each. Gains are over {first}.\n\
         by byte, by line: Syncchar's speed-up of the sections. from trace: of the program, by \
         line, as in unconvoy predict.\nbusy: share of the time with a thread that holds {first} \
         or waits for it. predicted: by Amdahl's law from that share. \
         bounded: at most what the processors execute if no thread waits.\n"
    ));
    text
}

fn table<'a>(rows: impl Iterator<Item = &'a Row>, locks: &[String]) -> Table {
    let mut table = Table::new();
    table.load_style(styles::UTF8_FULL_CONDENSED);
    let head = [
        "gain of",
        "processors",
        "by byte",
        "by line",
        "from trace",
        "busy",
        "predicted",
        "bounded",
    ];
    let mut header: Vec<String> = head.map(String::from).into();
    header.push(format!("{}, per s", locks[0]));
    header.push("to first".to_string());
    header.extend(locks[1..].iter().cloned());
    header.push("aborts".to_string());
    let columns = header.len();
    table.set_header(header);
    for row in rows {
        let Some(base) = row.results.first() else { continue };
        let mut cells = vec![
            if row.is_program { "program" } else { "sections" }.to_string(),
            row.processors.to_string(),
            format!("{:.2}", row.sections_by_byte),
            format!("{:.2}", row.sections_by_line),
            row.from_trace.map_or_else(String::new, |gain| format!("{gain:.2}")),
            format!("{:.0} %", 100.0 * base.replayed.busy),
            format!("{:.2}", row.predicted),
            format!("{:.2}", row.bounded),
            Unit::Plain.show(base.replayed.per_s),
            row.to_first.map_or_else(String::new, |gain| format!("{gain:.2}")),
        ];
        for lock in &locks[1..] {
            let gain = row.results.iter().find(|result| result.lock == *lock);
            cells.push(gain.map_or_else(String::new, |result| format!("{:.2}", result.gain)));
        }
        let last = row.results.iter().find(|result| locks.last() == Some(&result.lock));
        let last = last.and_then(|last| last.replayed.aborts_per_commit);
        cells.push(last.map_or_else(String::new, |aborts| format!("{aborts:.2}")));
        table.add_row(cells);
    }
    for column in 1..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gain_follows_amdahl() {
        assert_eq!(gain_of(1.0, 4.0), 4.0);
        assert_eq!(gain_of(0.5, 4.0), 1.6);
    }
}
