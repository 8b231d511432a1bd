//! Programs that install a seccomp filter on themselves. The filters allow the system calls of any
//! program with pthread locks. The library must not make another call, for which such a filter may
//! kill the program. `c/seccomp.c` describes the filters.

mod support;

use support::{LIMIT, Running, compile, plain, preloaded};

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
