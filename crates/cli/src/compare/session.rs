//! Goes through a plan, round by round, and keeps every result on the way.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::Regex;
use unconvoy_bench::child::{self, Outcome, Output, Usage};
use unconvoy_bench::context;
use unconvoy_bench::interrupt::Interrupts;
use unconvoy_bench::progress::Progress;

use super::command::command;
use super::context::Context;
use super::extract;
use super::failure::Failure;
use super::plan::{Cell, Plan};
use super::record::{Metric, Record, Run, SCHEMA};
use super::summary;
use crate::cli::CompareArgs;
use crate::export::Destination;
use crate::refusal::Refusal;

/// How a comparison came to its end.
#[derive(Debug)]
pub enum Ending {
    /// Every run of the plan was measured.
    Complete,
    /// A run gave no result.
    Failed(Failure),
    /// This signal came.
    Interrupted(c_int),
}

impl Ending {
    /// The exit status that says so.
    pub fn status(&self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Failed(_) => 1,
            Self::Interrupted(signal) => 128 + *signal as u8,
        }
    }

    /// One line for the record of an incomplete comparison.
    fn reason(&self) -> Option<String> {
        match self {
            Self::Complete => None,
            Self::Failed(failure) => Some(failure.brief()),
            Self::Interrupted(signal) => Some(format!("signal {signal}")),
        }
    }
}

/// A comparison under way.
pub struct Session<'a> {
    args: &'a CompareArgs,
    plan: Plan,
    library: Option<PathBuf>,
    interrupts: &'a Interrupts,
    context: Context,
    metric: Metric,
    warnings: Vec<String>,
    runs: Vec<Run>,
}

/// What one run of a cell led to.
enum Step {
    Measured(Run),
    End(Ending),
}

impl<'a> Session<'a> {
    /// Looks at the machine; nothing runs yet.
    pub fn new(args: &'a CompareArgs, plan: Plan, library: Option<PathBuf>, interrupts: &'a Interrupts) -> Self {
        let context = Context::capture();
        let warnings = context.warning().into_iter().collect();
        Self { args, plan, library, interrupts, context, metric: metric(args), warnings, runs: Vec::new() }
    }

    /// Adds a warning to those of the record.
    pub fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Runs the plan; `json` is rewritten after each round.
    ///
    /// # Errors
    ///
    /// Only when the very first run cannot be started.
    pub fn run(&mut self, json: Option<&Path>) -> anyhow::Result<Ending> {
        let mut progress = Progress::new(self.plan.total(), self.args.quiet);
        if !self.args.quiet {
            progress.note(&format!("{} runs, seed {}", self.plan.total(), self.plan.seed));
        }
        let mut done = 0;
        for round in 0..self.plan.warmup + self.plan.runs {
            for cell in self.plan.order(round) {
                let which = self.which(cell, round);
                progress.begin(&which);
                let step = match self.step(cell, round, which) {
                    Ok(step) => step,
                    Err(refusal) if done == 0 => return Err(refusal.into()),
                    // It was there before: somebody rebuilds or removes it meanwhile.
                    Err(refusal) => Step::End(Ending::Failed(Failure::new(
                        self.which(cell, round),
                        refusal.message,
                        &Output::default(),
                    ))),
                };
                match step {
                    Step::Measured(run) if round >= self.plan.warmup => self.runs.push(run),
                    Step::Measured(_) => {}
                    Step::End(ending) => {
                        progress.finish();
                        return Ok(ending);
                    }
                }
                done += 1;
                progress.end();
            }
            progress.round(done);
            if let Some(path) = json {
                // The final write reports an error; a disk that is full now may not be so then.
                let _ = Destination::json(path).write(&self.record_so_far());
            }
        }
        progress.finish();
        Ok(Ending::Complete)
    }

    /// The record of what was measured.
    pub fn record(&self, ending: &Ending) -> Record {
        let summaries = summary::summarise(&self.plan, &self.runs, self.metric.lower_is_better);
        let mut warnings = self.warnings.clone();
        warnings.extend(summary::warnings(&self.plan, &summaries));
        Record {
            schema: SCHEMA,
            title: self.args.title.clone(),
            complete: matches!(ending, Ending::Complete),
            ended_by: ending.reason(),
            metric: self.metric.clone(),
            context: self.context.clone(),
            plan: self.plan.record(),
            warnings,
            conclusion: summary::conclude(&self.plan, &summaries),
            summary: summaries,
            runs: self.runs.clone(),
        }
    }

