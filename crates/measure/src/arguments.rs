//! Numbers that the options of several commands take, and the words for them.

use std::time::Duration;

/// A number of threads.
///
/// # Errors
///
/// It is none from 1 to 4096.
pub fn threads(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=4096).contains(count))
        .ok_or_else(|| "expected a number from 1 to 4096".to_string())
}

/// `1 thread`, `4 threads`.
pub fn thread_count(count: u32) -> String {
    if count == 1 { "1 thread".to_string() } else { format!("{count} threads") }
}

/// `1 processor`, `4 processors`.
pub fn processor_count(count: u32) -> String {
    if count == 1 { "1 processor".to_string() } else { format!("{count} processors") }
}

/// A length of time, seconds.
///
/// # Errors
///
/// It is none from 0.01 to 3600.
pub fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.01..=3600.0).contains(seconds))
        .ok_or_else(|| "expected a number from 0.01 to 3600".to_string())
}

/// How long something may take at most: a positive number of seconds.
///
/// # Errors
///
/// It is no number, or none that a time-out can have.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a time-out is longer than 0 seconds".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_numbers_are_refused() {
        assert!(threads("0").is_err() && threads("x").is_err() && threads("5000").is_err());
        assert!(seconds("nan").is_err() && seconds("0").is_err() && seconds("0.05").is_ok());
    }

    #[test]
    fn a_timeout_is_positive() {
        assert_eq!(timeout("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "soon"] {
            assert!(timeout(wrong).is_err(), "{wrong}");
        }
    }
}
