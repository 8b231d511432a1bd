//! Parsers of numbers in the options of several commands, and counts with their nouns.

use std::time::Duration;

use crate::messages;

/// Parses a number of threads.
///
/// # Errors
///
/// The number is not from 1 to 4096.
pub fn threads(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=4096).contains(count))
        .ok_or_else(|| messages::threads_out_of_range().to_string())
}

/// Returns `1 thread`, `4 threads` and so on.
pub fn thread_count(count: u32) -> String {
    if count == 1 { "1 thread".to_string() } else { format!("{count} threads") }
}

/// Returns `1 processor`, `4 processors` and so on.
pub fn processor_count(count: u32) -> String {
    if count == 1 { "1 processor".to_string() } else { format!("{count} processors") }
}

/// Parses a duration in seconds.
///
/// # Errors
///
/// The number is not from 0.01 to 3600.
pub fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.01..=3600.0).contains(seconds))
        .ok_or_else(|| messages::seconds_out_of_range().to_string())
}

/// Parses a time-out in seconds.
///
/// # Errors
///
/// The text is not a number, or not a positive duration.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| messages::timeout_not_a_number().to_string())?;
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(messages::timeout_not_positive().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_rejected() {
        assert!(threads("0").is_err() && threads("x").is_err() && threads("5000").is_err());
        assert!(seconds("nan").is_err() && seconds("0").is_err() && seconds("0.05").is_ok());
    }

    #[test]
    fn timeout_is_positive() {
        assert_eq!(timeout("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "soon"] {
            assert!(timeout(wrong).is_err(), "{wrong}");
        }
    }
}