    fn record_so_far(&self) -> Record {
        let ended_by = Some("still running when this was written".to_string());
        Record { complete: false, ended_by, ..self.record(&Ending::Complete) }
    }

    /// `default, 8 threads, round 3`.
    fn which(&self, cell: Cell, round: u32) -> String {
        let cell = self.plan.describe(cell);
        match round.checked_sub(self.plan.warmup) {
            Some(round) => format!("{cell}, round {}", round + 1),
            None => format!("{cell}, warm-up round {}", round + 1),
        }
    }

    /// Runs one cell once.
    fn step(&self, cell: Cell, round: u32, which: String) -> Result<Step, Refusal> {
        if let Some(signal) = self.interrupts.take() {
            return Ok(Step::End(Ending::Interrupted(signal)));
        }
        let configuration = &self.plan.configurations[cell.configuration];
        let words = self.plan.command(cell);
        let command = command(&words, configuration, self.library.as_deref());
        let load_average_before = context::load_average();
        let (outcome, output) = child::measure(command, self.args.timeout, self.interrupts)
            .map_err(|error| Refusal::not_started(&words[0], &error))?;
        let fail = |why: String| Step::End(Ending::Failed(Failure::new(which, why, &output)));
        let usage = match outcome {
            Outcome::Interrupted(signal) => return Ok(Step::End(Ending::Interrupted(signal))),
            Outcome::TimedOut => {
                let limit = self.args.timeout.unwrap_or_default().as_secs_f64();
                return Ok(fail(format!("still running after --timeout {limit} s, so it was ended")));
            }
            Outcome::Ended(usage) if usage.status.success() => usage,
            Outcome::Ended(usage) => return Ok(fail(child::describe(usage.status))),
        };
        Ok(match self.values(&usage, &output) {
            Err(why) => fail(why),
            Ok(values) => Step::Measured(Run {
                configuration: configuration.name.clone(),
                threads: cell.threads,
                round: round.saturating_sub(self.plan.warmup) + 1,
                metric: values.metric,
                operations: values.operations,
                fairness: values.fairness,
                wall_s: usage.wall.as_secs_f64(),
                user_s: usage.user.as_secs_f64(),
                system_s: usage.system.as_secs_f64(),
                max_rss_kib: usage.max_rss_kib,
                voluntary_switches: usage.voluntary_switches,
                involuntary_switches: usage.involuntary_switches,
                exit_status: usage.status.code().unwrap_or_default(),
                load_average_before,
            }),
        })
    }

    /// What the program says of itself.
    fn values(&self, usage: &Usage, output: &Output) -> Result<Values, String> {
        let read = |option: &str, regex: &Option<Regex>| {
            let Some(regex) = regex else { return Ok(None) };
            extract::number(regex, output).map(Some).map_err(|why| format!("{option}: {why}"))
        };
        let operations = read("--ops", &self.args.ops)?;
        if let Some(count) = operations.filter(|count| *count <= 0.0) {
            return Err(format!("--ops: {count} operations, which is no count to divide by"));
        }
        let fairness = read("--fairness", &self.args.fairness)?;
        if let Some(index) = fairness.filter(|index| !(0.0..=1.0).contains(index)) {
            return Err(format!("--fairness: {index} is no fairness index, which is from 0 to 1"));
        }
        let metric = read("--metric", &self.args.metric)?;
        Ok(Values { metric: metric.unwrap_or(seconds(usage.wall)), operations, fairness })
    }
}

struct Values {
    metric: f64,
    operations: Option<f64>,
    fairness: Option<f64>,
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// What the options make of the metric.
fn metric(args: &CompareArgs) -> Metric {
    let Some(regex) = &args.metric else {
        return Metric { name: "wall time".to_string(), regex: None, lower_is_better: true };
    };
    let name = match (&args.metric_name, args.lower_is_better) {
        (Some(name), _) => name.clone(),
        (None, true) => "metric".to_string(),
        (None, false) => "throughput".to_string(),
    };
    Metric { name, regex: Some(regex.to_string()), lower_is_better: args.lower_is_better }
}
