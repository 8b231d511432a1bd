//! That the tests' own time-out works: a hang must end in a failure that shows where it hangs.

mod support;

use std::time::Duration;

use support::{Running, installed, plain};

fn message_of_a_hang() -> String {
    let payload = std::panic::catch_unwind(|| {
        Running::start(plain("/bin/sh").args(["-c", "echo begun; sleep 300 & wait"])).finish(Duration::from_millis(500))
    })
    .expect_err("a program that sleeps does not end");
    payload.downcast_ref::<String>().expect("a formatted message").clone()
}

#[test]
fn a_hang_is_reported_and_the_whole_group_killed() {
    let message = message_of_a_hang();
    assert!(message.contains("no end after 500ms"), "{message}");
    assert!(message.contains("begun"), "the output is missing: {message}");
    // The shell and the sleep, by their ids; a killed one may be a zombie for a moment.
    let pids: Vec<&str> =
        message.lines().filter_map(|line| line.split_once("stacks of process ")?.1.split([':', ' ']).next()).collect();
    assert_eq!(pids.len(), 2, "{message}");
    std::thread::sleep(Duration::from_millis(200));
    for pid in pids {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let gone = state.is_empty() || state.contains(") Z ");
        assert!(gone, "process {pid} is left: {state}");
    }
}

#[test]
fn a_hang_shows_the_stacks() {
    if installed("gdb", "gdb").is_none() {
        return;
    }
    let message = message_of_a_hang();
    assert!(message.contains("#0"), "no frames: {message}");
}
