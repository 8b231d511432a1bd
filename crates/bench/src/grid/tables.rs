//! A grid as tables: configurations in rows, thread counts in columns. Pure.

use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::statistics::{Spread, short, shown};
use unconvoy_measure::table::Table;

use super::matrix::Matrix;
use super::workload::Detail;
use crate::energy;
use crate::run::Values;

/// Rows that are always shown.
const ALWAYS: [&str; 2] = ["libc", "default"];
/// Prefix of values per transaction type.
const TYPE: &str = "tps_";
/// Rows shown on a terminal besides libc and the default.
const SHOWN: usize = 15;

/// Tables with all rows, and with the terminal's selection of rows.
pub struct Tables {
    /// Tables of the record.
    pub all: Vec<Table>,
    /// Tables of the terminal.
    pub shown: Vec<Table>,
}

/// Creates tables of relative and absolute results, of costs and of the workload's details.
pub fn tables(matrix: &Matrix, title: &str, details: &[Detail]) -> Tables {
    let ranking = matrix.ranking();
    let is_always = |row: &usize| ALWAYS.contains(&matrix.rows[*row].as_str());
    let is_kept = |&(place, row): &(usize, &usize)| place < SHOWN || is_always(row);
    let few: Vec<usize> = ranking.iter().enumerate().filter(is_kept).map(|(_, &row)| row).collect();
    let always: Vec<usize> = ranking.iter().copied().filter(is_always).collect();
    let details_of = |rows: &[usize]| -> Vec<Table> {
        details
            .iter()
            .map(|detail| of_detail(matrix, title, detail, rows))
            .chain(by_type(matrix, title, &always))
            .collect()
    };
    let mut all = vec![
        relative(matrix, title, "", &ranking),
        absolute(matrix, title, &ranking),
        costs(matrix, title, "", &ranking),
    ];
    all.extend(details_of(&ranking));
    let shown = match ranking.len() - few.len() {
        0 => all.clone(),
        left => {
            let remark = format!(
                "; the best {SHOWN}, libc and the default, {left} more rows are in the record"
            );
            let mut shown =
                vec![relative(matrix, title, &remark, &few), costs(matrix, title, &remark, &few)];
            shown.extend(details_of(&few));
            shown
        }
    };
    Tables { all, shown }
}

fn of_detail(matrix: &Matrix, title: &str, detail: &Detail, rows: &[usize]) -> Table {
    let mut table = Table::across(
        format!("{title}: {}; threads across; median (smallest..largest)", detail.heading),
        &["configuration"],
        &matrix.threads,
    );
    for &row in rows {
        let of = |values: &Values| Some(values.get(detail.name)? / detail.divisor);
        let fields =
            (0..matrix.threads.len()).map(|column| shown(matrix.spread(row, column, of), short));
        table.line(&matrix.rows[row], fields);
    }
    table
}

/// Creates a table of transactions per second by type, if the program reports them.
fn by_type(matrix: &Matrix, title: &str, rows: &[usize]) -> Option<Table> {
    let mut types: Vec<&str> = matrix
        .samples
        .all
        .iter()
        .flat_map(|sample| sample.value.iter())
        .filter_map(|(name, _)| name.strip_prefix(TYPE))
        .collect();
    types.sort_unstable();
    types.dedup();
    if types.is_empty() {
        return None;
    }
    let mut table = Table::across(
        format!(
            "{title}: transactions/s by type; threads across; \
             median ± median absolute deviation, in percent of the median"
        ),
        &["configuration", "type"],
        &matrix.threads,
    );
    for &row in rows {
        for name in &types {
            let of = |values: &Values| values.get(&format!("{TYPE}{name}"));
            let fields =
                (0..matrix.threads.len()).map(|column| plus_minus(matrix.spread(row, column, of)));
            table.row([matrix.rows[row].clone(), name.to_string()].into_iter().chain(fields));
        }
    }
    Some(table)
}

fn plus_minus(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "-".to_string(),
        |spread| {
            format!("{} ± {:.1} %", Unit::Plain.show(spread.median), 100.0 * spread.relative())
        },
    )
}

