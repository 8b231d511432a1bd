//! Errors that end the command with an exit status of their own.

use std::fmt;

use crate::messages::command as messages;

/// An error that ends the command, and its exit status.
#[derive(Debug)]
pub struct Refusal {
    /// Exit status: 2 wrong usage, 125 unconvoy's own installation, 126 and 127 as in a shell.
    pub status: u8,
    /// Cause and remedy, for standard error.
    pub message: String,
}

impl Refusal {
    /// Wrong usage that only a combination of options shows.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: 2, message: message.into() }
    }

    /// A part of unconvoy is missing or does not work.
    pub fn installation(message: String) -> Self {
        Self { status: 125, message }
    }

    /// The program cannot be started: 127 if it does not exist, 126 if it cannot be executed.
    pub fn not_started(program: &std::ffi::OsStr, error: &std::io::Error) -> Self {
        let name = program.to_string_lossy();
        if error.kind() == std::io::ErrorKind::NotFound {
            let hint = match crate::executable::resolve(program) {
                // The file exists, so execve(2) did not find its interpreter.
                Some(path) => match crate::executable::interpreter(&path) {
                    Some(wanted) => messages::interpreter_not_installed(&name, &wanted),
                    None => messages::program_not_found(&name),
                },
                None if name.contains('/') => messages::program_not_found(&name),
                None => messages::program_not_in_path(&name),
            };
            return Self { status: 127, message: hint };
        }
        let is_directory = crate::executable::resolve(program).is_some_and(|path| path.is_dir());
        let message = match is_directory {
            true => messages::program_is_directory(name),
            false => messages::cannot_execute(name, error),
        };
        Self { status: 126, message }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
