//! Errors and winners of a comparison between simulation and measurement, as pure functions.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use unconvoy_measure::statistics::Spread;

/// A lock at one thread count, measured and simulated.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// Name of the workload.
    pub workload: String,
    /// `CONTENTION+LOAD`.
    pub lock: String,
    /// Number of threads.
    pub threads: u32,
    /// Measured operations per second.
    pub measured: Spread,
    /// The measured operations per second of each run, with its round.
    pub runs: Vec<(u32, f64)>,
    /// Simulated operations per second.
    pub simulated: f64,
    /// Relative error of the simulation against the measured median: 0.5 is 50 % too high.
    pub error: f64,
}

impl Compared {
    pub(super) fn new(
        workload: String,
        lock: String,
        threads: u32,
        (measured, runs): (Spread, Vec<(u32, f64)>),
        simulated: f64,
    ) -> Self {
        let error =
            if measured.median > 0.0 { simulated / measured.median - 1.0 } else { f64::MAX };
        Compared { workload, lock, threads, measured, runs, simulated, error }
    }

    pub(super) fn in_round(&self, round: u32) -> Option<f64> {
        self.runs.iter().find(|run| run.0 == round).map(|run| run.1)
    }

    pub(super) fn in_other_rounds(&self, round: u32) -> Option<Spread> {
        Spread::of(self.runs.iter().filter(|run| run.0 != round).map(|run| run.1))
    }
}

/// The winners at a thread count of a workload.
#[derive(Debug, Clone, Serialize)]
pub struct Winner {
    /// Name of the workload.
    pub workload: String,
    /// Number of threads.
    pub threads: u32,
    /// The lock with the highest measured median.
    pub measured: String,
    /// The lock with the highest simulated throughput.
    pub simulated: String,
    /// Measured throughput of the simulation's winner relative to the measured winner: what a user
    /// gets by following the simulation.
    pub of_best: f64,
    /// Whether the two winners are the same lock.
    pub same: bool,
    /// Whether the simulation's winner is as fast as the measured one: its measured median is at
    /// most [`NEAR`] below the other's median, or not below the other's slowest run.
    pub as_good: bool,
    /// Whether the measurement cannot distinguish the two winners: either the simulated one is as
    /// fast ([`as_good`](Self::as_good)), or its fastest run is not below the other's slowest.
    pub overlaps: bool,
}

/// Relative difference up to which two locks count as equally fast.
pub const NEAR: f64 = 0.03;

/// How well one round of the measurement predicts the winner of the others. No simulation can be
/// expected to do better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Repeatability {
    /// Number of rounds, over all points, compared with the other rounds of their point.
    pub rounds: usize,
    /// Fraction of rounds whose winner is also the winner of the other rounds, by medians.
    pub same_winner: f64,
    /// Fraction of rounds whose winner is [as good](Winner::as_good) in the other rounds.
    pub as_good_winner: f64,
}

/// The result of the comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Number of compared rows.
    pub rows: usize,
    /// Median of the absolute errors.
    pub median_error: f64,
    /// Median absolute error by workload.
    pub by_workload: BTreeMap<String, f64>,
    /// Median absolute error by thread count.
    pub by_threads: BTreeMap<u32, f64>,
    /// Median absolute error by contention manager.
    pub by_contention: BTreeMap<String, f64>,
    /// Median absolute error by load manager.
    pub by_load: BTreeMap<String, f64>,
    /// Error of the measurement itself: the median, over the rows, of the distance from a row's
    /// median to its farthest run.
    pub noise: f64,
    /// Fraction of rows whose simulated throughput lies between the slowest and the fastest
    /// measured run.
    pub within_spread: f64,
    /// Number of points: thread counts of workloads.
    pub points: usize,
    /// Fraction of points where simulation and measurement have the same winner.
    pub same_winner: f64,
    /// Fraction of points where the simulation's winner is [as good](Winner::as_good).
    pub as_good_winner: f64,
    /// Fraction of points where the measurement cannot [distinguish](Winner::overlaps) the winners.
    pub overlapping_winner: f64,
    /// Agreement of the measurement with itself.
    pub repeatability: Repeatability,
}

fn part(count: usize, all: usize) -> f64 {
    count as f64 / all.max(1) as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}

