//! `unconvoy run`: become the program, with the interposer in front of libc.
//!
//! The command replaces itself (`execvp`), so process id, exit status, signals, terminal and open
//! files are the program's own; nothing of unconvoy stays behind except the library in it.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueHint};
use nix::errno::Errno;
use nix::unistd::AccessFlags;
use unconvoy::catalogue::environment;
use unconvoy::catalogue::{CONTENTION, Entry, LOAD, POLICY, SENSOR};
use unconvoy::load::settings::INTERVAL_MS;
use unconvoy::runtime::sensor::choice::Choice;
use unconvoy_measure::output::complain;
use unconvoy_measure::parts;

use crate::refusal::Refusal;
use crate::{bpf, inspect};

/// `unconvoy run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Contention manager: the order in which waiters get the lock.
    #[arg(long, value_name = "LOCK", value_parser = names(CONTENTION))]
    pub lock: Option<String>,
    /// Load manager: which waiters leave the processor, and when.
    #[arg(long, value_name = "LOAD", value_parser = names(LOAD))]
    pub load: Option<String>,
    /// Write what each lock did to FILE, as JSON, when the program ends.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stats: Option<PathBuf>,
    /// What the load controller reads the load from: schedstat, loadavg, psi, bpf (with privilege), or
    /// fixed:N for a target of N processors.
    #[arg(long, value_name = "SENSOR", value_parser = sensor)]
    pub sensor: Option<String>,
    /// Interval at which the load controller looks at the load, in milliseconds (0.5 to 1000).
    #[arg(long, value_name = "MS", value_parser = interval)]
    pub interval: Option<f64>,
    /// Longest sleep of a waiter that load control has put aside, in milliseconds.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub sleep_timeout: Option<u32>,
    /// How the load controller gets from the load to the number of waiters that sleep.
    #[arg(long, value_name = "NAME", value_parser = names(POLICY))]
    pub policy: Option<String>,
    /// Mean sleep of a waiter under `--load backoff`, in milliseconds.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub backoff: Option<u32>,
    /// Confine threads that wait too much for locks to a set of cores, of the size at which they get
    /// most done (Cui et al., ACM TACO 9(4), 2013; `published`: the paper's search for that size).
    #[arg(long, alias = "ssc", value_name = "SEARCH", num_args = 0..=1, require_equals = true, default_missing_value = "refined",
          value_parser = ["refined", "published"])]
    pub confine: Option<String>,
    /// Leave alone the programs that PROGRAM starts.
    #[arg(long)]
    pub no_children: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM",
          value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Below the options in `--help`.
pub const EXAMPLES: &str = "\
Exit status: the program's own, and its signals. 127: program not found. 126: it cannot be
executed. 125: libunconvoy.so is missing. 2: wrong options.

A program in which nothing can be replaced (static, set-user-ID, Go) runs all the same, and one
line on standard error says so.

Examples:
  unconvoy run -- ./server --threads 64
  unconvoy run --lock tpmcs --load control -- ./server
  unconvoy run --stats locks.json -- ./server && unconvoy stats locks.json
  sudo unconvoy run --sensor bpf -- ./server
  UNCONVOY_LIBRARY=target/release/libunconvoy.so unconvoy run -- ./server";

/// Accepts the names of one half of the catalogue; an error lists them all.
fn names(entries: &'static [Entry]) -> PossibleValuesParser {
    entries.iter().map(|entry| PossibleValue::new(entry.name).help(entry.summary)).into()
}

/// A sensor's name; an error lists them all.
fn sensor(text: &str) -> Result<String, String> {
    let names = || SENSOR.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
    Choice::parse(text).map(|_| text.to_string()).ok_or_else(|| format!("the sensors are {}", names()))
}

/// A number of milliseconds that the controller's interval may have.
fn interval(text: &str) -> Result<f64, String> {
    let (least, most) = INTERVAL_MS.into_inner();
    let ms = text.parse().ok().filter(|ms| INTERVAL_MS.contains(ms));
    ms.ok_or_else(|| format!("an interval has {least} to {most} milliseconds"))
}

