//! Programs that install a seccomp filter on themselves. The filters allow the system calls of any
//! program with pthread locks. The library must not make another call, for which such a filter may
//! kill the program. `c/seccomp.c` describes the filters.

mod support;

use support::{LIMIT, Locks, Running, compile, plain, preloaded, profiled, run};

/// Number of runs of each case. It depends on timing whether a filter is installed while a
/// controller reads a sensor.
const TIMES: usize = 4;

#[track_caller]
fn assert_unharmed(arguments: &[&str]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "seccomp.c", &[]);
    let without = Running::start(plain(&program).args(arguments)).finish(LIMIT);
    if without.status.code() == Some(4) {
        println!("skipped: {}", without.text());
        return;
    }
    let without = without.success("without the library");
    assert_eq!(
        without.text().matches(" 0 errors").count(),
        arguments.len() + 1,
        "{}",
        without.text()
    );
    for _ in 0..TIMES {
        let with = Running::start(preloaded(&program).args(arguments))
            .finish(LIMIT)
            .success("with the library");
        assert_eq!(with.text(), without.text());
        // The library may report, once, that it cannot read the load.
        assert!(with.stderr.lines().count() <= 1, "{}", with.stderr);
        assert!(with.stderr.lines().all(|line| line.starts_with("unconvoy: ")), "{}", with.stderr);
    }
}

#[test]
fn filter_with_failing_calls_does_not_harm_program() {
    assert_unharmed(&["errno"]);
    assert_unharmed(&["errno", "late"]);
}

#[test]
fn browser_sandbox_does_not_kill_program() {
    assert_unharmed(&["sandbox"]);
    assert_unharmed(&["sandbox", "late"]);
}

#[test]
fn filter_without_close_range_does_not_kill_program() {
    assert_unharmed(&["no-close-range"]);
    assert_unharmed(&["no-close-range", "late"]);
}

#[test]
fn filter_that_allows_thread_calls_only_does_not_kill_program() {
    assert_unharmed(&["strict"]);
    assert_unharmed(&["strict", "late"]);
}

/// The filter killed a program in which another thread was creating the file of a profile.
#[test]
fn filter_waits_for_profile_that_is_being_created() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "seccomp.c", &[]);
    let file = directory.path().join("locks.profile");
    for turn in 0..20 {
        let mut command = preloaded(&program);
        profiled(&mut command, if turn % 2 == 0 { Locks::Own } else { Locks::Libcs });
        // The process that another one started creates its file at its first wait.
        command.env("UNCONVOY_STATS_OWNER", "1").env("UNCONVOY_PROFILE", &file);
        let finished = run(command.arg("strict").arg(&file));
        if finished.status.code() == Some(4) {
            println!("skipped: {}", finished.text());
            return;
        }
        assert_eq!(finished.success("strict").text().matches(" 0 errors").count(), 2);
    }
}
