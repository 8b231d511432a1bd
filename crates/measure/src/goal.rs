//! Goals, and the verdict of measurements on them. Pure.

use serde::{Deserialize, Serialize};

use crate::statistics::short;

/// Limit of a goal, and the side on which good values lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// The limit or more.
    AtLeast(f64),
    /// The limit or less.
    AtMost(f64),
    /// Less than the limit.
    Below(f64),
}

/// One goal.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// Identifier in records.
    pub id: &'static str,
    /// The goal as text.
    pub text: &'static str,
    /// The command that measures it.
    pub measured_by: &'static str,
    /// The limit.
    pub bound: Bound,
    /// Unit of the limit and the measurement; empty for a ratio.
    pub unit: &'static str,
}

/// Whether a goal was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Met.
    #[serde(rename = "PASS")]
    Pass,
    /// Missed.
    #[serde(rename = "MISS")]
    Miss,
    /// The runs do not decide it.
    #[serde(rename = "not judged")]
    NotJudged,
}

impl Verdict {
    /// Returns the verdict's name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Miss => "MISS",
            Self::NotJudged => "not judged",
        }
    }
}

/// A goal with its measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Judgement {
    /// [`Goal::id`].
    pub goal: String,
    /// [`Goal::text`]; empty if read from a record.
    #[serde(skip)]
    pub text: String,
    /// The worst value, which decides; `None` if nothing was measured. A record has no infinite
    /// number, so an infinite value is read back as `None`.
    pub measured: Option<f64>,
    /// The limit with relation and unit.
    pub limit: String,
    /// Unit of `measured`.
    pub unit: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Configuration with the worst value, or the reason for the missing verdict.
    pub note: String,
    /// Rows of the benchmark's table that decide; `None`: all rows.
    #[serde(skip)]
    pub rows: Option<Vec<String>>,
}

impl Bound {
    fn admits(self, value: f64) -> bool {
        match self {
            Self::AtLeast(limit) => value >= limit,
            Self::AtMost(limit) => value <= limit,
            Self::Below(limit) => value < limit,
        }
    }

    /// Returns the worst of several values, each paired with its origin.
    pub fn worst<W>(self, values: impl IntoIterator<Item = (f64, W)>) -> Option<(f64, W)> {
        let badness = |value: f64| {
            if matches!(self, Self::AtLeast(_)) { -value } else { value }
        };
        values.into_iter().max_by(|left, right| badness(left.0).total_cmp(&badness(right.0)))
    }
}

impl Goal {
    /// Returns the limit as text, such as `>= 0.880`.
    pub fn limit(&self) -> String {
        let (sign, limit) = match self.bound {
            Bound::AtLeast(limit) => (">=", limit),
            Bound::AtMost(limit) => ("<=", limit),
            Bound::Below(limit) => ("<", limit),
        };
        format!("{sign} {} {}", short(limit), self.unit).trim_end().to_string()
    }

    /// Judges one value.
    pub fn judge(&self, measured: f64, note: impl Into<String>) -> Judgement {
        let verdict = if self.bound.admits(measured) { Verdict::Pass } else { Verdict::Miss };
        Judgement { measured: Some(measured), verdict, ..self.not_judged(note) }
    }

    /// Judges the worst of several values, each paired with its origin.
    pub fn judge_worst(&self, values: impl IntoIterator<Item = (f64, String)>) -> Judgement {
        match self.bound.worst(values) {
            Some((value, place)) => self.judge(value, format!("worst: {place}")),
            None => self.not_judged("not among these runs"),
        }
    }

    /// Returns a judgement without a verdict, for a reason.
    pub fn not_judged(&self, why: impl Into<String>) -> Judgement {
        Judgement {
            goal: self.id.to_string(),
            text: self.text.to_string(),
            measured: None,
            limit: self.limit(),
            unit: self.unit.to_string(),
            verdict: Verdict::NotJudged,
            note: why.into(),
            rows: None,
        }
    }
}

impl Judgement {
    /// Withdraws the verdict, for a reason, and keeps the measurement.
    pub fn without_verdict(self, why: &str) -> Self {
        Self { verdict: Verdict::NotJudged, note: format!("{why}; {}", self.note), ..self }
    }

    /// Names the only rows that decide.
    pub fn of_rows<R: Into<String>>(self, rows: impl IntoIterator<Item = R>) -> Self {
        Self { rows: Some(rows.into_iter().map(Into::into).collect()), ..self }
    }

    /// Withdraws a pass if `row`, of which a run failed, is among the rows that decide: the other
    /// runs do not show that the goal is met. A miss stays, because the other runs show it.
    pub fn without_pass(self, row: &str, why: &str) -> Self {
        let decides = self.rows.as_ref().is_none_or(|rows| rows.iter().any(|other| other == row));
        if decides && self.verdict == Verdict::Pass { self.without_verdict(why) } else { self }
    }

    /// Returns the measurement with its unit.
    pub fn measured_text(&self) -> String {
        self.measured.map_or_else(
            || "-".to_string(),
            |value| format!("{} {}", short(value), self.unit).trim_end().to_string(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn goal(bound: Bound, unit: &'static str) -> Goal {
        Goal { id: "id", text: "text", measured_by: "test", bound, unit }
    }

    const SATURATED: Goal = goal(Bound::AtLeast(0.88), "");
    const CPU: Goal = goal(Bound::AtMost(1.0), "");
    const READING: Goal = goal(Bound::Below(100.0), "us");

    #[test]
    fn judge_compares_with_limit() {
        assert_eq!(SATURATED.judge(0.88, "").verdict, Verdict::Pass);
        assert_eq!(SATURATED.judge(0.879, "").verdict, Verdict::Miss);
        assert_eq!(CPU.judge(1.0, "").verdict, Verdict::Pass);
        assert_eq!(READING.judge(100.0, "").verdict, Verdict::Miss);
        assert_eq!(SATURATED.judge(f64::NAN, "").verdict, Verdict::Miss);
        assert_eq!(READING.limit(), "< 100 us");
    }

    #[test]
    fn failed_row_withdraws_a_pass_that_it_decides() {
        let verdict = |judgement: Judgement| judgement.without_pass("mcs+none", "why").verdict;
        assert_eq!(verdict(CPU.judge(0.5, "")), Verdict::NotJudged);
        assert_eq!(verdict(CPU.judge(2.0, "")), Verdict::Miss);
        assert_eq!(verdict(CPU.judge(0.5, "").of_rows(["default"])), Verdict::Pass);
        let both = CPU.judge(0.5, "note").of_rows(["default", "mcs+none"]);
        assert_eq!(both.without_pass("mcs+none", "why").note, "why; note");
    }

    #[test]
    fn judge_worst_uses_worst_value() {
        let values = [(0.95, "2".to_string()), (0.5, "64".to_string())];
        assert_eq!(SATURATED.judge_worst(values.clone()).measured, Some(0.5));
        assert_eq!(CPU.judge_worst(values).note, "worst: 2");
        assert_eq!(CPU.judge_worst([]).verdict, Verdict::NotJudged);
    }
}
