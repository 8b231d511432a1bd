//! The measurement of a plan, round by round, with results saved after each round.

use std::collections::HashSet;
use std::ffi::c_int;
use std::time::Duration;

use unconvoy_measure::arguments::counted;
use unconvoy_measure::child::Output;
use unconvoy_measure::export::Destination;
use unconvoy_measure::rounds::{Order, Rounds, Step, Turn};
use unconvoy_measure::sequential::LOOKS;
use unconvoy_measure::transfer;

use super::context::Context;
use super::failure::Failure;
use super::plan::Plan;
use super::record::{Metric, Record, SCHEMA};
use super::run::Run;
use super::summary;
use super::trial::{End, Runner, Trial};
use crate::messages::compare as messages;
use crate::refusal::Refusal;

/// Fewest rounds after which an interval may end the measurement of a thread count.
pub const FEWEST_ROUNDS: usize = 8;

/// How a comparison ended.
#[derive(Debug)]
pub enum Ending {
    /// Every run of the plan was measured.
    Complete,
    /// A run failed.
    Failed(Failure),
    /// A signal arrived.
    Interrupted(c_int),
}

impl Ending {
    /// Returns the exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Failed(_) => 1,
            Self::Interrupted(signal) => 128 + *signal as u8,
        }
    }

    /// Returns why a comparison is incomplete, in one line.
    fn reason(&self) -> Option<String> {
        match self {
            Self::Complete => None,
            Self::Failed(failure) => Some(failure.brief()),
            Self::Interrupted(signal) => Some(format!("interrupted by signal {signal}")),
        }
    }
}

/// A running comparison.
pub struct Session<'a> {
    /// The runs.
    pub plan: Plan,
    /// Title of table and figure.
    pub title: Option<String>,
    pub metric: Metric,
    pub runner: Runner<'a>,
    /// Longest time for one run.
    pub timeout: Option<Duration>,
    /// File that is rewritten after each round.
    pub kept: Option<Destination<Record>>,
    /// The machine.
    pub context: Context,
    /// Warnings from before the first run.
    pub warnings: Vec<String>,
    /// Runs measured so far.
    pub runs: Vec<Run>,
}

/// Why a run gave no result.
enum Stop {
    /// The program could not be started.
    Refused(Refusal),
    /// The run failed, or a signal came.
    Ended(Ending),
}

