//! One run of a workload program, and the `name value` lines it prints.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use crate::programs::Programs;
use crate::setup::Setup;

/// Longer than this beyond its time, and the program hangs.
const GRACE: Duration = Duration::from_secs(60);
/// How often a program is asked whether it has ended, once its time is up.
const POLL: Duration = Duration::from_millis(5);

/// Set for no run but one that is meant to have them.
const VARIABLES: [&str; 10] = [
    "LD_PRELOAD",
    "UNCONVOY_LOCK",
    "UNCONVOY_LOAD",
    "UNCONVOY_INTERVAL_MS",
    "UNCONVOY_SLEEP_MS",
    "UNCONVOY_BACKOFF_MS",
    "UNCONVOY_POLICY",
    "UNCONVOY_NESTED",
    "UNCONVOY_STATS",
    "UNCONVOY_CHILDREN",
];

/// What a program printed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Values(BTreeMap<String, f64>);

impl Values {
    /// The number behind `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    #[cfg(test)]
    pub(crate) fn parse_for_tests(text: &str) -> Self {
        Self::parse(text)
    }

    /// The `name value` lines of `text`; other lines are passed over.
    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_string(), value.trim().parse().ok()?))
        };
        Self(text.lines().filter_map(line).collect())
    }
}

/// A program, its options and its locks.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name of the workload.
    pub program: &'static str,
    /// Its options; `--seconds` is added.
    pub options: Vec<String>,
    /// Its locks.
    pub setup: Setup,
    /// Length of its measured window, seconds.
    pub seconds: f64,
}

/// A program that runs.
pub struct Running {
    child: Child,
    name: String,
    started: Instant,
    expected: Duration,
}

impl Job {
    /// Runs the program to its end.
    ///
    /// # Errors
    ///
    /// It cannot be started, fails, hangs, or says anything on standard error: a loader that could not preload the interposer says so there and goes on
    /// without, which would measure libc under another name.
    pub fn run(&self, programs: &Programs) -> anyhow::Result<Values> {
        self.start(programs)?.finish()
    }

    /// Starts the program.
    pub fn start(&self, programs: &Programs) -> anyhow::Result<Running> {
        let path = programs.workload(self.program);
        let mut command = Command::new(&path);
        command.args(&self.options).arg("--seconds").arg(self.seconds.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in VARIABLES {
            command.env_remove(name);
        }
        if self.setup != Setup::Libc {
            command.env("LD_PRELOAD", programs.library());
        }
        if let Setup::Named(pair) = self.setup {
            command.env("UNCONVOY_LOCK", pair.lock).env("UNCONVOY_LOAD", pair.load);
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", path.display()))?;
        let name = format!("{} {} under {:?}", self.program, self.options.join(" "), self.setup);
        Ok(Running { child, name, started: Instant::now(), expected: Duration::from_secs_f64(self.seconds) })
    }
}

impl Running {
    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end.
    ///
    /// # Errors
    ///
    /// As [`Job::run`].
    pub fn finish(mut self) -> anyhow::Result<Values> {
        // Asleep for as long as it measures: whoever polls takes time from it.
        std::thread::sleep(self.expected.saturating_sub(self.started.elapsed()));
        while self.child.try_wait()?.is_none() {
            if self.started.elapsed() > self.expected + GRACE {
                self.child.kill()?;
                self.child.wait()?;
                bail!("{} did not end within {} s of its time, and was killed", self.name, GRACE.as_secs());
            }
            std::thread::sleep(POLL);
        }
        let Self { child, name, .. } = self;
        // The output is some hundred bytes, so a pipe holds it and nobody had to read meanwhile.
        let output = child.wait_with_output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{name} failed with {}: {}", output.status, complaint.trim());
        ensure!(complaint.trim().is_empty(), "{name} complained: {}", complaint.trim());
        Ok(Values::parse(&String::from_utf8_lossy(&output.stdout)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        let values = Values::parse("threads 4\nops_per_sec 12.5\nsome words here\n\n");
        assert_eq!(
            (values.get("threads"), values.get("ops_per_sec"), values.get("some")),
            (Some(4.0), Some(12.5), None)
        );
    }
}
