//! The ASPLOS 2010 paper's policy (section 3.1.1): as many sleep as there are threads too many.

use super::observation::{Observation, threads};

/// T is the number of threads that run or wait to run beyond the capacity and a margin, counting
/// those that sleep already.
#[derive(Debug, Default, Clone)]
pub struct Direct;

impl Direct {
    pub(super) fn target(&mut self, observed: Observation) -> u32 {
        threads(observed.demand() - observed.room())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::sensor::Reading;

    fn target(runnable: f64, capacity: f64, sleeping: u32) -> u32 {
        let reading = Reading::of_runnable(runnable, capacity);
        Direct.target(Observation { reading, sleeping, polling: 0.0 })
    }

    #[test]
    fn target_is_the_excess_over_capacity_and_margin() {
        assert_eq!(target(64.0, 2.0, 0), 61);
        assert_eq!(target(3.0, 1.5, 0), 1);
    }

    #[test]
    fn sleepers_count_as_load() {
        assert_eq!(target(3.0, 2.0, 61), 61);
        assert_eq!(target(1.0, 2.0, 61), 59);
        assert_eq!(target(5.0, 2.0, 60), 62);
    }

    #[test]
    fn underload_needs_no_sleepers() {
        assert_eq!(target(0.3, 2.0, 0), 0);
        assert_eq!(target(3.0, 2.0, 0), 0);
        assert_eq!(target(0.0, 64.0, 3), 0);
    }

    #[test]
    fn less_than_half_a_thread_is_noise() {
        assert_eq!(target(3.4, 2.0, 7), 7);
        assert_eq!(target(2.6, 2.0, 7), 7);
        assert_eq!(target(3.6, 2.0, 7), 8);
    }
}