impl Session<'_> {
    /// Measures the plan.
    ///
    /// # Errors
    ///
    /// The first run could not be started.
    pub fn run(&mut self, quiet: bool) -> anyhow::Result<Ending> {
        let Plan { warmup, runs, seed, .. } = self.plan;
        let cells = self.plan.cells().len();
        let mut steps =
            Rounds::new(cells, 0..warmup + runs, seed, Order::ByNumber, HashSet::new(), quiet);
        if !quiet {
            let most = if self.plan.precision.is_some() { "at most " } else { "" };
            let count = u64::from(warmup + runs) * cells as u64;
            steps.note(&format!("{most}{}, seed {seed}", counted(count, "run")));
        }
        let mut is_first = true;
        let mut precise = HashSet::new();
        while let Some(step) = steps.next() {
            let Step::Measure(turn) = step else {
                self.keep();
                precise = self.precise_counts();
                if precise.len() == self.plan.threads.len() {
                    break;
                }
                continue;
            };
            if precise.contains(&self.plan.cells()[turn.cell].threads) {
                continue;
            }
            steps.begin(&self.name(turn));
            match self.measure(turn) {
                Ok(run) if turn.round >= warmup => self.runs.push(run),
                Ok(_) => {}
                Err(Stop::Ended(ending)) => return Ok(ending),
                Err(Stop::Refused(refusal)) if is_first => return Err(refusal.into()),
                // The first run did start, so the program has been rebuilt or removed since.
                Err(Stop::Refused(refusal)) => {
                    return Ok(self.failed(turn, refusal.message, &Output::default()));
                }
            }
            is_first = false;
        }
        Ok(Ending::Complete)
    }

    /// The thread counts whose ratios need no further run. Decides this at few numbers of rounds:
    /// an interval that is looked at after every round ends the measurement when it happens to be
    /// narrow. With these looks it misses the true ratio in 4.7 to 6.5 % of the measurements
    /// (simulated: normal noise of 1.5 to 6 %, a precision of 1.5 %).
    fn precise_counts(&self) -> HashSet<Option<u32>> {
        let Some(precision) = self.plan.precision else { return HashSet::new() };
        let summaries = summary::summarise(&self.plan, &self.runs, self.metric.lower_is_better);
        let is_precise = |threads: &Option<u32>| {
            let first = summaries.iter().find(|summary| summary.threads == *threads);
            first.is_some_and(|first| {
                first.metric.count >= FEWEST_ROUNDS && LOOKS.contains(&first.metric.count)
            }) && summary::is_precise(&summaries, *threads, precision)
        };
        self.plan.threads.iter().copied().filter(is_precise).collect()
    }

    /// Rewrites the record with the runs so far. A record without runs replaces no earlier result.
    fn keep(&self) {
        if let Some(kept) = self.kept.as_ref().filter(|_| !self.runs.is_empty()) {
            let ended_by = Some("still running when this was written".to_string());
            kept.keep(&Record { complete: false, ended_by, ..self.record(&Ending::Complete) });
        }
    }

    /// Returns the record of the runs so far.
    pub fn record(&self, ending: &Ending) -> Record {
        let summaries = summary::summarise(&self.plan, &self.runs, self.metric.lower_is_better);
        let mut warnings = Vec::new();
        if !self.runs.is_empty() {
            warnings.clone_from(&self.warnings);
            warnings.extend(summary::warnings(&self.plan, &summaries));
            warnings.extend(transfer::remark(self.runs.iter().filter_map(|run| run.transfer_ns)));
        }
        Record {
            schema: SCHEMA,
            title: self.title.clone(),
            complete: matches!(ending, Ending::Complete),
            ended_by: ending.reason(),
            metric: self.metric.clone(),
            context: self.context.clone(),
            plan: self.plan.clone(),
            warnings,
            conclusion: summary::conclude(&self.plan, &summaries),
            summary: summaries,
            runs: self.runs.clone(),
        }
    }

    /// Returns a run's name for messages: `default, 8 threads, round 3`.
    fn name(&self, turn: Turn) -> String {
        let cell = self.plan.describe(self.plan.cells()[turn.cell]);
        match turn.round.checked_sub(self.plan.warmup) {
            Some(round) => format!("{cell}, round {}", round + 1),
            None => format!("{cell}, warm-up round {}", turn.round + 1),
        }
    }

    fn failed(&self, turn: Turn, why: String, output: &Output) -> Ending {
        Ending::Failed(Failure::new(self.name(turn), why, output))
    }

    fn measure(&self, turn: Turn) -> Result<Run, Stop> {
        let cell = self.plan.cells()[turn.cell];
        let configuration = &self.plan.configurations[cell.configuration];
        let words = self.plan.command(cell);
        let trial =
            self.runner.run(&words, configuration, self.timeout).map_err(|end| match end {
                End::Refused(refusal) => Stop::Refused(refusal),
                End::Interrupted(signal) => Stop::Ended(Ending::Interrupted(signal)),
                End::Failed(why, output) => Stop::Ended(self.failed(turn, why, &output)),
                End::TimedOut(limit, output) => {
                    let why = messages::killed_after_timeout(limit.as_secs_f64());
                    Stop::Ended(self.failed(turn, why, &output))
                }
            })?;
        let Trial { usage, metric, operations, fairness, .. } = trial;
        Ok(Run {
            configuration: configuration.name.clone(),
            threads: cell.threads,
            round: turn.round.saturating_sub(self.plan.warmup) + 1,
            metric,
            operations,
            fairness,
            wall_s: usage.wall.as_secs_f64(),
            user_s: usage.user.as_secs_f64(),
            system_s: usage.system.as_secs_f64(),
            max_rss_kib: usage.max_rss_kib,
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
            exit_status: usage.status.code().unwrap_or_default(),
            load_average_before: trial.load_average_before,
            transfer_ns: trial.transfer_ns,
        })
    }
}
