//! The command's errors and warnings: one function per message.
//!
//! A message says what failed, why, and what to do next. Library errors follow a message as its
//! cause, after a colon. Remarks in reports are beside the code that finds their reason.

pub(crate) mod command;
pub(crate) mod compare;
pub(crate) mod doctor;
pub(crate) mod inspect;
pub(crate) mod kernel;
pub(crate) mod outside;
pub(crate) mod predict;
pub(crate) mod profile;
pub(crate) mod search;
pub(crate) mod strategy;
pub(crate) mod top;
pub(crate) mod tune;

/// An error with its causes. Leaves out a cause that the text before ends with.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{
        command, compare, doctor, inspect, kernel, outside, predict, profile, search, strategy,
        top, tune,
    };

    const SOURCES: [&str; 12] = [
        include_str!("command.rs"),
        include_str!("compare.rs"),
        include_str!("doctor.rs"),
        include_str!("inspect.rs"),
        include_str!("kernel.rs"),
        include_str!("outside.rs"),
        include_str!("predict.rs"),
        include_str!("profile.rs"),
        include_str!("search.rs"),
        include_str!("strategy.rs"),
        include_str!("top.rs"),
        include_str!("tune.rs"),
    ];

    /// Prints every message with sample arguments, and checks its form.
    #[test]
    fn every_message() {
        let all: Vec<String> = [
            command::samples(),
            compare::samples(),
            doctor::samples(),
            inspect::samples(),
            kernel::samples(),
            outside::samples(),
            predict::samples(),
            profile::samples(),
            search::samples(),
            strategy::samples(),
            top::samples(),
            tune::samples(),
        ]
        .concat();
        for message in &all {
            println!("{message}");
            assert!(message.lines().all(|line| line.len() <= 120), "too long: {message}");
            assert!(!message.ends_with('.') || message.contains(". "), "full stop: {message}");
        }
        let functions: usize =
            SOURCES.iter().map(|source| source.matches("\npub(crate) fn ").count()).sum();
        // `samples` itself is not a message.
        assert_eq!(all.len(), functions - SOURCES.len(), "a message has no sample");
    }
}
