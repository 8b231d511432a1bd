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

/// Returns `1 lock`, `4 locks`, `2 searches` and so on.
pub fn counted(count: u64, noun: &str) -> String {
    let end = match count {
        1 => "",
        _ if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{count} {noun}{end}")
}

/// Longest time-out in seconds, a year. A deadline far beyond it has no representation.
const LONGEST_TIMEOUT: u64 = 365 * 24 * 3600;

/// Parses a time-out in seconds.
///
/// # Errors
///
/// The text is not a number, or not a positive duration of a year at most.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| messages::timeout_not_a_number().to_string())?;
    if value > LONGEST_TIMEOUT as f64 {
        return Err(messages::timeout_too_long(LONGEST_TIMEOUT));
    }
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
    fn one_has_no_plural() {
        assert_eq!((counted(1, "lock"), counted(2, "lock")), ("1 lock".into(), "2 locks".into()));
        assert_eq!(counted(0, "search"), "0 searches");
    }

    #[test]
    fn timeout_is_positive_and_at_most_a_year() {
        assert_eq!(timeout("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "soon", "1e19", "31536001"] {
            assert!(timeout(wrong).is_err(), "{wrong}");
        }
        assert!(timeout("31536000").is_ok());
    }
}
