//! A grid as tables: configurations down, thread counts across. Pure.

use crate::chart::quantity::Unit;
use crate::run::Values;
use crate::statistics::{Spread, short};
use crate::table::Table;

use super::matrix::Matrix;

/// Rows that a terminal shows, beside libc and the default.
const SHOWN: usize = 15;

/// The tables with all rows, and with those that a terminal shows.
pub struct Tables {
    /// For the record.
    pub all: Vec<Table>,
    /// For the terminal.
    pub shown: Vec<Table>,
}

/// Relative and absolute figures, and what they cost.
pub fn tables(matrix: &Matrix, title: &str) -> Tables {
    let ranking = matrix.ranking();
    let is_kept =
        |&(place, &row): &(usize, &usize)| place < SHOWN || ["libc", "default"].contains(&matrix.rows[row].as_str());
    let few: Vec<usize> = ranking.iter().enumerate().filter(is_kept).map(|(_, &row)| row).collect();
    let remark = match ranking.len() - few.len() {
        0 => String::new(),
        left => format!("; the best {SHOWN}, libc and the default, {left} more rows are in the record"),
    };
    Tables {
        all: vec![
            relative(matrix, title, "", &ranking),
            absolute(matrix, title, &ranking),
            costs(matrix, title, "", &ranking),
        ],
        shown: vec![relative(matrix, title, &remark, &few), costs(matrix, title, &remark, &few)],
    }
}

fn header(matrix: &Matrix, before: &[&str]) -> Vec<String> {
    let counts = matrix.threads.iter().map(u32::to_string);
    before.iter().map(ToString::to_string).chain(counts).collect()
}

fn text(spread: Option<Spread>, format: impl Fn(f64) -> String) -> String {
    spread.map_or_else(|| "-".to_string(), |spread| spread.text(format))
}

fn relative(matrix: &Matrix, title: &str, remark: &str, rows: &[usize]) -> Table {
    let heading = matrix.metric.heading;
    let mut table = Table::new(
        format!(
            "{title}: {heading} relative to the best median at that thread count (threads across), 1 being the best; median (smallest..largest), rows by their geometric mean{remark}"
        ),
        header(matrix, &["configuration", "mean"]),
    );
    let best = |column| {
        matrix.best(column).map_or_else(
            || "-".to_string(),
            |(row, median)| format!("{} {}", Unit::Plain.show(median), matrix.rows[row]),
        )
    };
    let columns = 0..matrix.threads.len();
    table.row([format!("the best, {heading}"), String::new()].into_iter().chain(columns.clone().map(best)));
    for &row in rows {
        let score = matrix.score(row).map_or_else(|| "-".to_string(), |score| format!("{score:.3}"));
        let fields = columns.clone().map(|column| text(matrix.relative(row, column), |value| format!("{value:.2}")));
        table.row([matrix.rows[row].clone(), score].into_iter().chain(fields));
    }
    table
}

fn absolute(matrix: &Matrix, title: &str, rows: &[usize]) -> Table {
    let mut table = Table::new(
        format!("{title}: {}; median ± median absolute deviation, in percent of it", matrix.metric.heading),
        header(matrix, &["configuration"]),
    );
    for &row in rows {
        let field = |column| {
            matrix.measured(row, column).map_or_else(
                || "-".to_string(),
                |spread| format!("{} ± {:.1} %", Unit::Plain.show(spread.median), 100.0 * spread.relative()),
            )
        };
        table.row(std::iter::once(matrix.rows[row].clone()).chain((0..matrix.threads.len()).map(field)));
    }
    table
}

/// Context switches per second of the window, or of the whole run where the program says nothing.
fn switches(values: &Values) -> Option<f64> {
    let per_second = |prefix: &str, seconds: &str| {
        let count = values.get(&format!("{prefix}voluntary_csw"))? + values.get(&format!("{prefix}involuntary_csw"))?;
        Some(count / values.get(seconds).filter(|&seconds| seconds > 0.0)?)
    };
    per_second("", "seconds").or_else(|| per_second("process_", "process_wall_seconds"))
}

/// Microseconds per operation; of a fixed amount of work, seconds in all.
fn processor_time(matrix: &Matrix, values: &Values) -> Option<f64> {
    if matrix.metric.lower_is_better {
        values.get("cpu_seconds").or_else(|| values.get("process_cpu_seconds"))
    } else {
        Some(values.get("cpu_ns_per_op")? / 1e3)
    }
}

