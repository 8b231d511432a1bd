//! What the search needs before its trials: a first run, and a profile.

use std::path::Path;
use std::time::Duration;

use unconvoy_measure::child::Outcome;

use super::budget;
use super::candidates::{LIBC, Stage};
use super::costs::Costs;
use super::session::{Session, Stop};
use crate::compare::configuration::Configuration;
use crate::compare::plan::words;
use crate::compare::trial::End;
use crate::messages::search as messages;
use crate::profile;

impl Session<'_> {
    /// Runs the program under libc once per thread count.
    pub(super) fn first(&mut self) -> Result<(), Stop> {
        if self.record.rounds(Stage::First) > 0 {
            return Ok(());
        }
        let libc = Configuration::parse("libc").expect("a known configuration");
        self.configurations.insert(LIBC, libc);
        let begin_s = self.elapsed();
        let mut runs = Vec::new();
        for threads in self.record.plan.threads.clone() {
            let left = (self.record.plan.budget_s - self.elapsed()).max(1.0);
            let left = Duration::from_secs_f64(left);
            let limit = self.timeout.map_or(left, |timeout| timeout.min(left));
            let run = self.measure(Stage::First, 1, LIBC, threads, Some(limit));
            runs.push(run.map_err(|end| match end {
                End::TimedOut(..) if self.timeout != Some(limit) => {
                    Stop::Undecided(messages::first_run_too_long(left.as_secs_f64()))
                }
                end => self.failed("the first run", LIBC, threads, end),
            })?);
        }
        self.overhead.add(self.elapsed() - begin_s, &runs);
        self.record.runs = runs;
        Ok(())
    }

    /// Profiles the program at the greatest thread count.
    pub(super) fn profile(&mut self) -> Result<(), Stop> {
        if self.record.costs.is_some() {
            return Ok(());
        }
        self.show("profile");
        let threads = self.record.plan.threads.iter().copied().max().flatten();
        let program = words(&self.program, threads);
        let limit = budget::profile(&self.record, self.elapsed());
        let library = self.runner.library.as_deref().unwrap_or(Path::new(""));
        let interrupts = self.runner.interrupts;
        let report = match profile::profiled(&program, library, limit, interrupts) {
            Ok((Outcome::Interrupted(signal), _)) => return Err(Stop::Interrupted(signal)),
            Ok((_, report)) => report,
            Err(error) => {
                self.record.remark(format!("{error:#}"));
                None
            }
        };
        let given = threads.unwrap_or(self.record.context.machine.processors);
        let costs = report.map(|(report, seen)| match seen {
            0 => Costs::of(&report, u64::from(given)),
            _ => Costs::of(&report, seen),
        });
        if costs.is_none() {
            self.record.remark(messages::no_profile().to_string());
        }
        self.record.costs = Some(costs.unwrap_or_default());
        Ok(())
    }
}
