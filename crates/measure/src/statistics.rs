//! Median and spread of repeated runs, and whether two medians are further apart than their spreads explain. Pure.

use serde::Serialize;

/// Turns a median absolute deviation into an estimate of the standard deviation, for normally
/// distributed values: 1 / (the normal distribution's 75 % quantile).
const MAD_TO_SIGMA: f64 = 1.4826;
/// Below this many values a median absolute deviation says nothing about the next run.
pub const FEWEST_RUNS: usize = 3;

/// What repeated runs gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// How many values there are.
    pub count: usize,
    /// The middle one, or the mean of the two middle ones.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Median of the distances to the median, in the values' unit.
    pub mad: f64,
}

impl Spread {
    /// The spread of some values; `None` of none. Values that are no numbers are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let median = middle(&sorted)?;
        let mut distances: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        distances.sort_by(f64::total_cmp);
        Some(Self {
            count: sorted.len(),
            median,
            min: *sorted.first()?,
            max: *sorted.last()?,
            mad: middle(&distances)?,
        })
    }

    /// Whether `value` lies between the smallest and the largest.
    pub fn contains(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }

    /// `0.93 (0.91..0.95)`, each number through `format`.
    pub fn text(&self, format: impl Fn(f64) -> String) -> String {
        format!("{} ({}..{})", format(self.median), format(self.min), format(self.max))
    }

    /// The median absolute deviation as a fraction of the median; 0 for a median of 0.
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { self.mad / self.median.abs() }
    }

    /// Whether the medians differ by more than two standard deviations of each, estimated from
    /// the median absolute deviation so that one disturbed run does not decide. With fewer than
    /// [`FEWEST_RUNS`] runs there is no telling, and the answer is no.
    pub fn differs_from(&self, other: &Self) -> bool {
        let reach = 2.0 * MAD_TO_SIGMA * (self.mad + other.mad);
        self.count.min(other.count) >= FEWEST_RUNS && (self.median - other.median).abs() > reach
    }
}

/// The median of sorted values.
fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[half]),
        _ => Some(f64::midpoint(sorted[half - 1], sorted[half])),
    }
}

/// [`Spread::text`], or a dash for what was not measured.
pub fn shown(spread: Option<Spread>, format: impl Fn(f64) -> String) -> String {
    spread.map_or_else(|| "-".to_string(), |spread| spread.text(format))
}

/// About three significant digits, and at most three after the point.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        magnitude if magnitude >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_belong_to_the_range() {
        let spread = Spread::of([1.0, 2.0]).expect("two values");
        assert!(spread.contains(1.0) && spread.contains(2.0) && !spread.contains(2.1));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([1234.5, 12.345, 1.2345, 0.12345].map(short), ["1234", "12.3", "1.23", "0.123"]);
    }

    #[test]
    fn odd_even_and_no_values() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
        let one = Spread::of([4.0]).unwrap();
        assert_eq!((one.median, one.min, one.max, one.mad), (4.0, 4.0, 4.0, 0.0));
        let odd = Spread::of([9.0, 1.0, 4.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.mad), (4.0, 1.0, 9.0, 3.0));
        let even = Spread::of([1.0, 2.0, 4.0, 9.0]).unwrap();
        assert_eq!((even.median, even.mad), (3.0, 1.5));
    }

    #[test]
    fn one_outlier_moves_neither_median_nor_deviation() {
        let spread = Spread::of([10.0, 10.1, 9.9, 10.0, 1000.0]).unwrap();
        assert_eq!(spread.median, 10.0);
        assert!(spread.mad < 0.11);
        assert!(spread.relative() < 0.011);
    }

    #[test]
    fn a_difference_must_exceed_both_spreads() {
        let steady = Spread::of([10.0, 10.1, 9.9]).unwrap();
        let noisy = Spread::of([9.0, 11.0, 13.0]).unwrap();
        let faster = Spread::of([12.0, 12.1, 11.9]).unwrap();
        assert!(!steady.differs_from(&noisy));
        assert!(steady.differs_from(&faster) && faster.differs_from(&steady));
        assert!(!steady.differs_from(&steady));
    }

    #[test]
    fn too_few_runs_prove_nothing() {
        let a = Spread::of([1.0, 1.0]).unwrap();
        let b = Spread::of([2.0, 2.0, 2.0]).unwrap();
        assert!(!a.differs_from(&b));
    }

    #[test]
    fn a_median_of_zero_has_no_relative_spread() {
        assert_eq!(Spread::of([0.0, 0.0]).unwrap().relative(), 0.0);
    }
}
