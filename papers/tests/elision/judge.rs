//! Pure functions that compare predicted with measured gains: error and ranking.

use std::fmt;

/// The speed-up of each repeat.
#[derive(Debug, Clone)]
pub struct Gains(pub Vec<f64>);

impl Gains {
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() % 2 {
            0 if middle == 0 => f64::NAN,
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        }
    }

    fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

impl fmt::Display for Gains {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.2} ({:.2} to {:.2})", self.median(), self.least(), self.most())
    }
}

/// A program with its predicted and measured gains.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: &'static str,
    /// Predicted speed-up with an ideal transactional memory.
    pub ideal: f64,
    /// Predicted speed-up on this machine.
    pub predicted: f64,
    /// `elided`, over the default lock.
    pub measured: Gains,
    /// glibc's elision, over glibc's lock.
    pub glibc: Gains,
}

impl Case {
    /// Error of the prediction, relative to the measured median.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured.median() - 1.0
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
            if above.predicted > below.predicted * (1.0 + NEAR)
                && above.measured.most() < below.measured.least()
            {
                inversions.push((above.name, below.name));
            }
        }
    }
    Verdict { mean_error: sum / cases.len().max(1) as f64, cases, inversions }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "| program | ideal | predicted here | `elided` (smallest to largest) | error | \
             glibc's elision |"
        )?;
        writeln!(out, "| --- | --- | --- | --- | --- | --- |")?;
        for case in &self.cases {
            writeln!(
                out,
                "| {} | {:.2} | {:.2} | {} | {:+.0} % | {} |",
                case.name,
                case.ideal,
                case.predicted,
                case.measured,
                case.error() * 100.0,
                case.glibc
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
    let measured = Gains(measured.to_vec());
    Case { name, ideal: predicted, predicted, glibc: measured.clone(), measured }
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
