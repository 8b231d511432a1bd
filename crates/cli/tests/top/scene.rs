//! A program with known locks under the real interposer.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stage::{LIMIT, Running, Stage, library};

/// Holds a mutex and a spin lock while other threads wait for them.
const LOCKS: &str = include_str!("locks.c");

/// A process that the program has started, killed when the test ends.
pub struct Orphan(pub u32);

impl Drop for Orphan {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        unsafe { libc::kill(self.0.cast_signed(), libc::SIGKILL) };
    }
}

/// A program that runs under the real interposer.
pub struct Scene {
    pub stage: Stage,
    pub library: PathBuf,
    pub program: PathBuf,
}

impl Scene {
    /// `None` if the interposer is not built.
    pub fn new() -> Option<Self> {
        let built = library()?;
        let stage = Stage::new();
        // Another user may not reach the folder of the build.
        let library = stage.path("real/libunconvoy.so");
        std::fs::create_dir(stage.path("real")).expect("a directory");
        std::fs::copy(built, &library).expect("a copy");
        let source = stage.write("locks.c", LOCKS);
        let program = stage.compile("locks", &source, &["-g", "-O1", "-pthread"]);
        let program = program.expect("a C compiler");
        for path in [stage.path(""), stage.path("locks")] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path, mode).expect("the test's own files");
        }
        Some(Scene { stage, library, program })
    }

    /// The program under the interposer, without `unconvoy run`.
    pub fn program(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("LD_PRELOAD", &self.library).stdin(Stdio::null()).stdout(Stdio::piped());
        for name in ["UNCONVOY_TOP", "UNCONVOY_METRICS", "UNCONVOY_PROFILE", "UNCONVOY_LOCK"] {
            command.env_remove(name);
        }
        command.current_dir(self.stage.path(""));
        command
    }

    /// Starts a command, and waits until it prints that it is ready. Returns what it printed.
    pub fn start(&self, command: &mut Command) -> (Running, String) {
        let mut running = Running(command.spawn().expect("the program starts"));
        let stdout = running.0.stdout.take().expect("a pipe");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut said = String::new();
        while !said.contains("ready") {
            said += &receiver.recv_timeout(LIMIT).expect("the program is ready");
            said.push('\n');
        }
        (running, said)
    }

    pub fn top(&self, arguments: &[&str]) -> Output {
        self.stage.unconvoy().arg("top").args(arguments).output().expect("the command runs")
    }

    /// Snapshots of a process until one is as expected.
    pub fn snapshot(&self, pid: u32, is_expected: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            let output = self.top(&[&pid.to_string(), "--json", "--interval", "0.5"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let snapshot = serde_json::from_slice(&output.stdout).expect("JSON");
            if is_expected(&snapshot) {
                return snapshot;
            }
            assert!(Instant::now() < end, "{snapshot:#}");
        }
    }
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "not seen: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