fn by<K: Ord>(rows: &[Compared], key: impl Fn(&Compared) -> K) -> BTreeMap<K, f64> {
    let mut groups: BTreeMap<K, Vec<f64>> = BTreeMap::new();
    for row in rows {
        groups.entry(key(row)).or_default().push(row.error.abs());
    }
    groups.into_iter().map(|(key, errors)| (key, median(errors.into_iter()))).collect()
}

/// The rows of each workload and thread count that several locks have. One lock has no rival.
fn points(rows: &[Compared]) -> BTreeMap<(&str, u32), Vec<&Compared>> {
    let mut points: BTreeMap<(&str, u32), Vec<&Compared>> = BTreeMap::new();
    for row in rows {
        points.entry((&row.workload, row.threads)).or_default().push(row);
    }
    points.retain(|_, rows| rows.len() > 1);
    points
}

/// Compares each round of each point with the other rounds of that point.
fn repeatability(rows: &[Compared]) -> Repeatability {
    let (mut rounds, mut same, mut as_good) = (0, 0, 0);
    for rows in points(rows).into_values() {
        let numbers: BTreeSet<u32> =
            rows.iter().flat_map(|row| &row.runs).map(|run| run.0).collect();
        for round in numbers {
            let here = rows.iter().filter_map(|row| Some((row, row.in_round(round)?)));
            let elsewhere =
                || rows.iter().filter_map(|row| Some((row, row.in_other_rounds(round)?)));
            let chosen = here.max_by(|one, other| one.1.total_cmp(&other.1));
            let best = elsewhere().max_by(|one, other| one.1.median.total_cmp(&other.1.median));
            let (Some((chosen, _)), Some((best, best_elsewhere))) = (chosen, best) else {
                continue;
            };
            let of_chosen = elsewhere()
                .find(|(row, _)| row.lock == chosen.lock)
                .map_or(0.0, |(_, of)| of.median);
            let is_near = of_chosen >= (1.0 - NEAR) * best_elsewhere.median
                || of_chosen >= best_elsewhere.min;
            rounds += 1;
            same += usize::from(chosen.lock == best.lock);
            as_good += usize::from(chosen.lock == best.lock || is_near);
        }
    }
    Repeatability { rounds, same_winner: part(same, rounds), as_good_winner: part(as_good, rounds) }
}

pub(super) fn winners(rows: &[Compared]) -> Vec<Winner> {
    let winner = |((workload, threads), rows): ((&str, u32), Vec<&Compared>)| {
        let best = rows
            .iter()
            .max_by(|one, other| one.measured.median.total_cmp(&other.measured.median))?;
        let chosen = rows.iter().max_by(|one, other| one.simulated.total_cmp(&other.simulated))?;
        let of_best = chosen.measured.median / best.measured.median;
        let (same, near) = (chosen.lock == best.lock, of_best >= 1.0 - NEAR);
        Some(Winner {
            workload: workload.to_string(),
            threads,
            measured: best.lock.clone(),
            simulated: chosen.lock.clone(),
            of_best,
            same,
            as_good: same || near || chosen.measured.median >= best.measured.min,
            overlaps: same || near || chosen.measured.max >= best.measured.min,
        })
    };
    points(rows).into_iter().filter_map(winner).collect()
}

