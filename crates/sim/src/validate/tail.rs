//! The tail of a comparison's errors, as pure functions: the worst rows, and the order of the
//! locks.
//!
//! A row that the machine itself does not repeat says nothing about the simulation. Rows and points
//! whose own rounds differ by more than the goal allows are therefore counted apart.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use unconvoy_measure::statistics::Spread;

use super::judge::Compared;

/// Goals for the rows that the machine repeats.
pub const MEDIAN_GOAL: f64 = 0.15;
/// Largest 90th percentile of the errors, and the largest distance of a repeated row's runs from
/// their median.
pub const PERCENTILE_GOAL: f64 = 0.35;
/// Largest factor between simulated and measured throughput.
pub const FACTOR_GOAL: f64 = 3.0;
/// Smallest rank correlation of the locks of a point.
pub const RANK_GOAL: f64 = 0.9;

/// How closely the simulated order of a point's locks follows the measured one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranks {
    /// Which workload.
    pub workload: String,
    /// Number of threads.
    pub threads: u32,
    /// Number of locks.
    pub locks: usize,
    /// Spearman's rank correlation of simulated and measured throughput.
    pub simulated: f64,
    /// The median, over the measured rounds, of the correlation with the other rounds; `None` with
    /// fewer than two rounds.
    pub rounds: Option<f64>,
}

impl Ranks {
    /// Whether the machine's own rounds agree as closely as the goal asks of the simulation.
    pub fn is_repeated(&self) -> bool {
        self.rounds.is_some_and(|rounds| rounds >= RANK_GOAL)
    }
}

/// The tail of the errors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tail {
    /// Number of rows that the machine repeats.
    pub rows: usize,
    /// Number of the other rows.
    pub unrepeated: usize,
    /// Median absolute error of the repeated rows.
    pub median_error: f64,
    /// 90th percentile of their absolute errors.
    pub percentile_90: f64,
    /// Number of repeated rows that are off by more than [`FACTOR_GOAL`].
    pub far_off: usize,
    /// The largest factor between simulated and measured throughput of a repeated row.
    pub worst_factor: f64,
    /// Number of the other rows whose simulation is off by more than [`FACTOR_GOAL`] from each run.
    pub unrepeated_far_off: usize,
    /// The median rank correlation of the locks, over the repeated points; `None` without such
    /// points.
    pub rank_correlation: Option<f64>,
    /// The order of the locks, by point.
    pub ranks: Vec<Ranks>,
}

/// Whether a row has several runs, all within [`PERCENTILE_GOAL`] of their median.
pub(super) fn is_repeated(row: &Compared) -> bool {
    let Spread { median, min, max, count, .. } = row.measured;
    count > 1 && (max - median).max(median - min) <= PERCENTILE_GOAL * median
}

/// How many times `one` is larger than `other`, or `other` than `one`.
fn factor(one: f64, other: f64) -> f64 {
    if one.min(other) > 0.0 {
        one.max(other) / one.min(other)
    } else if one == other {
        1.0
    } else {
        f64::MAX
    }
}

/// The factor between a row's simulated throughput and the nearest of the measured ones.
pub(super) fn factor_to_runs(row: &Compared) -> f64 {
    if row.measured.contains(row.simulated) {
        return 1.0;
    }
    factor(row.simulated, row.measured.min).min(factor(row.simulated, row.measured.max))
}

/// The value at `part`, from 0 to 1, of some values; 0 without values.
fn quantile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((part * last as f64).ceil() as usize).copied().unwrap_or(0.0)
}

/// Ranks of some values from 0; equal values get the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: f64| {
        let below = values.iter().filter(|&&other| other < value).count();
        let equal = values.iter().filter(|&&other| other == value).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    values.iter().map(|&value| rank(value)).collect()
}

/// Spearman's rank correlation of pairs; 1 if one side has only equal values.
fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let (one, other): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (one, other) = (ranks(&one), ranks(&other));
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let product = |left: &[f64], right: &[f64]| -> f64 {
        left.iter().zip(right).map(|(left, right)| (left - mean) * (right - mean)).sum()
    };
    let spread = (product(&one, &one) * product(&other, &other)).sqrt();
    if spread == 0.0 { 1.0 } else { product(&one, &other) / spread }
}

/// The correlation of each round's order with that of the other rounds, at the median.
fn agreement(rows: &[&Compared]) -> Option<f64> {
    let rounds: BTreeSet<u32> = rows.iter().flat_map(|row| &row.runs).map(|run| run.0).collect();
    let correlations = rounds.into_iter().filter_map(|round| {
        let pairs: Vec<(f64, f64)> = rows
            .iter()
            .filter_map(|row| Some((row.in_round(round)?, row.in_other_rounds(round)?.median)))
            .collect();
        (pairs.len() > 1).then(|| rank_correlation(&pairs))
    });
    Some(Spread::of(correlations)?.median)
}

