//! A cell of a table of configurations by thread counts.

use serde::Serialize;
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::session::Field;

/// A configuration at a thread count.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    configuration: String,
    /// Thread count.
    pub threads: u32,
    /// Index of the row.
    #[serde(skip)]
    pub row: usize,
}

impl Field for Cell {
    fn name(&self) -> String {
        format!("{}, {}", self.configuration, thread_count(self.threads))
    }

    fn row(&self) -> &str {
        &self.configuration
    }
}

/// Returns every configuration at every count, ordered by count.
pub fn product(configurations: &[&str], counts: &[u32]) -> Vec<Cell> {
    let at = |&threads: &u32| {
        let rows = configurations.iter().enumerate();
        rows.map(move |(row, name)| Cell { configuration: (*name).to_string(), threads, row })
    };
    counts.iter().flat_map(at).collect()
}

/// Returns the index of the cell of a row and count.
pub fn position(cells: &[Cell], row: usize, threads: u32) -> Option<usize> {
    cells.iter().position(|cell| (cell.row, cell.threads) == (row, threads))
}
