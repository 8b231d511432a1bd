//! Measurements by cell and round, and what is computed from them. Pure.
//!
//! A ratio is taken within a round, whose cells share the machine's drift: see [`crate::rounds`].

use std::collections::BTreeMap;

use crate::statistics::Spread;

/// One measurement.
#[derive(Debug, Clone)]
pub struct Sample<S> {
    /// Index of the cell.
    pub cell: usize,
    /// Round, from 1.
    pub round: u32,
    /// What was measured.
    pub value: S,
}

/// All that was measured, complete or not.
#[derive(Debug)]
pub struct Samples<S> {
    /// In the order of measuring.
    pub all: Vec<Sample<S>>,
    /// Why it ended before the last round.
    pub ended_by: Option<anyhow::Error>,
}

impl<S> Samples<S> {
    /// What `metric` was in each round.
    pub fn by_round(&self, cell: usize, metric: impl Fn(&S) -> Option<f64>) -> BTreeMap<u32, f64> {
        let of_cell = self.all.iter().filter(|sample| sample.cell == cell);
        of_cell.filter_map(|sample| Some((sample.round, metric(&sample.value)?))).collect()
    }

    /// `metric` over all rounds.
    pub fn spread(&self, cell: usize, metric: impl Fn(&S) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.by_round(cell, metric).into_values())
    }

    /// `metric` of one cell divided by that of another, round by round.
    pub fn ratio(&self, cell: usize, to: usize, metric: impl Fn(&S) -> Option<f64>) -> Option<Spread> {
        let base = self.by_round(to, &metric);
        let rounds = self.by_round(cell, metric).into_iter();
        Spread::of(rounds.filter_map(|(round, value)| Some(value / base.get(&round).filter(|&&base| base > 0.0)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let sample = |cell, round, value| Sample { cell, round, value };
        let samples = Samples {
            all: vec![sample(0, 1, 1.0), sample(1, 1, 2.0), sample(0, 2, 10.0), sample(1, 2, 30.0), sample(0, 3, 5.0)],
            ended_by: None,
        };
        let ratio = samples.ratio(1, 0, |&value| Some(value)).expect("two rounds have both");
        assert_eq!((ratio.count, ratio.min, ratio.max), (2, 2.0, 3.0));
    }
}
