//! The papers' claims, and their check against simulated results.
//!
//! A claim compares one number, computed from the results of one seed, with the paper's value,
//! widened by a stated tolerance. Where the paper gives a number, the tolerance extends to both
//! sides: a result far beyond the paper's does not confirm it. A claim that fails stays in the list
//! and is reported as failed. A claim marked `(ours)` is not from the paper.

use std::ops::RangeInclusive;

use unconvoy_sim::grid::Result;
use unconvoy_sim::outcome::Outcome;

/// A paper's claim and the number found.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The claim with its tolerance.
    pub words: String,
    /// The number found, if its points were simulated.
    pub number: Option<f64>,
    /// The bounds within which the claim holds.
    pub bounds: RangeInclusive<f64>,
}

impl Claim {
    /// Whether the number is within the bounds. A missing number fails the claim.
    pub fn holds(&self) -> bool {
        self.number.is_some_and(|number| self.bounds.contains(&number))
    }

    /// The number as text.
    pub fn found(&self) -> String {
        self.number.map_or_else(|| "not simulated".to_string(), three_decimals)
    }
}

/// A number with three decimals. Zero has no sign.
pub fn three_decimals(number: f64) -> String {
    let text = format!("{number:.3}");
    if text == "-0.000" { text.trim_start_matches('-').to_string() } else { text }
}

/// Claims that `number` lies within `bounds`.
pub fn claim(words: impl Into<String>, number: Option<f64>, bounds: RangeInclusive<f64>) -> Claim {
    Claim { words: words.into(), number, bounds }
}

/// A list of claims, one row each: words, number, bounds.
macro_rules! claims {
    ($($words:expr, $number:expr, $bounds:expr;)*) => {
        vec![$($crate::claim::claim($words, $number, $bounds)),*]
    };
}
pub(crate) use claims;

/// No upper bound.
pub const ANY: f64 = f64::INFINITY;

/// `one / other`, if both exist.
pub fn part_of(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}

/// Simulated results, looked up by panel, series and x.
#[derive(Clone, Copy)]
pub struct Results<'a>(pub &'a [Result]);

impl<'a> Results<'a> {
    /// The outcome at one point.
    pub fn at(&self, panel: &str, series: &str, x: f64) -> Option<&'a Outcome> {
        self.line(panel, series).into_iter().find(|place| place.0 == x).map(|place| place.1)
    }

    /// The points of one line: x and outcome.
    pub fn line(&self, panel: &str, series: &str) -> Vec<(f64, &'a Outcome)> {
        let of_line =
            self.0.iter().filter(|result| result.panel == panel && result.series == series);
        of_line.filter_map(|result| Some((result.x, result.measured.outcome()?))).collect()
    }

    /// Throughput at one point.
    pub fn per_s(&self, panel: &str, series: &str, x: f64) -> Option<f64> {
        self.at(panel, series, x).map(|outcome| outcome.per_s)
    }

    /// The largest throughput of a line.
    pub fn peak(&self, panel: &str, series: &str) -> Option<f64> {
        self.line(panel, series).into_iter().map(|(_, outcome)| outcome.per_s).reduce(f64::max)
    }

    /// The x of a line's largest throughput.
    pub fn peak_at(&self, panel: &str, series: &str) -> Option<f64> {
        let line = self.line(panel, series);
        line.into_iter().max_by(|one, other| one.1.per_s.total_cmp(&other.1.per_s)).map(|(x, _)| x)
    }

    /// Ratio of two throughputs in a panel; each operand is a series and an x.
    pub fn ratio(&self, panel: &str, one: (&str, f64), other: (&str, f64)) -> Option<f64> {
        part_of(self.per_s(panel, one.0, one.1), self.per_s(panel, other.0, other.1))
    }

    /// Throughput at one point as a fraction of its line's peak.
    pub fn kept(&self, panel: &str, series: &str, x: f64) -> Option<f64> {
        part_of(self.per_s(panel, series, x), self.peak(panel, series))
    }

    /// The largest x of all results.
    pub fn largest_x(&self) -> f64 {
        self.0.iter().map(|result| result.x).fold(0.0, f64::max)
    }
}
