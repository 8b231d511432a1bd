//! The workload programs, built by the Makefile that users call.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// Where they are built; once for all tests.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("workloads")
}

/// Builds the program `name`, where it is not built yet.
pub fn program(name: &str) -> PathBuf {
    let directory = directory();
    let built = make(&directory, name, &[]);
    assert!(built.status.success(), "make {name}: {}", String::from_utf8_lossy(&built.stderr));
    directory.join(name)
}

/// What make says of the program `name` in `directory`, with these variables set.
pub fn make(directory: &Path, name: &str, variables: &[&str]) -> Output {
    // One make at a time: tests run side by side, and two would write the same file.
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
