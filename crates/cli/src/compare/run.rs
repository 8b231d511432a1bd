//! One run of the program, as the record has it.

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
    /// What is compared, in its own unit.
    pub metric: f64,
    /// Operations that the program says it did.
    pub operations: Option<f64>,
    /// Jain's fairness index that the program says it had, 0 to 1.
    pub fairness: Option<f64>,
    /// Elapsed time, seconds.
    pub wall_s: f64,
    /// Processor time in user mode, of the program and those it waited for, seconds.
    pub user_s: f64,
    /// The same in the kernel.
    pub system_s: f64,
    /// Largest resident set, KiB. Linux counts from before `exec`, so a small program shows that
    /// of this command.
    pub max_rss_kib: i64,
    /// Context switches because a thread waited.
    pub voluntary_switches: i64,
    /// Context switches because a thread was preempted.
    pub involuntary_switches: i64,
    /// Exit status; a recorded run has 0.
    pub exit_status: i32,
    /// One-minute load average of the machine just before the run.
    pub load_average_before: Option<f64>,
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
