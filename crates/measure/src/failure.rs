//! Failed runs, and failures that mean inconsistent data.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::messages;

/// Exit status of a workload program that finds its data inconsistent: `EXIT_INCONSISTENT` of
/// crates/bench/workloads/die.h.
pub const EXIT_INCONSISTENT: i32 = 3;

/// Exit status after wrong usage.
pub const EXIT_USAGE: u8 = 2;

/// Wrong usage that the parser of the command line does not find: a wrong combination of options,
/// or a value that is checked later.
#[derive(Debug)]
pub struct Usage(String);

impl Usage {
    /// Describes an error as wrong usage, with its causes.
    pub fn of(error: impl Into<anyhow::Error>) -> anyhow::Error {
        Usage::text(format!("{:#}", error.into()))
    }

    /// Describes wrong usage in words.
    pub fn text(why: String) -> anyhow::Error {
        Usage(why).into()
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A failed run.
#[derive(Debug)]
pub struct Failed {
    /// Name of the run, cause, and the end of its output.
    pub why: String,
    /// Exit status, unless a signal or the time-out ended the run.
    pub status: Option<i32>,
}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.why)
    }
}

impl std::error::Error for Failed {}

/// Returns whether a run failed because its program found inconsistent data. All other failures are
/// caused by the machine, the engine or the user.
pub fn is_violation(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failed>().is_some_and(|failed| failed.status == Some(EXIT_INCONSISTENT))
}

/// A failure as recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    /// Description of the cell.
    pub cell: Value,
    /// Round, from 1.
    pub round: u32,
    /// The cause.
    pub why: String,
    /// Whether the program found inconsistent data, so that a lock is broken.
    pub is_violation: bool,
}

impl Failure {
    /// Creates the record of run `name`'s failure.
    pub fn new(error: &anyhow::Error, name: &str, cell: &Value, round: u32) -> Self {
        let is_violation = is_violation(error);
        let why = format!("{name}: {error:#}");
        let why = if is_violation { messages::violation(why) } else { why };
        Self { cell: cell.clone(), round, why, is_violation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exit_inconsistent_is_a_violation() {
        let failed = |status| {
            anyhow::Error::from(Failed { why: "tpcc: a reason".to_string(), status })
                .context("cell")
        };
        assert!(is_violation(&failed(Some(EXIT_INCONSISTENT))));
        // Status of a failure of the machine, of a usage error, and of a signal or time-out.
        assert!([Some(1), Some(2), None].into_iter().all(|status| !is_violation(&failed(status))));
        assert!(!is_violation(&anyhow::anyhow!("something else")));
    }
}
