//! The plan of a comparison: configurations, thread counts and rounds.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Serialize, Serializer};
use unconvoy_measure::arguments::thread_count;

use super::configuration::Configuration;

/// Placeholder for the thread count in the program's arguments.
pub const PLACEHOLDER: &str = "{threads}";

/// One configuration at one thread count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Index into [`Plan::configurations`].
    pub configuration: usize,
    /// The thread count, if the program takes one.
    pub threads: Option<u32>,
}

/// All runs of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// The first is the baseline.
    pub configurations: Vec<Configuration>,
    /// One row each; a single `None` if the program takes no thread count.
    pub threads: Vec<Option<u32>>,
    /// Measured rounds, or the most of them with a precision.
    pub runs: u32,
    /// Measure a thread count until the intervals of its ratios reach at most this fraction to
    /// each side.
    pub precision: Option<f64>,
    /// Unrecorded rounds before them.
    pub warmup: u32,
    /// Seed of the order within every round.
    pub seed: u64,
    /// The program and its arguments, with placeholders.
    #[serde(serialize_with = "lossy")]
    pub program: Vec<OsString>,
}

impl Plan {
    /// Returns all cells, ordered by thread count.
    pub fn cells(&self) -> Vec<Cell> {
        let of_count = |&threads: &Option<u32>| {
            (0..self.configurations.len()).map(move |configuration| Cell { configuration, threads })
        };
        self.threads.iter().flat_map(of_count).collect()
    }

    /// Returns the command line of one cell.
    pub fn command(&self, cell: Cell) -> Vec<OsString> {
        words(&self.program, cell.threads)
    }

    /// Returns a cell's name for messages: `default, 8 threads`.
    pub fn describe(&self, cell: Cell) -> String {
        let name = &self.configurations[cell.configuration];
        match cell.threads {
            Some(threads) => format!("{name}, {}", thread_count(threads)),
            None => name.to_string(),
        }
    }

    /// Returns the configurations' names.
    pub fn names(&self) -> Vec<String> {
        self.configurations.iter().map(|configuration| configuration.name.clone()).collect()
    }
}

/// Returns the words of `program` for a thread count.
pub fn words(program: &[OsString], threads: Option<u32>) -> Vec<OsString> {
    let Some(threads) = threads else {
        return program.to_vec();
    };
    let count = threads.to_string();
    let with_count = |word: &OsString| replace(word, PLACEHOLDER.as_bytes(), count.as_bytes());
    program.iter().map(with_count).collect()
}

/// Serializes arguments as UTF-8, with replacement characters: JSON has no bytes.
fn lossy<S: Serializer>(words: &[OsString], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(words.iter().map(|word| word.to_string_lossy()))
}

/// Replaces every `from` in `word`, by bytes because arguments need not be UTF-8.
fn replace(word: &OsStr, from: &[u8], to: &[u8]) -> OsString {
    let mut rest = word.as_bytes();
    let mut result = Vec::new();
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    result.extend_from_slice(rest);
    OsString::from_vec(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn plan(threads: &[u32], program: &[&str]) -> Plan {
        Plan {
            configurations: ["libc", "default", "mcs+none"]
                .map(|name| Configuration::parse(name).unwrap())
                .to_vec(),
            threads: threads.iter().copied().map(Some).collect(),
            runs: 5,
            precision: None,
            warmup: 1,
            seed: 7,
            program: program.iter().map(OsString::from).collect(),
        }
    }

    #[test]
    fn cells_pair_every_configuration_and_thread_count_once() {
        let cells = plan(&[1, 2, 4], &["p", "{threads}"]).cells();
        assert_eq!((cells.len(), cells.iter().collect::<HashSet<_>>().len()), (9, 9));
        assert!(cells[..3].iter().all(|cell| cell.threads == Some(1)));
    }

    #[test]
    fn command_replaces_every_placeholder() {
        let plan = plan(&[8], &["p", "-t{threads}", "{threads}:{threads}", "{thread}"]);
        let command = plan.command(plan.cells()[0]);
        assert_eq!(command, ["p", "-t8", "8:8", "{thread}"]);
    }
}