/// What is left of the own peak under load, fairness, processor time and context switches.
fn costs(matrix: &Matrix, title: &str, remark: &str, rows: &[usize]) -> Table {
    let twice = matrix.column(2 * matrix.processors);
    let last = matrix.last_column().filter(|&last| Some(last) != twice);
    let loads: Vec<usize> = twice.into_iter().chain(last).collect();
    let (unit, of) = if matrix.metric.lower_is_better { ("s", "run") } else { ("us", "operation") };
    let at = |what: &str, column: usize| format!("{what} at {:.0} %", matrix.load(column));
    let header = ["configuration".to_string()]
        .into_iter()
        .chain(loads.iter().map(|&column| at("kept", column)))
        .chain(["Jain, worst".to_string()])
        .chain(loads.iter().map(|&column| at(&format!("{unit}/{of}"), column)))
        .chain(loads.iter().map(|&column| at("switches/s", column)));
    let mut table = Table::new(
        format!(
            "{title}: part of the row's own peak that it keeps at a load in percent of the processors; Jain's index, the lowest median of all counts from 2 on; processor time per {of}, {unit}; context switches per second; medians{remark}"
        ),
        header,
    );
    for &row in rows {
        let or_none =
            |value: Option<f64>, format: &dyn Fn(f64) -> String| value.map_or_else(|| "-".to_string(), format);
        let median =
            |column, of: &dyn Fn(&Values) -> Option<f64>| matrix.spread(row, column, of).map(|spread| spread.median);
        let kept = loads.iter().map(|&column| or_none(matrix.retention(row, column), &|value| format!("{value:.3}")));
        let jain = or_none(worst_jain(matrix, row).map(|(value, _)| value), &|value| format!("{value:.3}"));
        let times =
            loads.iter().map(|&column| or_none(median(column, &|values| processor_time(matrix, values)), &short));
        let switched = loads.iter().map(|&column| or_none(median(column, &switches), &|value| Unit::Plain.show(value)));
        let fields: Vec<String> =
            [matrix.rows[row].clone()].into_iter().chain(kept).chain([jain]).chain(times).chain(switched).collect();
        table.row(fields);
    }
    table
}

/// The lowest median of Jain's index over the counts with more than one thread, and its count.
pub fn worst_jain(matrix: &Matrix, row: usize) -> Option<(f64, u32)> {
    let columns = (0..matrix.threads.len()).filter(|&column| matrix.threads[column] > 1);
    let medians = columns.filter_map(|column| {
        Some((matrix.spread(row, column, |values| values.get("jain"))?.median, matrix.threads[column]))
    });
    medians.min_by(|left, right| left.0.total_cmp(&right.0))
}

#[cfg(test)]
mod tests {
    use super::super::matrix::tests::{matrix, samples};
    use super::*;

    #[test]
    fn many_rows_are_cut_on_the_terminal_only() {
        let names: Vec<String> =
            (0..30).map(|row| format!("row{row}")).chain(["default".into(), "libc".into()]).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // The default and libc are the worst.
        let rows: Vec<Vec<f64>> = (0..names.len()).map(|row| vec![1000.0 - row as f64, 500.0]).collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let samples = samples(&rows, "jain 0.5\nseconds 2\nvoluntary_csw 3\ninvoluntary_csw 5\ncpu_ns_per_op 1500");
        let tables = tables(&matrix(&samples, &names, &[4, 64], false), "w");
        assert_eq!(tables.all.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [33, 32, 32]);
        let shown: Vec<&str> = tables.shown[0].rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!((shown.len(), shown[1], &shown[16..]), (18, "row0", &["default", "libc"][..]));
        let costs = &tables.all[2];
        assert_eq!(
            costs.header,
            [
                "configuration",
                "kept at 200 %",
                "kept at 3200 %",
                "Jain, worst",
                "us/operation at 200 %",
                "us/operation at 3200 %",
                "switches/s at 200 %",
                "switches/s at 3200 %"
            ]
        );
        assert_eq!(costs.rows[0][1..], ["1.000", "0.500", "0.500", "1.50", "1.50", "4.00", "4.00"]);
    }
}
