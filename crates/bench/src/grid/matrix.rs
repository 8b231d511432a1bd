//! Measurements by configuration and thread count, and values computed from them.

use std::collections::BTreeSet;

use unconvoy_measure::cells::Samples;
use unconvoy_measure::context::processors;
use unconvoy_measure::statistics::Spread;

use super::workload::Metric;
use crate::run::Values;

/// Table of measurements.
pub struct Matrix<'a> {
    /// Names of the configurations.
    pub rows: Vec<String>,
    /// Thread counts.
    pub threads: Vec<u32>,
    /// Index of the samples' cell by row and column.
    pub cells: Vec<Vec<Option<usize>>>,
    /// The samples.
    pub samples: &'a Samples<Values>,
    /// Cells that are compared with no other: an interruption separates their runs.
    pub separated: BTreeSet<usize>,
    /// The compared value.
    pub metric: Metric,
    /// Processors of the machine.
    pub processors: u32,
    /// Length of a measured window, seconds.
    pub seconds: f64,
}

impl<'a> Matrix<'a> {
    /// Creates the table for this machine. `find` returns the samples' cell of a row and thread
    /// count.
    pub fn new(
        rows: &[&str],
        threads: &[u32],
        find: impl Fn(usize, u32) -> Option<usize>,
        samples: &'a Samples<Values>,
        metric: Metric,
        seconds: f64,
    ) -> Self {
        Self {
            rows: rows.iter().map(ToString::to_string).collect(),
            threads: threads.to_vec(),
            cells: (0..rows.len())
                .map(|row| threads.iter().map(|&threads| find(row, threads)).collect())
                .collect(),
            samples,
            separated: samples.separated(),
            metric,
            processors: processors(),
            seconds,
        }
    }

    /// Returns the index of a row.
    pub fn row(&self, name: &str) -> Option<usize> {
        self.rows.iter().position(|row| row == name)
    }

    /// Returns the index of a thread count.
    pub fn column(&self, threads: u32) -> Option<usize> {
        self.threads.iter().position(|&count| count == threads)
    }

    /// Returns the column with the most threads.
    pub fn last_column(&self) -> Option<usize> {
        (0..self.threads.len()).max_by_key(|&column| self.threads[column])
    }

    /// Returns the spread of a value over a cell's rounds.
    pub fn spread(
        &self,
        row: usize,
        column: usize,
        of: impl Fn(&Values) -> Option<f64>,
    ) -> Option<Spread> {
        self.samples.spread((*self.cells.get(row)?.get(column)?)?, of)
    }

    /// Returns the spread of the metric over a cell's rounds.
    pub fn measured(&self, row: usize, column: usize) -> Option<Spread> {
        self.spread(row, column, |values| values.get(self.metric.name))
    }

    /// Returns [`measured`](Self::measured) for a comparison with other cells.
    pub fn comparable(&self, row: usize, column: usize) -> Option<Spread> {
        let cell = (*self.cells.get(row)?.get(column)?)?;
        if self.separated.contains(&cell) { None } else { self.measured(row, column) }
    }

    /// Returns how many times as good as `base` a value is.
    fn times(&self, value: f64, base: f64) -> Option<f64> {
        let (above, below) =
            if self.metric.lower_is_better { (base, value) } else { (value, base) };
        (below > 0.0).then(|| above / below)
    }

    /// Returns the row with the best median of a column, and that median.
    pub fn best(&self, column: usize) -> Option<(usize, f64)> {
        let medians = (0..self.rows.len())
            .filter_map(|row| Some((row, self.comparable(row, column)?.median)));
        let goodness = |value: f64| if self.metric.lower_is_better { -value } else { value };
        medians.max_by(|left, right| goodness(left.1).total_cmp(&goodness(right.1)))
    }

    /// Returns a cell's rounds relative to the best median of its column; 1 is as good, less is
    /// worse.
    pub fn relative(&self, row: usize, column: usize) -> Option<Spread> {
        let (_, best) = self.best(column)?;
        self.comparable(row, column)?;
        self.spread(row, column, |values| self.times(values.get(self.metric.name)?, best))
    }

    /// Returns the geometric mean of a row's relative medians over the measured columns.
    pub fn score(&self, row: usize) -> Option<f64> {
        let logarithms: Vec<f64> = (0..self.threads.len())
            .filter_map(|column| Some(self.relative(row, column)?.median.ln()))
            .collect();
        (!logarithms.is_empty())
            .then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
    }

