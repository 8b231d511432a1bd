//! Pure functions that compare predicted with measured gains: error and ranking.

use std::fmt;

/// A program with its predicted and measured gains.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: &'static str,
    /// Predicted speed-up by elision.
    pub predicted: f64,
    /// Measured speed-up of each repeat.
    pub measured: Vec<f64>,
}

impl Case {
    pub fn median(&self) -> f64 {
        let mut sorted = self.measured.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() % 2 {
            0 if middle == 0 => f64::NAN,
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        }
    }

    fn least(&self) -> f64 {
        self.measured.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.measured.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Error of the prediction, relative to the measured median.
    pub fn error(&self) -> f64 {
        self.predicted / self.median() - 1.0
    }
}

/// Predictions that differ by less than this are not ranked.
pub const NEAR: f64 = 0.03;

/// The result of the comparison.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub cases: Vec<Case>,
    /// Mean of the absolute errors.
    pub mean_error: f64,
    /// Pairs predicted in one order and measured in the other, beyond the measurements' spread.
    pub inversions: Vec<(&'static str, &'static str)>,
}

/// Compares all cases. Without cases the error is 0.
pub fn judge(mut cases: Vec<Case>) -> Verdict {
    cases.sort_by(|a, b| b.predicted.total_cmp(&a.predicted));
    let sum: f64 = cases.iter().map(|case| case.error().abs()).sum();
    let mut inversions = Vec::new();
    for (index, above) in cases.iter().enumerate() {
        for below in &cases[index + 1..] {
            if above.predicted > below.predicted * (1.0 + NEAR) && above.most() < below.least() {
                inversions.push((above.name, below.name));
            }
        }
    }
    Verdict { mean_error: sum / cases.len().max(1) as f64, cases, inversions }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "| program | predicted | measured (smallest to largest) | error |")?;
        writeln!(out, "| --- | --- | --- | --- |")?;
        for case in &self.cases {
            let (median, error) = (case.median(), case.error() * 100.0);
            let (least, most) = (case.least(), case.most());
            writeln!(
                out,
                "| {} | {:.2} | {median:.2} ({least:.2} to {most:.2}) | {error:+.0} % |",
                case.name, case.predicted
            )?;
        }
        write!(out, "\nmean error {:.1} %; ", self.mean_error * 100.0)?;
        if self.inversions.is_empty() {
            return writeln!(out, "ranked alike");
        }
        let pairs: Vec<String> =
            self.inversions.iter().map(|(above, below)| format!("{above} above {below}")).collect();
        writeln!(out, "measured in the opposite order: {}", pairs.join(", "))
    }
}

fn case(name: &'static str, predicted: f64, measured: &[f64]) -> Case {
    Case { name, predicted, measured: measured.to_vec() }
}

#[test]
fn error_is_relative_to_median() {
    let verdict = judge(vec![case("a", 1.8, &[2.5, 2.0, 1.0]), case("b", 1.1, &[0.9, 1.1])]);
    assert!((verdict.cases[0].error() + 0.1).abs() < 1e-9);
    assert!((verdict.cases[1].error() - 0.1).abs() < 1e-9);
    assert!((verdict.mean_error - 0.1).abs() < 1e-9);
    assert!(verdict.to_string().contains("mean error 10.0 %; ranked alike"), "{verdict}");
}

#[test]
fn inversion_needs_clear_prediction_and_measurement() {
    let clear = judge(vec![case("a", 1.8, &[1.2, 1.3]), case("b", 1.2, &[1.5, 1.6])]);
    assert_eq!(clear.inversions, [("a", "b")]);
    assert!(clear.to_string().ends_with("measured in the opposite order: a above b\n"), "{clear}");
    // Overlapping spreads; then predictions too near to rank.
    assert!(
        judge(vec![case("a", 1.8, &[1.2, 1.55]), case("b", 1.2, &[1.5, 1.6])])
            .inversions
            .is_empty()
    );
    assert!(
        judge(vec![case("a", 1.22, &[1.2, 1.3]), case("b", 1.2, &[1.5, 1.6])])
            .inversions
            .is_empty()
    );
}

#[test]
fn judge_without_cases_has_no_error() {
    let nothing = judge(Vec::new());
    assert_eq!(nothing.mean_error, 0.0);
    assert!(nothing.inversions.is_empty());
}
