//! `unconvoy_checkpoint` in a program that links without the library.

mod support;

use std::path::PathBuf;

use support::{compile, plain, preloaded, run};

fn header() -> String {
    format!("-I{}/../locks/include", env!("CARGO_MANIFEST_DIR"))
}

fn program(directory: &tempfile::TempDir, flags: &[&str]) -> PathBuf {
    let header = header();
    let flags: Vec<&str> = flags.iter().copied().chain([header.as_str()]).collect();
    compile(directory.path(), "checkpoint.c", &flags)
}

#[test]
fn program_without_library_links_and_runs() {
    for flags in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let finished = run(plain(program(&directory, &flags)).arg("idle")).success("idle");
        assert_eq!(finished.text(), "slept 0 times\n", "{flags:?}");
    }
}

#[test]
fn checkpoint_without_load_never_sleeps() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let finished = run(preloaded(program(&directory, &[])).arg("idle")).success("idle");
    assert_eq!(finished.text(), "slept 0 times\n");
    assert_eq!(finished.stderr, "");
}

/// The program ends only once threads have slept at checkpoints.
#[track_caller]
fn assert_sleeps(mode: &str, flags: &[&str], load: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = program(&directory, flags);
    let finished = run(preloaded(program).arg(mode).env("UNCONVOY_LOAD", load)).success(mode);
    assert_eq!(finished.text(), "0 sleeps with a lock, 0 in children\n", "{}", finished.both());
}

#[test]
fn threads_under_load_sleep_at_checkpoints() {
    assert_sleeps("load", &["-fPIE", "-pie"], "control");
    assert_sleeps("load", &["-fno-pie", "-no-pie"], "control");
    assert_sleeps("load", &[], "published");
    assert_sleeps("load", &[], "backoff");
}

#[test]
fn lock_with_published_readers_keeps_no_thread_awake() {
    assert_sleeps("reads", &[], "control");
}

#[test]
fn threads_with_locks_held_never_sleep_at_checkpoints() {
    assert_sleeps("held", &[], "control");
    assert_sleeps("held", &[], "backoff");
}

#[test]
fn child_of_fork_under_load_does_not_sleep() {
    assert_sleeps("fork", &[], "control");
}
