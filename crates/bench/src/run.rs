//! One run of a workload program, and the `name value` lines that it prints.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use unconvoy_measure::child::{self, Outcome, Output};
use unconvoy_measure::failure::Failed;
use unconvoy_measure::interrupt::{Interrupted, Interrupts};

use crate::energy::{self, Meter};
use crate::messages;
use crate::programs::Programs;
use crate::setup::Setup;
use unconvoy::catalogue::environment;

/// Time beyond the window after which a program is considered hung.
pub const GRACE: Duration = Duration::from_secs(60);

/// Values that a program printed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Values(BTreeMap<String, f64>);

impl Values {
    /// Returns the value of `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Returns Jain's index of the window's operations: 0, less than any, if there were none.
    pub fn jain(&self) -> Option<f64> {
        self.of_operations("jain", 0.0)
    }

    /// Returns nanoseconds of processor time per operation: infinite if there were no operations.
    pub fn cpu_ns_per_op(&self) -> Option<f64> {
        self.of_operations("cpu_ns_per_op", f64::INFINITY)
    }

    /// Returns the value of `name`, or `worst` for a window without operations, which has no such
    /// value.
    fn of_operations(&self, name: &str, worst: f64) -> Option<f64> {
        if self.get("ops") == Some(0.0) { Some(worst) } else { self.get(name) }
    }

    /// Adds a value that the program did not print.
    pub fn supply(&mut self, name: &str, value: f64) {
        self.0.entry(name.to_string()).or_insert(value);
    }

    /// Returns names and values, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, &value)| (name.as_str(), value))
    }

    /// Parses the `name value` lines of `text`. Other lines and values that are not finite numbers
    /// are ignored.
    pub fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((
                name.to_string(),
                value.trim().parse().ok().filter(|value: &f64| value.is_finite())?,
            ))
        };
        Self(text.lines().filter_map(line).collect())
    }
}

/// Formats options as command-line arguments.
pub fn options<const N: usize>(pairs: [(&str, String); N]) -> Vec<String> {
    pairs.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
}

/// A program with its options and its locks.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// Name of the workload program.
    pub program: &'a str,
    /// All options.
    pub words: Vec<String>,
    /// Source of the locks.
    pub setup: Setup,
    /// Variables besides those for the locks.
    pub environment: Vec<(&'a str, String)>,
    /// Time limit.
    pub time_limit: Duration,
    /// Name for messages.
    pub name: String,
}

/// A running program, killed when dropped.
pub struct Running {
    child: child::Running,
    name: String,
    /// See [`Setup::notice`].
    notice: Option<String>,
    time_limit: Duration,
    meter: Meter,
}

impl<'a> Job<'a> {
    /// Creates a job named after program and options.
    pub fn new(program: &'a str, words: Vec<String>, setup: Setup, time_limit: Duration) -> Self {
        let name = format!("{program} {}", words.join(" "));
        Self { program, words, setup, environment: Vec::new(), time_limit, name }
    }

    /// Creates a job of one window of `seconds`, named after its locks too.
    pub fn window(program: &'a str, mut words: Vec<String>, setup: Setup, seconds: f64) -> Self {
        words.extend(options([("seconds", seconds.to_string())]));
        let mut job = Self::new(program, words, setup, Duration::from_secs_f64(seconds) + GRACE);
        job.name.push_str(&format!(" under {}", setup.name()));
        job
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    ///
    /// [`Failed`]: the program cannot be started, fails, exceeds its time limit, or prints on
    /// standard error. The last covers a loader that could not preload the library and continued.
    ///
    /// [`Interrupted`]: a signal arrived.
    pub fn run(self, programs: &Programs) -> anyhow::Result<Values> {
        self.start(programs)?.finish()
    }

    /// Starts the program with exactly these options and with no unconvoy variables but its own.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start(self, programs: &Programs) -> anyhow::Result<Running> {
        let path = programs.workload(self.program);
        let command = self.command(&path, programs.library());
        let Self { setup, time_limit, name, .. } = self;
        let meter = Meter::begin();
        let child =
            child::Running::start(command).with_context(|| messages::cannot_start(&path))?;
        Ok(Running { child, name, notice: setup.notice(), time_limit, meter })
    }

