//! The policy of the ASPLOS 2010 paper (section 3.1.1): put the excess threads to sleep.

use super::observation::{Observation, threads};

/// T is the number of threads beyond the capacity and a margin. Threads that run, wait to run or
/// sleep for load all count.
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
        Direct.target(Observation { reading, sleeping, margin: 1.0 })
    }

    #[test]
    fn target_under_overload_is_excess_over_capacity_and_margin() {
        assert_eq!(target(64.0, 2.0, 0), 61);
        assert_eq!(target(3.0, 1.5, 0), 1);
    }

    #[test]
    fn target_without_margin_is_excess_over_capacity() {
        let reading = Reading::of_runnable(64.0, 2.0);
        let observed = Observation { reading, sleeping: 0, margin: 0.0 };
        assert_eq!(Direct.target(observed), 62);
    }

    #[test]
    fn target_with_sleepers_counts_them_as_load() {
        assert_eq!(target(3.0, 2.0, 61), 61);
        assert_eq!(target(1.0, 2.0, 61), 59);
        assert_eq!(target(5.0, 2.0, 60), 62);
    }

    #[test]
    fn target_under_underload_is_zero() {
        assert_eq!(target(0.3, 2.0, 0), 0);
        assert_eq!(target(3.0, 2.0, 0), 0);
        assert_eq!(target(0.0, 64.0, 3), 0);
    }

    #[test]
    fn target_change_below_half_a_thread_is_ignored() {
        assert_eq!(target(3.4, 2.0, 7), 7);
        assert_eq!(target(2.6, 2.0, 7), 7);
        assert_eq!(target(3.6, 2.0, 7), 8);
    }
}
