//! The Makefile, with a stand-in for cargo.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Targets that run tests, or build what tests load and execute. The others of `make test` and
/// `make test-all` compile C, or build into a folder of their own.
const TARGETS: [&str; 10] = [
    "build-tests",
    "build-tests-all",
    "test-layers",
    "test-unit",
    "test-preload",
    "test-rare",
    "test-slow",
    "test-glibc",
    "test-pairs",
    "test-figures",
];

#[test]
fn tests_under_a_users_folder_for_builds_are_built_in_target() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [cargo, record] = ["cargo", "record"].map(|name| directory.path().join(name));
    let script = format!("#!/bin/sh\necho \"$CARGO_TARGET_DIR\" >>{}\n", record.display());
    std::fs::write(&cargo, script).expect("a script");
    std::fs::set_permissions(&cargo, PermissionsExt::from_mode(0o755)).expect("its mode");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let repository = repository.canonicalize().expect("a path");
    // The options of `make test-all` are not for this make. Its own makes do nothing.
    let status = Command::new("make")
        .args(TARGETS)
        .arg("--silent")
        .arg("MAKE=true")
        .arg(format!("CARGO={}", cargo.display()))
        .current_dir(&repository)
        .env_remove("MAKEFLAGS")
        .env("CARGO_TARGET_DIR", "/dev/null/elsewhere")
        .env("CARGO_BUILD_TARGET_DIR", "/dev/null/elsewhere")
        .status()
        .expect("make runs");
    assert!(status.success(), "{status}");
    let folders = std::fs::read_to_string(&record).expect("make ran the stand-in");
    let target = repository.join("target");
    assert!(folders.lines().count() > TARGETS.len(), "{folders}");
    assert!(folders.lines().all(|folder| Path::new(folder) == target), "{folders}");
}
