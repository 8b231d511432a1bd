//! Measurements by cell and round, and values computed from them. Pure.
//!
//! Ratios are computed within a round, because its cells share the machine's drift: see
//! [`crate::rounds`].

use std::collections::BTreeMap;

use crate::statistics::Spread;

/// One measurement.
#[derive(Debug, Clone)]
pub struct Sample<S> {
    /// Index of the cell.
    pub cell: usize,
    /// Round, from 1.
    pub round: u32,
    /// See [`line_transfer_ns`](crate::transfer::line_transfer_ns), just before the measurement.
    pub transfer_ns: Option<u32>,
    /// Measured value.
    pub value: S,
}

impl<S> Sample<S> {
    /// A measurement at an unknown distance of the processors.
    pub fn new(cell: usize, round: u32, value: S) -> Self {
        Self { cell, round, transfer_ns: None, value }
    }
}

/// All measurements, complete or not.
#[derive(Debug)]
pub struct Samples<S> {
    /// Samples in the order of measurement.
    pub all: Vec<Sample<S>>,
    /// Why the measurement ended early.
    pub ended_by: Option<anyhow::Error>,
}

impl<S> Samples<S> {
    /// Returns a cell's metric by round.
    pub fn by_round(&self, cell: usize, metric: impl Fn(&S) -> Option<f64>) -> BTreeMap<u32, f64> {
        let of_cell = self.all.iter().filter(|sample| sample.cell == cell);
        of_cell.filter_map(|sample| Some((sample.round, metric(&sample.value)?))).collect()
    }

    /// Returns the spread of a cell's metric over all rounds.
    pub fn spread(&self, cell: usize, metric: impl Fn(&S) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.by_round(cell, metric).into_values())
    }

    /// Returns the spread of the ratio between two cells' metrics, computed round by round. An
    /// infinite metric has an infinite ratio, also to an infinite base.
    pub fn ratio(
        &self,
        cell: usize,
        to: usize,
        metric: impl Fn(&S) -> Option<f64>,
    ) -> Option<Spread> {
        let base = self.by_round(to, &metric);
        let rounds = self.by_round(cell, metric).into_iter();
        Spread::of(rounds.filter_map(|(round, value)| {
            let base = base.get(&round).filter(|&&base| base > 0.0)?;
            Some(if value.is_infinite() { value } else { value / base })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_computed_within_rounds() {
        let sample = Sample::new;
        let samples = Samples {
            all: vec![
                sample(0, 1, 1.0),
                sample(1, 1, 2.0),
                sample(0, 2, 10.0),
                sample(1, 2, 30.0),
                sample(0, 3, 5.0),
            ],
            ended_by: None,
        };
        let ratio = samples.ratio(1, 0, |&value| Some(value)).expect("two rounds have both");
        assert_eq!((ratio.count, ratio.min, ratio.max), (2, 2.0, 3.0));
    }

    #[test]
    fn ratio_of_infinite_values_is_infinite() {
        let all = vec![Sample::new(0, 1, f64::INFINITY), Sample::new(1, 1, f64::INFINITY)];
        let samples = Samples { all, ended_by: None };
        let ratio = samples.ratio(1, 0, |&value| Some(value)).expect("one round has both");
        assert_eq!((ratio.count, ratio.median), (1, f64::INFINITY));
    }
}
