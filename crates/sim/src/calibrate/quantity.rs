//! What a calibration comes to.

use crate::parameters::Parameters;

/// A machine, and where its numbers are from.
#[derive(Debug)]
pub struct Calibration {
    /// The machine.
    pub machine: Parameters,
    /// What was measured, in the order of the file.
    pub quantities: Vec<Quantity>,
    /// Part of the processors' time that others used just before, from 0 to 1.
    pub others: f64,
}

/// One number of the file.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// Its key.
    pub key: &'static str,
    /// What was measured, in words.
    pub what: &'static str,
    /// The rounds' results in the key's unit, ascending; or why there are none.
    pub rounds: Result<Vec<f64>, &'static str>,
}

impl Quantity {
    /// What stands for the rounds. Disturbances only ever make a time longer, so that it is the lower quartile; but a
    /// difference of two times the median.
    pub fn value(&self) -> Option<f64> {
        let part = if DIFFERENCES.contains(&self.key) { 2 } else { 4 };
        self.rounds.as_ref().ok().map(|rounds| rounds[rounds.len() / part])
    }
}

/// Keys of which a round is the difference of two measurements, so that a disturbance may make it shorter.
const DIFFERENCES: [&str; 10] = [
    "rmw_ns",
    "fence_ns",
    "shared_core_slowdown",
    "wake_thread_ns",
    "wake_idle_ns",
    "idle_exit_ns",
    "switch_ns",
    "timer_slack_ns",
    "counter_dispatch_ps",
    "table_dispatch_ps",
];
