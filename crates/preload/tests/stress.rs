//! A randomised stress test under the default lock, with a profile, and briefly under other pairs
//! (`support/pairs.rs`). The output of a failing run contains its seed: `stress --seed N` makes the
//! same random choices.

mod support;

use support::mixed::mixed;
use support::pairs::pairs;
use support::{compile, plain, preloaded, preloaded_with, run, with_pair};

#[test]
fn stress_with_glibc_alone_passes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "stress.c", &[]);
    let finished =
        run(plain(&program).args(["--seconds", "1"])).success("stress without the library");
    assert!(finished.text().contains("\nok: "), "{}", finished.both());
}

#[test]
fn stress_with_default_lock_passes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "stress.c", &[]);
    let finished =
        run(preloaded(&program).args(["--seconds", "5"])).success("stress of the default");
    assert!(finished.text().contains("\nok: "), "{}", finished.both());
    assert_eq!(finished.stderr, "");
}

#[test]
fn stress_with_profile_passes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "stress.c", &[]);
    let file = directory.path().join("locks.profile");
    for settings in [&[][..], &[("UNCONVOY_REPLACE", "0")], &[("UNCONVOY_LOCK", "mcs")]] {
        let mut command = preloaded(&program);
        // A short period: nearly every wait is sampled.
        command.envs(settings.iter().copied()).env("UNCONVOY_PROFILE_PERIOD_MS", "0.001");
        command.env("UNCONVOY_PROFILE", &file).args(["--seconds", "1", "--threads", "8"]);
        let finished = run(&mut command).success("stress with a profile");
        assert!(finished.text().contains("\nok: "), "{settings:?}: {}", finished.both());
        assert_eq!(finished.stderr, "", "{settings:?}");
        let profile = std::fs::read(&file).expect("a profile");
        let recorded = unconvoy_profile::Recorded::parse(&profile).expect("a valid profile");
        assert!(recorded.has_ended && !recorded.samples.is_empty(), "{settings:?}");
    }
}

#[test]
fn stress_with_locks_of_different_pairs_passes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "stress.c", &[]);
    for (lock, load) in [("loiter", "control"), ("mcs", "park")] {
        let mut command = with_pair(mixed(&program), lock, load);
        let finished = run(command.args(["--seconds", "3", "--threads", "4"]))
            .success("stress with a mixed strategy");
        assert!(finished.text().contains("\nok: "), "{}", finished.both());
        assert_eq!(finished.stderr, "");
    }
}

#[test]
fn stress_with_each_pair_passes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "stress.c", &[]);
    let mut failures = String::new();
    for (lock, load) in pairs() {
        // Few threads: with more threads than processors, strictly ordered spin locks need a time
        // slice per hand-over. That is inherent in these locks and not tested here.
        let mut command = preloaded_with(&program, lock, load);
        let finished = run(command.args(["--seconds", "1", "--threads", "4"]));
        if !finished.status.success() || !finished.own_stderr(lock).is_empty() {
            failures += &format!("{lock} with {load}: {}\n{}\n", finished.status, finished.both());
        }
    }
    assert!(failures.is_empty(), "{failures}");
}
