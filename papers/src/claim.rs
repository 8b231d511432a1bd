//! The shapes that the papers claim, and how each is looked for in what was simulated.
//!
//! A claim has a number, made from results, and bounds on it that are the paper's with a tolerance
//! that the claim names. Tolerances were set before anything was simulated; a claim that does not
//! hold stays as it is, and says so.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use unconvoy_sim::grid::Result;
use unconvoy_sim::outcome::Outcome;

/// A shape that the paper claims.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// What is claimed, and with which tolerance it is looked for.
    pub claim: String,
    /// What came out.
    pub found: String,
    /// Whether that is it.
    pub holds: bool,
}

/// The claim that a number lies within bounds; without the number it does not hold.
pub fn claim(words: impl Into<String>, number: Option<f64>, bounds: RangeInclusive<f64>) -> Claim {
    Claim {
        claim: words.into(),
        found: number.map_or_else(|| "not simulated".to_string(), |number| format!("{number:.3}")),
        holds: number.is_some_and(|number| bounds.contains(&number)),
    }
}

/// Claims as a table: words, number, bounds.
macro_rules! claims {
    ($($words:expr, $number:expr, $bounds:expr;)*) => { vec![$($crate::claim::claim($words, $number, $bounds)),*] };
}
pub(crate) use claims;

/// No upper bound.
pub const ANY: f64 = f64::INFINITY;

/// One number as a part of another, where there are both.
pub fn part_of(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}

/// Results, by their places.
#[derive(Clone, Copy)]
pub struct Results<'a>(pub &'a [Result]);

impl<'a> Results<'a> {
    /// What came out at a place.
    pub fn at(&self, panel: &str, series: &str, x: f64) -> Option<&'a Outcome> {
        self.line(panel, series).into_iter().find(|place| place.0 == x).map(|place| place.1)
    }

    /// The places of a line.
    pub fn line(&self, panel: &str, series: &str) -> Vec<(f64, &'a Outcome)> {
        let of_line = self.0.iter().filter(|result| result.panel == panel && result.series == series);
        of_line.filter_map(|result| Some((result.x, result.measured.outcome()?))).collect()
    }

    /// Throughput at a place.
    pub fn per_s(&self, panel: &str, series: &str, x: f64) -> Option<f64> {
        self.at(panel, series, x).map(|outcome| outcome.per_s)
    }

    /// A line's largest throughput.
    pub fn peak(&self, panel: &str, series: &str) -> Option<f64> {
        self.line(panel, series).into_iter().map(|(_, outcome)| outcome.per_s).reduce(f64::max)
    }

    /// Where the peak is.
    pub fn peak_at(&self, panel: &str, series: &str) -> Option<f64> {
        let line = self.line(panel, series);
        line.into_iter().max_by(|one, other| one.1.per_s.total_cmp(&other.1.per_s)).map(|(x, _)| x)
    }

    /// Throughput of one series at a place, as a multiple of that of another one.
    pub fn ratio(&self, panel: &str, one: (&str, f64), other: (&str, f64)) -> Option<f64> {
        part_of(self.per_s(panel, one.0, one.1), self.per_s(panel, other.0, other.1))
    }

    /// A point's throughput as a part of its line's peak.
    pub fn kept(&self, panel: &str, series: &str, x: f64) -> Option<f64> {
        part_of(self.per_s(panel, series, x), self.peak(panel, series))
    }

    /// The farthest place.
    pub fn largest_x(&self) -> f64 {
        self.0.iter().map(|result| result.x).fold(0.0, f64::max)
    }
}
