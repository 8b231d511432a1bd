//! One field of a table of configurations at numbers of threads.

use serde::Serialize;
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::session::Field;

/// A configuration, the number of its row, and how many threads it has.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    configuration: String,
    /// How many threads.
    pub threads: u32,
    /// The number of the row.
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

/// Each configuration at each count, one count after the other.
pub fn product(configurations: &[&str], counts: &[u32]) -> Vec<Cell> {
    let at = |&threads: &u32| {
        let rows = configurations.iter().enumerate();
        rows.map(move |(row, name)| Cell { configuration: (*name).to_string(), threads, row })
    };
    counts.iter().flat_map(at).collect()
}

/// Where the field of that row and count is.
pub fn position(cells: &[Cell], row: usize, threads: u32) -> Option<usize> {
    cells.iter().position(|cell| (cell.row, cell.threads) == (row, threads))
}
