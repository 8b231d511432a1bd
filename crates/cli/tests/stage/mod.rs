//! What the tests stand on: a directory of their own, a stand-in for the interposer, programs.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use assert_cmd::Command;
use tempfile::TempDir;

/// No test may hang. Whatever else the machine does, nothing here takes this long.
pub const LIMIT: Duration = Duration::from_secs(300);

/// A program whose throughput depends on the lock, the thread count and nothing else.
pub const THROUGHPUT: &str = "\
#!/bin/sh
case \"$UNCONVOY_LOCK\" in
  '') ops=$((1000000 / $1)) ;;
  loiter) ops=$((990000 - $1)) ;;
  *) ops=$((1000000 / $1 / $1)) ;;
esac
echo warming up: ops_per_sec: 1
echo \"ops_per_sec: $ops\"
echo \"operations: $ops\"
echo \"jain: 0.95\" >&2
";

/// The command that is tested: `unconvoy`, or the study's part of it.
const COMMAND: Option<&str> = match option_env!("CARGO_BIN_EXE_unconvoy") {
    Some(command) => Some(command),
    None => option_env!("CARGO_BIN_EXE_unconvoy-study"),
};

/// A directory with a shared object that stands in for the interposer, which is another crate's.
pub struct Stage {
    directory: TempDir,
}

impl Stage {
    pub fn new() -> Self {
        let stage = Self { directory: tempfile::tempdir().unwrap() };
        let source = stage.write("standin.c", "int unconvoy_stand_in;\n");
        let built = stage.compile("libunconvoy.so", &source, &["-shared", "-fPIC"]);
        assert!(built.is_ok(), "the tests need a C compiler: {built:?}");
        stage
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn library(&self) -> PathBuf {
        self.path("libunconvoy.so").canonicalize().unwrap()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Builds `source` into `name`, or says what the compiler said.
    pub fn compile(&self, name: &str, source: &Path, flags: &[&str]) -> Result<PathBuf, String> {
        let path = self.path(name);
        let output = Process::new("cc").arg("-o").arg(&path).arg(source).args(flags).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() { Ok(path) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    /// The command, in the directory, with the stand-in and nothing of the tester's environment.
    pub fn unconvoy(&self) -> Command {
        let mut command = Command::from_std(self.process());
        command.timeout(LIMIT);
        command
    }

    /// The same for tests that talk to it while it runs.
    pub fn process(&self) -> Process {
        let mut process = Process::new(COMMAND.expect("cargo builds the command that it tests"));
        process.current_dir(self.directory.path()).env("UNCONVOY_LIBRARY", self.library());
        for name in ["LD_PRELOAD", "UNCONVOY_LOCK", "UNCONVOY_LOAD", "UNCONVOY_STATS", "UNCONVOY_CHILDREN"] {
            process.env_remove(name);
        }
        process
    }
}

/// Whether a process has ended, or does so before long: a killed one still has to be scheduled.
/// Zombies, which wait for whoever has adopted them, have ended.
pub fn has_ended(id: &str) -> bool {
    let stat = format!("/proc/{}/stat", id.trim());
    let is_running = || {
        let text = fs::read_to_string(&stat).unwrap_or_default();
        text.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    };
    (0..10_000).any(|_| {
        let ended = !is_running();
        if !ended {
            std::thread::sleep(Duration::from_millis(5));
        }
        ended
    })
}
