//! `unconvoy run`: becomes the program, with the interposer preloaded.
//!
//! The command replaces itself (`execvp`), so the program keeps the process id, exit status,
//! signals, terminal and open files. Nothing of unconvoy remains but the library in the program.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueHint};
use nix::errno::Errno;
use unconvoy::catalogue::environment;
use unconvoy::catalogue::{CONTENTION, Entry, LOAD, POLICY, SENSOR};
use unconvoy::load::settings::INTERVAL_MS;
use unconvoy::runtime::sensor::choice::Choice;
use unconvoy_measure::output::complain;
use unconvoy_measure::parts;

use crate::inspect::watch;
use crate::messages::inspect as inspection;
use crate::messages::{causes, command as messages};
use crate::output_file::{distinct, replaceable_by_library, writable, writable_by_library};
use crate::refusal::Refusal;
use crate::strategy::Strategy;
use crate::top::filter;
use crate::{bpf, executable};

/// `unconvoy run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Set the contention manager, the order in which waiters get the lock; or keep libc's locks.
    #[arg(long, value_name = "LOCK", value_parser = locks())]
    pub lock: Option<String>,
    /// Set the load manager: which waiters leave the processor, and when.
    #[arg(long, value_name = "LOAD", value_parser = names(LOAD))]
    pub load: Option<String>,
    /// Write per-lock statistics to FILE as JSON when the program ends.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stats: Option<PathBuf>,
    /// Write waits and load to FILE (*.prom) in Prometheus's text format while the program runs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub metrics: Option<PathBuf>,
    /// Set the load sensor: schedstat, loadavg, psi, bpf (privileged) or fixed:N (N processors)
    /// [default: schedstat].
    #[arg(long, value_name = "SENSOR", value_parser = sensor)]
    pub sensor: Option<String>,
    /// Set the load controller's interval, 0.5 to 1000 milliseconds [default: 7, 10 with
    /// `--load backoff`].
    #[arg(long, value_name = "MS", value_parser = interval)]
    pub interval: Option<f64>,
    /// Limit a waiter's sleep under load control, 1 to 10000 milliseconds [default: 100].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub sleep_timeout: Option<u32>,
    /// Set the policy that turns the load into a number of sleeping waiters.
    #[arg(long, value_name = "NAME", value_parser = names(POLICY))]
    pub policy: Option<String>,
    /// Set a waiter's mean sleep under `--load backoff`, 1 to 10000 milliseconds [default: 100].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub backoff: Option<u32>,
    /// Keep threads that wait too much for locks on a set of cores (Cui et al., ACM TACO 9(4),
    /// 2013), sized by a refined or the published search.
    #[arg(long, alias = "ssc", value_name = "SEARCH", num_args = 0..=1, require_equals = true,
          default_missing_value = "refined", value_parser = ["refined", "published"])]
    pub confine: Option<String>,
    /// Choose an algorithm for each lock by a strategy file (TOML); other options override its
    /// settings of the process.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub strategy: Option<PathBuf>,
    /// Report once, on standard error, when a thread has waited for a lock for TIME, such as 10s:
    /// the waits with their stacks, and deadlocks. The program goes on. Programs that PROGRAM
    /// starts are not watched.
    #[arg(long, value_name = "TIME", value_parser = watch::limit)]
    pub watchdog: Option<Duration>,
    /// Write the watchdog's report to FILE instead.
    #[arg(long, value_name = "FILE", requires = "watchdog", value_hint = ValueHint::FilePath)]
    pub watchdog_report: Option<PathBuf>,
    /// Exclude the programs that PROGRAM starts.
    #[arg(long)]
    pub no_children: bool,
    /// Program and arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM",
          value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// The name of libc's own locks.
const LIBC: &str = "libc";

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
Exit status: the program's own, signals included. 127: program not found. 126: cannot execute \
it. 125: libunconvoy.so missing. 2: wrong options.

A program whose locks cannot be replaced (static, set-user-ID, Go) runs unchanged, with a \
warning on standard error.

