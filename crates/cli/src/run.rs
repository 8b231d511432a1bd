//! `unconvoy run`: become the program, with the interposer in front of libc.
//!
//! The command replaces itself (`execvp`), so process id, exit status, signals, terminal and open
//! files are the program's own; nothing of unconvoy stays behind except the library in it.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::AccessFlags;
use unconvoy::load::sensor::choice::Choice;
use unconvoy_bench::library::{self, variable};

use crate::cli::RunArgs;
use crate::refusal::Refusal;
use crate::{bpf, inspect};

/// Replaces this process by the program; returns only if that fails.
///
/// # Errors
///
/// 125 when the interposer is missing, 127 when the program is, 126 when it cannot be executed.
pub fn run(args: &RunArgs) -> anyhow::Result<Infallible> {
    let program = &args.program[0];
    let mut environment = Environment::inherited();
    if let Some(lock) = &args.lock {
        environment.set(variable::LOCK, lock);
    }
    if let Some(load) = &args.load {
        environment.set(variable::LOAD, load);
    }
    if let Some(sensor) = &args.sensor {
        environment.set(variable::SENSOR, sensor);
    }
    if let Some(ms) = args.interval {
        environment.set(variable::INTERVAL, ms.to_string());
    }
    if let Some(ms) = args.sleep_timeout {
        environment.set(variable::SLEEP, ms.to_string());
    }
    if let Some(policy) = &args.policy {
        environment.set(variable::POLICY, policy);
    }
    if let Some(ms) = args.backoff {
        environment.set(variable::BACKOFF, ms.to_string());
    }
    if let Some(search) = &args.ssc {
        environment.set(variable::SSC, search);
    }
    if args.no_children {
        environment.set(variable::CHILDREN, "0");
    }
    if let Some(file) = &args.stats {
        match writable(file) {
            Ok(path) => environment.set(variable::STATS, path),
            // The interposer is not told, or it would complain a second time.
            Err(why) => warn(&format!("--stats {}: {why}; running without statistics", file.display())),
        }
    }
    let library = library::find().map_err(Refusal::installation)?;
    let preload = library::preload(&library, environment.get(variable::PRELOAD));
    environment.set(variable::PRELOAD, preload);

    let warning = inspect::warning(program);
    match &warning {
        Some(warning) => warn(warning),
        None => prepare_sensor(&mut environment),
    }
    Err(execute(&args.program, &environment).into())
}

/// Sets up the `bpf` sensor, which takes more than a name. Where that fails, the default one serves.
fn prepare_sensor(environment: &mut Environment) {
    environment.remove(variable::BPF);
    let chosen = environment.get(variable::SENSOR).and_then(OsStr::to_str).and_then(Choice::parse);
    if chosen != Some(Choice::Bpf) {
        return;
    }
    match bpf::count_this_process() {
        Ok(count) => environment.set(variable::BPF, count),
        Err(why) => {
            // Once for all: the programs that it starts would say it again.
            environment.set(variable::SENSOR, Choice::default().name());
            warn(&format!("no bpf sensor, using {}: {why:#}", Choice::default().name()));
        }
    }
}

/// One line on standard error, which may be closed.
fn warn(message: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "unconvoy: {message}");
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
