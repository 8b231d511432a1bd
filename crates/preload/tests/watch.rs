//! Tests of the test support: a hang must fail with the stacks of the hanging threads, and a
//! machine without room for threads must not look like a fault of the library.

mod support;

use std::time::{Duration, Instant};

use support::{LIMIT, Running, compile, installed, plain, run};

/// Time limit for a program that hangs on purpose; a busy machine needs a while to start it.
const SHORT: Duration = Duration::from_secs(3);

fn message_of_a_hang() -> String {
    let payload = std::panic::catch_unwind(|| {
        Running::start(plain("/bin/sh").args(["-c", "echo begun; sleep 300 & wait"])).finish(SHORT)
    })
    .expect_err("a program that sleeps does not end");
    payload.downcast_ref::<String>().expect("a formatted message").clone()
}

#[test]
fn hang_is_reported_and_kills_whole_group() {
    let message = message_of_a_hang();
    assert!(message.contains(&format!("no end after {SHORT:?}")), "{message}");
    assert!(message.contains("begun"), "the output is missing: {message}");
    // The process ids of the shell and of `sleep`.
    let pids: Vec<&str> = message
        .lines()
        .filter_map(|line| line.split_once("stacks of process ")?.1.split([':', ' ']).next())
        .collect();
    assert_eq!(pids.len(), 2, "{message}");
    pids.iter().for_each(|pid| has_ended(pid));
}

/// A killed process exists until it is next scheduled, and may then be a zombie.
#[track_caller]
fn has_ended(process: &str) {
    let ended = || {
        let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    };
    let deadline = Instant::now() + LIMIT;
    while !ended() {
        assert!(Instant::now() < deadline, "process {process} is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn hang_report_shows_stacks() {
    if installed("gdb", "gdb").is_none() {
        return;
    }
    let message = message_of_a_hang();
    assert!(message.contains("#0"), "no frames: {message}");
}

/// Runs `c/machine.c` with short time limits.
fn machine(mode: &str) -> std::thread::Result<support::Finished> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let flags = ["-DWATCHDOG_SECONDS=20", "-DWATCHDOG_CPU_SECONDS=1", "-DROOM_SECONDS=1"];
    let program = compile(directory.path(), "machine.c", &flags);
    std::panic::catch_unwind(|| run(plain(&program).arg(mode)))
}

fn message(failed: std::thread::Result<support::Finished>) -> String {
    let payload = failed.expect_err("the test fails");
    payload.downcast_ref::<String>().expect("a formatted message").clone()
}

#[test]
fn hanging_check_is_named_with_its_stacks() {
    for mode in ["sleeps", "spins"] {
        let message = message(machine(mode));
        assert!(message.contains(&format!("hang: a check that {mode}")), "{message}");
        assert!(message.contains("stacks of process"), "{message}");
        // The watchdog must fire before any other limit.
        assert!(!message.contains("no end after"), "{message}");
    }
}

#[test]
fn refused_thread_is_reported_as_lack_of_room() {
    for mode in ["refused", "in-child"] {
        let message = message(machine(mode));
        assert!(message.contains("the machine has no room"), "{message}");
        for word in
            ["pthread_create", "temporarily unavailable", "threads-max", "pid_max", "RLIMIT_NPROC"]
        {
            assert!(message.contains(word), "{word} is not in it: {message}");
        }
    }
}

#[test]
fn temporarily_refused_thread_does_not_fail() {
    let finished = machine("admitted").expect("no panic").success("admitted");
    assert!(finished.text().contains("ok a thread that is admitted"), "{}", finished.both());
}

/// `c/neighbour.c`: `make test-busy` runs the tests beside its load.
#[test]
fn neighbour_ends_with_its_command() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let neighbour = compile(directory.path(), "neighbour.c", &[]);
    // The neighbour is the parent of the command, and has its own loops and threads.
    let script = "read n other </proc/$$/task/$$/children; \
                  echo $n $(cat /proc/$n/task/$n/children) \
                  $(ls /proc/$n/task | wc -l); exit 7";
    let finished = run(plain(&neighbour).args([
        "--spin",
        "2",
        "--threads",
        "100",
        "--seconds",
        "600",
        "sh",
        "-c",
        script,
    ]));
    assert_eq!(finished.status.code(), Some(7), "{}", finished.both());
    let text = finished.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    let [holder, first, second, threads] = words[..] else { panic!("{}", finished.both()) };
    assert_eq!(threads, "101", "{}", finished.both());
    [holder, first, second].into_iter().for_each(has_ended);
}