Examples:
  unconvoy run -- ./server --threads 64
  unconvoy run --lock tpmcs --load control -- ./server
  unconvoy run --strategy server.toml -- ./server
  unconvoy run --stats locks.json -- ./server && unconvoy stats locks.json
  unconvoy run --metrics /var/lib/node-exporter/server.prom -- ./server
  sudo unconvoy run --sensor bpf -- ./server
  unconvoy run --watchdog 10s -- ./server
  UNCONVOY_LIBRARY=./libunconvoy.so unconvoy run -- ./server";

/// Accepts the contention managers' names and libc.
fn locks() -> PossibleValuesParser {
    let libc = PossibleValue::new(LIBC).help("the locks that the program has without unconvoy");
    let others = CONTENTION.iter().map(|entry| PossibleValue::new(entry.name).help(entry.summary));
    others.chain(std::iter::once(libc)).collect::<Vec<_>>().into()
}

/// Accepts the names of one part of the catalogue. An error lists them all.
fn names(entries: &'static [Entry]) -> PossibleValuesParser {
    entries.iter().map(|entry| PossibleValue::new(entry.name).help(entry.summary)).into()
}

/// Largest N of the sensor `fixed:N`.
const MOST_PROCESSORS: u32 = 65_536;

/// Parses a sensor's name. An error lists them all.
fn sensor(text: &str) -> Result<String, String> {
    let names = || SENSOR.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
    Choice::parse(text)
        .map(|_| text.to_string())
        .ok_or_else(|| messages::unknown_sensor(&names(), MOST_PROCESSORS))
}

/// Parses the controller's interval, in milliseconds.
fn interval(text: &str) -> Result<f64, String> {
    let (least, most) = INTERVAL_MS.into_inner();
    let ms = text.parse().ok().filter(|ms| INTERVAL_MS.contains(ms));
    ms.ok_or_else(|| messages::interval_out_of_range(least, most))
}

/// Replaces this process by the program; returns only on failure.
///
/// # Errors
///
/// Status 125 if the interposer is missing, 127 if the program is, 126 if it cannot be executed.
pub fn run(args: &RunArgs) -> anyhow::Result<Infallible> {
    let program = &args.program[0];
    let mut environment = Environment::inherited();
    environment.forget_outer_run(args);
    if let Some(file) = &args.strategy {
        apply(file, program, args.lock.is_some(), &mut environment)?;
    }
    match args.lock.as_deref() {
        Some(LIBC) => {
            let given = [
                ("--load", args.load.is_some()),
                ("--confine", args.confine.is_some()),
                ("--strategy", args.strategy.is_some()),
                ("--stats", args.stats.is_some()),
                ("--metrics", args.metrics.is_some()),
                ("--sensor", args.sensor.is_some()),
                ("--interval", args.interval.is_some()),
                ("--sleep-timeout", args.sleep_timeout.is_some()),
                ("--policy", args.policy.is_some()),
                ("--backoff", args.backoff.is_some()),
            ];
            reject_options_of_own_locks(&given)?;
            environment.set(environment::REPLACE.name, "0");
        }
        Some(lock) => environment.set(environment::LOCK.name, lock),
        None => {}
    }
    if let Some(load) = &args.load {
        environment.set(environment::LOAD_MANAGER.name, load);
    }
    reject_options_of_other_load_managers(args, &environment)?;
    if let Some(sensor) = &args.sensor {
        environment.set(environment::LOAD_SENSOR.name, sensor);
    }
    if let Some(ms) = args.interval {
        environment.set(environment::INTERVAL.name, ms.to_string());
    }
    if let Some(ms) = args.sleep_timeout {
        environment.set(environment::SLEEP.name, ms.to_string());
    }
    if let Some(policy) = &args.policy {
        environment.set(environment::CONTROL_POLICY.name, policy);
    }
    if let Some(ms) = args.backoff {
        environment.set(environment::BACKOFF.name, ms.to_string());
    }
    if let Some(search) = &args.confine {
        environment.set(environment::SPECIAL_SET.name, search);
    }
    if args.no_children {
        environment.set(environment::CHILDREN.name, "0");
    }
    distinct(&[
        ("--stats", args.stats.as_deref()),
        ("--metrics", args.metrics.as_deref()),
        ("--watchdog-report", args.watchdog_report.as_deref()),
    ])?;
    if let Some(file) = &args.stats {
        match writable_by_library(file) {
            Ok(path) => environment.set(environment::STATS.name, path),
            // Leave the variable unset, or the interposer would report the same failure.
            Err(why) => complain(&messages::no_statistics(file, &why)),
        }
    }
    if let Some(file) = &args.metrics {
        match replaceable_by_library(file) {
            Ok(path) => environment.set(environment::METRICS.name, path),
            Err(why) => complain(&messages::no_metrics(file, &why)),
        }
    }
    // Under a filter, the interposer does not try these calls.
    if environment.get(environment::TOP.name).is_none() && filter::allows_shared_memory() {
        environment.set(environment::TOP.name, "1");
    }
    let library = parts::interposer(environment::LIBRARY.name).map_err(Refusal::installation)?;
    let preload = parts::preload(&library, environment.get(environment::PRELOAD.name));
    environment.set(environment::PRELOAD.name, preload);

    let warning = executable::warning(program);
    match &warning {
        Some(warning) => complain(warning),
        None => {
            prepare_sensor(&mut environment);
            if let Some(limit) = args.watchdog {
                start_watchdog(&mut environment, limit, args.watchdog_report.as_deref());
            }
        }
    }
    Err(execute(&args.program, &environment).into())
}

