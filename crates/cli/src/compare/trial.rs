//! One run of the program under a configuration.

use std::ffi::{OsString, c_int};
use std::path::PathBuf;
use std::time::Duration;

use unconvoy_measure::child::{self, Outcome, Output, Usage};
use unconvoy_measure::context;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::transfer::line_transfer_ns;

use super::command::command;
use super::configuration::Configuration;
use super::extract::Printed;
use crate::refusal::Refusal;

/// What all runs have in common.
pub struct Runner<'a> {
    pub printed: Printed,
    /// The interposer, unless all configurations are libc's.
    pub library: Option<PathBuf>,
    pub interrupts: &'a Interrupts,
}

/// A successful run.
pub struct Trial {
    pub usage: Usage,
    /// The metric; the wall time in seconds if no expression extracts another.
    pub metric: f64,
    pub operations: Option<f64>,
    pub fairness: Option<f64>,
    pub load_average_before: Option<f64>,
    pub transfer_ns: Option<u32>,
    pub output: Output,
}

/// Why a run has no result.
pub enum End {
    /// The program could not be started.
    Refused(Refusal),
    Interrupted(c_int),
    /// The time limit passed.
    TimedOut(Duration, Output),
    /// The program failed, or did not print what it should.
    Failed(String, Output),
}

impl Runner<'_> {
    /// Runs the program once, and again after a run whose time is unknown.
    ///
    /// # Errors
    ///
    /// See [`End`].
    pub fn run(
        &self,
        words: &[OsString],
        configuration: &Configuration,
        timeout: Option<Duration>,
    ) -> Result<Trial, End> {
        loop {
            let trial = self.run_once(words, configuration, timeout)?;
            if !trial.usage.is_overslept {
                return Ok(trial);
            }
        }
    }

    fn run_once(
        &self,
        words: &[OsString],
        configuration: &Configuration,
        timeout: Option<Duration>,
    ) -> Result<Trial, End> {
        if let Some(signal) = self.interrupts.take() {
            return Err(End::Interrupted(signal));
        }
        let command = command(words, configuration, self.library.as_deref());
        let load_average_before = context::load_average();
        let transfer_ns = line_transfer_ns();
        let (outcome, output) = child::measure(command, timeout, self.interrupts)
            .map_err(|error| End::Refused(Refusal::not_started(&words[0], &error)))?;
        let usage = match outcome {
            Outcome::Interrupted(signal) => return Err(End::Interrupted(signal)),
            Outcome::TimedOut => return Err(End::TimedOut(timeout.unwrap_or_default(), output)),
            Outcome::NeedsTerminal => {
                return Err(End::Failed(child::needs_terminal().to_string(), output));
            }
            Outcome::Ended(usage) if usage.status.success() => usage,
            Outcome::Ended(usage) => {
                return Err(End::Failed(child::describe(usage.status), output));
            }
        };
        match self.printed.values(&output) {
            Ok([metric, operations, fairness]) => Ok(Trial {
                metric: metric.unwrap_or(usage.wall.as_secs_f64()),
                usage,
                operations,
                fairness,
                load_average_before,
                transfer_ns,
                output,
            }),
            Err(why) => Err(End::Failed(why, output)),
        }
    }
}
