//! Durations in options.

/// The units, in seconds. A unit comes before those that it ends with.
const UNITS: [(&str, f64); 6] =
    [("ms", 1e-3), ("min", 60.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];

/// Parses a number with an optional unit, seconds by default: `90`, `250ms`, `90s`, `5m`, `5min`,
/// `1h`.
pub fn seconds(text: &str) -> Option<f64> {
    let parse = |(unit, seconds): (&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * seconds)
    };
    UNITS.into_iter().find_map(parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_units_and_nonsense_has_none() {
        let known = [("90", 90.0), ("250ms", 0.25), ("90s", 90.0), ("1.5h", 5400.0)];
        for (text, expected) in known.into_iter().chain([("5m", 300.0), ("5min", 300.0)]) {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for wrong in ["", "m", "soon", "2d", "s5", "60 s"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