    /// Returns the command that starts the program in `path` with this `library`.
    fn command(&self, path: &Path, library: &Path) -> Command {
        let mut command = Command::new(path);
        command.args(&self.words);
        for variable in environment::of_library() {
            command.env_remove(variable.name);
        }
        if self.setup != Setup::Libc {
            command.env(environment::PRELOAD.name, library);
        }
        command.envs(match self.setup {
            Setup::Named(pair) => {
                vec![
                    (environment::LOCK.name, pair.lock),
                    (environment::LOAD_MANAGER.name, pair.load),
                ]
            }
            Setup::Tuned(tuning) => vec![(tuning.variable, tuning.value)],
            Setup::Libc | Setup::Default => Vec::new(),
        });
        if energy::counters().is_ok() {
            command.env(energy::WINDOW, "1");
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Running {
    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program. This process sleeps meanwhile, because polling would disturb the
    /// measurement.
    ///
    /// # Errors
    ///
    /// As [`Job::run`].
    pub fn finish(self) -> anyhow::Result<Values> {
        let Self { child, name, notice, time_limit, mut meter } = self;
        let (outcome, output) =
            child.finish_watched(Some(time_limit), Interrupts::of_process()?, |printed| {
                meter.see(printed)
            })?;
        let joules = meter.end();
        let failed = |why: String, status: Option<ExitStatus>| Failed {
            why: format!("{name} {why}"),
            status: status.and_then(|status| status.code()),
        };
        let usage = match outcome {
            Outcome::Interrupted(_) => return Err(Interrupted.into()),
            Outcome::TimedOut => {
                let why = messages::killed_after(time_limit.as_secs_f64());
                return Err(failed(why, None).into());
            }
            Outcome::NeedsTerminal => {
                return Err(failed(child::needs_terminal().to_string(), None).into());
            }
            Outcome::Ended(usage) => usage,
        };
        let complaint = String::from_utf8_lossy(&output.stderr);
        let is_complaint =
            |line: &&str| !notice.as_ref().is_some_and(|notice| line.starts_with(notice));
        let complaint = complaint.lines().filter(is_complaint).collect::<Vec<_>>().join("\n");
        let complaint = complaint.trim();
        if !usage.status.success() {
            let why = messages::failed_with(
                child::describe(usage.status),
                &last_line(complaint, &output),
            );
            return Err(failed(why, Some(usage.status)).into());
        }
        if !complaint.is_empty() {
            return Err(failed(messages::printed_on_stderr(complaint), None).into());
        }
        let mut values = Values::parse(&String::from_utf8_lossy(&output.stdout));
        // The program runs on while this process is stopped, and cannot read its counters.
        if !usage.is_overslept {
            for (name, value) in meter.values(values.get("ops")) {
                values.supply(name, value);
            }
            if let Some(joules) = joules {
                values.supply(energy::IN_RUN, joules);
            }
        }
        // These values are for programs that do not report their own, above all those started by a
        // wrapper. They cover the whole run with its preparation.
        values.supply("process_cpu_seconds", (usage.user + usage.system).as_secs_f64());
        if !usage.is_overslept {
            values.supply("process_wall_seconds", usage.wall.as_secs_f64());
        }
        values.supply("process_voluntary_csw", usage.voluntary_switches as f64);
        values.supply("process_involuntary_csw", usage.involuntary_switches as f64);
        values.supply("process_max_rss_kib", usage.max_rss_kib as f64);
        Ok(values)
    }
}

/// Returns the program's standard error, or else the last line that it printed.
fn last_line(complaint: &str, output: &Output) -> String {
    if !complaint.is_empty() {
        return complaint.to_string();
    }
    let printed = String::from_utf8_lossy(&output.tail);
    printed
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or(messages::printed_nothing())
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_names_and_finite_values() {
        let values = Values::parse("threads 4\nops_per_sec 12.5\nsome words here\nnone nan\n\n");
        assert_eq!(
            (
                values.get("threads"),
                values.get("ops_per_sec"),
                values.get("some"),
                values.get("none")
            ),
            (Some(4.0), Some(12.5), None, None)
        );
    }

    #[test]
    fn command_has_no_setting_of_the_user() {
        let job = Job::new("counter", Vec::new(), Setup::Default, GRACE);
        let command = job.command(Path::new("counter"), Path::new("/x/libunconvoy.so"));
        let variables: Vec<_> = command.get_envs().collect();
        for variable in environment::of_library() {
            let value = (variable.name == "LD_PRELOAD").then(|| "/x/libunconvoy.so".as_ref());
            assert!(variables.contains(&(variable.name.as_ref(), value)), "{}", variable.name);
        }
        let is_removed = |name: &str| variables.contains(&(name.as_ref(), None));
        assert!(is_removed("UNCONVOY_REPLACE") && is_removed("UNCONVOY_STRATEGY"));
    }

    #[test]
    fn window_without_operations_has_the_worst_values() {
        let values = |text| Values::parse(text);
        let some = values("ops 5\njain 0.5\ncpu_ns_per_op 7\n");
        assert_eq!((some.jain(), some.cpu_ns_per_op()), (Some(0.5), Some(7.0)));
        for none in ["ops 0\n", "ops 0\njain 1\ncpu_ns_per_op 0\n"] {
            let none = values(none);
            assert_eq!((none.jain(), none.cpu_ns_per_op()), (Some(0.0), Some(f64::INFINITY)));
        }
        assert_eq!(values("seconds 1\n").jain(), None);
    }

    #[test]
    fn supply_keeps_values_of_the_program() {
        let mut values = Values::parse("cpu 1\n");
        values.supply("cpu", 2.0);
        values.supply("wall", 3.0);
        assert_eq!((values.get("cpu"), values.get("wall")), (Some(1.0), Some(3.0)));
    }
}
