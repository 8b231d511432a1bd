//! A program under test, after its end.

use std::process::ExitStatus;

use unconvoy_locks::catalogue::{Availability, availability};

/// A child that ended by itself.
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

    /// Standard error without what the library says there of a `lock` that this machine has not in full.
    pub fn own_stderr(&self, lock: &str) -> String {
        let Availability::Reduced(reason) = availability(lock) else { return self.stderr.clone() };
        let note = format!("unconvoy: {lock}: {reason}; running without");
        self.stderr.split_inclusive('\n').filter(|line| line.trim_end() != note).collect()
    }

    /// Fails the test unless the child exited with 0.
    #[track_caller]
    pub fn success(self, what: &str) -> Self {
        assert!(self.status.success(), "{what}: {}\n{}", self.status, self.both());
        self
    }

    pub fn both(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}", self.text(), self.stderr)
    }
}
