//! One run of a workload program, and the `name value` lines it prints.

use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::child::{self, Outcome, Output};
use crate::energy::{self, Meter};
use crate::interrupt::{Interrupted, Interrupts};
use crate::library::variable;
use crate::programs::Programs;
use crate::setup::Setup;

/// Longer than this beyond its time, and the program hangs.
const GRACE: Duration = Duration::from_secs(60);

/// Status with which a workload program ends that finds its data inconsistent; `EXIT_INCONSISTENT` of workloads/measure.h.
pub const EXIT_INCONSISTENT: i32 = 3;

/// Set for no run but one that is meant to have them.
const VARIABLES: [&str; 13] = [
    variable::PRELOAD,
    variable::LOCK,
    variable::LOAD,
    variable::POLICY,
    variable::SENSOR,
    variable::BPF,
    variable::INTERVAL,
    variable::SLEEP,
    variable::BACKOFF,
    variable::NESTED,
    variable::STATS,
    variable::SSC,
    variable::CHILDREN,
];

/// What a program printed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Values(BTreeMap<String, f64>);

impl Values {
    /// The number behind `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Adds a number that the program did not print itself.
    pub fn supply(&mut self, name: &str, value: f64) {
        self.0.entry(name.to_string()).or_insert(value);
    }

    /// Names and numbers, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, &value)| (name.as_str(), value))
    }

    #[cfg(test)]
    pub(crate) fn parse_for_tests(text: &str) -> Self {
        Self::parse(text)
    }

    /// The `name value` lines of `text`; other lines are passed over, and so are values that are no finite number.
    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_string(), value.trim().parse().ok().filter(|value: &f64| value.is_finite())?))
        };
        Self(text.lines().filter_map(line).collect())
    }
}

/// A run that gave no result.
#[derive(Debug)]
pub struct Failed {
    /// Which, why, and the last of what it printed.
    pub why: String,
    /// Its exit status, unless a signal or the time-out ended it.
    pub status: Option<i32>,
}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.why)
    }
}

impl std::error::Error for Failed {}

/// Whether a run failed because its program found its data inconsistent, and not because the machine, an engine or the user was at fault.
pub fn is_violation(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failed>().is_some_and(|failed| failed.status == Some(EXIT_INCONSISTENT))
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

/// A program that runs. Dropped before its end, it is killed.
pub struct Running {
    child: child::Running,
    name: String,
    /// See [`Setup::notice`].
    notice: Option<String>,
    timeout: Duration,
    meter: Meter,
}

impl Job {
    /// Runs the program to its end.
    ///
    /// # Errors
    ///
    /// [`Failed`]: it cannot be started, fails, prints anything on standard error (a loader that could not preload goes on without), or does not end.
    /// [`Interrupted`]: a signal came.
    pub fn run(&self, programs: &Programs) -> anyhow::Result<Values> {
        self.start(programs)?.finish()
    }

    /// Starts the program.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(&self, programs: &Programs) -> anyhow::Result<Running> {
        let mut options = self.options.clone();
        options.extend(["--seconds".to_string(), self.seconds.to_string()]);
        let name = format!("{} {} under {}", self.program, options.join(" "), self.setup.name());
        let allowance = Duration::from_secs_f64(self.seconds) + GRACE;
        start(programs, self.program, &options, self.setup, &[], name, allowance)
    }
}