fn relative(matrix: &Matrix, title: &str, remark: &str, rows: &[usize]) -> Table {
    let heading = matrix.metric.heading;
    let mut table = Table::across(
        format!(
            "{title}: {heading} relative to the best median at that thread count (threads across), \
             1 being the best; median (smallest..largest), rows by their geometric mean{remark}"
        ),
        &["configuration", "mean"],
        &matrix.threads,
    );
    let best = |column| {
        matrix.best(column).map_or_else(
            || "-".to_string(),
            |(row, median)| format!("{} {}", Unit::Plain.show(median), matrix.rows[row]),
        )
    };
    let columns = 0..matrix.threads.len();
    table.line(
        &format!("the best, {heading}"),
        std::iter::once(String::new()).chain(columns.clone().map(best)),
    );
    for &row in rows {
        let score =
            matrix.score(row).map_or_else(|| "-".to_string(), |score| format!("{score:.3}"));
        let fields = columns
            .clone()
            .map(|column| shown(matrix.relative(row, column), |value| format!("{value:.2}")));
        table.row([matrix.rows[row].clone(), score].into_iter().chain(fields));
    }
    table
}

fn absolute(matrix: &Matrix, title: &str, rows: &[usize]) -> Table {
    let mut table = Table::across(
        format!(
            "{title}: {}; median ± median absolute deviation, in percent of the median",
            matrix.metric.heading
        ),
        &["configuration"],
        &matrix.threads,
    );
    for &row in rows {
        let field = |column| plus_minus(matrix.measured(row, column));
        table.line(&matrix.rows[row], (0..matrix.threads.len()).map(field));
    }
    table
}

/// Returns context switches per second, of the window or else of the whole run.
fn switches(values: &Values) -> Option<f64> {
    let per_second = |prefix: &str, seconds: &str| {
        let count = values.get(&format!("{prefix}voluntary_csw"))?
            + values.get(&format!("{prefix}involuntary_csw"))?;
        Some(count / values.get(seconds).filter(|&seconds| seconds > 0.0)?)
    };
    per_second("", "seconds").or_else(|| per_second("process_", "process_wall_seconds"))
}

/// Returns microseconds per operation; seconds per run for a fixed amount of work.
fn processor_time(matrix: &Matrix, values: &Values) -> Option<f64> {
    if matrix.metric.lower_is_better {
        values.get("cpu_seconds").or_else(|| values.get("process_cpu_seconds"))
    } else {
        Some(values.cpu_ns_per_op()? / 1e3)
    }
}

/// Returns microjoules per operation; joules per run for a fixed amount of work.
fn energy(matrix: &Matrix, values: &Values) -> Option<f64> {
    if matrix.metric.lower_is_better {
        values.get(energy::IN_RUN)
    } else {
        Some(values.get(energy::PER_OPERATION)? * 1e6)
    }
}

