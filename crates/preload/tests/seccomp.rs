//! Programs that put a seccomp filter on themselves: what the library does beyond what a program with
//! pthread locks does anyway must not be what such a filter kills for. `c/seccomp.c` says which
//! filters these are.

mod support;

use support::{LIMIT, Running, compile, plain, preloaded};

/// How often each is run: whether a controller is in the middle of a reading when a filter falls on
/// it is a matter of luck.
const TIMES: usize = 4;

#[track_caller]
fn unharmed(arguments: &[&str]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "seccomp.c", &[]);
    let without = Running::start(plain(&program).args(arguments)).finish(LIMIT);
    if without.status.code() == Some(4) {
        println!("skipped: {}", without.text());
        return;
    }
    let without = without.success("without the library");
    assert_eq!(without.text().matches(" 0 errors").count(), arguments.len() + 1, "{}", without.text());
    for _ in 0..TIMES {
        let with = Running::start(preloaded(&program).args(arguments)).finish(LIMIT).success("with the library");
        assert_eq!(with.text(), without.text());
        // That it cannot see the load is something the library may say, once.
        assert!(with.stderr.lines().count() <= 1, "{}", with.stderr);
        assert!(with.stderr.lines().all(|line| line.starts_with("unconvoy: ")), "{}", with.stderr);
    }
}

#[test]
fn calls_that_fail() {
    unharmed(&["errno"]);
    unharmed(&["errno", "late"]);
}

#[test]
fn a_browsers_sandbox() {
    unharmed(&["sandbox"]);
    unharmed(&["sandbox", "late"]);
}

#[test]
fn a_list_from_before_close_range() {
    unharmed(&["no-close-range"]);
    unharmed(&["no-close-range", "late"]);
}

#[test]
fn a_list_of_the_calls_of_threads_alone() {
    unharmed(&["strict"]);
    unharmed(&["strict", "late"]);
}
