//! Measurements by cell and round, and values computed from them. Pure.
//!
//! Ratios are computed within a round, because its cells share the machine's drift: see
//! [`crate::rounds`]. If an interruption divides a round, each part counts as a round of its own
//! here: the machine may have drifted for days in between.

use std::collections::{BTreeMap, BTreeSet};

use crate::statistics::Spread;

/// One measurement.
#[derive(Debug, Clone)]
pub struct Sample<S> {
    /// Index of the cell.
    pub cell: usize,
    /// Round, from 1.
    pub round: u32,
    /// How often the benchmark had been resumed before the measurement.
    pub resumed: u32,
    /// See [`line_transfer_ns`](crate::transfer::line_transfer_ns), just before the measurement.
    pub transfer_ns: Option<u32>,
    /// Measured value.
    pub value: S,
}

impl<S> Sample<S> {
    /// A measurement at an unknown distance of the processors, in a benchmark that was not resumed.
    pub fn new(cell: usize, round: u32, value: S) -> Self {
        Self { cell, round, resumed: 0, transfer_ns: None, value }
    }

    /// The part of a round between two interruptions.
    fn part(&self) -> (u32, u32) {
        (self.round, self.resumed)
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

    /// Returns the metrics of a cell and of its base in each round that has both, without an
    /// interruption between them.
    pub fn pairs(
        &self,
        cell: usize,
        base: usize,
        metric: impl Fn(&S) -> Option<f64>,
    ) -> Vec<(f64, f64)> {
        let of_cell = |cell: usize| -> BTreeMap<(u32, u32), f64> {
            let samples = self.all.iter().filter(|sample| sample.cell == cell);
            let metric = |sample: &Sample<S>| Some((sample.part(), metric(&sample.value)?));
            samples.filter_map(metric).collect()
        };
        let bases = of_cell(base);
        let pair = |(part, value): ((u32, u32), f64)| Some((value, *bases.get(&part)?));
        of_cell(cell).into_iter().filter_map(pair).collect()
    }

    /// Returns the spread of the ratio between two cells' metrics, computed pair by pair. An
    /// infinite metric has an infinite ratio, also to an infinite base.
    pub fn ratio(
        &self,
        cell: usize,
        base: usize,
        metric: impl Fn(&S) -> Option<f64>,
    ) -> Option<Spread> {
        let pairs = self.pairs(cell, base, metric).into_iter().filter(|&(_, base)| base > 0.0);
        let ratio = |(value, base): (f64, f64)| {
            if value.is_infinite() { value } else { value / base }
        };
        Spread::of(pairs.map(ratio))
    }

    /// Returns the cells that an interruption separates from most other cells in every round: those
    /// that failed in the first round, and were measured after the benchmark was resumed.
    pub fn separated(&self) -> BTreeSet<usize> {
        let mut cells: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for sample in &self.all {
            *cells.entry(sample.part()).or_default() += 1;
        }
        // Of equal parts the first.
        let mut greatest: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
        for ((round, resumed), count) in cells {
            let of_round = greatest.entry(round).or_insert((count, resumed));
            if count > of_round.0 {
                *of_round = (count, resumed);
            }
        }
        let is_with_most = |sample: &&Sample<S>| {
            greatest.get(&sample.round).is_some_and(|&(_, resumed)| resumed == sample.resumed)
        };
        let with_most: BTreeSet<usize> =
            self.all.iter().filter(is_with_most).map(|sample| sample.cell).collect();
        let measured: BTreeSet<usize> = self.all.iter().map(|sample| sample.cell).collect();
        measured.difference(&with_most).copied().collect()
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
    fn ratio_across_an_interruption_is_left_out() {
        let at = |cell, round, resumed, value: f64| Sample {
            resumed,
            ..Sample::new(cell, round, value)
        };
        // The benchmark is resumed in the third round. Cell 2 failed before.
        let mut all = Vec::new();
        for round in 1..=4 {
            let resumed = u32::from(round > 3);
            all.extend([at(0, round, resumed, 10.0), at(1, round, u32::from(round > 2), 20.0)]);
            all.push(at(2, round, 1, 70.0));
        }
        let samples = Samples { all, ended_by: None };
        let ratio = |cell| samples.ratio(cell, 0, |&value| Some(value)).expect("pairs");
        assert_eq!((ratio(1).count, ratio(1).median), (3, 2.0));
        assert_eq!((ratio(2).count, ratio(2).median), (1, 7.0));
        assert_eq!(samples.spread(2, |&value| Some(value)).map(|spread| spread.count), Some(4));
    }

    #[test]
    fn cell_measured_again_is_separated_from_the_others() {
        let at = |cell, round, resumed| Sample { resumed, ..Sample::new(cell, round, 1.0) };
        let separated = |all: &[Sample<f64>]| -> Vec<usize> {
            Samples { all: all.to_vec(), ended_by: None }.separated().into_iter().collect()
        };
        let mut all: Vec<Sample<f64>> =
            (1..=2).flat_map(|round| [at(0, round, 0), at(1, round, 0), at(2, round, 1)]).collect();
        assert_eq!(separated(&all), [2]);
        all.extend([at(0, 3, 1), at(2, 3, 1)]);
        assert!(separated(&all).is_empty(), "the third round has both cells");
        assert!(separated(&[at(0, 1, 0), at(1, 1, 0), at(1, 2, 1), at(0, 2, 1)]).is_empty());
    }

    #[test]
    fn ratio_of_infinite_values_is_infinite() {
        let all = vec![Sample::new(0, 1, f64::INFINITY), Sample::new(1, 1, f64::INFINITY)];
        let samples = Samples { all, ended_by: None };
        let ratio = samples.ratio(1, 0, |&value| Some(value)).expect("one round has both");
        assert_eq!((ratio.count, ratio.median), (1, f64::INFINITY));
    }
}