/// Sets the variables that a strategy file stands for, and prints warnings about entries without
/// effect. `has_lock`: `--lock` serves the locks that no entry names, even if the file chooses libc
/// for them.
fn apply(
    file: &Path,
    program: &OsStr,
    has_lock: bool,
    environment: &mut Environment,
) -> Result<(), Refusal> {
    let mut strategy = Strategy::read(file)?;
    strategy.default_is_libc &= !has_lock;
    let (settings, warnings) = strategy.settings_for(program)?;
    environment.remove(environment::STRATEGY.name);
    for (name, value) in settings {
        environment.set(name, value);
    }
    warnings.iter().for_each(|warning| complain(warning));
    Ok(())
}

/// Rejects options that libc's locks do not have. Each is named, with whether it is given.
fn reject_options_of_own_locks(own: &[(&str, bool)]) -> Result<(), Refusal> {
    match own.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Refusal::usage(messages::option_of_own_locks(option))),
        None => Ok(()),
    }
}

/// Rejects options that the process's load manager does not read. A strategy can choose others for
/// single locks. `--interval` and `--policy` are not among these options: under every load manager,
/// the controller also serves threads that poll at condition variables.
fn reject_options_of_other_load_managers(
    args: &RunArgs,
    environment: &Environment,
) -> Result<(), Refusal> {
    let has_strategy = environment.get(environment::STRATEGY.name).is_some();
    if args.strategy.is_some() || has_strategy {
        return Ok(());
    }
    let load = environment.get(environment::LOAD_MANAGER.name).and_then(OsStr::to_str);
    let load = load.unwrap_or(LOAD[0].name);
    let options: [(&str, bool, &[&str]); 2] = [
        ("--backoff", args.backoff.is_some(), &["backoff"]),
        ("--sleep-timeout", args.sleep_timeout.is_some(), &["control", "published"]),
    ];
    for (option, is_given, loads) in options {
        if is_given && !loads.contains(&load) {
            return Err(Refusal::usage(messages::option_of_load_manager(option, loads, load)));
        }
    }
    Ok(())
}

/// Starts the watchdog. Without one, the program runs all the same.
fn start_watchdog(environment: &mut Environment, limit: Duration, report: Option<&Path>) {
    let report = report.map(writable).transpose();
    match report.and_then(|report| watch::start(limit, report.as_deref())) {
        Ok(()) => {
            environment.set(environment::WATCHDOG.name, std::process::id().to_string());
        }
        Err(why) => complain(&inspection::no_watchdog(why)),
    }
}

/// Starts the `bpf` sensor, which needs more than a name. On failure the default sensor is used.
fn prepare_sensor(environment: &mut Environment) {
    environment.remove(environment::BPF.name);
    let chosen = environment
        .get(environment::LOAD_SENSOR.name)
        .and_then(OsStr::to_str)
        .and_then(Choice::parse);
    if chosen != Some(Choice::Bpf) {
        return;
    }
    match bpf::count_this_process() {
        Ok(count) => environment.set(environment::BPF.name, count),
        Err(why) => {
            // Name the default for child programs too, which would otherwise repeat the warning.
            environment.set(environment::LOAD_SENSOR.name, Choice::default().name());
            complain(&messages::bpf_not_available(Choice::default().name(), causes(&why)));
        }
    }
}

