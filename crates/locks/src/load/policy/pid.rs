//! A PID loop in velocity form (Franklin, Powell and Emami-Naeini, *Feedback Control of Dynamic
//! Systems*; ASPLOS 2010, section 6.2.1).
//!
//! The error is the number of awake threads beyond the number that should be awake; the output is
//! the sleep target. Threads fall asleep within an interval, so the plant has a gain of one and no
//! inertia: an integral gain of 1 alone would be the direct policy. The velocity form adds changes
//! to the last output, clamped at 0, so that nothing winds up without load.

use super::observation::{Observation, threads};

/// Gains per interval. With `INTEGRAL` = .35 the output is within 5 % of a step after 6 intervals.
/// The proportional part responds first, and the derivative part dampens the response. Larger gains
/// let noise through (see the tests of the [module](super)).
const PROPORTIONAL: f64 = 0.1;
const INTEGRAL: f64 = 0.35;
const DERIVATIVE: f64 = 0.02;

/// State of the loop.
#[derive(Debug, Default, Clone)]
pub struct Pid {
    output: f64,
    /// The last error and the one before.
    errors: [f64; 2],
}

impl Pid {
    pub(super) fn target(&mut self, observed: Observation) -> u32 {
        // A thread that should sleep but waits for no lock still runs. The output then exceeds the
        // number of sleepers, but never the demand.
        let error = observed.reading.runnable - observed.room();
        let [last, before] = self.errors;
        let change = PROPORTIONAL * (error - last)
            + INTEGRAL * error
            + DERIVATIVE * (error - 2.0 * last + before);
        self.output = (self.output + change).clamp(0.0, observed.demand().max(0.0));
        self.errors = [error, last];
        threads(self.output)
    }
}
