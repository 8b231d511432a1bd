//! Support for the interposer's tests: the library under test, C programs compiled for one test,
//! and child processes with a time limit.

// Each test binary compiles this module and uses only a part of it.
#![allow(dead_code)]

pub mod contend;
mod finished;
pub mod group;
pub mod mixed;
pub mod pairs;
mod parts;
pub mod room;
pub mod server;

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use finished::Finished;
pub use parts::{library, plain};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Time limit for any child, ample even on a slow, busy machine and for a program that waits for
/// room (`c/room.h`): exceeding it means a hang. The C programs have earlier limits of their own,
/// check by check, and report a hang themselves.
pub const LIMIT: Duration = Duration::from_secs(600);

/// Time between two searches of a child's standard error for a [`HANG`].
const LOOK: Duration = Duration::from_millis(250);

/// Start of the line that a hanging C program prints (`c/hang.h`).
const HANG: &str = "hang: ";

/// Compiles `tests/c/SOURCE` into `directory`, with warnings as errors; returns the program.
pub fn compile(directory: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    compile_file(directory, &source, flags)
}

/// Like [`compile`], for a source that the test has written. With `UNCONVOY_SUITE_GLIBC`, the
/// program runs with the glibc in that directory.
pub fn compile_file(directory: &Path, source: &Path, flags: &[&str]) -> PathBuf {
    let program = directory.join(source.file_stem().expect("a source has a name"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-pthread"]).args(flags);
    if let Ok(glibc) = std::env::var("UNCONVOY_SUITE_GLIBC") {
        compiler.arg(format!("-Wl,--dynamic-linker={glibc}/ld-linux-x86-64.so.2"));
        compiler.arg(format!("-Wl,--disable-new-dtags,-rpath={glibc}"));
    }
    // Parts of glibc before 2.34.
    compiler.arg("-o").arg(&program).arg(source).args(["-ldl", "-lrt"]);
    let output = room::output(&mut compiler).expect("cc runs (apt-get install gcc)");
    assert!(
        output.status.success(),
        "cc {}: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// A command with the library in its default configuration; with `UNCONVOY_SUITE_SSC=1`, also with
/// a special set of cores, with `UNCONVOY_SUITE_PROFILE`, with a lock profile, and with
/// `UNCONVOY_SUITE_STRATEGY=mixed`, with a different pair for each lock.
pub fn preloaded(program: impl AsRef<Path>) -> Command {
    let mut command = match std::env::var("UNCONVOY_SUITE_STRATEGY").as_deref() {
        Ok("mixed") => mixed::mixed(program.as_ref()),
        Ok(other) => panic!("UNCONVOY_SUITE_STRATEGY={other}: not mixed"),
        Err(_) => {
            let mut command = plain(program);
            command.env("LD_PRELOAD", library());
            command
        }
    };
    if let Some(search) = std::env::var_os("UNCONVOY_SUITE_SSC") {
        command.env("UNCONVOY_SSC", search);
    }
    if let Some(locks) = profiled_locks() {
        profiled(&mut command, locks);
    }
    command
}

/// Whose locks the suite profiles, if it does.
pub fn profiled_locks() -> Option<Locks> {
    match std::env::var("UNCONVOY_SUITE_PROFILE").as_deref() {
        Err(_) => None,
        Ok("own") => Some(Locks::Own),
        Ok("libc") => Some(Locks::Libcs),
        Ok(other) => panic!("UNCONVOY_SUITE_PROFILE={other}: neither own nor libc"),
    }
}

/// Whose locks a profiled program uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locks {
    Own,
    Libcs,
}

/// Adds a lock profile to a command. Nearly every wait is sampled.
pub fn profiled(command: &mut Command, locks: Locks) {
    // All programs write the same file, so the profiles of a suite need little room.
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder in the target directory");
        folder
    });
    command.env("UNCONVOY_PROFILE", folder.join("locks.profile"));
    command.env("UNCONVOY_PROFILE_PERIOD_MS", "0.001");
    if locks == Locks::Libcs {
        command.env("UNCONVOY_REPLACE", "0");
    }
}

/// The path of Debian's `program`; if it is missing, prints why the test is skipped. Searches only
/// the directories that packages install to, so that a private build in `PATH` is not used.
pub fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let usual = ["/usr/bin", "/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    // Debian keeps the versions of PostgreSQL in separate directories, with wrappers for some
    // programs in /usr/bin.
    let postgres = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = postgres
        .map(|version| version.path().join("bin"))
        .chain(usual)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file());
    if found.is_none() {
        println!("missing: {program} not installed (apt-get install {package})");
    }
    found
}