fn order_of_locks(rows: &[Compared]) -> Vec<Ranks> {
    let mut points: BTreeMap<(&str, u32), Vec<&Compared>> = BTreeMap::new();
    for row in rows {
        points.entry((&row.workload, row.threads)).or_default().push(row);
    }
    let order = |((workload, threads), rows): ((&str, u32), Vec<&Compared>)| {
        let pairs: Vec<(f64, f64)> =
            rows.iter().map(|row| (row.simulated, row.measured.median)).collect();
        (rows.len() > 1).then(|| Ranks {
            workload: workload.to_string(),
            threads,
            locks: rows.len(),
            simulated: rank_correlation(&pairs),
            rounds: agreement(&rows),
        })
    };
    points.into_iter().filter_map(order).collect()
}

pub(super) fn tail(rows: &[Compared]) -> Tail {
    let (repeated, others): (Vec<&Compared>, Vec<&Compared>) =
        rows.iter().partition(|row| is_repeated(row));
    let errors = || repeated.iter().map(|row| row.error.abs());
    let factors = || repeated.iter().map(|row| factor(row.simulated, row.measured.median));
    let ranks = order_of_locks(rows);
    let of_repeated = ranks.iter().filter(|ranks| ranks.is_repeated()).map(|ranks| ranks.simulated);
    Tail {
        rows: repeated.len(),
        unrepeated: others.len(),
        median_error: Spread::of(errors()).map_or(0.0, |spread| spread.median),
        percentile_90: quantile(errors(), 0.9),
        far_off: factors().filter(|&factor| factor > FACTOR_GOAL).count(),
        worst_factor: factors().fold(1.0, f64::max),
        unrepeated_far_off: others.iter().filter(|row| factor_to_runs(row) > FACTOR_GOAL).count(),
        rank_correlation: Spread::of(of_repeated).map(|spread| spread.median),
        ranks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(lock: &str, measured: &[f64], simulated: f64) -> Compared {
        let runs = (1..).zip(measured.iter().copied()).collect();
        let measured = (Spread::of(measured.iter().copied()).expect("values"), runs);
        Compared::new("w".to_string(), lock.to_string(), 2, measured, simulated)
    }

    #[test]
    fn unrepeated_row_is_counted_apart() {
        let rows = [
            compared("a", &[100.0, 101.0, 99.0], 110.0),
            compared("b", &[100.0, 101.0, 99.0], 20.0),
            compared("c", &[100.0, 300.0, 50.0], 1.0),
            compared("d", &[100.0, 300.0, 50.0], 200.0),
        ];
        let tail = tail(&rows);
        assert_eq!((tail.rows, tail.unrepeated), (2, 2));
        assert_eq!((tail.far_off, tail.unrepeated_far_off), (1, 1));
        assert!((tail.worst_factor - 5.0).abs() < 1e-9 && tail.percentile_90 == 0.8, "{tail:?}");
        assert!((tail.median_error - 0.45).abs() < 1e-9, "{tail:?}");
        assert_eq!(tail.rank_correlation, None, "the rounds disagree on the order");
    }

    #[test]
    fn rank_correlation_is_1_for_same_order_and_negative_for_reverse() {
        assert_eq!(rank_correlation(&[(1.0, 10.0), (2.0, 70.0), (3.0, 71.0)]), 1.0);
        assert_eq!(rank_correlation(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]), -1.0);
        assert_eq!(rank_correlation(&[(1.0, 1.0), (1.0, 2.0)]), 1.0, "no order to follow");
        // Two of three equal: the ranks 0.5, 0.5 and 2 against 0, 1 and 2.
        let tied = rank_correlation(&[(1.0, 1.0), (1.0, 2.0), (5.0, 3.0)]);
        assert!((tied - 0.866).abs() < 1e-3, "{tied}");
    }

    #[test]
    fn point_whose_rounds_disagree_is_marked() {
        let steady = [compared("a", &[10.0, 11.0], 5.0), compared("b", &[20.0, 21.0], 6.0)];
        let ranks = &tail(&steady).ranks[0];
        assert_eq!((ranks.simulated, ranks.rounds, ranks.is_repeated()), (1.0, Some(1.0), true));
        let changing = [compared("a", &[10.0, 30.0], 5.0), compared("b", &[20.0, 21.0], 6.0)];
        let ranks = &tail(&changing).ranks[0];
        assert_eq!((ranks.rounds, ranks.is_repeated()), (Some(-1.0), false));
    }

    #[test]
    fn factor_of_zero_is_the_largest() {
        assert_eq!((factor(0.0, 0.0), factor(0.0, 1.0), factor(4.0, 2.0)), (1.0, f64::MAX, 2.0));
        assert_eq!(quantile([3.0, 1.0, 2.0].into_iter(), 0.9), 3.0);
        assert_eq!(quantile(std::iter::empty(), 0.9), 0.0);
    }
}
