//! The result of a calibration.

use crate::parameters::Parameters;

/// A measured value in nanoseconds, or the reason why there is none.
pub(super) type Outcome = Result<f64, &'static str>;

/// A machine and the origin of its numbers.
#[derive(Debug)]
pub struct Calibration {
    /// The machine.
    pub machine: Parameters,
    /// The measured quantities, in the order of the file.
    pub quantities: Vec<Quantity>,
    /// Fraction of the processors' time that other programs used just before the calibration.
    pub others: f64,
}

/// A measured number of the file.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// Key in the file.
    pub key: &'static str,
    /// Description of the measurement.
    pub what: &'static str,
    /// Results of the rounds in the key's unit, ascending; or the reason why there are none.
    pub rounds: Result<Vec<f64>, &'static str>,
}

impl Quantity {
    /// The value that represents the rounds: the lower quartile, because disturbances only lengthen
    /// a time; for a difference of two times, the median.
    pub fn value(&self) -> Option<f64> {
        let part = if DIFFERENCES.contains(&self.key) { 2 } else { 4 };
        self.rounds.as_ref().ok().map(|rounds| rounds[rounds.len() / part])
    }
}

/// Keys whose rounds are differences of two measurements. A disturbance may make them shorter.
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
