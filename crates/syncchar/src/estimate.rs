//! Data independence, conflict density and the values derived from them (sections 4.3 and 4.4 of
//! the paper).

use serde::{Deserialize, Serialize};

/// The result of comparing one sample: a graph with sections as nodes and conflicts as edges
/// (section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Sections in the sample, each of a different thread.
    pub threads: u32,
    /// |C_n|: sections that conflict with another section of the sample.
    pub conflicting: u32,
    /// Conflicting pairs.
    pub pairs: u32,
}

impl Outcome {
    /// n - |C_n|, at least 1: even if all sections conflict, one of them completes (section 4.3).
    pub fn independence(&self) -> u32 {
        (self.threads - self.conflicting).max(1)
    }

    /// D_n: the sum, over the sections in C_n, of the fraction of the other sections in C_n that
    /// each conflicts with. Both sides of a conflict are in C_n, so the numerators add up to twice
    /// the pairs. D_n is |C_n| if all sections conflict with all, 2 for a star (section 4.4), and 0
    /// without conflicts.
    pub fn density(&self) -> f64 {
        match self.conflicting {
            // 1 cannot occur: a conflict has two sides.
            0 | 1 => 0.0,
            conflicting => 2.0 * f64::from(self.pairs) / f64::from(conflicting - 1),
        }
    }
}

/// Running means over the windows of one lock and one number of processors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Means {
    /// The sum of the weights. All sums but that of the density are integers, so rounding cannot
    /// push their means out of bounds.
    weight: u64,
    threads: u64,
    independence: u64,
    conflicting: u64,
    density: f64,
}

impl Means {
    /// Adds a sample. Callers choose `weight` so that all windows count alike, however many samples
    /// were drawn from each.
    pub fn add(&mut self, outcome: Outcome, weight: u32) {
        let weight = u64::from(weight);
        self.weight += weight;
        self.threads += weight * u64::from(outcome.threads);
        self.independence += weight * u64::from(outcome.independence());
        self.conflicting += weight * u64::from(outcome.conflicting);
        self.density += weight as f64 * outcome.density();
    }

    /// Adds the samples of other means.
    pub fn merge(&mut self, other: &Means) {
        self.weight += other.weight;
        self.threads += other.threads;
        self.independence += other.independence;
        self.conflicting += other.conflicting;
        self.density += other.density;
    }

    /// Returns the means. Without any window, these are the values of a single thread, which gains
    /// nothing.
    pub fn estimate(&self) -> Estimate {
        if self.weight == 0 {
            return Estimate { threads: 1.0, independence: 1.0, conflicting: 0.0, density: 0.0 };
        }
        let mean = |sum: f64| sum / self.weight as f64;
        Estimate {
            threads: mean(self.threads as f64),
            independence: mean(self.independence as f64),
            conflicting: mean(self.conflicting as f64),
            density: mean(self.density),
        }
    }
}

/// Means over all windows of a lock, for one number of processors n and one granularity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Sections in a sample: n, unless fewer threads take the lock.
    pub threads: f64,
    /// I_n, data independence: the number of threads without a conflict, at least 1 (section 4.3).
    pub independence: f64,
    /// |C_n|: the number of threads with a conflict.
    pub conflicting: f64,
    /// D_n, conflict density (section 4.4).
    pub density: f64,
}

impl Estimate {
    /// The expected speed-up of the lock's sections, I_n + (|C_n| - D_n) (section 4.4), from 1 to
    /// n.
    pub fn speed_up(&self) -> f64 {
        self.independence + (self.conflicting - self.density)
    }

    /// The probability that a section has a conflict, 1 - I_n / n (section 4.3). If fewer than n
    /// threads take the lock, their number replaces n, because more processors do not add
    /// conflicts. The result is below 1, because I_n is at least 1.
    pub fn conflict_probability(&self) -> f64 {
        1.0 - self.independence / self.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(outcomes: &[Outcome]) -> Estimate {
        let mut means = Means::default();
        outcomes.iter().for_each(|outcome| means.add(*outcome, 1));
        means.estimate()
    }

    /// "D_n == |C_n|" if all conflict with all, and nothing is gained (section 4.4).
    #[test]
    fn complete_graph_gains_nothing() {
        let complete = Outcome { threads: 32, conflicting: 32, pairs: 32 * 31 / 2 };
        assert_eq!((complete.independence(), complete.density()), (1, 32.0));
        assert_eq!(mean(&[complete]).speed_up(), 1.0);
        assert_eq!(mean(&[complete]).conflict_probability(), 1.0 - 1.0 / 32.0);
    }

    /// One thread writes what 31 others read: "in the star topology case, this should equal 2"
    /// (section 4.4).
    #[test]
    fn star_has_density_two() {
        let star = Outcome { threads: 32, conflicting: 32, pairs: 31 };
        assert_eq!((star.independence(), star.density()), (1, 2.0));
        assert_eq!(mean(&[star]).speed_up(), 31.0);
    }

    #[test]
    fn no_conflict_gains_linearly() {
        let none = Outcome { threads: 16, conflicting: 0, pairs: 0 };
        assert_eq!((none.independence(), none.density()), (16, 0.0));
        assert_eq!(mean(&[none]).speed_up(), 16.0);
        assert_eq!(mean(&[none]).conflict_probability(), 0.0);
    }

    /// Prob (section 5): 32 sections write one variable with probability one half; those that do
    /// all conflict.
    #[test]
    fn half_in_conflict_gains_half() {
        let outcome = Outcome { threads: 32, conflicting: 16, pairs: 16 * 15 / 2 };
        assert_eq!((outcome.independence(), outcome.density()), (16, 16.0));
        assert_eq!(mean(&[outcome]).speed_up(), 16.0);
        assert_eq!(mean(&[outcome]).conflict_probability(), 0.5);
    }

    #[test]
    fn means_average_outcomes() {
        let estimate = mean(&[
            Outcome { threads: 4, conflicting: 0, pairs: 0 },
            Outcome { threads: 4, conflicting: 3, pairs: 2 },
        ]);
        assert_eq!(
            (estimate.independence, estimate.conflicting, estimate.density),
            (2.5, 1.5, 1.0)
        );
        assert_eq!(estimate.speed_up(), 3.0);
    }

    /// Fewer threads than processors: more processors add no speed-up (section 4.3).
    #[test]
    fn fewer_threads_than_processors_bound_speed_up() {
        let two = mean(&[Outcome { threads: 2, conflicting: 0, pairs: 0 }]);
        assert_eq!((two.speed_up(), two.conflict_probability()), (2.0, 0.0));
    }

    #[test]
    fn no_window_gains_nothing() {
        let none = Means::default().estimate();
        assert_eq!((none.speed_up(), none.conflict_probability()), (1.0, 0.0));
    }
}
