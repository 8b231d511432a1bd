//! Pure functions: how fast a thread count follows its target.

use serde::{Deserialize, Serialize};

/// The number of awake threads at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Nanoseconds since the start.
    pub ns: u64,
    /// Threads not asleep.
    pub awake: u32,
}

/// The samples after one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// The count before the change.
    pub before: u32,
    /// The count that the new target asks for.
    pub expected: u32,
    /// Changes of the count, in order of time.
    pub points: Vec<Point>,
    /// Longest gap between two samples, nanoseconds. The sampler, too, is preempted, and may
    /// miss shorter events.
    #[serde(default)]
    pub largest_gap_ns: u64,
    /// End of sampling, nanoseconds after the change.
    pub end_ns: u64,
}

impl Series {
    /// An empty series for a change from `before` to `expected` threads.
    pub fn new(before: u32, expected: u32) -> Self {
        Self { before, expected, points: Vec::with_capacity(64), largest_gap_ns: 0, end_ns: 0 }
    }

    /// Adds a sample.
    pub fn sample(&mut self, ns: u64, awake: u32) {
        self.largest_gap_ns = self.largest_gap_ns.max(ns - self.end_ns);
        self.end_ns = ns;
        if self.points.last().map_or(self.before, |point| point.awake) != awake {
            self.points.push(Point { ns, awake });
        }
    }

    /// Time until the count first moved towards `expected`, nanoseconds. `None` if the count never
    /// moved there, or was there from the start.
    pub fn first_reaction(&self) -> Option<u64> {
        let distance = self.before.abs_diff(self.expected);
        self.points
            .iter()
            .find(|point| point.awake.abs_diff(self.expected) < distance)
            .map(|point| point.ns)
    }

    /// Time at which the count came within 1 of `expected` and then stayed there until the end,
    /// nanoseconds. `None` if the count was not within 1 of `expected` at the end.
    pub fn steady(&self) -> Option<u64> {
        let is_near = |awake: u32| awake.abs_diff(self.expected) <= 1;
        let last_far = self.points.iter().rposition(|point| !is_near(point.awake));
        match last_far {
            Some(place) => self.points.get(place + 1).map(|point| point.ns),
            None if is_near(self.before) => Some(0),
            None => self.points.first().map(|point| point.ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(before: u32, expected: u32, samples: &[(u64, u32)]) -> Series {
        let mut series = Series::new(before, expected);
        samples.iter().for_each(|&(ns, awake)| series.sample(ns, awake));
        series
    }

    #[test]
    fn samples_without_change_are_dropped() {
        let series = series(8, 2, &[(10, 8), (20, 7), (30, 7), (90, 2), (95, 2)]);
        assert_eq!(series.points, [Point { ns: 20, awake: 7 }, Point { ns: 90, awake: 2 }]);
        assert_eq!((series.largest_gap_ns, series.end_ns), (60, 95));
    }

    #[test]
    fn first_reaction_ignores_moves_away_from_target() {
        assert_eq!(series(6, 2, &[(10, 7), (20, 5), (30, 2)]).first_reaction(), Some(20));
        assert_eq!(series(6, 2, &[(10, 7)]).first_reaction(), None);
        assert_eq!(series(2, 2, &[(10, 3), (20, 2)]).first_reaction(), None);
    }

    #[test]
    fn steady_requires_target_until_end() {
        assert_eq!(series(8, 2, &[(10, 3), (20, 5), (30, 2), (40, 3)]).steady(), Some(30));
        assert_eq!(series(8, 2, &[(10, 3), (20, 5)]).steady(), None);
        assert_eq!(series(3, 2, &[(10, 3)]).steady(), Some(0));
        assert_eq!(series(8, 2, &[]).steady(), None);
        assert_eq!(series(8, 2, &[(10, 2)]).steady(), Some(10));
    }
}
