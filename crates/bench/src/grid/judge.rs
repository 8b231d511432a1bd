//! Verdicts on a grid. Pure.

use unconvoy::catalogue::CONTENTION;
use unconvoy_measure::goal::{Goal, Judgement};
use unconvoy_measure::statistics::{FEWEST_RUNS, Spread, short};

use super::matrix::Matrix;
use super::tables::worst_jain;
use super::workload::{OUTER_HOLD, OUTER_WAIT};
use crate::goals;
use crate::run::Values;
use crate::setup::Pair;

/// Shortest measurement for the goal of Jain's index, seconds.
const JAIN_SECONDS: f64 = 10.0;
/// The row of libc's mutex.
const LIBC: &str = "libc";
/// The row of the default lock.
const DEFAULT: &str = "default";
/// Loads of the retention goals, threads per processor.
const TWICE: u32 = 2;
const MANY: u32 = 32;

/// Judges whether the default is near the best row at every count.
pub fn near_the_best(matrix: &Matrix, name: &str) -> Judgement {
    let Some(row) = matrix.row(DEFAULT) else {
        return goals::NEAR_BEST.not_judged(format!("{name}: the default was not measured"));
    };
    let fields = (0..matrix.threads.len()).filter_map(|column| {
        let (best, median) = matrix.best(column)?;
        let (ours, theirs) = (matrix.comparable(row, column)?, matrix.measured(best, column)?);
        let certainty = if ours.count.min(theirs.count) < FEWEST_RUNS {
            "too few runs for a spread"
        } else if ours.differs_from(&theirs) {
            "beyond the spread"
        } else {
            "within the spread"
        };
        let ratio =
            if matrix.metric.lower_is_better { median / ours.median } else { ours.median / median };
        let place = format!(
            "{name}, {} threads, {}, {certainty}",
            matrix.threads[column], matrix.rows[best]
        );
        Some((ratio, place))
    });
    goals::NEAR_BEST.judge_worst(fields)
}

/// Judges the goals of a saturated workload: retention and fairness.
pub fn saturated(matrix: &Matrix, name: &str) -> Vec<Judgement> {
    vec![
        kept(matrix, name, &goals::RETENTION_200, TWICE),
        kept(matrix, name, &goals::RETENTION_3200, MANY),
        fairness(matrix, name),
    ]
}

/// Judges the part of the default's peak that it keeps. Without a thread count that leaves no
/// thread without a processor, there is no peak to compare with.
fn kept(matrix: &Matrix, name: &str, goal: &Goal, per_processor: u32) -> Judgement {
    let threads = per_processor * matrix.processors;
    let retention = || {
        let row = matrix.row(DEFAULT)?;
        let is_peak = |column: usize| matrix.threads[column] <= matrix.processors;
        let mut peaks = (0..matrix.threads.len()).filter(|&column| is_peak(column));
        peaks.any(|column| matrix.comparable(row, column).is_some()).then_some(())?;
        matrix.retention(row, matrix.column(threads)?)
    };
    match retention() {
        Some(kept) => goal.judge(kept, format!("{name}, {threads} threads")).of_rows([DEFAULT]),
        None => goal.not_judged(format!(
            "{name}: needs --threads with 1 to {} and {threads}",
            matrix.processors
        )),
    }
}

/// Judges how much longer than under other locks the holder of an outer lock pauses, and other
/// threads wait for it, while the holder waits for an inner lock. Compares within rounds. A round
/// without a time is infinite: no thread acquired the lock.
pub fn nested(matrix: &Matrix) -> Vec<Judgement> {
    let parking = Pair { lock: CONTENTION[0].name, load: "park" }.name();
    let judge = |goal: &Goal, value: &str, base: &str| {
        let added = |column: usize| {
            let cell = |name: &str| *matrix.cells.get(matrix.row(name)?)?.get(column)?;
            let time = |values: &Values| values.get(value).map_or(f64::INFINITY, |ns| ns / 1e6);
            let pairs =
                matrix.samples.pairs(cell(DEFAULT)?, cell(base)?, |values| Some(time(values)));
            let added = |(ms, base): (f64, f64)| if ms.is_infinite() { ms } else { ms - base };
            let spread = Spread::of(pairs.into_iter().map(added))?;
            let place = format!(
                "{} threads, {} to {} by round",
                matrix.threads[column],
                short(spread.min),
                short(spread.max)
            );
            Some((spread.median, place))
        };
        let judgement =
            goal.judge_worst((0..matrix.threads.len()).filter_map(added)).of_rows([DEFAULT, base]);
        if judgement.measured.is_some() || base == LIBC {
            judgement
        } else {
            judgement.without_verdict(&format!("needs --locks {base}"))
        }
    };
    vec![
        judge(&goals::NESTED_PAUSE, OUTER_HOLD, LIBC),
        judge(&goals::NESTED_PAUSE_PARK, OUTER_HOLD, &parking),
        judge(&goals::NESTED_WAIT, OUTER_WAIT, LIBC),
    ]
}

fn fairness(matrix: &Matrix, name: &str) -> Judgement {
    let Some((index, threads)) = matrix.row(DEFAULT).and_then(|row| worst_jain(matrix, row)) else {
        return goals::JAIN.not_judged(format!("{name}: needs --threads above 1"));
    };
    let judgement =
        goals::JAIN.judge(index, format!("worst: {name}, {threads} threads")).of_rows([DEFAULT]);
    if matrix.seconds < JAIN_SECONDS {
        judgement.without_verdict("needs --seconds 10 or more")
    } else {
        judgement
    }
}