/// Like `execvp`, but never runs a program for another machine as a shell script.
fn execute(program: &[OsString], environment: &Environment) -> Refusal {
    let started = || -> Result<Infallible, std::io::Error> {
        let path = executable::resolve(&program[0]).ok_or(std::io::ErrorKind::NotFound)?;
        let arguments: Vec<CString> = program.iter().map(c_string).collect::<Result<_, _>>()?;
        let environment = environment.block()?;
        let executable = c_string(path.as_os_str())?;
        let Err(error) = nix::unistd::execve(&executable, &arguments, &environment);
        if error == Errno::ENOEXEC && !executable::is_elf(&path) {
            // A script without a `#!` line. Shells and execvp(3) pass it to sh.
            let shell = [c"sh".to_owned(), executable];
            let arguments: Vec<CString> =
                shell.into_iter().chain(arguments.into_iter().skip(1)).collect();
            nix::unistd::execve(c"/bin/sh", &arguments, &environment)?;
        }
        Err(error.into())
    };
    match started() {
        Ok(never) => match never {},
        Err(error) => Refusal::not_started(&program[0], &error),
    }
}

fn c_string(word: impl AsRef<OsStr>) -> Result<CString, std::ffi::NulError> {
    CString::new(word.as_ref().as_bytes())
}

/// The program's environment: the inherited one in its order, with some values replaced.
struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    fn inherited() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// Removes settings of an outer `unconvoy run`, in which this command was started, if options
    /// of this run replace them.
    fn forget_outer_run(&mut self, args: &RunArgs) {
        if args.lock.is_some() || args.strategy.is_some() {
            self.remove(environment::REPLACE.name);
            self.remove(environment::STRATEGY.name);
        }
        let is_inner = self.get(environment::STATS_OWNER.name).is_some();
        if is_inner && (args.stats.is_some() || args.metrics.is_some()) {
            let files = [environment::STATS, environment::PROFILE, environment::METRICS];
            let owned = files.iter().chain([&environment::STATS_OWNER]);
            owned.for_each(|variable| self.remove(variable.name));
        }
    }

    fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    fn set(&mut self, name: &str, value: impl Into<OsString>) {
        let value = value.into();
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.into(), value)),
        }
    }

    fn remove(&mut self, name: &str) {
        self.0.retain(|(key, _)| key != name);
    }

    /// Returns the `NAME=VALUE` strings for `execve`.
    fn block(&self) -> Result<Vec<CString>, std::ffi::NulError> {
        let entry = |(key, value): &(OsString, OsString)| {
            let mut bytes = key.clone().into_vec();
            bytes.push(b'=');
            bytes.extend_from_slice(value.as_bytes());
            CString::new(bytes)
        };
        self.0.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_accepts_half_a_millisecond_to_a_second() {
        assert_eq!(interval("0.5"), Ok(0.5));
        assert_eq!(interval("1000"), Ok(1000.0));
        for wrong in ["0.4", "0", "-1", "1001", "nan", "inf", "soon", ""] {
            assert!(interval(wrong).unwrap_err().contains("0.5 to 1000"), "{wrong}");
        }
    }

    #[test]
    fn sensor_rejects_unknown_names() {
        assert_eq!(sensor("fixed:2.5").as_deref(), Ok("fixed:2.5"));
        assert!(sensor("fixed:none").unwrap_err().contains("loadavg"));
        assert!(sensor(&format!("fixed:{MOST_PROCESSORS}")).is_ok());
        assert!(sensor(&format!("fixed:{}", MOST_PROCESSORS + 1)).is_err());
        assert!(sensor("fixed:0").unwrap_err().contains("above 0 and at most 65536"));
    }

    #[test]
    fn set_replaces_in_place_or_appends() {
        let mut environment = Environment(vec![("A".into(), "1".into()), ("B".into(), "2".into())]);
        environment.set("A", "3");
        environment.set("C", "4");
        let block = environment.block().unwrap();
        let text: Vec<&str> = block.iter().map(|entry| entry.to_str().unwrap()).collect();
        assert_eq!(text, ["A=3", "B=2", "C=4"]);
    }
}