pub(super) fn judge(rows: &[Compared], winners: &[Winner]) -> Verdict {
    let half = |lock: &str, first: bool| {
        let (contention, load) = lock.split_once('+').unwrap_or((lock, ""));
        if first { contention } else { load }.to_string()
    };
    let farthest = |row: &Compared| {
        let Spread { median, min, max, .. } = row.measured;
        if median > 0.0 { (max - median).max(median - min) / median } else { 0.0 }
    };
    Verdict {
        rows: rows.len(),
        median_error: median(rows.iter().map(|row| row.error.abs())),
        by_workload: by(rows, |row| row.workload.clone()),
        by_threads: by(rows, |row| row.threads),
        by_contention: by(rows, |row| half(&row.lock, true)),
        by_load: by(rows, |row| half(&row.lock, false)),
        noise: median(rows.iter().map(farthest)),
        within_spread: part(
            rows.iter().filter(|row| row.measured.contains(row.simulated)).count(),
            rows.len(),
        ),
        points: winners.len(),
        same_winner: part(winners.iter().filter(|winner| winner.same).count(), winners.len()),
        as_good_winner: part(winners.iter().filter(|winner| winner.as_good).count(), winners.len()),
        overlapping_winner: part(
            winners.iter().filter(|winner| winner.overlaps).count(),
            winners.len(),
        ),
        repeatability: repeatability(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(lock: &str, threads: u32, measured: &[f64], simulated: f64) -> Compared {
        let runs = (1..).zip(measured.iter().copied()).collect();
        let measured = (Spread::of(measured.iter().copied()).expect("values"), runs);
        Compared::new("w".to_string(), lock.to_string(), threads, measured, simulated)
    }

    #[test]
    fn verdict_errors_are_medians() {
        let rows = [
            compared("a+x", 1, &[10.0], 11.0),
            compared("b+x", 1, &[10.0], 5.0),
            compared("a+y", 1, &[10.0, 20.0, 30.0], 25.0),
        ];
        let verdict = judge(&rows, &winners(&rows));
        assert_eq!((verdict.rows, verdict.median_error), (3, 0.25));
        assert!(
            (verdict.by_contention["a"] - 0.175).abs() < 1e-9 && verdict.by_load["y"] == 0.25,
            "{verdict:?}"
        );
        assert!((verdict.within_spread - 1.0 / 3.0).abs() < 1e-9 && verdict.noise == 0.0);
    }

    #[test]
    fn winner_may_differ_and_be_as_fast() {
        let rows = [
            // Another lock, but only 2 % slower.
            compared("a+x", 1, &[100.0], 9.0),
            compared("b+x", 1, &[98.0], 10.0),
            // Another lock, slower, but as fast as the winner's slowest run.
            compared("a+x", 2, &[80.0, 100.0, 120.0], 9.0),
            compared("b+x", 2, &[85.0], 10.0),
            // Another lock, whose fastest run was as fast as the winner's slowest.
            compared("a+x", 4, &[90.0, 100.0], 9.0),
            compared("b+x", 4, &[50.0, 91.0], 10.0),
            // Another lock.
            compared("a+x", 6, &[100.0], 9.0),
            compared("b+x", 6, &[50.0], 10.0),
            // The same lock.
            compared("a+x", 8, &[100.0], 10.0),
            compared("b+x", 8, &[50.0], 9.0),
        ];
        let winners = winners(&rows);
        let found: Vec<[bool; 3]> =
            winners.iter().map(|winner| [winner.same, winner.as_good, winner.overlaps]).collect();
        let (yes, no) = (true, false);
        assert_eq!(
            found,
            [[no, yes, yes], [no, yes, yes], [no, no, yes], [no, no, no], [yes, yes, yes]]
        );
        let verdict = judge(&rows, &winners);
        let parts = [verdict.same_winner, verdict.as_good_winner, verdict.overlapping_winner];
        assert_eq!((verdict.points, parts), (5, [0.2, 0.6, 0.8]));
    }

    #[test]
    fn repeatability_of_changing_measurement_is_low() {
        let agreement = |rows: &[Compared]| {
            let Repeatability { rounds, same_winner, as_good_winner } =
                judge(rows, &winners(rows)).repeatability;
            (rounds, same_winner, as_good_winner)
        };
        let steady = [compared("a+x", 1, &[10.0, 11.0], 1.0), compared("b+x", 1, &[9.0, 8.0], 1.0)];
        assert_eq!(agreement(&steady), (2, 1.0, 1.0));
        let changing =
            [compared("a+x", 1, &[10.0, 5.0], 1.0), compared("b+x", 1, &[9.0, 8.0], 1.0)];
        assert_eq!(agreement(&changing), (2, 0.0, 0.0));
        let near = [compared("a+x", 1, &[10.0, 9.9], 1.0), compared("b+x", 1, &[9.9, 10.0], 1.0)];
        assert_eq!(agreement(&near), (2, 0.0, 1.0));
        assert_eq!(
            agreement(&[compared("a+x", 1, &[10.0], 1.0)]),
            (0, 0.0, 0.0),
            "one round has no others"
        );
    }

    #[test]
    fn verdict_without_rows_is_zero() {
        let verdict = judge(&[], &winners(&[]));
        assert_eq!((verdict.rows, verdict.points, verdict.median_error), (0, 0, 0.0));
    }
}