#[cfg(test)]
mod tests {
    use super::super::matrix::tests::{matrix, samples};
    use super::*;
    use unconvoy_measure::cells::{Sample, Samples};
    use unconvoy_measure::goal::Verdict;

    #[test]
    fn near_best_compares_default_with_best_row_per_count() {
        let samples = samples(&[&[90.0, 100.0, 100.0], &[99.0, 99.0, 96.0]], "jain 0.95");
        let matrix = matrix(&samples, &["libc", "default"], &[2, 4, 64], false);
        let judgement = near_the_best(&matrix, "w");
        assert_eq!(judgement.verdict, Verdict::Miss);
        assert!(judgement.measured.is_some_and(|ratio| (ratio - 0.96).abs() < 1e-9));
        assert!(judgement.note.contains("64 threads, libc"), "{}", judgement.note);
        let judgements = saturated(&matrix, "w");
        assert_eq!(judgements[0].verdict, Verdict::Pass);
        assert_eq!(judgements[1].verdict, Verdict::Pass, "0.97 of its own peak");
        assert_eq!((judgements[2].verdict, judgements[2].measured), (Verdict::Pass, Some(0.95)));
    }

    #[test]
    fn near_best_says_whether_the_runs_decide_a_difference() {
        let note = |runs: u32, libc: f64| {
            let text = |ops: f64| Values::parse(&format!("ops_per_sec {ops}\n"));
            let round = |round| {
                let noise = f64::from(round % 2);
                [
                    Sample::new(0, round, text(libc + noise)),
                    Sample::new(1, round, text(90.0 + noise)),
                ]
            };
            let samples = Samples { all: (1..=runs).flat_map(round).collect(), ended_by: None };
            near_the_best(&matrix(&samples, &["libc", "default"], &[4], false), "w").note
        };
        assert_eq!(note(2, 100.0), "worst: w, 4 threads, libc, too few runs for a spread");
        assert_eq!(note(3, 100.0), "worst: w, 4 threads, libc, beyond the spread");
        assert_eq!(note(4, 90.5), "worst: w, 4 threads, libc, within the spread");
    }

    #[test]
    fn nested_times_are_compared_with_libc_and_parking_in_the_same_round() {
        let mut samples = samples(&[&[1.0], &[1.0], &[1.0]], "");
        for sample in &mut samples.all {
            let round = f64::from(sample.round);
            let (hold, wait) = [(1.5, 2.0), (2.5, 9.0), (1.0, 5.0)][sample.cell];
            sample.value.supply(OUTER_HOLD, hold * 1e6 * round);
            sample.value.supply(OUTER_WAIT, wait * 1e6 * round);
        }
        let judged = |names: &[&str]| {
            let judgements = nested(&matrix(&samples, names, &[4], false));
            judgements.into_iter().map(|one| (one.measured, one.verdict)).collect::<Vec<_>>()
        };
        assert_eq!(
            judged(&["libc", "default", "loiter+park"]),
            [(Some(1.5), Verdict::Miss), (Some(2.25), Verdict::Miss), (Some(10.5), Verdict::Miss)],
            "medians of 1 and 2, 1.5 and 3, 7 and 14 ms"
        );
        assert_eq!(judged(&["default", "libc", "x"])[0], (Some(-1.5), Verdict::Pass));
        let alone = nested(&matrix(&samples, &["libc", "default", "x"], &[4], false));
        assert!(alone[1].verdict == Verdict::NotJudged);
        assert!(alone[1].note.contains("--locks loiter+park"), "{}", alone[1].note);
    }

    #[test]
    fn nested_round_without_an_acquisition_is_the_worst() {
        let mut samples = samples(&[&[1.0], &[1.0]], "");
        for sample in &mut samples.all {
            let has_time = sample.cell == 0 || sample.round == 1;
            if has_time {
                sample.value.supply(OUTER_HOLD, 1e6);
            }
        }
        let judgement = &nested(&matrix(&samples, &["libc", "default"], &[4], false))[0];
        assert_eq!((judgement.measured, judgement.verdict), (Some(f64::INFINITY), Verdict::Miss));
        assert!(judgement.note.contains("0 to inf by round"), "{}", judgement.note);
    }

    #[test]
    fn retention_needs_a_peak_with_a_processor_for_each_thread() {
        let samples = samples(&[&[100.0, 90.0, 80.0]], "");
        let of = |threads: &[u32]| {
            let judgement = saturated(&matrix(&samples, &["default"], threads, false), "w");
            (judgement[0].verdict, judgement[0].note.clone())
        };
        let needs = "w: needs --threads with 1 to 2 and 4".to_string();
        assert_eq!(of(&[4]), (Verdict::NotJudged, needs.clone()));
        assert_eq!(of(&[4, 8, 64]), (Verdict::NotJudged, needs));
        assert_eq!(of(&[2, 4, 64]).0, Verdict::Miss);
    }

    #[test]
    fn unmeasured_goals_are_not_judged() {
        let samples = samples(&[&[100.0], &[1.0]], "");
        let mut matrix = matrix(&samples, &["libc", "default"], &[1], false);
        matrix.seconds = 1.0;
        assert!(
            saturated(&matrix, "w").iter().all(|judgement| judgement.verdict == Verdict::NotJudged)
        );
        assert_eq!(near_the_best(&matrix, "w").measured, Some(0.01));
    }
}
