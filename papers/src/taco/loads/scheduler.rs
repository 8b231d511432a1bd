//! The scheduler in force: the kernel's, or `unconvoy sched` for the length of a run.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::messages;
use anyhow::{Context as _, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use unconvoy_cli::sched::SCHEDULER;
use unconvoy_measure::interrupt::Interrupts;

/// The kernel's directory for loaded schedulers.
const SCHED_EXT: &str = "/sys/kernel/sched_ext";
/// Row of the default scheduler.
const DEFAULT: &str = "default";
/// Row of `unconvoy sched`.
pub const OURS: &str = "unconvoy sched";
/// Time limit for loading and unloading a scheduler.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A row and its scheduler.
#[derive(Debug)]
pub struct Row {
    /// Name of the row.
    pub name: String,
    /// Loads the scheduler for each run; `None` keeps the present one.
    pub loader: Option<Loader>,
}

/// The rows that this machine can measure, and the reason if a row is missing.
pub fn rows() -> (Vec<Row>, Option<String>) {
    let directory = Path::new(SCHED_EXT);
    let loader = |command| Loader { command, words: Vec::new(), state: directory.join("state") };
    let loader = SCHEDULER.find().map(loader).map_err(anyhow::Error::msg);
    rows_of(directory, nix::unistd::geteuid().is_root(), loader)
}

fn rows_of(
    directory: &Path,
    is_root: bool,
    loader: anyhow::Result<Loader>,
) -> (Vec<Row>, Option<String>) {
    let in_force =
        (state(&directory.join("state")) == "enabled").then(|| state(&directory.join("root/ops")));
    let mut rows =
        vec![Row { name: in_force.clone().unwrap_or_else(|| DEFAULT.to_string()), loader: None }];
    let usable = || {
        if let Some(other) = in_force {
            bail!(messages::another_scheduler_loaded(&other));
        }
        if !directory.is_dir() {
            bail!(messages::no_sched_ext(directory));
        }
        if !is_root {
            bail!(messages::needs_root());
        }
        let loader = loader?;
        drop(loader.start()?);
        Ok(loader)
    };
    match usable() {
        Ok(loader) => {
            rows.push(Row { name: OURS.to_string(), loader: Some(loader) });
            (rows, None)
        }
        Err(why) => (rows, Some(messages::scheduler_left_out(OURS, &why))),
    }
}

/// Contents of a one-line file of the kernel; empty if it is missing.
fn state(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// Loads a scheduler.
#[derive(Debug)]
pub struct Loader {
    command: PathBuf,
    words: Vec<String>,
    /// The kernel's file that contains `enabled` while a scheduler is loaded.
    state: PathBuf,
}

/// A loaded scheduler; dropping it unloads the scheduler.
#[derive(Debug)]
pub struct Loaded<'a> {
    child: Child,
    loader: &'a Loader,
}

impl Loader {
    /// Loads the scheduler; returns once the kernel has enabled it.
    ///
    /// # Errors
    ///
    /// Fails if the scheduler exits (with its message), is not enabled in time, or a signal
    /// arrives.
    pub fn start(&self) -> anyhow::Result<Loaded<'_>> {
        let mut command = Command::new(&self.command);
        command
            .args(&self.words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: the closure only makes one system call between fork and exec. It does not
        // allocate or lock.
        unsafe {
            // The scheduler receives SIGINT when this process ends for any reason, and the kernel
            // then returns to its default scheduler.
            command.pre_exec(|| set_pdeathsig(Signal::SIGINT).map_err(Into::into));
        }
        let child = command.spawn().with_context(|| messages::cannot_start(&self.command))?;
        let mut loaded = Loaded { child, loader: self };
        let deadline = Instant::now() + TIME_LIMIT;
        while state(&self.state) != "enabled" {
            Interrupts::of_process()?.check()?;
            if let Some(status) = loaded.child.try_wait()? {
                bail!(
                    "{}",
                    loaded.last_words().unwrap_or_else(|| messages::scheduler_exited(status))
                );
            }
            if Instant::now() >= deadline {
                bail!(messages::scheduler_not_enabled(TIME_LIMIT.as_secs()));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(loaded)
    }
}

impl Loaded<'_> {
    /// Whether the scheduler is still enabled: the kernel unloads one that fails.
    pub fn is_in_force(&self) -> bool {
        state(&self.loader.state) == "enabled"
    }

    /// The scheduler's message, in one line. Call it only after the process has ended.
    fn last_words(&mut self) -> Option<String> {
        let mut text = String::new();
        self.child.stderr.take()?.read_to_string(&mut text).ok()?;
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(words.trim_start_matches("unconvoy: ").to_string()).filter(|words| !words.is_empty())
    }
}

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.child.id().cast_signed());
        let deadline = Instant::now() + TIME_LIMIT;
        // Send the signal that Ctrl-C sends. The call fails only if the process has ended.
        let _ = killpg(group, Signal::SIGINT);
        while !matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
            if Instant::now() >= deadline {
                let _ = killpg(group, Signal::SIGKILL);
                let _ = self.child.wait();
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        // The kernel takes a moment to move every task back.
        while self.is_in_force() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script in the scheduler's place, which writes the state file as the kernel would.
    fn loader(directory: &Path, script: &str) -> Loader {
        let state = directory.join("state");
        fs::write(&state, "disabled\n").expect("written");
        let words = ["-c", script, "sh"]
            .map(str::to_string)
            .into_iter()
            .chain([state.display().to_string()]);
        Loader { command: "/bin/sh".into(), words: words.collect(), state }
    }

    const GOOD: &str = "trap 'echo disabled >\"$1\"; exit 0' INT; echo enabled >\"$1\"; while :; \
        do sleep 0.01; done";

    #[test]
    fn scheduler_is_loaded_until_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let loader = loader(directory.path(), GOOD);
        let loaded = loader.start().expect("it starts");
        assert!(loaded.is_in_force());
        drop(loaded);
        assert_eq!(state(&loader.state), "disabled");
        let (rows, missing) = rows_of(directory.path(), true, Ok(loader));
        assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), [DEFAULT, OURS]);
        assert_eq!(missing, None);
    }

    #[test]
    fn reason_for_missing_row_is_one_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let why = |is_root, script: &str| {
            let (rows, missing) = rows_of(path, is_root, Ok(loader(path, script)));
            assert_eq!(rows.len(), 1);
            missing.expect("a reason")
        };
        let said = why(true, "printf 'unconvoy: it lacks\\n  - a kernel\\n' >&2; exit 69");
        assert_eq!(said, "unconvoy sched is left out: it lacks - a kernel");
        assert!(why(true, "exit 3").contains("exit status: 3"));
        assert!(why(false, GOOD).contains("root"));
        let (_, missing) = rows_of(&path.join("nosuch"), true, Ok(loader(path, GOOD)));
        assert!(missing.is_some_and(|why| why.contains("no sched_ext")));
    }

    #[test]
    fn loaded_scheduler_names_default_row() {
        let directory = tempfile::tempdir().expect("a directory");
        let loader = loader(directory.path(), GOOD);
        fs::write(directory.path().join("state"), "enabled\n").expect("written");
        fs::create_dir(directory.path().join("root")).expect("made");
        fs::write(directory.path().join("root/ops"), "scx_other\n").expect("written");
        let (rows, missing) = rows_of(directory.path(), true, Ok(loader));
        assert_eq!((rows.len(), rows[0].name.as_str()), (1, "scx_other"));
        assert!(missing.is_some_and(|why| why.contains("scx_other")));
    }
}
