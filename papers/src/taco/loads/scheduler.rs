//! Which scheduler is in force: the kernel's, or `unconvoy sched` for the length of a run.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use unconvoy_cli::sched::SCHEDULER;
use unconvoy_measure::interrupt::Interrupts;

/// The kernel's directory for schedulers that are loaded.
const SCHED_EXT: &str = "/sys/kernel/sched_ext";
/// Row of the scheduler that is there anyway.
const DEFAULT: &str = "default";
/// Row of ours.
pub const OURS: &str = "unconvoy sched";
/// A scheduler that is not in force, or not gone, after this long will not be.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Who schedules what is measured in a row.
#[derive(Debug)]
pub struct Row {
    /// Name of the row.
    pub name: String,
    /// Loads a scheduler for each run; `None` leaves what there is.
    pub loader: Option<Loader>,
}

/// Rows for this machine, and why one is missing.
pub fn rows() -> (Vec<Row>, Option<String>) {
    let directory = Path::new(SCHED_EXT);
    let loader = |command| Loader { command, words: Vec::new(), state: directory.join("state") };
    let loader = SCHEDULER.find().map(loader).map_err(anyhow::Error::msg);
    rows_of(directory, nix::unistd::geteuid().is_root(), loader)
}

fn rows_of(directory: &Path, is_root: bool, loader: anyhow::Result<Loader>) -> (Vec<Row>, Option<String>) {
    let in_force = (state(&directory.join("state")) == "enabled").then(|| state(&directory.join("root/ops")));
    let mut rows = vec![Row { name: in_force.clone().unwrap_or_else(|| DEFAULT.to_string()), loader: None }];
    let usable = || {
        if let Some(other) = in_force {
            bail!("the scheduler {other} is loaded already, and there can be one only");
        }
        if !directory.is_dir() {
            bail!("this kernel has no sched_ext (there is no {})", directory.display());
        }
        if !is_root {
            bail!("it takes root");
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
        Err(why) => (rows, Some(format!("{OURS} is left out: {why:#}"))),
    }
}

/// The contents of one of the kernel's one-line files; empty without it.
fn state(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// How a scheduler is brought into force.
#[derive(Debug)]
pub struct Loader {
    command: PathBuf,
    words: Vec<String>,
    /// Says `enabled` while one is in force.
    state: PathBuf,
}

/// A scheduler in force, until this is dropped.
#[derive(Debug)]
pub struct Loaded<'a> {
    child: Child,
    loader: &'a Loader,
}

impl Loader {
    /// Brings it into force, and returns when it is.
    ///
    /// # Errors
    ///
    /// It ends, with what it said; it is not in force after a while; or a signal came.
    pub fn start(&self) -> anyhow::Result<Loaded<'_>> {
        let mut command = Command::new(&self.command);
        command.args(&self.words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        // SAFETY: one system call between fork and exec, without allocation or locks.
        unsafe {
            // Whatever ends this process, the machine gets its own scheduler back.
            command.pre_exec(|| set_pdeathsig(Signal::SIGINT).map_err(Into::into));
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", self.command.display()))?;
        let mut loaded = Loaded { child, loader: self };
        let deadline = Instant::now() + PATIENCE;
        while state(&self.state) != "enabled" {
            Interrupts::of_process()?.check()?;
            if let Some(status) = loaded.child.try_wait()? {
                bail!("{}", loaded.last_words().unwrap_or_else(|| format!("it ended with {status}")));
            }
            if Instant::now() >= deadline {
                bail!("it was not in force after {} s", PATIENCE.as_secs());
            }
            thread::sleep(LOOK);
        }
        Ok(loaded)
    }
}

impl Loaded<'_> {
    /// Whether it is still in force: the kernel unloads one that fails.
    pub fn is_in_force(&self) -> bool {
        state(&self.loader.state) == "enabled"
    }

    /// What it said, in one line. After its end only.
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
        let deadline = Instant::now() + PATIENCE;
        // As a user ends it; fails only if it is gone.
        let _ = killpg(group, Signal::SIGINT);
        while !matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
            if Instant::now() >= deadline {
                let _ = killpg(group, Signal::SIGKILL);
                let _ = self.child.wait();
                break;
            }
            thread::sleep(LOOK);
        }
        // The kernel takes a moment to move every task back.
        while self.is_in_force() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program in the scheduler's place, which says that it is in force as the kernel would.
    fn loader(directory: &Path, script: &str) -> Loader {
        let state = directory.join("state");
        fs::write(&state, "disabled\n").expect("written");
        let words = ["-c", script, "sh"].map(str::to_string).into_iter().chain([state.display().to_string()]);
        Loader { command: "/bin/sh".into(), words: words.collect(), state }
    }

    const GOOD: &str = "trap 'echo disabled >\"$1\"; exit 0' INT; echo enabled >\"$1\"; while :; do sleep 0.01; done";

    #[test]
    fn it_is_in_force_for_as_long_as_it_is_wanted() {
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
    fn why_it_is_left_out_is_one_line() {
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
    fn another_scheduler_gives_the_row_its_name() {
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
