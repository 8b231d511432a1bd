//! A run that gave no result, and whether its program found its data inconsistent.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Status with which a workload program ends that finds its data inconsistent; `EXIT_INCONSISTENT`
/// of crates/bench/workloads/measure.h.
pub const EXIT_INCONSISTENT: i32 = 3;

/// Why a run gave no result.
#[derive(Debug)]
pub struct Failed {
    /// Which, why, and the last of what it printed.
    pub why: String,
    /// Its exit status, unless a signal or the time-out ended it.
    pub status: Option<i32>,
}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.why)
    }
}

impl std::error::Error for Failed {}

/// Whether a run failed because its program found its data inconsistent, and not because the
/// machine, an engine or the user was at fault.
pub fn is_violation(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failed>().is_some_and(|failed| failed.status == Some(EXIT_INCONSISTENT))
}

/// The same in a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    /// What describes the cell.
    pub cell: Value,
    /// Round, from 1.
    pub round: u32,
    /// The reason.
    pub why: String,
    /// Whether the program found its data inconsistent: then a lock let two threads in, or something as bad.
    pub is_violation: bool,
}

impl Failure {
    /// Of the run `name`.
    pub fn new(error: &anyhow::Error, name: &str, cell: &Value, round: u32) -> Self {
        let is_violation = is_violation(error);
        let what = if is_violation { "CONSISTENCY VIOLATION: " } else { "" };
        Self { cell: cell.clone(), round, why: format!("{what}{name}: {error:#}"), is_violation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_told_from_other_failures() {
        let failed = |status| anyhow::Error::from(Failed { why: "tpcc: a reason".to_string(), status }).context("cell");
        assert!(is_violation(&failed(Some(EXIT_INCONSISTENT))));
        // The machine's fault, a usage error, a signal or a time-out.
        assert!([Some(1), Some(2), None].into_iter().all(|status| !is_violation(&failed(status))));
        assert!(!is_violation(&anyhow::anyhow!("something else")));
    }
}
