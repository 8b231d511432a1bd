//! The randomised stress under the default lock, and shortly under other pairs (`support/pairs.rs`). The seed of a
//! run that fails is in its output and replays the same choices: `stress --seed N`.

mod support;

use support::pairs::pairs;
use support::{compile, plain, preloaded, preloaded_with, run};

#[test]
fn the_stress_passes_with_glibc_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "stress.c", &[]);
    let finished = run(plain(&program).args(["--seconds", "1"])).success("stress without the library");
    assert!(finished.text().contains("\nok: "), "{}", finished.both());
}

#[test]
fn the_default_lock_survives() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "stress.c", &[]);
    let finished = run(preloaded(&program).args(["--seconds", "5"])).success("stress of the default");
    assert!(finished.text().contains("\nok: "), "{}", finished.both());
    assert_eq!(finished.stderr, "");
}

#[test]
fn the_pairs_survive() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "stress.c", &[]);
    let mut failures = String::new();
    for (lock, load) in pairs() {
        // Few threads: strictly ordered spin locks need a time slice per hand-over once there are
        // more threads than processors, which is their nature and not what is tested here.
        let mut command = preloaded_with(&program, lock, load);
        let finished = run(command.args(["--seconds", "1", "--threads", "4"]));
        if !finished.status.success() || !finished.own_stderr(lock).is_empty() {
            failures += &format!("{lock} with {load}: {}\n{}\n", finished.status, finished.both());
        }
    }
    assert!(failures.is_empty(), "{failures}");
}
