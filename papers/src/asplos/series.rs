//! How a count of threads follows a change of its target. Pure.

use serde::{Deserialize, Serialize};

/// How many threads were awake at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Since the beginning, nanoseconds.
    pub ns: u64,
    /// Threads that are not asleep.
    pub awake: u32,
}

/// The samples after one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// The count before the change.
    pub before: u32,
    /// The count that the change asks for.
    pub expected: u32,
    /// Every change of the count, in time.
    pub points: Vec<Point>,
    /// Longest time between two samples, nanoseconds: the sampler is preempted too, and nothing shorter than this is known for sure.
    #[serde(default)]
    pub largest_gap_ns: u64,
    /// When sampling ended, nanoseconds since the change.
    pub end_ns: u64,
}

impl Series {
    /// A series without samples, for a change from `before` threads to `expected`.
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

    /// When the count first moved towards what is expected, nanoseconds. `None`: it never did, or was there already.
    pub fn first_reaction(&self) -> Option<u64> {
        let distance = self.before.abs_diff(self.expected);
        self.points.iter().find(|point| point.awake.abs_diff(self.expected) < distance).map(|point| point.ns)
    }

    /// From when on the count was within 1 of what is expected until the end, nanoseconds. `None`: it was not at the end.
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
    fn only_changes_are_kept() {
        let series = series(8, 2, &[(10, 8), (20, 7), (30, 7), (90, 2), (95, 2)]);
        assert_eq!(series.points, [Point { ns: 20, awake: 7 }, Point { ns: 90, awake: 2 }]);
        assert_eq!((series.largest_gap_ns, series.end_ns), (60, 95));
    }

    #[test]
    fn the_first_reaction_is_towards_the_target() {
        assert_eq!(series(6, 2, &[(10, 7), (20, 5), (30, 2)]).first_reaction(), Some(20));
        assert_eq!(series(6, 2, &[(10, 7)]).first_reaction(), None);
        assert_eq!(series(2, 2, &[(10, 3), (20, 2)]).first_reaction(), None);
    }

    #[test]
    fn steady_means_until_the_end() {
        assert_eq!(series(8, 2, &[(10, 3), (20, 5), (30, 2), (40, 3)]).steady(), Some(30));
        assert_eq!(series(8, 2, &[(10, 3), (20, 5)]).steady(), None);
        assert_eq!(series(3, 2, &[(10, 3)]).steady(), Some(0));
        assert_eq!(series(8, 2, &[]).steady(), None);
        assert_eq!(series(8, 2, &[(10, 2)]).steady(), Some(10));
    }
}
