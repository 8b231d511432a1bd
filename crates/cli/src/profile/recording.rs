//! Runs the program, and reads the profiles that its processes wrote.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use unconvoy::catalogue::environment;
use unconvoy_measure::child::describe;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::complain;
use unconvoy_measure::parts;
use unconvoy_profile::{Profile, Recorded};

use super::continuous::Continuous;
use super::observer::Observer;
use super::options::{LIBC, ProfileArgs};
use crate::child::{self, Ended};
use crate::executable;
use crate::messages::command::cannot_read;
use crate::messages::predict::cannot_write;
use crate::messages::profile as messages;
use crate::refusal::Refusal;

/// One run of the program.
pub struct Recording {
    pub ended: Ended,
    /// The profile of the process that waited longest.
    pub main: Recorded,
    /// The other processes' files and profiles.
    others: Vec<(PathBuf, Recorded)>,
    is_kept: bool,
}

/// Reads a profile.
///
/// # Errors
///
/// The file cannot be read, or is not a profile of this version.
pub fn read(file: &Path) -> anyhow::Result<Recorded> {
    let mut bytes = Vec::new();
    let opened = File::open(file).with_context(|| cannot_read(file))?;
    let limit = size_of::<Profile>() as u64;
    opened.take(limit).read_to_end(&mut bytes).with_context(|| cannot_read(file))?;
    Recorded::parse(&bytes).map_err(|why| anyhow::anyhow!(messages::not_a_profile(file, why)))
}

/// Runs the program and reads what it recorded.
///
/// # Errors
///
/// The program cannot be started, or recorded nothing.
pub fn run(args: &ProfileArgs) -> anyhow::Result<Recording> {
    let program = &args.program[0];
    let interposer = parts::interposer(environment::LIBRARY.name).map_err(Refusal::installation)?;
    let (file, _folder) = file(args.output.as_deref())?;
    let interrupts = Interrupts::install()?;
    if let Some(warning) = executable::warning(program) {
        complain(&warning);
    }
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut command = command(args, &interposer, &file);
    let begin_unix_ns = begin.as_nanos() as u64;
    let continuous = args.intervals().map(|intervals| {
        let listed = file.clone();
        let files = move || files_of(&listed).unwrap_or_default();
        Continuous::start(intervals, file.clone(), begin_unix_ns, files)
    });
    let continuous = continuous.transpose()?;
    let mut observer = None;
    let ended = child::run_observed(&mut command, None, &interrupts, |pid| {
        observer = Observer::start(pid);
    })
    .map_err(|error| Refusal::not_started(program, &error))?;
    let observed = observer.map(Observer::finish);
    if let Some(continuous) = continuous {
        continuous.finish();
    }
    let mut found = recorded_since(&file, begin_unix_ns)?;
    if found.is_empty() {
        let path = executable::resolve(program).unwrap_or_else(|| program.into());
        match executable::obstacle(&path) {
            Some(obstacle) => bail!(messages::no_profile(&path, obstacle)),
            None => bail!(messages::no_profile_written(&path)),
        }
    }
    for (path, recorded) in &mut found {
        if let Some(observed) = observed.as_ref().filter(|it| it.pid == recorded.pid) {
            recorded.observed = observed.of(recorded);
            recorded.observed.keep(path).with_context(|| cannot_write(path))?;
        }
    }
    let (_, main) = found.remove(0);
    Ok(Recording { ended, main, others: found, is_kept: args.output.is_some() })
}

/// Chooses the file to record into; returns it with its folder if that is temporary.
fn file(kept: Option<&Path>) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
    if let Some(file) = kept {
        let _ = std::fs::remove_file(file); // a profile of an earlier run
        return Ok((std::path::absolute(file)?, None));
    }
    let folder = tempfile::Builder::new().prefix("unconvoy-profile-").tempdir()?;
    Ok((folder.path().join("profile"), Some(folder)))
}

fn command(args: &ProfileArgs, interposer: &Path, file: &Path) -> Command {
    let before = std::env::var_os(environment::PRELOAD.name);
    let mut command = Command::new(&args.program[0]);
    command
        .args(&args.program[1..])
        .env(environment::PRELOAD.name, parts::preload(interposer, before.as_deref()))
        .env(environment::PROFILE.name, file)
        .env(environment::PROFILE_PERIOD.name, args.period.to_string())
        .env_remove(environment::STATS_OWNER.name);
    if args.lock == LIBC {
        command.env(environment::REPLACE.name, "0");
    } else {
        command.env(environment::LOCK.name, &args.lock).env_remove(environment::REPLACE.name);
    }
    if let Some(load) = &args.load {
        command.env(environment::LOAD_MANAGER.name, load);
    }
    command
}

/// The profiles of this run, FILE and those of child processes, FILE.PID. The process that waited
/// longest comes first.
fn recorded_since(file: &Path, begin_unix_ns: u64) -> anyhow::Result<Vec<(PathBuf, Recorded)>> {
    let mut found = Vec::new();
    for path in files_of(file)? {
        // A process that was killed at its start leaves an incomplete file.
        if let Ok(recorded) = read(&path)
            && recorded.begin_unix_ns >= begin_unix_ns
        {
            found.push((path, recorded));
        }
    }
    let waited = |recorded: &Recorded| recorded.locks.iter().map(|lock| lock.wait_ns).sum::<u64>();
    found.sort_by_key(|(path, recorded)| (std::cmp::Reverse(waited(recorded)), path.clone()));
    Ok(found)
}

/// The files of a run: FILE and FILE.PID.
fn files_of(file: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_ours = |other: &OsStr| {
        let other = other.to_string_lossy();
        other.strip_prefix(&name).is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('.').is_some_and(|pid| pid.parse::<u32>().is_ok())
        })
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| cannot_read(folder))? {
        let entry = entry.with_context(|| cannot_read(folder))?;
        if is_ours(&entry.file_name()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

impl Recording {
    /// The program's exit status, as a shell would show it.
    pub fn status(&self) -> u8 {
        use std::os::unix::process::ExitStatusExt;
        let status = self.ended.status;
        status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1) as u8
    }

    /// What the report does not cover.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.ended.why.is_none() && !self.ended.status.success() {
            remarks.push(format!("The program: {}.", describe(self.ended.status)));
        }
        let waited = self.others.iter().filter(|(_, other)| !other.locks.is_empty());
        for (path, other) in waited.take(5) {
            let waits: u64 = other.locks.iter().map(|lock| lock.waits).sum();
            let place = if self.is_kept {
                format!("read {}", path.display())
            } else {
                "keep the profiles with --output".to_string()
            };
            remarks.push(format!(
                "Process {} ({}) also waited {waits} times: {place}.",
                other.pid,
                other.program.display()
            ));
        }
        remarks
    }
}
