//! What once differed from glibc, one test per case: `c/regressions.c` says what each is about. A
//! case prints the same without the library and with it, whatever the lock.

mod support;

use std::path::PathBuf;

use support::{compile, plain, preloaded, run};
use unconvoy_locks::catalogue::CONTENTION;

/// Runs `case` without the library and under the `locks`; with `argument`, if it takes one.
#[track_caller]
fn same_under(locks: &[&str], case: &str, argument: impl Fn(&tempfile::TempDir) -> Option<PathBuf>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "regressions.c", &[]);
    let argument = argument(&directory);
    let without = run(plain(&program).arg(case).args(&argument)).success(case);
    let mut differences = String::new();
    for lock in locks {
        let mut command = preloaded(&program);
        // The library may say on standard error what it cannot have here; the program must not notice.
        let with = run(command.arg(case).args(&argument).env("UNCONVOY_LOCK", lock));
        if with.text() != without.text() || with.status != without.status {
            differences += &format!("{lock}: {}\n{}\n", with.status, with.both());
        }
    }
    assert!(differences.is_empty(), "{case} is not as without the library:\n{}\n{differences}", without.text());
}

#[track_caller]
fn same_under_every_lock(case: &str) {
    let locks: Vec<&str> = CONTENTION.iter().map(|lock| lock.name).collect();
    same_under(&locks, case, |_| None);
}

/// Where the lock plays no part.
#[track_caller]
fn same(case: &str) {
    same_under(&[CONTENTION[0].name], case, |_| None);
}

#[test]
fn a_lock_of_an_ended_thread_is_not_the_next_threads() {
    same_under_every_lock("ended-owner");
}

#[test]
fn a_wait_with_a_past_deadline_is_a_cancellation_point() {
    same("past-deadline");
}

#[test]
fn a_cancelled_waiter_leaves_a_destroyed_condition_alone() {
    same("cancelled-waiter");
}

#[test]
fn destroying_a_condition_waits_for_its_waiters() {
    same("destroy-waits");
}

#[test]
fn asynchronous_cancellation_leaves_no_waiter_listed() {
    // Not compared with glibc: POSIX lets no wait be cancelled asynchronously, and glibc's, cancelled
    // while it holds the condition's internal lock, now and then leaves that lock held for ever.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "regressions.c", &[]);
    let finished = run(preloaded(&program).arg("asynchronous")).success("asynchronous");
    assert!(finished.text().starts_with("ok "), "{}", finished.both());
}

#[test]
fn first_locks_while_the_linkers_lock_is_held() {
    same_under(&[CONTENTION[0].name], "constructor", |directory| {
        let object = compile(directory.path(), "constructor.c", &["-shared", "-fPIC"]);
        let named = object.with_extension("so");
        std::fs::rename(&object, &named).expect("a rename in one directory");
        Some(named)
    });
}

#[test]
fn contention_without_memory() {
    same_under_every_lock("no-memory");
}

#[test]
fn errno_stays_when_no_controller_can_be_started() {
    same("no-threads");
}

#[test]
fn contention_by_a_thread_with_a_control_block_of_its_own() {
    same_under_every_lock("private-block");
}

#[test]
fn a_vfork_child_starts_no_controller() {
    same("vfork");
}

#[test]
fn no_thread_keeps_the_old_user() {
    same("setuid");
}

#[test]
fn forks_that_run_no_handlers() {
    same_under_every_lock("other-forks");
}

#[test]
fn fork_handlers_from_before_the_library() {
    same_under_every_lock("early-handler");
}

#[test]
fn unlock_of_a_free_mutex() {
    same_under_every_lock("unlock-free");
}

#[test]
fn as_many_readers_as_glibc() {
    same("reader-limit");
}

#[test]
fn a_condition_with_waiters_that_a_fork_left_behind() {
    same("inherited-condition");
}

#[test]
fn a_new_user_namespace_after_contention() {
    same("namespace");
}
