//! Median and range of repeated runs, percentiles of many readings. Pure.

use serde::{Deserialize, Serialize};

/// What repeated runs gave, in the values' own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many values there are.
    pub count: usize,
    /// The middle one, or the mean of the two middle ones.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of some values; `None` of none. Values that are no numbers are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        let upper = *sorted.get(half)?;
        let median = if sorted.len() % 2 == 1 { upper } else { f64::midpoint(*sorted.get(half - 1)?, upper) };
        Some(Self { count: sorted.len(), median, min: *sorted.first()?, max: *sorted.last()? })
    }

    /// Whether `value` lies between the smallest and the largest.
    pub fn contains(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }

    /// `0.93 (0.91..0.95)`, each number through `format`.
    pub fn text(&self, format: impl Fn(f64) -> String) -> String {
        format!("{} ({}..{})", format(self.median), format(self.min), format(self.max))
    }
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
    fn odd_even_and_no_values() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!(Spread::of([9.0, 1.0, 4.0]), Some(Spread { count: 3, median: 4.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of([1.0, 2.0, 4.0, 9.0]).map(|spread| spread.median), Some(3.0));
    }

    #[test]
    fn the_ends_belong_to_the_range() {
        let spread = Spread::of([1.0, 2.0]).expect("two values");
        assert!(spread.contains(1.0) && spread.contains(2.0) && !spread.contains(2.1));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([1234.5, 12.345, 1.2345, 0.12345].map(short), ["1234", "12.3", "1.23", "0.123"]);
    }
}
