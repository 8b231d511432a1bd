//! The result of a program under test.

use std::process::ExitStatus;

use unconvoy_locks::catalogue::{Availability, availability};

/// A child that has ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Finished {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error without the library's warning about a `lock` that this machine supports only
    /// in part.
    pub fn own_stderr(&self, lock: &str) -> String {
        let Availability::Reduced(reason) = availability(lock) else { return self.stderr.clone() };
        let warning = format!("unconvoy: {lock}: {reason}; running without it");
        self.stderr.split_inclusive('\n').filter(|line| line.trim_end() != warning).collect()
    }

    /// Fails the test unless the child exited with status 0.
    #[track_caller]
    pub fn success(self, what: &str) -> Self {
        assert!(self.status.success(), "{what}: {}\n{}", self.status, self.both());
        self
    }

    pub fn both(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}", self.text(), self.stderr)
    }
}
