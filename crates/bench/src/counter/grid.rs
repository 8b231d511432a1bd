//! The table of `counter`: axes, cells and computed values. Pure.

use serde::Serialize;
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::cells::Samples;
use unconvoy_measure::session::Field;
use unconvoy_measure::statistics::Spread;

use crate::grid::matrix::Matrix;
use crate::grid::workload::COUNTER;
use crate::run::Values;
use crate::setup::Configuration;

/// Indices of the rows that are always present.
pub(super) const NORMAL: usize = 0;
pub(super) const ADAPTIVE: usize = 1;
pub(super) const DEFAULT: usize = 2;

/// One cell of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Cell {
    #[serde(skip)]
    pub(super) row: usize,
    /// Name of the row.
    pub(super) configuration: String,
    pub(super) threads: u32,
    /// Think time, nanoseconds.
    pub(super) think: u64,
}

impl Field for Cell {
    fn name(&self) -> String {
        format!("{}, {}, think {} ns", self.configuration, thread_count(self.threads), self.think)
    }

    fn row(&self) -> &str {
        &self.configuration
    }
}

/// The table: axes and measurements.
pub(super) struct Grid<'a> {
    pub(super) rows: &'a [Configuration],
    pub(super) threads: &'a [u32],
    pub(super) thinks: &'a [u64],
    pub(super) cells: &'a [Cell],
    pub(super) samples: &'a Samples<Values>,
    pub(super) processors: u32,
    /// Length of the critical section, nanoseconds.
    pub(super) section: u64,
    /// Length of a measurement, seconds.
    pub(super) seconds: f64,
}

/// Returns all cells, starting with the serial limit's.
pub(super) fn cells(rows: &[Configuration], threads: &[u32], thinks: &[u64]) -> Vec<Cell> {
    let cell = |row: usize, threads, think| Cell {
        row,
        configuration: rows[row].name.clone(),
        threads,
        think,
    };
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

/// Returns the operations per second.
pub(super) fn throughput(values: &Values) -> Option<f64> {
    values.get("ops_per_sec")
}

impl<'a> Grid<'a> {
    /// Returns the table of locks by threads at one think time.
    pub(super) fn matrix(&self, think: u64) -> Matrix<'a> {
        let names: Vec<&str> = self.rows.iter().map(|row| row.name.as_str()).collect();
        let find = |row, threads| self.find(row, threads, think);
        let matrix =
            Matrix::new(&names, self.threads, find, self.samples, COUNTER.metric, self.seconds);
        Matrix { processors: self.processors, ..matrix }
    }

    pub(super) fn find(&self, row: usize, threads: u32, think: u64) -> Option<usize> {
        self.cells
            .iter()
            .position(|cell| (cell.row, cell.threads, cell.think) == (row, threads, think))
    }

    /// Returns the computed limit of throughput in operations per second, for a think time above 0.
    pub(super) fn computed_limit(&self, think: u64) -> f64 {
        let (section, think) = (self.section as f64 / 1e9, think as f64 / 1e9);
        (f64::from(self.processors) / (section + think)).min(1.0 / section)
    }

    /// Returns throughput as a fraction of the limit.
    pub(super) fn fraction(&self, cell: usize) -> Option<Spread> {
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
    use crate::setup::configurations;

    #[test]
    fn serial_limit_is_measured_once_and_first() {
        let (rows, _) = configurations(&[], true).expect("no choice is invalid");
        let plain = cells(&rows, &[1, 2], &[0]);
        assert_eq!((plain.len(), plain[0].threads), (6, 1));
        assert_eq!(cells(&rows, &[2], &[1000]).len(), 4);
    }
}
