//! Options of every load.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use unconvoy_measure::arguments::threads;
use unconvoy_measure::context::processors;

use crate::messages;
use unconvoy_bench::grid::each_once;
use unconvoy_bench::options::SessionOptions;

/// Time limit for making and removing one task's files, beyond the window.
const PER_TASK: Duration = Duration::from_secs(5);

/// Options of every load.
#[derive(Debug, Args)]
pub struct TasksOptions {
    #[command(flatten)]
    pub(super) session: SessionOptions,
    /// Numbers of tasks [default: from 1 to the number of processors]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads)]
    pub(super) tasks: Vec<u32>,
    /// Warm-up before the window, in seconds; at least one operation per task
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = warm_up)]
    pub(super) warm_up: f64,
    /// Directory for the load's files, which are removed at the end [default: /dev/shm, or where
    /// temporary files go]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(super) directory: Option<PathBuf>,
}

/// Options of one load: the common ones, then its own.
#[derive(Debug, Args)]
pub struct LoadOptions<L: Args> {
    #[command(flatten)]
    pub(super) tasks: TasksOptions,
    #[command(flatten)]
    pub(super) load: L,
}

fn warm_up(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    value.ok_or_else(|| messages::expected_number("seconds", 0.0, 3600.0))
}

impl TasksOptions {
    pub(super) fn counts(&self) -> Vec<u32> {
        if self.tasks.is_empty() { (1..=processors()).collect() } else { each_once(&self.tasks) }
    }

    /// Time limit of one run.
    pub(super) fn time_limit(&self, tasks: u32) -> Duration {
        let limit = self.session.time_limit();
        if self.session.timeout.is_some() {
            return limit;
        }
        limit + Duration::from_secs_f64(self.warm_up) + PER_TASK * tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_accepts_zero_and_rejects_negative() {
        assert_eq!(warm_up("0"), Ok(0.0));
        assert!(warm_up("-1").is_err() && warm_up("nan").is_err() && warm_up("x").is_err());
    }
}
