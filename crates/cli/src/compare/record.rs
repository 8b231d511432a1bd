//! What `compare` keeps: the record that every exporter renders.

use serde::Serialize;

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
    /// If not, why.
    pub ended_by: Option<String>,
    /// What is compared.
    pub metric: Metric,
    /// The machine and the moment.
    pub context: Context,
    /// What was to be run.
    pub plan: Plan,
    /// What makes the figures doubtful, and the remedies.
    pub warnings: Vec<String>,
    /// One sentence of what was gained or lost.
    pub conclusion: String,
    /// One entry per configuration and thread count that has a run.
    pub summary: Vec<Summary>,
    /// Every measured run, in the order of measuring.
    pub runs: Vec<Run>,
}

/// What is compared.
#[derive(Debug, Clone, Serialize)]
pub struct Metric {
    /// Name and unit, for headings.
    pub name: String,
    /// Where it comes from; `None`: the wall time in seconds.
    pub regex: Option<String>,
    /// Whether a smaller one is better.
    pub lower_is_better: bool,
}

impl Metric {
    /// Whether values are in seconds.
    pub fn is_wall_time(&self) -> bool {
        self.regex.is_none()
    }
}
