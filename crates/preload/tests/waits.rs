//! Waits on condition variables that poll, and waits that must not poll: `c/waits.c` describes the
//! cases.

mod support;

use std::process::Command;

use support::{Finished, compile, plain, preloaded, preloaded_with, run};

fn run_case(case: &str, command: impl Fn(std::path::PathBuf) -> Command) -> Finished {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "waits.c", &[]);
    run(command(program).arg(case)).success(case)
}

#[track_caller]
fn assert_passes(case: &str) {
    let finished = run_case(case, preloaded);
    assert_eq!(finished.stderr, "");
    assert!(!finished.text().contains("not ok"), "{}", finished.both());
}

#[track_caller]
fn assert_passes_or_skips(case: &str) {
    let finished = run_case(case, preloaded);
    if finished.text().contains("skipped") {
        println!("{}", finished.text());
        return;
    }
    assert!(!finished.text().contains("not ok"), "{}", finished.both());
}

/// Number of signals in `silent-signals` that made no call of futex; `None` if it was skipped.
fn silent_signals(command: impl Fn(std::path::PathBuf) -> Command) -> Option<u32> {
    let text = run_case("silent-signals", command).text();
    let line = text.lines().find_map(|line| line.strip_prefix("silent "))?;
    line.split(' ').next()?.parse().ok()
}

/// A wait polls only where another processor may run the signaller.
fn has_processors() -> bool {
    let found = std::thread::available_parallelism().map_or(1, usize::from) > 1;
    if !found {
        println!("skipped: there is only one processor");
    }
    found
}

#[test]
fn signal_to_polling_waiter_makes_no_system_call() {
    let Some(without) = silent_signals(plain) else {
        println!("skipped: no filter can be installed");
        return;
    };
    assert_eq!(without, 0, "the count is wrong: glibc's waiters sleep");
    if has_processors() {
        // How many waiters still poll when the signal comes depends on the other processes.
        assert_ne!(silent_signals(preloaded), Some(0));
    }
}

#[test]
fn signal_without_mutex_requeues_no_waiter() {
    assert_passes("free-mutex");
}

#[test]
fn thread_with_short_waits_can_be_cancelled() {
    assert_passes("cancelled");
}

#[test]
fn timed_wait_that_polls_is_not_early() {
    assert_passes("timed-out");
}

#[test]
fn threads_with_long_waits_hardly_poll() {
    let finished = run_case("long-waits", preloaded);
    assert!(finished.text().contains(": idle"), "{}", finished.both());
}

/// Linux documents no error for these calls, but a tracer or a filter may return one.
#[test]
fn failed_wake_up_and_failed_requeueing_lose_no_waiter() {
    assert_passes_or_skips("failed-calls");
}

#[test]
fn real_time_waiter_lets_its_signaller_run() {
    assert_passes_or_skips("real-time");
}

/// A reader woken by the same release took the processor from the thread that had yet to wake the
/// writer.
#[test]
fn real_time_reader_lets_the_writer_before_it_run() {
    assert_passes_or_skips("real-time-writer");
}

/// Once a second the waiter used to leave the queue, to look whether the clock had been set.
#[test]
fn timed_wait_keeps_its_place() {
    for lock in ["mcs", "clh", "ticket"] {
        let finished = run_case("place", |program| preloaded_with(program, lock, "none"));
        assert!(!finished.text().contains("not ok"), "{lock}: {}", finished.both());
    }
}

/// Its timed locks took the turn that a release had reserved for the other thread.
#[test]
fn timed_locks_leave_another_thread_its_turn() {
    assert_passes("timed-turns");
}
