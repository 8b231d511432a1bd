//! The record of a comparison, which every exporter renders.

use serde::{Deserialize, Serialize};

use super::context::Context;
use super::plan::Plan;
use super::run::Run;
use super::summary::Summary;

/// Version of the JSON format.
pub const SCHEMA: &str = "unconvoy-compare-1";

/// A comparison, finished or not.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The user's title.
    pub title: Option<String>,
    /// Whether every planned run was measured.
    pub complete: bool,
    /// Why the comparison is incomplete.
    pub ended_by: Option<String>,
    pub metric: Metric,
    /// The machine and the moment.
    pub context: Context,
    pub plan: Plan,
    /// Causes of doubt about the figures, with remedies.
    pub warnings: Vec<String>,
    /// One sentence about what was gained or lost.
    pub conclusion: String,
    /// One entry per configuration and thread count with a run.
    pub summary: Vec<Summary>,
    /// Every measured run, in the order of measurement.
    pub runs: Vec<Run>,
}

impl Record {
    /// The number of runs of a cell for legends: `5 runs`, `3 to 40 runs`.
    pub fn run_count(&self) -> String {
        let counts = || self.summary.iter().map(|cell| cell.metric.count);
        match (counts().min().unwrap_or(0), counts().max().unwrap_or(0)) {
            (1, 1) => "1 run".to_string(),
            (least, most) if least == most => format!("{most} runs"),
            (least, most) => format!("{least} to {most} runs"),
        }
    }
}

/// The compared quantity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Name and unit, for headings.
    pub name: String,
    /// Expression that extracts it; `None` is wall time in seconds.
    pub regex: Option<String>,
    /// Whether a smaller value is better.
    pub lower_is_better: bool,
}

impl Metric {
    /// Whether values are in seconds.
    pub fn is_wall_time(&self) -> bool {
        self.regex.is_none()
    }
}