/// Creates the table of retention under load, fairness, processor time and context switches.
fn costs(matrix: &Matrix, title: &str, remark: &str, rows: &[usize]) -> Table {
    let twice = matrix.column(2 * matrix.processors);
    let last = matrix.last_column().filter(|&last| Some(last) != twice);
    let loads: Vec<usize> = twice.into_iter().chain(last).collect();
    let (unit, of) = if matrix.metric.lower_is_better { ("s", "run") } else { ("us", "operation") };
    let joules = if matrix.metric.lower_is_better { "J" } else { "uJ" };
    // Few machines have energy counters that users may read.
    let has_energy =
        matrix.samples.all.iter().any(|sample| energy(matrix, &sample.value).is_some());
    let metered: &[usize] = if has_energy { &loads } else { &[] };
    let at = |what: &str, column: usize| format!("{what} at {:.0} %", matrix.load(column));
    let header = ["configuration".to_string()]
        .into_iter()
        .chain(loads.iter().map(|&column| at("kept", column)))
        .chain(["Jain, worst".to_string()])
        .chain(loads.iter().map(|&column| at(&format!("{unit}/{of}"), column)))
        .chain(metered.iter().map(|&column| at(&format!("{joules}/{of}"), column)))
        .chain(loads.iter().map(|&column| at("switches/s", column)));
    let mut table = Table::new(
        format!(
            "{title}: part of the row's own peak that it keeps at a load in percent of the \
             processors; Jain's index, the lowest median of all counts from 2 on; processor time \
             per {of}, {unit}{}; context switches per second; medians{remark}",
            if has_energy { format!("; energy per {of}, {joules}") } else { String::new() }
        ),
        header,
    );
    for &row in rows {
        let or_none = |value: Option<f64>, format: &dyn Fn(f64) -> String| {
            value.map_or_else(|| "-".to_string(), format)
        };
        let median = |column, of: &dyn Fn(&Values) -> Option<f64>| {
            matrix.spread(row, column, of).map(|spread| spread.median)
        };
        let kept = loads
            .iter()
            .map(|&column| or_none(matrix.retention(row, column), &|value| format!("{value:.3}")));
        let jain = or_none(worst_jain(matrix, row).map(|(value, _)| value), &|value| {
            format!("{value:.3}")
        });
        let times = loads.iter().map(|&column| {
            or_none(median(column, &|values| processor_time(matrix, values)), &short)
        });
        let energies = metered
            .iter()
            .map(|&column| or_none(median(column, &|values| energy(matrix, values)), &short));
        let switched = loads
            .iter()
            .map(|&column| or_none(median(column, &switches), &|value| Unit::Plain.show(value)));
        let first = [matrix.rows[row].clone()].into_iter();
        table.row(first.chain(kept).chain([jain]).chain(times).chain(energies).chain(switched));
    }
    table
}

/// Returns the lowest median of Jain's index over the counts above 1, and that count.
pub fn worst_jain(matrix: &Matrix, row: usize) -> Option<(f64, u32)> {
    let columns = (0..matrix.threads.len()).filter(|&column| matrix.threads[column] > 1);
    let medians = columns.filter_map(|column| {
        Some((matrix.spread(row, column, Values::jain)?.median, matrix.threads[column]))
    });
    medians.min_by(|left, right| left.0.total_cmp(&right.0))
}

#[cfg(test)]
mod tests {
    use super::super::matrix::tests::{matrix, samples};
    use super::*;

    #[test]
    fn terminal_shows_selected_rows_only() {
        let names: Vec<String> = (0..30)
            .map(|row| format!("row{row}"))
            .chain(["default".into(), "libc".into()])
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // The default and libc have the worst results.
        let rows: Vec<Vec<f64>> =
            (0..names.len()).map(|row| vec![1000.0 - row as f64, 500.0]).collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let samples = samples(
            &rows,
            "jain 0.5\nseconds 2\nvoluntary_csw 3\ninvoluntary_csw 5\ncpu_ns_per_op 1500",
        );
        let tables = tables(&matrix(&samples, &names, &[4, 64], false), "w", &[]);
        assert_eq!(
            tables.all.iter().map(|table| table.rows.len()).collect::<Vec<_>>(),
            [33, 32, 32]
        );
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

    #[test]
    fn costs_have_energy_columns_if_measured() {
        let samples = samples(&[&[10.0, 20.0]], "cpu_ns_per_op 1500\njoules_per_op 0.000004");
        let tables = tables(&matrix(&samples, &["libc"], &[4, 64], false), "w", &[]);
        let costs = &tables.all[2];
        let column =
            costs.header.iter().position(|name| name == "uJ/operation at 200 %").expect("a column");
        assert_eq!(costs.rows[0][column], "4.00");
        assert_eq!(costs.rows[0].len(), costs.header.len());
    }

    #[test]
    fn transactions_have_a_table_by_type() {
        let samples = samples(&[&[10.0], &[20.0]], "tps_order 3\ntps_payment 4\npause_ns 5000000");
        let pause = Detail { name: "pause_ns", heading: "pause, ms", divisor: 1e6 };
        let tables = tables(&matrix(&samples, &["libc", "default"], &[4], false), "w", &[pause]);
        assert_eq!(tables.all[3].rows[0], ["default", "5.00 (5.00..5.00)"]);
        assert_eq!(tables.all[4].rows.len(), 4);
        assert_eq!(tables.all[4].rows[1], ["default", "payment", "4.00 ± 0.0 %"]);
    }
}
