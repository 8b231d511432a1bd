//! What is promised, and whether what was measured keeps it. Pure.

use serde::{Deserialize, Serialize};

use crate::statistics::short;

/// On which side of a limit a good number lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// The limit or more.
    AtLeast(f64),
    /// The limit or less.
    AtMost(f64),
    /// Less than the limit.
    Below(f64),
}

/// One promise.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// How records name it.
    pub id: &'static str,
    /// What is promised.
    pub text: &'static str,
    /// The command that measures it.
    pub measured_by: &'static str,
    /// The limit.
    pub bound: Bound,
    /// Unit of the limit and of what is measured; empty for a ratio.
    pub unit: &'static str,
}

/// Whether a promise was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Kept.
    #[serde(rename = "PASS")]
    Pass,
    /// Broken.
    #[serde(rename = "MISS")]
    Miss,
    /// These runs cannot tell.
    #[serde(rename = "not judged")]
    NotJudged,
}

impl Verdict {
    /// As in a record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Miss => "MISS",
            Self::NotJudged => "not judged",
        }
    }
}

/// One promise and what was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Judgement {
    /// [`Goal::id`].
    pub goal: String,
    /// [`Goal::text`]; empty in a judgement that was read from a record.
    #[serde(skip)]
    pub text: String,
    /// The deciding number, the worst of all; `None` if there is none.
    pub measured: Option<f64>,
    /// The limit, with sign and unit.
    pub limit: String,
    /// Unit of `measured`.
    pub unit: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Where the worst number was met, or why there is no verdict.
    pub note: String,
}

impl Bound {
    fn admits(self, value: f64) -> bool {
        match self {
            Self::AtLeast(limit) => value >= limit,
            Self::AtMost(limit) => value <= limit,
            Self::Below(limit) => value < limit,
        }
    }

    /// The worst of some values, each with where it was met.
    pub fn worst<W>(self, values: impl IntoIterator<Item = (f64, W)>) -> Option<(f64, W)> {
        let badness = |value: f64| {
            if matches!(self, Self::AtLeast(_)) { -value } else { value }
        };
        values.into_iter().max_by(|left, right| badness(left.0).total_cmp(&badness(right.0)))
    }
}

impl Goal {
    /// The limit as text, such as `>= 0.880`.
    pub fn limit(&self) -> String {
        let (sign, limit) = match self.bound {
            Bound::AtLeast(limit) => (">=", limit),
            Bound::AtMost(limit) => ("<=", limit),
            Bound::Below(limit) => ("<", limit),
        };
        format!("{sign} {} {}", short(limit), self.unit).trim_end().to_string()
    }

    /// Judges one number.
    pub fn judge(&self, measured: f64, note: impl Into<String>) -> Judgement {
        let verdict = if self.bound.admits(measured) { Verdict::Pass } else { Verdict::Miss };
        Judgement { measured: Some(measured), verdict, ..self.not_judged(note) }
    }

    /// Judges the worst of some numbers, each with where it was met.
    pub fn judge_worst(&self, values: impl IntoIterator<Item = (f64, String)>) -> Judgement {
        match self.bound.worst(values) {
            Some((value, place)) => self.judge(value, format!("worst: {place}")),
            None => self.not_judged("not among these runs"),
        }
    }

    /// No verdict, and why.
    pub fn not_judged(&self, why: impl Into<String>) -> Judgement {
        Judgement {
            goal: self.id.to_string(),
            text: self.text.to_string(),
            measured: None,
            limit: self.limit(),
            unit: self.unit.to_string(),
            verdict: Verdict::NotJudged,
            note: why.into(),
        }
    }
}

impl Judgement {
    /// The same numbers without a verdict, and why.
    pub fn without_verdict(self, why: &str) -> Self {
        Self { verdict: Verdict::NotJudged, note: format!("{why}; {}", self.note), ..self }
    }

    /// What was measured, with its unit.
    pub fn measured_text(&self) -> String {
        self.measured
            .map_or_else(|| "-".to_string(), |value| format!("{} {}", short(value), self.unit).trim_end().to_string())
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
    fn limits_have_a_side() {
        assert_eq!(SATURATED.judge(0.88, "").verdict, Verdict::Pass);
        assert_eq!(SATURATED.judge(0.879, "").verdict, Verdict::Miss);
        assert_eq!(CPU.judge(1.0, "").verdict, Verdict::Pass);
        assert_eq!(READING.judge(100.0, "").verdict, Verdict::Miss);
        assert_eq!(SATURATED.judge(f64::NAN, "").verdict, Verdict::Miss);
        assert_eq!(READING.limit(), "< 100 us");
    }

    #[test]
    fn the_worst_decides() {
        let values = [(0.95, "2".to_string()), (0.5, "64".to_string())];
        assert_eq!(SATURATED.judge_worst(values.clone()).measured, Some(0.5));
        assert_eq!(CPU.judge_worst(values).note, "worst: 2");
        assert_eq!(CPU.judge_worst([]).verdict, Verdict::NotJudged);
    }
}