/// A child in its own process group, killed at the latest when this value is dropped.
pub struct Running {
    child: Child,
    group: Pid,
    stdout: File,
    stderr: File,
    name: String,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts `command` with its output in files, so that a full pipe never blocks it.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let stdout = tempfile::tempfile().expect("a temporary file");
        let stderr = tempfile::tempfile().expect("a temporary file");
        let name = format!("{command:?}");
        let command = command
            .stdout(stdout.try_clone().expect("a file descriptor"))
            .stderr(stderr.try_clone().expect("a file descriptor"))
            .process_group(0);
        let child = room::spawn(command).unwrap_or_else(|error| panic!("{name}: {error}"));
        let group = Pid::from_child(&child);
        Running { child, group, stdout, stderr, name, ended: None }
    }

    /// Sends `signal` to the whole group.
    pub fn signal(&self, signal: Signal) {
        kill_process_group(self.group, signal).expect("the group is there");
    }

    /// Sends `signal` to the child alone; the child must forward it to its own children.
    pub fn signal_leader(&self, signal: Signal) {
        kill_process(self.group, signal).expect("the child is there");
    }

    pub fn id(&self) -> Pid {
        self.group
    }

    /// The processes of the group and all descendants of the child: PostgreSQL's processes have
    /// their own groups.
    pub fn members(&self) -> Vec<Pid> {
        members(self.group.as_raw_nonzero().get())
    }

    pub fn poll(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("the child is ours");
        }
        self.ended
    }

    /// The child's standard output so far.
    pub fn printed(&mut self) -> String {
        String::from_utf8_lossy(&contents(&mut self.stdout)).into_owned()
    }

    /// The child's standard output and standard error so far.
    pub fn all_printed(&mut self) -> String {
        self.printed() + &String::from_utf8_lossy(&contents(&mut self.stderr))
    }

    /// Waits for the end. After `limit`, or when the child reports a hang, fails with the stacks of
    /// all threads of the group. Fails also if the machine had no room for the child's threads.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Finished {
        let deadline = Instant::now() + limit;
        let mut look = Instant::now() + LOOK;
        while self.poll().is_none() {
            if Instant::now() >= deadline {
                self.fail_with_stacks(&format!("no end after {limit:?}"));
            }
            if Instant::now() >= look {
                if let Some(line) = self.hang() {
                    self.fail_with_stacks(&line);
                }
                look = Instant::now() + LOOK;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let finished = Finished {
            status: self.ended.expect("the loop ends with a status"),
            stdout: contents(&mut self.stdout),
            stderr: String::from_utf8_lossy(&contents(&mut self.stderr)).into_owned(),
        };
        room::judge(&finished, &self.name);
        finished
    }

    /// The line in which the child reports a hang.
    fn hang(&mut self) -> Option<String> {
        let stderr = String::from_utf8_lossy(&contents(&mut self.stderr)).into_owned();
        stderr.lines().find(|line| line.starts_with(HANG)).map(str::to_owned)
    }

    #[track_caller]
    fn fail_with_stacks(&mut self, why: &str) -> ! {
        let stacks = self.stacks();
        let stdout = contents(&mut self.stdout);
        let stderr = contents(&mut self.stderr);
        panic!(
            "{}: {why}\n{stacks}\n--- stdout\n{}\n--- stderr\n{}",
            self.name,
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        );
    }

    /// The stacks of every process of the group and of the child's descendants, from gdb.
    pub fn stacks(&self) -> String {
        let mut text = String::new();
        for pid in self.members() {
            let pid = pid.as_raw_nonzero();
            let mut debugger = Command::new("timeout");
            debugger
                .args(["60", "gdb", "-p", &pid.to_string(), "-batch", "-ex", "thread apply all bt"])
                .env_remove("LD_PRELOAD");
            match room::output(&mut debugger) {
                Ok(output) => {
                    text += &format!(
                        "--- stacks of process {pid}\n{}\n",
                        String::from_utf8_lossy(&output.stdout)
                    )
                }
                Err(error) => text += &format!("--- no stacks of process {pid}: gdb: {error}\n"),
            }
        }
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The group may outlive its leader, and may also be gone already. Descendants are looked up
        // first: after the leader's death they can no longer be found.
        let others = self.members();
        let _ = kill_process_group(self.group, Signal::KILL);
        for pid in others {
            let _ = kill_process(pid, Signal::KILL);
        }
        // Not even a killed process ends while a tracer keeps one of its threads.
        let end = Instant::now() + Duration::from_secs(60);
        while self.ended.is_none() && self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() >= end {
                return eprintln!("{}: killed, but does not end", self.name);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn contents(file: &mut File) -> Vec<u8> {
    // The child shares the offset of this open file. Reading through a new descriptor leaves the
    // child's position in the output unchanged.
    use std::os::fd::AsRawFd;
    let mut bytes = Vec::new();
    let mut fresh =
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("our own file");
    fresh.rewind().expect("a file can be rewound");
    fresh.read_to_end(&mut bytes).expect("a file can be read");
    bytes
}

/// The processes in `group` and all descendants of its leader, in no particular order.
pub fn members(group: i32) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut others: Vec<(i32, i32)> = Vec::new();
    let mut found: Vec<i32> = Vec::new();
    for pid in entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok()) {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // After the name in parentheses: state, parent, group.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let numbers: Vec<i32> =
            rest.split_whitespace().skip(1).take(2).filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [_, of] if of == group => found.push(pid),
            [parent, _] => others.push((pid, parent)),
            _ => {}
        }
    }
    loop {
        let (children, rest): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, parent)| found.contains(parent));
        if children.is_empty() {
            return found.into_iter().filter_map(Pid::from_raw).collect();
        }
        found.extend(children.into_iter().map(|(pid, _)| pid));
        others = rest;
    }
}

/// Runs `command` to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Finished {
    Running::start(command).finish(LIMIT)
}

/// `program` under the library with one pair.
pub fn preloaded_with(program: impl AsRef<Path>, lock: &str, load: &str) -> Command {
    with_pair(preloaded(program), lock, load)
}

/// `command` with one pair.
pub fn with_pair(mut command: Command, lock: &str, load: &str) -> Command {
    command.env("UNCONVOY_LOCK", lock).env("UNCONVOY_LOAD", load);
    command
}
