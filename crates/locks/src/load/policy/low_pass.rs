//! The direct policy behind a first-order low-pass filter (ASPLOS 2010, section 6.2.1).

use super::observation::{Observation, threads};

/// Fraction of a change that passes in one interval: a time constant of about 3 intervals, 20 ms at
/// the default interval. Noise between intervals shrinks to `sqrt(a / (2 - a))`, here .42.
const PASSED: f64 = 0.3;

/// The smoothed excess of threads.
#[derive(Debug, Default, Clone)]
pub struct LowPass {
    excess: Option<f64>,
}

impl LowPass {
    pub(super) fn target(&mut self, observed: Observation) -> u32 {
        let excess = observed.demand() - observed.room();
        // The first reading passes unfiltered.
        let before = self.excess.unwrap_or(excess);
        let smoothed = before + PASSED * (excess - before);
        self.excess = Some(smoothed);
        threads(smoothed)
    }
}
