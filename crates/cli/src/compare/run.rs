//! One run of the program, as recorded.

use serde::Serialize;

/// One run of the program.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Name of the configuration.
    pub configuration: String,
    /// Thread count, `null` when the program takes none.
    pub threads: Option<u32>,
    /// Round, from 1.
    pub round: u32,
    /// Value of the metric, in its unit.
    pub metric: f64,
    /// Operations that the program reports.
    pub operations: Option<f64>,
    /// Jain's fairness index that the program reports, 0 to 1.
    pub fairness: Option<f64>,
    /// Elapsed time, seconds.
    pub wall_s: f64,
    /// User-mode processor time of the program and of the children that it reaped, seconds.
    pub user_s: f64,
    /// Kernel-mode processor time of the same, seconds.
    pub system_s: f64,
    /// Largest resident set, KiB. Linux counts from before `exec`, so a small program shows this
    /// command's own size.
    pub max_rss_kib: i64,
    /// Context switches of threads that blocked.
    pub voluntary_switches: i64,
    /// Context switches of threads that were preempted.
    pub involuntary_switches: i64,
    /// Exit status; a recorded run has 0.
    pub exit_status: i32,
    /// One-minute load average just before the run.
    pub load_average_before: Option<f64>,
    /// Time in which a cache line moved between two processors just before the run, nanoseconds.
    pub transfer_ns: Option<u32>,
}

impl Run {
    /// Processor time, seconds.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// Processor time per operation, seconds, when the program counts operations.
    pub fn cpu_per_operation_s(&self) -> Option<f64> {
        Some(self.cpu_s() / self.operations?)
    }
}
