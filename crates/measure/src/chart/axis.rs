//! Scales and ticks of a figure's axes. Pure.
//!
//! The drawing library places ticks between thread counts and prints no unit prefixes. So each axis
//! maps its values to positions on a linear scale, and has ticks of its own.

use std::ops::Range;

use super::quantity::Unit;

/// Values that differ by more than this factor get a logarithmic axis. A linear axis starts at zero
/// and shows proportions.
const LINEAR_UP_TO: f64 = 25.0;
/// Approximate number of ticks.
const TICKS: f64 = 5.0;

/// One axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Positions of both ends.
    pub range: Range<f64>,
    /// Position and label of each tick.
    pub ticks: Vec<(f64, String)>,
    /// Whether positions are logarithms of the values.
    pub is_logarithmic: bool,
}

impl Axis {
    /// Creates a logarithmic axis for positive values, such as thread counts, with a tick at each.
    pub fn at_each(values: &[f64]) -> Self {
        let positions = || values.iter().map(|&value| Self::at(value));
        let first = positions().fold(f64::INFINITY, f64::min);
        let last = positions().fold(f64::NEG_INFINITY, f64::max);
        let (first, last) = if first.is_finite() { (first, last) } else { (0.0, 0.0) };
        // A margin keeps markers off the frame.
        let margin = 0.06 * (last - first).max(1.0);
        Self {
            range: first - margin..last + margin,
            ticks: values.iter().map(|&value| (Self::at(value), Self::label(value))).collect(),
            is_logarithmic: true,
        }
    }

    /// Labels a value in full, unless it is long: a prefix would hide digits of a thread count.
    fn label(value: f64) -> String {
        if value < 1e5 { value.to_string() } else { Unit::Plain.tick(value) }
    }

    /// Returns a value's position on an axis from [`at_each`](Self::at_each).
    pub fn at(value: f64) -> f64 {
        value.max(f64::MIN_POSITIVE).log2()
    }

    /// Creates an axis with one position per name, for programs without a thread count.
    pub fn names(names: &[String]) -> Self {
        Self {
            range: -0.5..names.len() as f64 - 0.5,
            ticks: names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect(),
            is_logarithmic: false,
        }
    }

    /// Creates an axis that covers `values`: from zero, or logarithmic if they are far apart.
    pub fn values(values: &[f64], unit: Unit) -> Self {
        let largest = values.iter().copied().fold(0.0, f64::max);
        let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
        if smallest > 0.0 && largest / smallest > LINEAR_UP_TO {
            Self::logarithmic(smallest, largest, unit)
        } else {
            Self::linear(smallest.min(0.0), largest, unit)
        }
    }

    /// Creates a linear axis from zero to `largest`.
    pub fn up_to(largest: f64, unit: Unit) -> Self {
        Self::linear(0.0, largest, unit)
    }

    /// Creates an axis from 0 to 1, for an index.
    pub fn index() -> Self {
        Self { range: 0.0..1.06, ..Self::linear(0.0, 1.0, Unit::Plain) }
    }

    /// Returns a value's position.
    pub fn position(&self, value: f64) -> f64 {
        if !self.is_logarithmic {
            return value;
        }
        // Zero has no logarithm; place it at the axis's lower end.
        if value > 0.0 { value.log10() } else { self.range.start }
    }

    /// `smallest` is at most 0, and `largest` at least.
    fn linear(smallest: f64, largest: f64, unit: Unit) -> Self {
        let largest = if smallest < largest { largest } else { 1.0 };
        let step = round_up((largest - smallest) / TICKS);
        let end = |value: f64| (value.abs() / step * (1.0 - 1e-9)).ceil() as i32;
        let ticks = (-end(smallest)..=end(largest)).map(|n| f64::from(n) * step);
        let ticks = ticks.map(|value| (value, unit.tick(value))).collect();
        // Room for the outermost markers and their error bars.
        let range = 1.06 * smallest..1.06 * largest.max(f64::MIN_POSITIVE);
        Self { range, ticks, is_logarithmic: false }.trimmed()
    }

    fn logarithmic(smallest: f64, largest: f64, unit: Unit) -> Self {
        let (first, last) = (smallest.log10(), largest.log10());
        let margin = 0.06 * (last - first);
        let within_decade: &[f64] = if last - first > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = first.floor() as i32..=last.ceil() as i32;
        let ticks = decades
            .flat_map(|decade| within_decade.iter().map(move |digit| digit * 10_f64.powi(decade)))
            .map(|value| (value.log10(), unit.tick(value)))
            .collect();
        Self { range: first - margin..last + margin, ticks, is_logarithmic: true }.trimmed()
    }

    fn trimmed(mut self) -> Self {
        let range = self.range.clone();
        self.ticks.retain(|(at, _)| range.contains(at));
        self
    }
}

/// Rounds up to 1, 2, 2.5 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let digit = value / decade;
    let round = [1.0, 2.0, 2.5, 5.0].into_iter().find(|round| digit <= round * (1.0 + 1e-9));
    decade * round.unwrap_or(10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn at_each_has_a_tick_per_value() {
        let axis = Axis::at_each(&[1.0, 2.0, 8.0]);
        assert_eq!(labels(&axis), ["1", "2", "8"]);
        assert_eq!(axis.ticks[2].0, 3.0);
        assert!(axis.range.start < 0.0 && axis.range.end > 3.0);
        assert!(Axis::at_each(&[4.0]).range.contains(&2.0));
        assert!(Axis::at_each(&[0.1, 0.5]).range.contains(&Axis::at(0.5)));
        assert!(!Axis::at_each(&[]).range.is_empty());
    }

    #[test]
    fn values_axis_starts_at_zero() {
        let axis = Axis::values(&[3.1e6, 4.8e6], Unit::Plain);
        assert_eq!(labels(&axis), ["0", "1 M", "2 M", "3 M", "4 M", "5 M"]);
        assert_eq!(axis.position(2e6), 2e6);
    }

    #[test]
    fn axis_reaches_to_negative_values() {
        let axis = Axis::values(&[-12.5, -3.0], Unit::Plain);
        assert!(axis.range.contains(&-12.5) && axis.ticks.iter().any(|(at, _)| *at == 0.0));
        assert_eq!(labels(&Axis::at_each(&[1000.0, 1024.0, 1025.0])), ["1000", "1024", "1025"]);
    }

    #[test]
    fn values_far_apart_get_logarithmic_axis() {
        let axis = Axis::values(&[1e-6, 1e-3], Unit::Seconds);
        assert_eq!(labels(&axis), ["1 µs", "10 µs", "100 µs", "1 ms"]);
        assert!((axis.position(1e-5) + 5.0).abs() < 1e-9);
        assert_eq!(axis.position(0.0), axis.range.start);
    }

    #[test]
    fn values_without_data_make_an_axis() {
        for values in [&[][..], &[0.0], &[-1.0]] {
            let axis = Axis::values(values, Unit::Plain);
            assert!(axis.range.end > axis.range.start && axis.ticks.len() > 1);
        }
    }

    #[test]
    fn round_up_returns_round_steps() {
        for (value, step) in
            [(0.9, 1.0), (1.0, 1.0), (1.2, 2.0), (2.2, 2.5), (30.0, 50.0), (7.0, 10.0)]
        {
            assert!((round_up(value) - step).abs() < 1e-9, "{value}");
        }
    }
}