    /// Returns the rows from best to worst by [`score`](Self::score), rows without gaps first.
    pub fn ranking(&self) -> Vec<usize> {
        let holes = |row: usize| {
            (0..self.threads.len()).filter(|&column| self.measured(row, column).is_none()).count()
        };
        let mut rows: Vec<usize> = (0..self.rows.len()).collect();
        rows.sort_by(|&left, &right| {
            let by_score =
                self.score(right).unwrap_or(0.0).total_cmp(&self.score(left).unwrap_or(0.0));
            holes(left).cmp(&holes(right)).then(by_score)
        });
        rows
    }

    /// Returns a cell's median relative to the best median of its row: the retained part of its
    /// peak.
    pub fn retention(&self, row: usize, column: usize) -> Option<f64> {
        let own = self.comparable(row, column)?.median;
        let kept = (0..self.threads.len())
            .filter_map(|other| self.times(own, self.comparable(row, other)?.median));
        kept.min_by(f64::total_cmp)
    }

    /// Returns the load in percent of the processors.
    pub fn load(&self, column: usize) -> f64 {
        f64::from(self.threads[column]) / f64::from(self.processors) * 100.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use unconvoy_measure::cells::Sample;

    /// Creates samples of two rounds, the second 2 % higher.
    pub fn samples(rows: &[&[f64]], extra: &str) -> Samples<Values> {
        let mut all = Vec::new();
        for round in 1..=2 {
            for (cell, value) in rows
                .iter()
                .flat_map(|row| row.iter())
                .enumerate()
                .filter(|(_, value)| **value > 0.0)
            {
                let value = value * (1.0 + 0.02 * f64::from(round - 1));
                let text = format!("ops_per_sec {value}\n{extra}\n");
                let value = Values::parse(&text);
                all.push(Sample::new(cell, round, value));
            }
        }
        Samples { all, ended_by: None }
    }

    pub fn matrix<'a>(
        samples: &'a Samples<Values>,
        names: &[&str],
        threads: &[u32],
        lower_is_better: bool,
    ) -> Matrix<'a> {
        let columns = threads.len();
        Matrix {
            rows: names.iter().map(ToString::to_string).collect(),
            threads: threads.to_vec(),
            cells: (0..names.len())
                .map(|row| (0..columns).map(|column| Some(row * columns + column)).collect())
                .collect(),
            samples,
            separated: samples.separated(),
            metric: Metric { name: "ops_per_sec", heading: "operations/s", lower_is_better },
            processors: 2,
            seconds: 10.0,
        }
    }

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-9)
    }

    #[test]
    fn rows_are_compared_within_columns() {
        let samples = samples(&[&[100.0, 50.0], &[200.0, 200.0], &[0.0, 400.0]], "");
        let matrix = matrix(&samples, &["libc", "default", "other"], &[2, 4], false);
        assert_eq!(matrix.best(0).map(|best| best.0), Some(1));
        assert_eq!(matrix.best(1).map(|best| best.0), Some(2));
        assert!(near(matrix.relative(0, 0).map(|spread| spread.median), 0.5));
        assert!(near(matrix.score(1), 0.5_f64.sqrt()));
        assert_eq!(matrix.ranking(), [1, 0, 2], "a row with holes is last");
        assert!(near(matrix.retention(0, 1), 0.5) && near(matrix.retention(0, 0), 1.0));
    }

    #[test]
    fn cell_measured_after_a_resumption_is_compared_with_no_other() {
        let mut samples = samples(&[&[100.0, 50.0], &[200.0, 200.0]], "");
        samples.all.iter_mut().filter(|it| it.cell == 3).for_each(|it| it.resumed = 1);
        let matrix = matrix(&samples, &["libc", "default"], &[2, 4], false);
        assert!(matrix.measured(1, 1).is_some() && matrix.relative(1, 1).is_none());
        assert_eq!(matrix.best(1).map(|best| best.0), Some(0));
        assert!(near(matrix.retention(1, 0), 1.0) && matrix.retention(1, 1).is_none());
    }

    #[test]
    fn shortest_time_is_best() {
        let samples = samples(&[&[1.0, 2.0], &[4.0, 1.0]], "");
        let matrix = matrix(&samples, &["libc", "default"], &[1, 2], true);
        assert_eq!(matrix.best(0).map(|best| best.0), Some(0));
        assert!(near(matrix.relative(1, 1).map(|spread| spread.max), 1.01));
        assert!(near(matrix.retention(0, 1), 0.5) && near(matrix.retention(1, 1), 1.0));
    }
}
