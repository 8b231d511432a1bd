//! Errors and notes of all collectors, one function each. QEMU prints the errors at start. The
//! notes go into the stream's end record and become remarks of the report.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use unconvoy_trace_stream::sampling::Sampling;

/// The line on standard error if the plug-in does not load.
pub fn not_loaded(error: &str) -> String {
    format!("unconvoy: cannot load the plug-in: {error}")
}

/// A file that cannot be opened or read.
pub fn file(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

/// QEMU loads the plug-in twice.
pub fn loaded_twice() -> String {
    "loaded twice: pass -plugin once".to_string()
}

/// An argument without a value.
pub fn no_value(argument: &str) -> String {
    format!("{argument}: expected name=value")
}

/// A number out of range, or no number.
pub fn number_out_of_range(name: &str, value: &str, range: &RangeInclusive<u64>) -> String {
    format!("{name}={value}: expected a number from {} to {}", range.start(), range.end())
}

/// An unknown option.
pub fn unknown_option(name: &str, known: &str) -> String {
    format!("{name}: unknown option; the options are {known}")
}

/// An unknown way of sampling.
pub fn unknown_sampling(value: &str) -> String {
    let known = Sampling::ALL.map(Sampling::name).join(" or ");
    format!("sampling={value}: expected {known}")
}

/// The required option `out` is missing.
pub fn no_out() -> &'static str {
    "no output: pass out=FILE for the stream"
}

/// A note: the plug-in panicked.
pub fn panicked() -> String {
    "an internal error ended the collection early; see standard error".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let messages = [
            not_loaded("out=FILE is missing"),
            file(Path::new("/nowhere/stream"), "No such file or directory (os error 2)"),
            loaded_twice(),
            no_value("rate"),
            number_out_of_range("rate", "0", &(1..=1_000_000)),
            unknown_option("colour", "out, symbols, offsets, rate, sampling, seed and words"),
            unknown_sampling("all"),
            no_out().to_string(),
            panicked(),
        ];
        for message in &messages {
            println!("{message}");
            assert!(message.len() <= 120 && !message.ends_with('.'), "{message}");
        }
        let functions = include_str!("messages.rs").matches("\npub fn ").count();
        assert_eq!(functions, messages.len(), "list each message function above");
    }
}
