//! What the tests of the interposer stand on: the library under test, C programs compiled for one
//! test, and child processes that cannot outlive their time.

// Every test binary compiles this module for itself and uses a part of it.
#![allow(dead_code)]

pub mod contend;
mod finished;
pub mod pairs;
pub mod room;
pub mod server;

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use finished::Finished;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Long enough for anything here on a slow and busy machine, and for a program that waits for room
/// (`c/room.h`): a time-out means a hang. The C programs notice theirs earlier, check by check, and say so.
pub const LIMIT: Duration = Duration::from_secs(600);

/// How often a child's standard error is searched for a [`HANG`].
const LOOK: Duration = Duration::from_millis(250);

/// What a C program's line begins with when it hangs (`c/hang.h`).
const HANG: &str = "hang: ";

/// The path of `libunconvoy.so`: `UNCONVOY_LIBRARY` if that is set, else built by this call, since
/// cargo does not build a cdylib for the integration tests of its own package.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| match std::env::var_os("UNCONVOY_LIBRARY") {
        Some(path) => {
            fs::canonicalize(&path).unwrap_or_else(|error| panic!("UNCONVOY_LIBRARY={}: {error}", path.display()))
        }
        None => build_library(),
    })
}

fn build_library() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "unconvoy-preload", "--lib"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo build of libunconvoy.so: {}", output.status);
    // The messages name the file wherever the target directory is configured to be.
    let artefact = String::from_utf8(output.stdout)
        .expect("cargo writes UTF-8")
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(PathBuf::from))
        .find(|path| path.file_name().is_some_and(|name| name == "libunconvoy.so"))
        .expect("cargo names libunconvoy.so among its artefacts");
    fs::canonicalize(artefact).expect("libunconvoy.so exists after the build")
}

/// Compiles `tests/c/SOURCE` into `directory`, warnings being errors, and returns the program.
pub fn compile(directory: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    compile_file(directory, &source, flags)
}

/// The same for a source that the test has written.
pub fn compile_file(directory: &Path, source: &Path, flags: &[&str]) -> PathBuf {
    let program = directory.join(source.file_stem().expect("a source has a name"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-pthread"]).args(flags);
    let output = room::output(compiler.arg("-o").arg(&program).arg(source)).expect("cc runs (apt-get install gcc)");
    assert!(output.status.success(), "cc {}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    program
}

/// A command without the library and without any of its settings, whatever the caller has.
pub fn plain(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNCONVOY_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

/// The same with the library, in its default configuration; with `UNCONVOY_SUITE_SSC=1` and a special set of cores.
pub fn preloaded(program: impl AsRef<Path>) -> Command {
    let mut command = plain(program);
    command.env("LD_PRELOAD", library());
    if let Some(search) = std::env::var_os("UNCONVOY_SUITE_SSC") {
        command.env("UNCONVOY_SSC", search);
    }
    command
}

/// Where Debian's `program` is, or the reason why the test that asked ends here. It is looked for
/// where packages install it, so that a private build elsewhere in `PATH` does not stand in.
pub fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let usual = ["/usr/bin", "/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    // Debian keeps the versions of PostgreSQL apart, and has wrappers for some of them in /usr/bin.
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

/// A child in a process group of its own, which ends with this value at the latest.
pub struct Running {
    child: Child,
    group: Pid,
    stdout: File,
    stderr: File,
    name: String,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts `command` with its output into files, so that no full pipe ever holds it up.
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

    /// Sends `signal` to the child alone, and leaves it to it to tell those that it started.
    pub fn signal_leader(&self, signal: Signal) {
        kill_process(self.group, signal).expect("the child is there");
    }

    pub fn id(&self) -> Pid {
        self.group
    }

    /// The processes of the group and all that descend from the child; PostgreSQL's have groups of
    /// their own.
    pub fn members(&self) -> Vec<Pid> {
        members(self.group.as_raw_nonzero().get())
    }

    pub fn poll(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("the child is ours");
        }
        self.ended
    }

    /// What the child has printed so far.
    pub fn printed(&mut self) -> String {
        String::from_utf8_lossy(&contents(&mut self.stdout)).into_owned()
    }

    /// What the child has printed on both its outputs so far.
    pub fn all_printed(&mut self) -> String {
        self.printed() + &String::from_utf8_lossy(&contents(&mut self.stderr))
    }

    /// Waits for the end. After `limit`, or when the child says that it hangs, prints the stacks of all
    /// threads of the group and fails. Fails also if the machine had no room for the child's threads.
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

    /// The line by which the child says that it hangs.
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
            let mut debugger = Command::new("gdb");
            debugger.args(["-p", &pid.to_string(), "-batch", "-ex", "thread apply all bt"]).env_remove("LD_PRELOAD");
            match room::output(&mut debugger) {
                Ok(output) => {
                    text += &format!("--- stacks of process {pid}\n{}\n", String::from_utf8_lossy(&output.stdout))
                }
                Err(error) => text += &format!("--- no stacks of process {pid}: gdb: {error}\n"),
            }
        }
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The group may outlive its leader, and a group that is gone is no error here. Descendants are
        // looked up first, since they are nobody's once the leader is gone.
        let others = self.members();
        let _ = kill_process_group(self.group, Signal::KILL);
        for pid in others {
            let _ = kill_process(pid, Signal::KILL);
        }
        if self.ended.is_none() {
            let _ = self.child.wait();
        }
    }
}

fn contents(file: &mut File) -> Vec<u8> {
    // The child has another descriptor of the same open file and thus the same offset: reading at
    // offset 0 through a fresh one leaves its place in the output alone.
    use std::os::fd::AsRawFd;
    let mut bytes = Vec::new();
    let mut fresh = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("our own file");
    fresh.rewind().expect("a file can be rewound");
    fresh.read_to_end(&mut bytes).expect("a file can be read");
    bytes
}

/// The processes that are in `group` or descend from its leader, in no order.
pub fn members(group: i32) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut others: Vec<(i32, i32)> = Vec::new();
    let mut found: Vec<i32> = Vec::new();
    for pid in entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok()) {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // After the name in brackets: state, parent, group.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let numbers: Vec<i32> = rest.split_whitespace().skip(1).take(2).filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [_, of] if of == group => found.push(pid),
            [parent, _] => others.push((pid, parent)),
            _ => {}
        }
    }
    loop {
        let (children, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, parent)| found.contains(parent));
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
    let mut command = preloaded(program);
    command.env("UNCONVOY_LOCK", lock).env("UNCONVOY_LOAD", load);
    command
}
