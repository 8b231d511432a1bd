//! From the speed-up of a lock's sections to that of the program, by Amdahl's law (section 4.4 of
//! the paper).

use serde::{Deserialize, Serialize};

/// The run time if the sections of one lock run `speed_up` times as fast: "the time not associated
/// with the lock plus the time associated with the lock divided by the speedup". All times have the
/// same unit. `held` is clamped to `total`.
pub fn projected_time(total: f64, held: f64, speed_up: f64) -> f64 {
    let held = held.clamp(0.0, total);
    total - held + held / speed_up
}

/// The run time if all locks speed up at once, each given as (time held, speed-up). Locks may be
/// held concurrently, so the times may add up to more than the run time. They are then scaled down
/// to the run time: without knowledge of the overlaps there is no better estimate.
pub fn projected_time_of_all(total: f64, locks: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (held, shortened) = locks.fold((0.0, 0.0), |(held, shortened), (lock, speed_up)| {
        (held + lock, shortened + lock / speed_up)
    });
    if held <= 0.0 {
        return total;
    }
    projected_time(total, held, held / shortened)
}

/// The mean of values weighted by time held, as in the last row of Table 2. `None` if no lock was
/// held.
pub fn weighted_average(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (weights, sum) = values
        .fold((0.0, 0.0), |(weights, sum), (held, value)| (weights + held, sum + held * value));
    (weights > 0.0).then(|| sum / weights)
}

/// A projected gain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// Number of processors.
    pub processors: u32,
    /// The sections' speed-up, I_n + (|C_n| - D_n), by byte.
    pub sections: f64,
    /// The same by cache line, as hardware would see it.
    pub sections_by_line: f64,
    /// The program's run time in seconds, by byte.
    pub seconds: f64,
    /// The program's speed-up, by byte.
    pub program: f64,
    /// The program's speed-up, by line.
    pub program_by_line: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lock_follows_amdahl() {
        // Half the time in the lock, four times as fast: 0.5 + 0.125.
        assert_eq!(projected_time(1.0, 0.5, 4.0), 0.625);
        assert_eq!(projected_time(10.0, 0.0, 4.0), 10.0);
        assert_eq!(projected_time(10.0, 10.0, 4.0), 2.5);
        assert_eq!(projected_time(10.0, 11.0, 4.0), 2.5);
    }

    #[test]
    fn overlapping_locks_are_scaled_to_the_run() {
        let locks = [(0.25, 2.0), (0.5, 4.0)];
        assert_eq!(projected_time_of_all(1.0, locks.into_iter()), 0.25 + 0.125 + 0.125);
        assert_eq!(projected_time_of_all(1.0, std::iter::empty()), 1.0);
        // Locks are held for 1.5 s of a run of 1.0 s, so the whole run is in sections, which run
        // 1.5 / 0.5 times as fast on average.
        let overlapping = [(1.0, 4.0), (0.5, 2.0)];
        assert!((projected_time_of_all(1.0, overlapping.into_iter()) - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn average_is_weighted_by_time_held() {
        assert_eq!(weighted_average([(1.0, 2.0), (3.0, 4.0)].into_iter()), Some(3.5));
        assert_eq!(weighted_average(std::iter::empty()), None);
    }
}
