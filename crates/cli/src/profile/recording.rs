//! Runs the program, and reads the profiles that its processes wrote.

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use unconvoy::catalogue::environment;
use unconvoy::primitive::{Clock as _, Native};
use unconvoy_measure::child::{Outcome, Running, describe};
use unconvoy_measure::escaped::Adopted;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::complain;
use unconvoy_measure::parts;
use unconvoy_profile::{Damage, Profile, Recorded};

use super::continuous::Continuous;
use super::ended::Pruner;
use super::observer::Observer;
use super::options::{LIBC, ProfileArgs};
use crate::child::{self, Ended};
use crate::executable;
use crate::messages::command::cannot_read;
use crate::messages::predict::cannot_write;
use crate::messages::profile as messages;
use crate::output_file;
use crate::refusal::Refusal;

/// Sampling period of a profile of a few seconds.
const SHORT_PERIOD_MS: f64 = 0.1;

/// Greatest number of other processes that a report has remarks on.
const MOST_REMARKS: usize = 5;

/// One run of the program.
pub struct Recording {
    pub ended: Ended,
    /// The profile of the process that waited longest.
    pub main: Recorded,
    /// The other processes' files and profiles.
    others: Vec<(PathBuf, Recorded)>,
    is_kept: bool,
}

/// The profile of one process, and remarks on the others.
pub type Remarked = (Recorded, Vec<String>);

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

/// Complains of what could not be written to a record, which has been read already.
fn complain_of(written: std::io::Result<()>, path: &Path) {
    if let Err(error) = written {
        complain(&format!("{}: {error}", cannot_write(path)));
    }
}

/// Runs the program and reads what it recorded.
///
/// # Errors
///
/// The program cannot be started, or recorded nothing.
pub fn run(args: &ProfileArgs) -> anyhow::Result<Recording> {
    let program = &args.program[0];
    if executable::resolve(program).is_none() {
        let error = std::io::ErrorKind::NotFound.into();
        return Err(Refusal::not_started(program, &error).into());
    }
    let interposer = parts::interposer(environment::LIBRARY.name).map_err(Refusal::installation)?;
    let (file, _folder) = file(args.output.as_deref())?;
    let interrupts = Interrupts::install()?;
    if let Some(warning) = executable::warning(program) {
        complain(&warning);
    }
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let lock = Some(&*args.lock).filter(|lock| *lock != LIBC);
    let chosen = (lock, args.load.as_deref());
    let mut command = command(&args.program, chosen, args.period, &interposer, &file);
    let begin_unix_ns = begin.as_nanos() as u64;
    let most = if args.output.is_some() { usize::MAX } else { 1 + MOST_REMARKS };
    let continuous = args.intervals().map(|intervals| {
        Continuous::start(intervals, (file.clone(), most), begin_unix_ns, lister(&file))
    });
    let continuous = continuous.transpose()?;
    let is_pruned = continuous.is_none() && args.output.is_none();
    let pruner = is_pruned
        .then(|| Pruner::start(file.clone(), most, lister(&file), waited_ns))
        .transpose()?;
    let (mut observer, mut process) = (None, 0);
    let adopted = Adopted::begin();
    let ended = child::run_observed(&mut command, None, &interrupts, |pid| {
        process = pid;
        observer = Observer::start(pid);
    })
    .map_err(|error| Refusal::not_started(program, &error))?;
    let end_ns = Native::now();
    // After an interrupt, processes may still be ending.
    let left = if ended.why.is_none() { adopted.running() } else { Vec::new() };
    let observed = observer.map(Observer::finish);
    if let Some(continuous) = continuous {
        continuous.finish();
    }
    if let Some(pruner) = pruner {
        pruner.finish();
    }
    complain_of_daemon(&left, args.output.as_deref());
    let mut found = recorded_since(&file, begin_unix_ns)?;
    if found.is_empty() {
        let path = executable::resolve(program).unwrap_or_else(|| program.into());
        match executable::obstacle(&path) {
            Some(obstacle) => bail!(messages::no_profile(&path, obstacle)),
            None => bail!(messages::no_profile_written(&path)),
        }
    }
    for (path, recorded) in &mut found {
        if recorded.pid == process {
            complain_of(recorded.end_killed(end_ns, path), path);
        }
        if let Some(observed) = observed.as_ref().filter(|it| it.pid == recorded.pid) {
            recorded.observed = observed.of(recorded);
            complain_of(recorded.observed.keep(path), path);
        }
    }
    let (_, mut main) = found.remove(0);
    main.is_indirect = is_indirect(&main, program);
    Ok(Recording { ended, main, others: found, is_kept: args.output.is_some() })
}

/// Complains of the processes that the program left behind, whose profiles go on without this
/// command. Names one, if possible one with a profile beside the kept `output`.
fn complain_of_daemon(left: &[u32], output: Option<&Path>) {
    let profile = |pid: &u32| {
        let mut name = output?.as_os_str().to_os_string();
        name.push(format!(".{pid}"));
        Some(PathBuf::from(name)).filter(|file| file.exists())
    };
    let with_profile = left.iter().find_map(|pid| Some((*pid, Some(profile(pid)?))));
    if let Some((pid, file)) = with_profile.or(left.first().map(|pid| (*pid, None))) {
        complain(&messages::left_process(pid, file.as_deref()));
    }
}

