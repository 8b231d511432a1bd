//! Builds the workload programs with the Makefile that users call.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// The build directory, shared by all tests.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("workloads")
}

/// Builds the program `name` if needed; returns its path.
pub fn program(name: &str) -> PathBuf {
    let directory = directory();
    let built = make(&directory, name, &[]);
    assert!(built.status.success(), "make {name}: {}", String::from_utf8_lossy(&built.stderr));
    directory.join(name)
}

/// Runs make for the program `name` in `directory`, with these variables.
pub fn make(directory: &Path, name: &str, variables: &[&str]) -> Output {
    // One make at a time: tests run in parallel, and two would write the same file.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock();
    Command::new("make")
        .arg("--silent")
        .arg("-C")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads"))
        .arg(format!("OUT={}", directory.display()))
        .args(variables)
        .arg(directory.join(name))
        .output()
        .expect("make runs (apt-get install make gcc)")
}
