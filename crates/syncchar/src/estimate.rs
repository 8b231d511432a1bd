//! Data independence, conflict density and what follows from them (sections 4.3 and 4.4 of the paper).

use serde::{Deserialize, Serialize};

/// What comparing one sample gave: a graph with sections as nodes and conflicts as edges (section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Sections in the sample, each of another thread.
    pub threads: u32,
    /// |C_n|: those that conflict with another one of the sample.
    pub conflicting: u32,
    /// Pairs that conflict.
    pub pairs: u32,
}

impl Outcome {
    /// n - |C_n|; one if all conflict, since one section of them always completes (section 4.3).
    pub fn independence(&self) -> u32 {
        (self.threads - self.conflicting).max(1)
    }

    /// D_n: over C_n, the sum of each one's share of the others that it conflicts with. Whom it conflicts with is in C_n too, so the numerators
    /// add up to twice the pairs. |C_n| if each conflicts with each, 2 for a star (section 4.4), 0 without conflicts.
    pub fn density(&self) -> f64 {
        match self.conflicting {
            // A conflict has two sides.
            0 | 1 => 0.0,
            conflicting => 2.0 * f64::from(self.pairs) / f64::from(conflicting - 1),
        }
    }
}

/// Running means over the windows of one lock and one number of processors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Means {
    /// The sum of the weights; these are integers, so that no mean leaves its bounds by rounding.
    weight: u64,
    threads: u64,
    independence: u64,
    conflicting: u64,
    density: f64,
}

impl Means {
    /// Adds a sample. Each window weighs the same, however many samples were drawn of it.
    pub fn add(&mut self, outcome: Outcome, weight: u32) {
        let weight = u64::from(weight);
        self.weight += weight;
        self.threads += weight * u64::from(outcome.threads);
        self.independence += weight * u64::from(outcome.independence());
        self.conflicting += weight * u64::from(outcome.conflicting);
        self.density += weight as f64 * outcome.density();
    }

    /// The means; without a window, those of a single thread, of which nothing is known to gain.
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
    /// Sections that a sample had: n, unless fewer threads take the lock.
    pub threads: f64,
    /// I_n, data independence: the number of threads that do not conflict, at least 1 (section 4.3).
    pub independence: f64,
    /// |C_n|: the number that do.
    pub conflicting: f64,
    /// D_n, conflict density (section 4.4).
    pub density: f64,
}

impl Estimate {
    /// The expected speed-up of the lock's sections, I_n + (|C_n| - D_n) (section 4.4); from 1 to n.
    pub fn speed_up(&self) -> f64 {
        self.independence + (self.conflicting - self.density)
    }

    /// The probability that a section is involved in a conflict, 1 - I_n / n (section 4.3). Where fewer threads than n take the lock, n is
    /// their number: more processors do not make them conflict more. Never 1, as I_n is never 0.
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

    /// "D_n == |C_n|" where all conflict with all, and then nothing is gained (section 4.4).
    #[test]
    fn all_with_all() {
        let complete = Outcome { threads: 32, conflicting: 32, pairs: 32 * 31 / 2 };
        assert_eq!((complete.independence(), complete.density()), (1, 32.0));
        assert_eq!(mean(&[complete]).speed_up(), 1.0);
        assert_eq!(mean(&[complete]).conflict_probability(), 1.0 - 1.0 / 32.0);
    }

    /// One thread writes what 31 others read: "in the star topology case, this should equal 2" (section 4.4).
    #[test]
    fn star() {
        let star = Outcome { threads: 32, conflicting: 32, pairs: 31 };
        assert_eq!((star.independence(), star.density()), (1, 2.0));
        assert_eq!(mean(&[star]).speed_up(), 31.0);
    }

    #[test]
    fn no_conflict_is_linear() {
        let none = Outcome { threads: 16, conflicting: 0, pairs: 0 };
        assert_eq!((none.independence(), none.density()), (16, 0.0));
        assert_eq!(mean(&[none]).speed_up(), 16.0);
        assert_eq!(mean(&[none]).conflict_probability(), 0.0);
    }

    /// Prob (section 5): of 32 sections that each write one variable with probability one half, the conflicting ones all conflict.
    #[test]
    fn prob() {
        let outcome = Outcome { threads: 32, conflicting: 16, pairs: 16 * 15 / 2 };
        assert_eq!((outcome.independence(), outcome.density()), (16, 16.0));
        assert_eq!(mean(&[outcome]).speed_up(), 16.0);
        assert_eq!(mean(&[outcome]).conflict_probability(), 0.5);
    }

    #[test]
    fn means() {
        let estimate =
            mean(&[Outcome { threads: 4, conflicting: 0, pairs: 0 }, Outcome { threads: 4, conflicting: 3, pairs: 2 }]);
        assert_eq!((estimate.independence, estimate.conflicting, estimate.density), (2.5, 1.5, 1.0));
        assert_eq!(estimate.speed_up(), 3.0);
    }

    /// Fewer threads than processors: more processors do not speed up any further (section 4.3).
    #[test]
    fn fewer_threads_than_processors() {
        let two = mean(&[Outcome { threads: 2, conflicting: 0, pairs: 0 }]);
        assert_eq!((two.speed_up(), two.conflict_probability()), (2.0, 0.0));
    }

    #[test]
    fn without_a_window_nothing_is_gained() {
        let none = Means::default().estimate();
        assert_eq!((none.speed_up(), none.conflict_probability()), (1.0, 0.0));
    }
}
