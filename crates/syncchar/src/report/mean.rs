//! Means over locks, weighted by time held.

use super::record::{Average, LockReport};
use crate::analysis::Estimates;
use crate::estimate::Estimate;
use crate::projection::weighted_average;

/// A number of processors without a measured estimate has no mean.
pub(super) fn averages<'a>(
    locks: impl Iterator<Item = &'a LockReport> + Clone,
    processors: &[u32],
) -> Vec<Average> {
    let average = |processors: &u32| {
        let held = locks.clone().filter_map(|lock| lock.held_at(*processors));
        let held: Vec<(f64, Estimates)> =
            held.filter(|(_, estimates)| estimates.is_measured()).collect();
        let mean = |which: fn(&Estimates) -> Estimate| {
            let part = |value: fn(&Estimate) -> f64| {
                weighted_average(
                    held.iter().map(|(held, estimates)| (*held, value(&which(estimates)))),
                )
            };
            Some(Estimate {
                threads: part(|estimate| estimate.threads)?,
                independence: part(|estimate| estimate.independence)?,
                conflicting: part(|estimate| estimate.conflicting)?,
                density: part(|estimate| estimate.density)?,
            })
        };
        Some(Average {
            processors: *processors,
            byte: mean(|both| both.byte)?,
            line: mean(|both| both.line)?,
        })
    };
    processors.iter().filter_map(average).collect()
}
