//! A PID loop in velocity form (Franklin, Powell and Emami-Naeini, *Feedback Control of Dynamic
//! Systems*; ASPLOS 2010, section 6.2.1).
//!
//! The error is the number of threads awake beyond what there is room for; the output is the sleep
//! target. A thread that is to sleep is gone within an interval, so the plant has a gain of
//! one and no inertia: an integral gain of 1 alone would be the direct policy. The velocity form
//! adds changes to the last output, which is clamped at 0: nothing winds up while there is no load.

use super::observation::{Observation, threads};

/// Gains per interval. With `INTEGRAL` = .35 a step is followed to 5 % in 6 intervals; the
/// proportional part gives the first answer, the derivative one dampens it. Larger ones let noise
/// through (see the tests of the [module](super)).
const PROPORTIONAL: f64 = 0.1;
const INTEGRAL: f64 = 0.35;
const DERIVATIVE: f64 = 0.02;

/// The loop's memory.
#[derive(Debug, Default, Clone)]
pub struct Pid {
    output: f64,
    /// The last error and the one before.
    errors: [f64; 2],
}

impl Pid {
    pub(super) fn target(&mut self, observed: Observation) -> u32 {
        // Whoever should sleep and found no lock to wait for still runs: then the output stays ahead of
        // the sleepers, by no more than there are threads.
        let error = observed.reading.runnable - observed.room();
        let [last, before] = self.errors;
        let change = PROPORTIONAL * (error - last) + INTEGRAL * error + DERIVATIVE * (error - 2.0 * last + before);
        self.output = (self.output + change).clamp(0.0, observed.demand().max(0.0));
        self.errors = [error, last];
        threads(self.output)
    }
}
