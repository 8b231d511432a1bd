//! Pure functions that make a load's tables: a row per scheduler, a column per number of tasks.

use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::statistics::{Spread, short};
use unconvoy_measure::table::Table;

use unconvoy_bench::energy;
use unconvoy_bench::grid::matrix::Matrix;
use unconvoy_bench::run::Values;

/// Tables of throughput, throughput relative to one task and to the first scheduler, cost of an
/// operation, and where the time goes.
pub fn tables(matrix: &Matrix, title: &str) -> Vec<Table> {
    let heading = matrix.metric.heading;
    let all: Vec<usize> = (0..matrix.rows.len()).collect();
    let plain = |value: f64| Unit::Plain.show(value);
    let mut tables = vec![table(matrix, &all, format!("{title}: {heading}"), |row, column| {
        matrix.measured(row, column).map(|spread| spread.text(plain))
    })];
    if let Some(one) = matrix.column(1)
        && matrix.threads.len() > 1
    {
        tables.push(table(
            matrix,
            &all,
            format!("{title}: {heading} relative to one task"),
            |row, column| ratio(matrix, (row, column), (row, one)).map(|spread| spread.text(short)),
        ));
    }
    if matrix.rows.len() > 1 {
        let first = &matrix.rows[0];
        tables.push(table(
            matrix,
            &all[1..],
            format!("{title}: {heading} relative to {first}"),
            |row, column| {
                ratio(matrix, (row, column), (0, column)).map(|spread| spread.text(short))
            },
        ));
    }
    let spread = |row, column, name: &str| matrix.spread(row, column, |values| values.get(name));
    let has_energy =
        matrix.samples.all.iter().any(|sample| sample.value.get(energy::PER_OPERATION).is_some());
    if has_energy {
        tables.push(table(
            matrix,
            &all,
            format!("{title}: energy per operation, joules"),
            |row, column| {
                spread(row, column, energy::PER_OPERATION).map(|spread| spread.text(scientific))
            },
        ));
    }
    let stands_in =
        if has_energy { "" } else { "; stands in for energy, which has no readable counter here" };
    tables.push(table(
        matrix,
        &all,
        format!("{title}: processor time per operation, user and system{stands_in}"),
        |row, column| {
            let seconds = |value: f64| Unit::Seconds.show(value / 1e9);
            spread(row, column, "cpu_ns_per_op").map(|spread| spread.text(seconds))
        },
    ));
    tables.push(table(
        matrix,
        &all,
        format!("{title}: the kernel's share of processor time, percent"),
        |row, column| {
            let share = |values: &Values| {
                Some(
                    100.0 * values.get("system_seconds")?
                        / values.get("cpu_seconds").filter(|&total| total > 0.0)?,
                )
            };
            matrix
                .spread(row, column, share)
                .map(|spread| spread.text(|value| format!("{value:.0}")))
        },
    ));
    tables
}

/// Formats a number that may be very small with three digits.
fn scientific(value: f64) -> String {
    format!("{value:.2e}")
}

/// Ratio of the metric in two cells of the same round.
fn ratio(matrix: &Matrix, place: (usize, usize), to: (usize, usize)) -> Option<Spread> {
    let cell = |(row, column): (usize, usize)| *matrix.cells.get(row)?.get(column)?;
    matrix.samples.ratio(cell(place)?, cell(to)?, |values| values.get(matrix.metric.name))
}

fn table(
    matrix: &Matrix,
    rows: &[usize],
    title: String,
    field: impl Fn(usize, usize) -> Option<String>,
) -> Table {
    let title = format!("{title}; tasks across; median (smallest..largest)");
    let mut table = Table::across(title, &["scheduler"], &matrix.threads);
    for &row in rows {
        let fields = (0..matrix.threads.len())
            .map(|column| field(row, column).unwrap_or_else(|| "-".to_string()));
        table.line(&matrix.rows[row], fields);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_bench::grid::workload::Metric;
    use unconvoy_measure::cells::{Sample, Samples};

    fn titles_and_rows(extra: &str) -> Vec<(String, Vec<Vec<String>>)> {
        let rates = [10.0, 30.0, 20.0, 15.0];
        let sample = |(cell, rate): (usize, &f64)| {
            let text = format!(
                "ops_per_sec {rate}\ncpu_ns_per_op 2000\ncpu_seconds 4\nsystem_seconds 3\n{extra}\n"
            );
            Sample::new(cell, 1, Values::parse(&text))
        };
        let samples =
            Samples { all: rates.iter().enumerate().map(sample).collect(), ended_by: None };
        let matrix = Matrix {
            rows: vec!["default".to_string(), "other".to_string()],
            threads: vec![1, 4],
            cells: vec![vec![Some(0), Some(1)], vec![Some(2), Some(3)]],
            samples: &samples,
            separated: samples.separated(),
            metric: Metric { name: "ops_per_sec", heading: "searches/s", lower_is_better: false },
            processors: 4,
            seconds: 1.0,
        };
        tables(&matrix, "find").into_iter().map(|table| (table.title, table.rows)).collect()
    }

    #[test]
    fn ratios_are_to_one_task_and_to_first_scheduler() {
        let tables = titles_and_rows("");
        assert_eq!(tables.len(), 5);
        assert_eq!(tables[1].1[0], ["default", "1.00 (1.00..1.00)", "3.00 (3.00..3.00)"]);
        assert_eq!(tables[2].1, [["other", "2.00 (2.00..2.00)", "0.500 (0.500..0.500)"]]);
        assert_eq!(tables[4].1[0][1], "75 (75..75)");
    }

    #[test]
    fn energy_table_appears_only_if_measured() {
        let tables = titles_and_rows("joules_per_op 0.00125");
        assert_eq!(tables.len(), 6);
        assert!(
            tables[3].0.contains("joules") && tables[3].1[0][1].starts_with("1.25e-3"),
            "{:?}",
            tables[3]
        );
        assert!(!tables[4].0.contains("stands in"));
        assert!(titles_and_rows("")[3].0.contains("stands in for energy"));
    }
}
