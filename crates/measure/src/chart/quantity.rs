//! Formatting of quantities with three digits and a prefix.

/// Unit of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// No unit.
    Plain,
    /// Seconds.
    Seconds,
}

/// Prefixes for 1000^-3 to 1000^4.
const PREFIXES: [&str; 8] = ["n", "µ", "m", "", "k", "M", "G", "T"];
/// Index of the empty prefix.
const NO_PREFIX: i32 = 3;

impl Unit {
    /// Formats a value with three digits: `1.23 M`, `45.6 ms`.
    pub fn show(self, value: f64) -> String {
        self.with_digits(value, |scaled| match scaled.abs() {
            s if s >= 99.95 => format!("{scaled:.0}"),
            s if s >= 9.995 => format!("{scaled:.1}"),
            s if s >= 0.0995 => format!("{scaled:.2}"),
            s if s >= 1e-6 => {
                let places = (1.0 - s.log10().floor()) as usize;
                format!("{scaled:.places$}")
            }
            _ => format!("{scaled:.1e}"),
        })
    }

    /// Formats a tick's round value without trailing zeros.
    pub fn tick(self, value: f64) -> String {
        self.with_digits(value, |scaled| {
            // Round values have at most two digits, at any magnitude.
            let places = (1.0 - scaled.abs().log10().floor()).max(2.0) as usize;
            let text = format!("{scaled:.places$}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        })
    }

    fn with_digits(self, value: f64, digits: impl Fn(f64) -> String) -> String {
        let symbol = if self == Self::Seconds { "s" } else { "" };
        if value == 0.0 || !value.is_finite() {
            return format!("{value} {symbol}").trim_end().to_string();
        }
        // Round up slightly, so that 999.9996 becomes 1.00 k and not 1000.
        let exponent = ((value.abs() * 1.000_500_1).log10() / 3.0).floor() as i32;
        // Never print kiloseconds, nor a prefix on a plain fraction.
        let (lowest, highest) = match self {
            Self::Plain => (0, PREFIXES.len() as i32 - 1 - NO_PREFIX),
            Self::Seconds => (-NO_PREFIX, 0),
        };
        let exponent = exponent.clamp(lowest, highest);
        let prefix = PREFIXES[(exponent + NO_PREFIX) as usize];
        let number = digits(value / 1000_f64.powi(exponent));
        format!("{number} {prefix}{symbol}").trim_end().to_string()
    }
}

/// Formats a duration in seconds.
pub fn seconds(value: f64) -> String {
    Unit::Seconds.show(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_has_three_digits_and_prefix() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (0.0995, "0.10"),
            (0.0012, "0.0012"),
            (3e-9, "3.0e-9"),
            (1.0, "1.00"),
            (999.9, "1.00 k"),
            (12_345.0, "12.3 k"),
            (123_456_789.0, "123 M"),
            (5e15, "5000 T"),
            (-1500.0, "-1.50 k"),
        ] {
            assert_eq!(Unit::Plain.show(value), text);
        }
    }

    #[test]
    fn seconds_have_unit_and_prefix() {
        for (value, text) in [
            (0.0, "0 s"),
            (1.5e-7, "150 ns"),
            (0.000_012, "12.0 µs"),
            (0.2, "200 ms"),
            (7200.0, "7200 s"),
        ] {
            assert_eq!(seconds(value), text);
        }
    }

    #[test]
    fn tick_omits_trailing_zeros() {
        assert_eq!(Unit::Plain.tick(2_500_000.0), "2.5 M");
        assert_eq!(Unit::Plain.tick(0.2), "0.2");
        assert_eq!(Unit::Seconds.tick(1e-6), "1 µs");
        assert_eq!(Unit::Plain.tick(0.0), "0");
        assert_eq!(
            (Unit::Plain.tick(0.01), Unit::Plain.tick(0.005)),
            ("0.01".to_string(), "0.005".to_string())
        );
        assert_eq!(Unit::Plain.tick(0.000_25), "0.00025");
    }
}
