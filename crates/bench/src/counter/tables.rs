//! The results as tables: locks in rows, thread counts in columns.

use unconvoy_measure::statistics::{Spread, short, shown};
use unconvoy_measure::table::Table;

use super::grid::{ADAPTIVE, Grid, throughput};
use crate::energy;
use crate::run::Values;

/// Returns tables of throughput, fairness, processor time and, if measured, latency, per think
/// time.
pub(super) fn tables(grid: &Grid) -> Vec<Table> {
    grid.thinks.iter().flat_map(|&think| of_think_time(grid, think)).collect()
}

fn of_think_time(grid: &Grid, think: u64) -> Vec<Table> {
    let section = grid.section;
    let metric = |name: &'static str, unit: f64| {
        move |grid: &Grid, cell| grid.samples.spread(cell, |values| Some(values.get(name)? / unit))
    };
    let limit = if think == 0 {
        "the throughput of one thread under libc normal".to_string()
    } else {
        format!("{:.0} operations/s", grid.computed_limit(think))
    };
    let mut tables = vec![table(
        grid,
        think,
        format!(
            "Throughput, fraction of {limit}; section {section} ns, think {think} ns; threads \
             across"
        ),
        |grid, cell| grid.fraction(cell),
    )];
    if think > 0 {
        tables.push(table(
            grid,
            think,
            format!("Throughput relative to libc adaptive; think {think} ns"),
            |grid, cell| {
                let threads = grid.cells.get(cell)?.threads;
                grid.samples.ratio(cell, grid.find(ADAPTIVE, threads, think)?, throughput)
            },
        ));
    }
    tables.push(table(
        grid,
        think,
        format!("Jain's fairness index over {} s; think {think} ns", grid.seconds),
        |grid, cell| grid.samples.spread(cell, Values::jain),
    ));
    tables.push(table(
        grid,
        think,
        format!("Processor time per operation, ns; think {think} ns"),
        |grid, cell| grid.samples.spread(cell, Values::cpu_ns_per_op),
    ));
    let energy = table(
        grid,
        think,
        format!("Energy per operation, nJ; think {think} ns"),
        metric(energy::PER_OPERATION, 1e-9),
    );
    let latency = table(
        grid,
        think,
        format!("99.9th percentile of the time to acquire, us; think {think} ns"),
        metric("p999_ns", 1000.0),
    );
    let is_measured =
        |table: &Table| table.rows.iter().flatten().skip(1).any(|field| field.contains('('));
    let longest = table(
        grid,
        think,
        format!("Longest time to acquire, ms; think {think} ns"),
        metric("max_ns", 1e6),
    );
    tables.extend([energy, latency, longest].into_iter().filter(is_measured));
    tables
}

fn table(
    grid: &Grid,
    think: u64,
    title: String,
    spread: impl Fn(&Grid, usize) -> Option<Spread>,
) -> Table {
    let mut table = Table::across(title, &["lock"], grid.threads);
    for (index, row) in grid.rows.iter().enumerate() {
        let of_cell = |cell| spread(grid, cell);
        let field =
            |&threads: &u32| shown(grid.find(index, threads, think).and_then(of_cell), short);
        table.line(&row.name, grid.threads.iter().map(field));
    }
    table
}
