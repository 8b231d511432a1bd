//! The verdicts on a grid. Pure.

use unconvoy::catalogue::CONTENTION;
use unconvoy_measure::goal::{Goal, Judgement};
use unconvoy_measure::statistics::Spread;

use super::matrix::Matrix;
use super::tables::worst_jain;
use super::workload::OUTER_WAIT;
use crate::goals;
use crate::setup::Pair;

/// The index is promised over this long, seconds.
const JAIN_SECONDS: f64 = 10.0;
/// Loads at which a part of the peak is promised, threads per processor.
const TWICE: u32 = 2;
const MANY: u32 = 32;

/// That the default is near the best row everywhere.
pub fn near_the_best(matrix: &Matrix, name: &str) -> Judgement {
    let Some(row) = matrix.row("default") else {
        return goals::NEAR_BEST.not_judged(format!("{name}: the default was not measured"));
    };
    let fields = (0..matrix.threads.len()).filter_map(|column| {
        let (best, median) = matrix.best(column)?;
        let (ours, theirs) = (matrix.measured(row, column)?, matrix.measured(best, column)?);
        let certainty = if ours.differs_from(&theirs) { "beyond" } else { "within" };
        let ratio = if matrix.metric.lower_is_better { median / ours.median } else { ours.median / median };
        let place =
            format!("{name}, {} threads, {}, {certainty} the spread", matrix.threads[column], matrix.rows[best]);
        Some((ratio, place))
    });
    goals::NEAR_BEST.judge_worst(fields)
}

/// What a saturated workload promises: retention and fairness.
pub fn saturated(matrix: &Matrix, name: &str) -> Vec<Judgement> {
    vec![
        kept(matrix, name, &goals::RETENTION_200, TWICE),
        kept(matrix, name, &goals::RETENTION_3200, MANY),
        fairness(matrix, name),
    ]
}

fn kept(matrix: &Matrix, name: &str, goal: &Goal, per_processor: u32) -> Judgement {
    let threads = per_processor * matrix.processors;
    let retention = || matrix.retention(matrix.row("default")?, matrix.column(threads)?);
    match retention() {
        Some(kept) => goal.judge(kept, format!("{name}, {threads} threads")),
        None => goal.not_judged(format!("{name}: needs --threads with 1 to {} and {threads}", matrix.processors)),
    }
}

/// What load control adds to the wait for a lock whose holder waits for another one: against the same lock without it, round by round.
pub fn outer_wait(matrix: &Matrix) -> Judgement {
    let without = Pair { lock: CONTENTION[0].name, load: "none" }.name();
    let added = |column: usize| {
        let wait = |name: &str| {
            let cell = (*matrix.cells.get(matrix.row(name)?)?.get(column)?)?;
            Some(matrix.samples.by_round(cell, |values| Some(values.get(OUTER_WAIT)? / 1e6)))
        };
        let (with, without) = (wait("default")?, wait(&without)?);
        let added = with.into_iter().filter_map(|(round, with)| Some(with - without.get(&round)?));
        Some((Spread::of(added)?.median, format!("{} threads", matrix.threads[column])))
    };
    let judgement = goals::NESTED_WAIT.judge_worst((0..matrix.threads.len()).filter_map(added));
    if judgement.measured.is_some() {
        judgement
    } else {
        judgement.without_verdict(&format!("needs --locks {without}"))
    }
}

fn fairness(matrix: &Matrix, name: &str) -> Judgement {
    let Some((index, threads)) = matrix.row("default").and_then(|row| worst_jain(matrix, row)) else {
        return goals::JAIN.not_judged(format!("{name}: needs --threads above 1"));
    };
    let judgement = goals::JAIN.judge(index, format!("worst: {name}, {threads} threads"));
    if matrix.seconds < JAIN_SECONDS { judgement.without_verdict("needs --seconds 10 or more") } else { judgement }
}

#[cfg(test)]
mod tests {
    use super::super::matrix::tests::{matrix, samples};
    use super::*;
    use unconvoy_measure::goal::Verdict;

    #[test]
    fn the_default_is_compared_with_the_best_of_each_count() {
        let samples = samples(&[&[100.0, 100.0], &[99.0, 96.0]], "jain 0.95");
        let matrix = matrix(&samples, &["libc", "default"], &[4, 64], false);
        let judgement = near_the_best(&matrix, "w");
        assert_eq!(judgement.verdict, Verdict::Miss);
        assert!(judgement.measured.is_some_and(|ratio| (ratio - 0.96).abs() < 1e-9));
        assert!(judgement.note.contains("64 threads, libc"), "{}", judgement.note);
        let judgements = saturated(&matrix, "w");
        assert_eq!(judgements[0].verdict, Verdict::Pass);
        assert_eq!(judgements[1].verdict, Verdict::Pass, "0.97 of its own");
        assert_eq!((judgements[2].verdict, judgements[2].measured), (Verdict::Pass, Some(0.95)));
    }

    #[test]
    fn what_load_control_adds_is_against_the_same_lock() {
        let mut samples = samples(&[&[1.0], &[1.0]], "");
        for sample in &mut samples.all {
            let wait = if sample.cell == 0 { 3_000_000.0 } else { 1_000_000.0 };
            sample.value.supply(OUTER_WAIT, wait * f64::from(sample.round));
        }
        let judgement = outer_wait(&matrix(&samples, &["default", "loiter+none"], &[4], false));
        assert_eq!((judgement.measured, judgement.verdict), (Some(3.0), Verdict::Miss));
        let alone = outer_wait(&matrix(&samples, &["default", "libc"], &[4], false));
        assert!(alone.verdict == Verdict::NotJudged && alone.note.contains("--locks loiter+none"));
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let samples = samples(&[&[100.0], &[1.0]], "");
        let mut matrix = matrix(&samples, &["libc", "default"], &[1], false);
        matrix.seconds = 1.0;
        assert!(saturated(&matrix, "w").iter().all(|judgement| judgement.verdict == Verdict::NotJudged));
        assert_eq!(near_the_best(&matrix, "w").measured, Some(0.01));
    }
}
