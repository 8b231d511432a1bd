//! Median and spread of repeated runs, and whether two medians differ by more than their spreads.
//! Pure.

use serde::Serialize;

/// Factor from a median absolute deviation to an estimated standard deviation of normally
/// distributed values: 1 / (75 % quantile of the normal distribution).
const MAD_TO_SIGMA: f64 = 1.4826;
/// Fewest values whose median absolute deviation predicts anything about the next run.
pub const FEWEST_RUNS: usize = 3;

/// Median and spread of repeated runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Number of values.
    pub count: usize,
    /// Median; the mean of the middle two of an even number of values.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Median absolute deviation from the median, in the values' unit.
    pub mad: f64,
}

impl Spread {
    /// Computes the spread of some values and ignores NaN; `None` if no value is left.
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

    /// Returns whether `value` lies between the smallest and the largest value.
    pub fn contains(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }

    /// Formats the spread as `0.93 (0.91..0.95)`, each number with `format`.
    pub fn text(&self, format: impl Fn(f64) -> String) -> String {
        format!("{} ({}..{})", format(self.median), format(self.min), format(self.max))
    }

    /// Returns the median absolute deviation as a fraction of the median; 0 for a median of 0.
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { self.mad / self.median.abs() }
    }

    /// Returns whether the medians differ by more than two standard deviations of each. The
    /// deviations are estimated from the median absolute deviation, so that one disturbed run has
    /// no effect. Always false with fewer than [`FEWEST_RUNS`] runs.
    pub fn differs_from(&self, other: &Self) -> bool {
        let reach = 2.0 * MAD_TO_SIGMA * (self.mad + other.mad);
        self.count.min(other.count) >= FEWEST_RUNS && (self.median - other.median).abs() > reach
    }
}

/// Returns the median of sorted values.
fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[half]),
        _ => Some(f64::midpoint(sorted[half - 1], sorted[half])),
    }
}

/// Formats with [`Spread::text`], or a dash without a spread.
pub fn shown(spread: Option<Spread>, format: impl Fn(f64) -> String) -> String {
    spread.map_or_else(|| "-".to_string(), |spread| spread.text(format))
}

/// Formats with about three significant digits, and at most three decimals.
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
    fn contains_includes_both_ends() {
        let spread = Spread::of([1.0, 2.0]).expect("two values");
        assert!(spread.contains(1.0) && spread.contains(2.0) && !spread.contains(2.1));
    }

    #[test]
    fn short_has_three_significant_digits() {
        assert_eq!([1234.5, 12.345, 1.2345, 0.12345].map(short), ["1234", "12.3", "1.23", "0.123"]);
    }

    #[test]
    fn spread_of_odd_even_and_no_values() {
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
    fn spread_is_robust_against_one_outlier() {
        let spread = Spread::of([10.0, 10.1, 9.9, 10.0, 1000.0]).unwrap();
        assert_eq!(spread.median, 10.0);
        assert!(spread.mad < 0.11);
        assert!(spread.relative() < 0.011);
    }

    #[test]
    fn differs_from_requires_more_than_both_spreads() {
        let steady = Spread::of([10.0, 10.1, 9.9]).unwrap();
        let noisy = Spread::of([9.0, 11.0, 13.0]).unwrap();
        let faster = Spread::of([12.0, 12.1, 11.9]).unwrap();
        assert!(!steady.differs_from(&noisy));
        assert!(steady.differs_from(&faster) && faster.differs_from(&steady));
        assert!(!steady.differs_from(&steady));
    }

    #[test]
    fn differs_from_is_false_with_too_few_runs() {
        let a = Spread::of([1.0, 1.0]).unwrap();
        let b = Spread::of([2.0, 2.0, 2.0]).unwrap();
        assert!(!a.differs_from(&b));
    }

    #[test]
    fn relative_spread_of_zero_median_is_zero() {
        assert_eq!(Spread::of([0.0, 0.0]).unwrap().relative(), 0.0);
    }
}
