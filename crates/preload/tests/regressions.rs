//! Differences from glibc that were fixed, one test per case; `c/regressions.c` describes each. A
//! case must print the same without the library and with it, under every lock.

mod support;

use std::path::PathBuf;

use support::{Locks, compile, library, plain, preloaded, profiled_locks, run};
use unconvoy_locks::catalogue::CONTENTION;

/// Runs `case`, with its `argument` if any, without the library and under the `locks`.
#[track_caller]
fn assert_same_under(
    locks: &[&str],
    case: &str,
    argument: impl Fn(&tempfile::TempDir) -> Option<PathBuf>,
) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "regressions.c", &[]);
    let argument = argument(&directory);
    let without = run(plain(&program).arg(case).args(&argument)).success(case);
    let mut differences = String::new();
    for lock in locks {
        let mut command = preloaded(&program);
        // The library may warn on standard error about missing features; the program must not
        // notice.
        let with = run(command.arg(case).args(&argument).env("UNCONVOY_LOCK", lock));
        if with.text() != without.text() || with.status != without.status {
            differences += &format!("{lock}: {}\n{}\n", with.status, with.both());
        }
    }
    assert!(
        differences.is_empty(),
        "{case} differs from glibc:\n{}\n{differences}",
        without.text()
    );
}

#[track_caller]
fn assert_same_under_every_lock(case: &str) {
    let locks: Vec<&str> = CONTENTION.iter().map(|lock| lock.name).collect();
    assert_same_under(&locks, case, |_| None);
}

/// For cases that do not depend on the lock.
#[track_caller]
fn assert_same(case: &str) {
    assert_same_under(&[CONTENTION[0].name], case, |_| None);
}

#[test]
fn lock_of_ended_thread_is_not_owned_by_next_thread() {
    assert_same_under_every_lock("ended-owner");
}

#[test]
fn wait_with_past_deadline_is_cancellation_point() {
    assert_same("past-deadline");
}

#[test]
fn cancelled_waiter_does_not_touch_destroyed_condition() {
    assert_same("cancelled-waiter");
}

#[test]
fn condition_destroy_waits_for_its_waiters() {
    assert_same("destroy-waits");
}

#[test]
fn condition_destroy_wakes_waiters_of_all_mutexes() {
    assert_same("second-mutex");
}

#[test]
fn asynchronous_cancellation_leaves_no_waiter_listed() {
    // Not compared with glibc: POSIX does not allow a wait to be cancelled asynchronously, and a
    // glibc wait that is cancelled while it holds the condition's internal lock sometimes leaves
    // that lock held forever.
    if profiled_locks() == Some(Locks::Libcs) {
        println!("skipped: a wait of glibc's may hang when it is cancelled asynchronously");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "regressions.c", &[]);
    let finished = run(preloaded(&program).arg("asynchronous")).success("asynchronous");
    assert!(finished.text().starts_with("ok "), "{}", finished.both());
}

#[test]
fn first_lock_with_linker_lock_held_does_not_deadlock() {
    assert_same_under(&[CONTENTION[0].name], "constructor", |directory| {
        let object = compile(directory.path(), "constructor.c", &["-shared", "-fPIC"]);
        let named = object.with_extension("so");
        std::fs::rename(&object, &named).expect("a rename in one directory");
        Some(named)
    });
}

#[test]
fn contention_without_memory_matches_glibc() {
    assert_same_under_every_lock("no-memory");
}

#[test]
fn failed_controller_start_keeps_errno() {
    assert_same("no-threads");
}

#[test]
fn contention_with_private_control_block_matches_glibc() {
    assert_same_under_every_lock("private-block");
}

#[test]
fn vfork_child_starts_no_controller() {
    assert_same("vfork");
}

#[test]
fn setuid_leaves_no_thread_with_old_user() {
    assert_same("setuid");
}

#[test]
fn forks_without_handlers_match_glibc() {
    assert_same_under_every_lock("other-forks");
}

#[test]
fn fork_handlers_registered_before_library_match_glibc() {
    assert_same_under_every_lock("early-handler");
}

#[test]
fn unlock_of_free_mutex_matches_glibc() {
    assert_same_under_every_lock("unlock-free");
}

#[test]
fn reader_limit_matches_glibc() {
    assert_same("reader-limit");
}

#[test]
fn condition_with_parents_waiters_works_after_fork() {
    assert_same("inherited-condition");
}

#[test]
fn fork_during_first_use_of_condition_leaves_it_usable_in_child() {
    assert_same("new-condition");
}

#[test]
fn condition_in_shared_memory_stays_shared() {
    assert_same("condition-in-shared-memory");
}

#[test]
fn condition_that_libc_has_served_works_with_a_private_mutex() {
    assert_same("condition-of-libc");
}

#[test]
fn wait_ends_in_child_of_a_handlers_fork() {
    assert_same("fork-in-handler");
}

#[test]
fn wait_that_polls_ends_in_child_of_a_handlers_fork() {
    assert_same("fork-while-polling");
}

/// The reader read the lock again after its release.
#[test]
fn released_reader_leaves_the_lock_alone() {
    assert_same("released-reader");
}

#[test]
fn controller_is_not_started_by_an_idle_thread() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "regressions.c", &[]);
    // Whatever the suite runs under: not every pair has a controller.
    let mut command = plain(&program);
    let finished = run(command.arg("idle-waiters").env("LD_PRELOAD", library()));
    let finished = finished.success("idle-waiters");
    assert!(finished.text().starts_with("a controller, policy 0\n"), "{}", finished.both());
}

#[test]
fn user_namespace_after_contention_is_granted() {
    assert_same("namespace");
}

/// The wait used to go to libc, which could not release the mutex.
#[test]
fn earlier_library_that_wraps_condition_waits_makes_library_decline() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let earlier = compile(directory.path(), "earlier.c", &["-shared", "-fPIC"]);
    let program = compile(directory.path(), "companions.c", &[]);
    let preload = format!("{}:{}", earlier.display(), library().display());
    let finished = run(plain(&program).arg("count").env("LD_PRELOAD", preload)).success("count");
    assert_eq!(finished.text(), "counted 16000, wrote 2000, 400 turns\n");
    assert!(finished.stderr.ends_with(": nothing is replaced\n"), "{}", finished.stderr);
}

/// Runs a program beside a library that defines a function of libc's, before and after the library
/// under test, and returns what the latter prints.
fn beside_interfering_library(flag: &str) -> [String; 2] {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let other = compile(directory.path(), "interfering.c", &["-shared", "-fPIC", flag]);
    let program = compile(directory.path(), "companions.c", &[]);
    let (other, own) = (other.display(), library().display());
    [format!("{own}:{other}"), format!("{other}:{own}")].map(|preload| {
        let finished =
            run(plain(&program).arg("count").env("LD_PRELOAD", preload)).success("count");
        assert_eq!(finished.text(), "counted 16000, wrote 2000, 400 turns\n");
        finished.stderr
    })
}

/// Each process used to hang at its start.
#[test]
fn library_with_its_own_dlsym_changes_nothing() {
    assert_eq!(beside_interfering_library("-DDLSYM"), ["", ""]);
}

/// The thread that reads the configuration used to wait for itself.
#[test]
fn locks_taken_while_configuration_is_read_make_library_decline() {
    for stderr in beside_interfering_library("-DGETENV") {
        assert!(stderr.contains("another library takes locks"), "{stderr}");
        assert!(stderr.ends_with(": nothing is replaced\n"), "{stderr}");
    }
}