/// Starts a workload program with exactly these options and, beyond what its locks need, exactly these variables.
///
/// # Errors
///
/// It cannot be started.
pub fn start(
    programs: &Programs,
    program: &str,
    options: &[String],
    setup: Setup,
    environment: &[(&str, String)],
    name: String,
    timeout: Duration,
) -> anyhow::Result<Running> {
    let path = programs.workload(program);
    let mut command = Command::new(&path);
    command.args(options);
    for name in VARIABLES {
        command.env_remove(name);
    }
    if setup != Setup::Libc {
        command.env(variable::PRELOAD, programs.library());
    }
    command.envs(match setup {
        Setup::Named(pair) => vec![(variable::LOCK, pair.lock), (variable::LOAD, pair.load)],
        Setup::Tuned(tuning) => vec![(tuning.variable, tuning.value)],
        Setup::Libc | Setup::Default => Vec::new(),
    });
    if energy::counters().is_ok() {
        command.env(energy::WINDOW, "1");
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let meter = Meter::begin();
    let child = child::Running::start(command).with_context(|| format!("cannot start {}", path.display()))?;
    Ok(Running { child, name, notice: setup.notice(), timeout, meter })
}

impl Running {
    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end. Asleep meanwhile: whoever polls takes time from what is measured.
    ///
    /// # Errors
    ///
    /// As [`Job::run`].
    pub fn finish(self) -> anyhow::Result<Values> {
        let Self { child, name, notice, timeout, mut meter } = self;
        let (outcome, output) =
            child.finish_watched(Some(timeout), Interrupts::of_process()?, |printed| meter.see(printed))?;
        let joules = meter.end();
        let failed = |why: String, status: Option<ExitStatus>| Failed {
            why: format!("{name} {why}"),
            status: status.and_then(|status| status.code()),
        };
        let usage = match outcome {
            Outcome::Interrupted(_) => return Err(Interrupted.into()),
            Outcome::TimedOut => {
                let why = format!("had not ended {:.0} s after its start, and was killed", timeout.as_secs_f64());
                return Err(failed(why, None).into());
            }
            Outcome::Ended(usage) => usage,
        };
        let complaint = String::from_utf8_lossy(&output.stderr);
        let is_complaint = |line: &&str| !notice.as_ref().is_some_and(|notice| line.starts_with(notice));
        let complaint = complaint.lines().filter(is_complaint).collect::<Vec<_>>().join("\n");
        let complaint = complaint.trim();
        if !usage.status.success() {
            let why = format!("failed with {}: {}", child::describe(usage.status), last_words(complaint, &output));
            return Err(failed(why, Some(usage.status)).into());
        }
        if !complaint.is_empty() {
            return Err(failed(format!("complained: {complaint}"), None).into());
        }
        let mut values = Values::parse(&String::from_utf8_lossy(&output.stdout));
        for (name, value) in meter.values(values.get("ops")) {
            values.supply(name, value);
        }
        if let Some(joules) = joules {
            values.supply(energy::IN_RUN, joules);
        }
        // For programs that do not say themselves, wrapped ones above all: over the whole run, its preparations included.
        values.supply("process_cpu_seconds", (usage.user + usage.system).as_secs_f64());
        values.supply("process_wall_seconds", usage.wall.as_secs_f64());
        values.supply("process_voluntary_csw", usage.voluntary_switches as f64);
        values.supply("process_involuntary_csw", usage.involuntary_switches as f64);
        values.supply("process_max_rss_kib", usage.max_rss_kib as f64);
        Ok(values)
    }
}

/// What it said on standard error, else the last line that it printed at all.
fn last_words(complaint: &str, output: &Output) -> String {
    if !complaint.is_empty() {
        return complaint.to_string();
    }
    let printed = String::from_utf8_lossy(&output.tail);
    printed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        let values = Values::parse("threads 4\nops_per_sec 12.5\nsome words here\nnone nan\n\n");
        assert_eq!(
            (values.get("threads"), values.get("ops_per_sec"), values.get("some"), values.get("none")),
            (Some(4.0), Some(12.5), None, None)
        );
    }

    #[test]
    fn violations_are_told_from_other_failures() {
        let failed = |status| anyhow::Error::from(Failed { why: "tpcc: a reason".to_string(), status }).context("cell");
        assert!(is_violation(&failed(Some(EXIT_INCONSISTENT))));
        // The machine's fault, a usage error, a signal or a time-out.
        assert!([Some(1), Some(2), None].into_iter().all(|status| !is_violation(&failed(status))));
        assert!(!is_violation(&anyhow::anyhow!("something else")));
    }

    #[test]
    fn what_the_program_says_itself_counts() {
        let mut values = Values::parse("cpu 1\n");
        values.supply("cpu", 2.0);
        values.supply("wall", 3.0);
        assert_eq!((values.get("cpu"), values.get("wall")), (Some(1.0), Some(3.0)));
    }
}
