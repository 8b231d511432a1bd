//! An error that ends the command with a status of its own.

use std::fmt;

/// Why the command goes no further, and the exit status that says so.
#[derive(Debug)]
pub struct Refusal {
    /// Exit status: 2 wrong usage, 125 unconvoy's own installation, 126 and 127 as in a shell.
    pub status: u8,
    /// Cause and remedy, for standard error.
    pub message: String,
}

impl Refusal {
    /// Wrong usage that only several options together show.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: 2, message: message.into() }
    }

    /// A part of unconvoy is missing or unusable.
    pub fn installation(message: String) -> Self {
        Self { status: 125, message }
    }

    /// The program cannot be started: 127 when it is not there, 126 when it is but does not run.
    pub fn not_started(program: &std::ffi::OsStr, error: &std::io::Error) -> Self {
        let name = program.to_string_lossy();
        if error.kind() == std::io::ErrorKind::NotFound {
            let hint = match crate::inspect::resolve(program) {
                // The file is there: what execve(2) misses is its interpreter.
                Some(path) => match crate::inspect::interpreter(&path) {
                    Some(wanted) => format!("{name}: its interpreter {wanted} is not installed"),
                    None => format!("{name}: program not found"),
                },
                None if name.contains('/') => format!("{name}: program not found"),
                None => format!("{name}: program not found in PATH"),
            };
            return Self { status: 127, message: hint };
        }
        Self { status: 126, message: format!("{name}: cannot be executed: {error}") }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
