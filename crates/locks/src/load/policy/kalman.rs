//! A Kalman filter for the demand (Kalman 1960; ASPLOS 2010, section 6.2.1).
//!
//! The state is the demand and its trend per interval, which both drift at random; the reading is
//! the demand plus noise. The target comes from the prediction for the *next* interval. A reading
//! far outside the expected range is a change rather than noise, and restarts the filter.

use super::observation::{Observation, threads};

/// Variance of one reading, in threads squared. A thread in a run queue shows its wait only once it
/// runs, which moves a reading by some threads (`sensor/schedstat.rs`).
const READING_NOISE: f64 = 4.0;
/// Drift of demand and trend in an interval, as variances.
const DEMAND_DRIFT: f64 = 0.3;
const TREND_DRIFT: f64 = 0.002;
/// Standard deviations beyond which a reading counts as a change.
const CHANGE: f64 = 4.0;

/// Estimate and covariance of demand and trend.
#[derive(Debug, Clone)]
pub struct Kalman {
    demand: f64,
    trend: f64,
    /// Variance of the demand, covariance, variance of the trend.
    covariance: [f64; 3],
}

impl Default for Kalman {
    fn default() -> Self {
        // Without a prior, the first reading counts fully.
        Kalman { demand: 0.0, trend: 0.0, covariance: [1e6, 0.0, 0.0] }
    }
}

impl Kalman {
    fn predict(&mut self) {
        let [demand, both, trend] = self.covariance;
        self.demand += self.trend;
        self.covariance =
            [demand + 2.0 * both + trend + DEMAND_DRIFT, both + trend, trend + TREND_DRIFT];
    }

    fn correct(&mut self, reading: f64) {
        let [demand, both, trend] = self.covariance;
        let expected_variance = demand + READING_NOISE;
        let surprise = reading - self.demand;
        if surprise.abs() > CHANGE * expected_variance.sqrt() {
            *self = Kalman {
                demand: reading,
                trend: 0.0,
                covariance: [READING_NOISE, 0.0, TREND_DRIFT],
            };
            return;
        }
        let (to_demand, to_trend) = (demand / expected_variance, both / expected_variance);
        self.demand += to_demand * surprise;
        self.trend += to_trend * surprise;
        self.covariance =
            [(1.0 - to_demand) * demand, (1.0 - to_demand) * both, trend - to_trend * both];
    }

    pub(super) fn target(&mut self, observed: Observation) -> u32 {
        self.predict();
        self.correct(observed.demand());
        threads(self.demand + self.trend - observed.room())
    }
}