/// Replaces this process by the program; returns only if that fails.
///
/// # Errors
///
/// 125 when the interposer is missing, 127 when the program is, 126 when it cannot be executed.
pub fn run(args: &RunArgs) -> anyhow::Result<Infallible> {
    let program = &args.program[0];
    let mut environment = Environment::inherited();
    if let Some(lock) = &args.lock {
        environment.set(environment::LOCK.name, lock);
    }
    if let Some(load) = &args.load {
        environment.set(environment::LOAD_MANAGER.name, load);
    }
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
    if let Some(file) = &args.stats {
        match writable(file) {
            Ok(path) => environment.set(environment::STATS.name, path),
            // The interposer is not told, or it would complain a second time.
            Err(why) => complain(&format!("--stats {}: {why}; running without statistics", file.display())),
        }
    }
    let library = parts::interposer(environment::LIBRARY.name).map_err(Refusal::installation)?;
    let preload = parts::preload(&library, environment.get(environment::PRELOAD.name));
    environment.set(environment::PRELOAD.name, preload);

    let warning = inspect::warning(program);
    match &warning {
        Some(warning) => complain(warning),
        None => prepare_sensor(&mut environment),
    }
    Err(execute(&args.program, &environment).into())
}

/// Sets up the `bpf` sensor, which takes more than a name. Where that fails, the default one serves.
fn prepare_sensor(environment: &mut Environment) {
    environment.remove(environment::BPF.name);
    let chosen = environment.get(environment::LOAD_SENSOR.name).and_then(OsStr::to_str).and_then(Choice::parse);
    if chosen != Some(Choice::Bpf) {
        return;
    }
    match bpf::count_this_process() {
        Ok(count) => environment.set(environment::BPF.name, count),
        Err(why) => {
            // Once for all: the programs that it starts would say it again.
            environment.set(environment::LOAD_SENSOR.name, Choice::default().name());
            complain(&format!("no bpf sensor, using {}: {why:#}", Choice::default().name()));
        }
    }
}

/// `execvp`, except that a program for another machine is not taken for a shell script.
fn execute(program: &[OsString], environment: &Environment) -> Refusal {
    let started = || -> Result<Infallible, std::io::Error> {
        let path = inspect::resolve(&program[0]).ok_or(std::io::ErrorKind::NotFound)?;
        let arguments: Vec<CString> = program.iter().map(c_string).collect::<Result<_, _>>()?;
        let environment = environment.block()?;
        let executable = c_string(path.as_os_str())?;
        let Err(error) = nix::unistd::execve(&executable, &arguments, &environment);
        if error == Errno::ENOEXEC && !inspect::is_elf(&path) {
            // A script without a `#!` line, which every shell and execvp(3) give to sh.
            let shell = [c"sh".to_owned(), executable];
            let arguments: Vec<CString> = shell.into_iter().chain(arguments.into_iter().skip(1)).collect();
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

/// The absolute path of a file that will be written when the program ends, or why it cannot be.
pub fn writable(file: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(file).map_err(|error| error.to_string())?;
    if path.is_dir() {
        return Err("this is a directory, name a file in it".to_string());
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    let access = |path: &Path, mode| nix::unistd::access(path, mode);
    access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|error| format!("cannot write into {} ({})", directory.display(), error.desc()))?;
    if path.exists() {
        access(&path, AccessFlags::W_OK).map_err(|error| format!("cannot write it ({})", error.desc()))?;
    }
    Ok(path)
}

/// The program's environment: ours, in its order, with some values replaced.
struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    fn inherited() -> Self {
        Self(std::env::vars_os().collect())
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

    /// `NAME=VALUE` strings as `execve` takes them.
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
    fn an_interval_may_be_half_a_millisecond() {
        assert_eq!(interval("0.5"), Ok(0.5));
        assert_eq!(interval("1000"), Ok(1000.0));
        for wrong in ["0.4", "0", "-1", "1001", "nan", "inf", "soon", ""] {
            assert!(interval(wrong).unwrap_err().contains("0.5 to 1000"), "{wrong}");
        }
    }

    #[test]
    fn a_sensor_is_one_of_the_list() {
        assert_eq!(sensor("fixed:2.5").as_deref(), Ok("fixed:2.5"));
        assert!(sensor("fixed:none").unwrap_err().contains("loadavg"));
    }

    #[test]
    fn values_are_replaced_in_place() {
        let mut environment = Environment(vec![("A".into(), "1".into()), ("B".into(), "2".into())]);
        environment.set("A", "3");
        environment.set("C", "4");
        let block = environment.block().unwrap();
        let text: Vec<&str> = block.iter().map(|entry| entry.to_str().unwrap()).collect();
        assert_eq!(text, ["A=3", "B=2", "C=4"]);
    }

    #[test]
    fn a_statistics_file_needs_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stats.json");
        assert_eq!(writable(&file), Ok(file));
        assert!(writable(&directory.path().join("missing/stats.json")).is_err());
        assert!(writable(directory.path()).unwrap_err().contains("directory"));
    }
}