/// Chooses the file to record into; returns it with its folder if that is temporary.
fn file(kept: Option<&Path>) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
    if let Some(file) = kept {
        // The library replaces a profile of an earlier run, once the program has started.
        return Ok((std::path::absolute(file)?, None));
    }
    let folder = output_file::temporary("unconvoy-profile-")?;
    Ok((folder.path().join("profile"), Some(folder)))
}

/// Whether the recorded program is not the one that the command started.
fn is_indirect(recorded: &Recorded, program: &OsStr) -> bool {
    let started = executable::resolve(program).map(|path| executable::executed(&path).0);
    let started = started.and_then(|path| path.canonicalize().ok());
    started.is_some_and(|path| path != recorded.program)
}

/// Whether a file does not exist, is empty, or is a profile.
pub fn may_replace(file: &Path) -> bool {
    if !file.is_file() {
        return !file.exists();
    }
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|it| it.take(8).read_to_end(&mut bytes));
    let is_other = matches!(Recorded::parse(&bytes), Err(Damage::NotAProfile));
    opened.is_ok() && (bytes.is_empty() || !is_other)
}

/// The command of a run. Without a lock, libc's locks serve the program.
fn command(
    program: &[OsString],
    (lock, load): (Option<&str>, Option<&str>),
    period: f64,
    interposer: &Path,
    file: &Path,
) -> Command {
    let before = std::env::var_os(environment::PRELOAD.name);
    let mut command = executable::command(program);
    command
        .env(environment::PRELOAD.name, parts::preload(interposer, before.as_deref()))
        .env(environment::PROFILE.name, file)
        .env(environment::PROFILE_PERIOD.name, period.to_string())
        .env_remove(environment::STATS_OWNER.name);
    match lock {
        None => command.env(environment::REPLACE.name, "0"),
        Some(lock) => {
            command.env(environment::LOCK.name, lock).env_remove(environment::REPLACE.name)
        }
    };
    if let Some(load) = load {
        command.env(environment::LOAD_MANAGER.name, load);
    }
    command
}

/// Runs the program under libc's locks, without its output and for at most `limit`. Returns how it
/// ended, and the profile of the process that waited longest for locks, with remarks on the other
/// processes; `None` without a profile.
///
/// # Errors
///
/// The program cannot be started or watched.
pub fn run_silently(
    program: &[OsString],
    interposer: &Path,
    limit: Duration,
    interrupts: &Interrupts,
) -> anyhow::Result<(Outcome, Option<Remarked>)> {
    let (file, _folder) = file(None)?;
    let command = command(program, (None, None), SHORT_PERIOD_MS, interposer, &file);
    let not_started = |error| Refusal::not_started(&program[0], &error);
    let pruner = Pruner::start(file.clone(), 1 + MOST_REMARKS, lister(&file), waited_ns)?;
    let running = Running::start(command).map_err(not_started)?;
    let process = running.id();
    let observer = Observer::start(process);
    let ended = running.finish(Some(limit), interrupts);
    let end_ns = Native::now();
    let observed = observer.map(Observer::finish);
    pruner.finish();
    let mut found = recorded_since(&file, 0)?.into_iter();
    let main = found.next().map(|(path, mut recorded)| {
        if recorded.pid == process {
            // Ignore a file that cannot be written: `recorded` has the end.
            let _ = recorded.end_killed(end_ns, &path);
        }
        if let Some(observed) = observed.filter(|it| it.pid == recorded.pid) {
            recorded.observed = observed.of(&recorded);
        }
        recorded.is_indirect = is_indirect(&recorded, &program[0]);
        (recorded, remarks_on_others(found.as_slice(), false))
    });
    Ok((ended?.0, main))
}

/// The profiles of this run, FILE and those of child processes, FILE.PID. The process that waited
/// longest for locks comes first. Among processes without such waits, the process that waited
/// longest on condition variables comes first: a server that forks waits for its workers for longer
/// than they wait for their locks.
fn recorded_since(file: &Path, begin_unix_ns: u64) -> anyhow::Result<Vec<(PathBuf, Recorded)>> {
    let mut found = Vec::new();
    for path in output_file::of_processes(file)? {
        // A process that was killed at its start leaves an incomplete file.
        if let Ok(recorded) = read(&path)
            && recorded.begin_unix_ns >= begin_unix_ns
        {
            found.push((path, recorded));
        }
    }
    found.sort_by_key(|(path, recorded)| (Reverse(recorded.waited_ns()), path.clone()));
    Ok(found)
}

/// What a report on one process leaves out: the other processes that waited.
fn remarks_on_others(others: &[(PathBuf, Recorded)], is_kept: bool) -> Vec<String> {
    let waited = others.iter().filter(|(_, other)| !other.locks.is_empty());
    let remark = |(path, other): &(PathBuf, Recorded)| {
        let waits: u64 = other.locks.iter().map(|lock| lock.waits).sum();
        let place = if is_kept {
            format!("read {}", path.display())
        } else {
            "keep the profiles with `unconvoy profile --output`".to_string()
        };
        let program = other.program.display();
        format!("Process {} ({program}) also waited {waits} times: {place}.", other.pid)
    };
    waited.take(MOST_REMARKS).map(remark).collect()
}

/// How long a process waited, by its file.
fn waited_ns(file: &Path) -> [u64; 2] {
    read(file).as_ref().map(Recorded::waited_ns).unwrap_or_default()
}

fn lister(file: &Path) -> impl Fn() -> Vec<PathBuf> + Send + use<> {
    let file = file.to_path_buf();
    move || output_file::of_processes(&file).unwrap_or_default()
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
        remarks.extend(remarks_on_others(&self.others, self.is_kept));
        remarks
    }
}
