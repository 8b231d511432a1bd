//! `unconvoy run --watchdog`: one report on a thread that waits for long, and a program that goes
//! on.

#[path = "hang/program.rs"]
mod program;
mod stage;

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use program::{Program, until};
use stage::{Running, Stage};

/// The shortest time that the option accepts.
const LIMIT: &str = "100ms";

/// `unconvoy run --watchdog` of the program with these arguments; `None` if the library is missing.
fn watched(stage: &Stage, options: &[&str], arguments: &[&str]) -> Option<Command> {
    let library = stage::library()?;
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", library).args(["run", "--watchdog", LIMIT]).args(options);
    command.arg("--").arg(program::compile(stage)).args(arguments);
    Some(command)
}

/// Runs the program until the watchdog has reported; returns what was on standard error.
fn reported(stage: &Stage, options: &[&str], arguments: &[&str]) -> Option<String> {
    let file = stage.path("report.txt");
    let options = [options, &["--watchdog-report", "report.txt"]].concat();
    let mut program = Program::start(&mut watched(stage, &options, arguments)?);
    for _ in 0..3 {
        program.poke();
    }
    let report = until(|| std::fs::read_to_string(&file).unwrap_or_default(), |it| !it.is_empty());
    program.poke();
    assert_eq!(program.finish(), "", "the report goes to the file");
    Some(report)
}

/// The lines of a deadlock: what each thread holds, and waits for.
fn deadlock(report: &str) -> Vec<&str> {
    let start = report.find("\nDeadlock").unwrap_or_else(|| panic!("no deadlock in:\n{report}"));
    report[start + 1..].lines().skip(1).take_while(|line| line.starts_with("  ")).collect()
}

/// The name of the lock in a line `... holds LOCK, acquired in ...`, or `... waits for LOCK in`.
fn lock_in<'a>(line: &'a str, verb: &str) -> &'a str {
    let from = line.find(verb).unwrap_or_else(|| panic!("no {verb} in {line}")) + verb.len();
    let rest = &line[from..];
    rest.split(", acquired").next().and_then(|rest| rest.split(" in ").next()).expect("a lock")
}

/// Checks a deadlock of `count` threads: each holds what the one before waits for.
fn assert_cycle(report: &str, count: usize, first: &str, second: &str) {
    let lines = deadlock(report);
    assert_eq!(lines.len(), 2 * count, "{report}");
    for index in 0..count {
        let (held, wanted) = (lines[2 * index], lines[2 * index + 1]);
        assert!(held.contains("thread ") && held.contains("(worker-"), "{held}");
        assert!(
            first.is_empty() || held.contains(&format!("acquired in {first} (cycle.c:")),
            "{held}"
        );
        assert!(wanted.contains(&format!("in {second} (cycle.c:")), "{wanted}");
        let next = lines[(2 * index + 2) % lines.len()];
        assert_eq!(lock_in(wanted, "waits for "), lock_in(next, " holds "), "{report}");
    }
}

#[test]
fn deadlock_of_two_is_named_with_both_orders() {
    let stage = Stage::new();
    let Some(report) = reported(&stage, &[], &["mutex", "2"]) else { return };
    assert!(report.starts_with("unconvoy: watchdog: a thread has waited"), "{report}");
    assert!(report.contains("Deadlock of 2 threads"), "{report}");
    assert_cycle(&report, 2, "take_first", "take_second");
    assert!(report.contains("accounts[].guard"), "{report}");
    assert!(report.contains("  lock_mutexes (cycle.c:"), "stacks in {report}");
}

#[test]
fn deadlock_of_three_is_named_in_order() {
    let stage = Stage::new();
    let Some(report) = reported(&stage, &[], &["mutex", "3"]) else { return };
    assert_cycle(&report, 3, "take_first", "take_second");
}

#[test]
fn deadlock_under_another_pair_is_named() {
    let stage = Stage::new();
    for lock in ["mcs", "ttas", "ticket"] {
        let Some(report) = reported(&stage, &["--lock", lock, "--load", "none"], &["mutex", "2"])
        else {
            return;
        };
        assert_cycle(&report, 2, "take_first", "take_second");
        assert!(report.contains(&format!("{lock}+none")), "{report}");
        std::fs::remove_file(stage.path("report.txt")).expect("the report");
    }
}

#[test]
fn deadlock_of_libcs_mutexes_is_named() {
    let stage = Stage::new();
    for threads in ["2", "3"] {
        let arguments = ["mutex", threads];
        let Some(report) = reported(&stage, &["--lock", "libc"], &arguments) else { return };
        assert_cycle(&report, threads.parse().expect("a number"), "take_first", "take_second");
        assert!(report.contains("libc's locks"), "{report}");
        std::fs::remove_file(stage.path("report.txt")).expect("the report");
    }
}

#[test]
fn deadlock_of_readers_and_writers_is_named() {
    let stage = Stage::new();
    for options in [&[][..], &["--lock", "libc"]] {
        let Some(report) = reported(&stage, options, &["rwlock", "2"]) else { return };
        assert_cycle(&report, 2, "read_table", "write_table");
        std::fs::remove_file(stage.path("report.txt")).expect("the report");
    }
}

#[test]
fn long_wait_is_no_deadlock() {
    let stage = Stage::new();
    let Some(report) = reported(&stage, &[], &["shared", "3"]) else { return };
    assert!(!report.contains("Deadlock"), "{report}");
    assert!(report.contains("no deadlock: thread"), "{report}");
    assert!(report.contains("holds it and waits for no lock"), "{report}");
}

#[test]
fn lock_that_changes_hands_is_a_long_wait() {
    let stage = Stage::new();
    let Some(report) = reported(&stage, &[], &["often", "8"]) else { return };
    assert!(!report.contains("Deadlock"), "{report}");
    assert!(report.contains("no deadlock: acquired "), "{report}");
}

#[test]
fn report_comes_once_on_standard_error_and_the_program_goes_on() {
    let stage = Stage::new();
    let Some(mut command) = watched(&stage, &[], &["mutex", "2"]) else { return };
    let mut program = Program::start(&mut command);
    let id = program.id().to_string();
    let inspect = || {
        let output = stage.unconvoy().args(["inspect", &id]).output().expect("the command runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // The waits last for many times the limit.
    until(inspect, |text| {
        let seconds = text.lines().find(|line| line.contains("asleep until a release"));
        seconds.is_some_and(|line| line.contains(" s, asleep") && !line.contains("ms,"))
    });
    program.poke();
    let errors = program.finish();
    assert_eq!(errors.matches("watchdog: a thread has waited").count(), 1, "{errors}");
    assert_eq!(errors.matches("Deadlock of 2 threads").count(), 1, "{errors}");
}

#[test]
fn report_that_cannot_be_written_goes_to_standard_error() {
    let stage = Stage::new();
    let options = ["--watchdog-report", "folder/report.txt"];
    std::fs::create_dir(stage.path("folder")).expect("a directory");
    let Some(mut command) = watched(&stage, &options, &["mutex", "2"]) else { return };
    let mut program = Program::start(&mut command);
    std::fs::remove_dir(stage.path("folder")).expect("empty");
    let id = program.id().to_string();
    let inspect = || {
        let output = stage.unconvoy().args(["inspect", &id]).output().expect("the command runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    until(inspect, |text| {
        let seconds = text.lines().find(|line| line.contains("asleep until a release"));
        seconds.is_some_and(|line| line.contains(" s, asleep") && !line.contains("ms,"))
    });
    program.poke();
    let errors = program.finish();
    assert!(errors.contains("the watchdog cannot write "), "{errors}");
    assert_eq!(errors.matches("Deadlock of 2 threads").count(), 1, "{errors}");
}

/// As the first process of a container, the program adopts orphans.
#[test]
fn program_that_adopts_orphans_waits_for_no_watchdog() {
    let stage = Stage::new();
    let Some(library) = stage::library() else { return };
    let source = stage.write(
        "reaper.c",
        "#include <errno.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         int main(void) { alarm(60); while (wait(0) > 0); return errno != ECHILD; }\n",
    );
    stage.compile("reaper", &source, &[]).expect("a C compiler");
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", library).args(["run", "--watchdog", LIMIT, "--", "./reaper"]);
    // SAFETY: the call has no pointers, and may be made after a fork.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            Ok(())
        });
    }
    let output = command.output().expect("the command runs");
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn stopped_program_does_not_wait() {
    let stage = Stage::new();
    let Some(library) = stage::library() else { return };
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", library).args(["run", "--watchdog", "2s"]);
    command.args(["--watchdog-report", "report.txt", "--"]);
    command.arg(program::compile(&stage)).args(["mutex", "2"]);
    let begin = std::time::Instant::now();
    let mut program = Program::start(&mut command);
    let pid = Pid::from_raw(program.id().cast_signed());
    (0..3).for_each(|_| program.poke());
    kill(pid, Signal::SIGSTOP).expect("ours");
    let is_early = begin.elapsed() < Duration::from_secs(1);
    std::thread::sleep(Duration::from_secs(3));
    assert!(!is_early || !stage.path("report.txt").exists(), "it has not waited for 2 s");
    kill(pid, Signal::SIGCONT).expect("ours");
    let report = || std::fs::read_to_string(stage.path("report.txt")).unwrap_or_default();
    until(report, |text| !text.is_empty());
    program.poke();
    program.finish();
}

#[test]
fn program_without_waits_gets_no_report() {
    let stage = Stage::new();
    let Some(mut command) = watched(&stage, &[], &["shared", "1"]) else { return };
    let program = Program::start(&mut command);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(program.finish(), "");
}

/// A look at a program without the library reads all of its data.
#[test]
fn watchdog_ends_if_the_program_becomes_one_without_the_library() {
    let stage = Stage::new();
    let Some(library) = stage::library() else { return };
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", library).args(["run", "--watchdog", LIMIT, "--", "sh", "-c"]);
    command.arg("sleep 1; unset LD_PRELOAD; exec sleep 60");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut program = Running(command.spawn().expect("the program starts"));
    let errors = BufReader::new(program.0.stderr.take().expect("a pipe"));
    let mut lines = errors.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("the watchdog ends: ")));
}

#[test]
fn program_without_a_watchdog_keeps_no_held_locks() {
    let stage = Stage::new();
    let Some(library) = stage::library() else { return };
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", library).args(["run", "--"]);
    let program = Program::start(command.arg(program::compile(&stage)).args(["rwlock", "2"]));
    let id = program.id().to_string();
    let inspect = || {
        let output = stage.unconvoy().args(["inspect", &id]).output().expect("the command runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = until(inspect, |text| text.matches("to write for").count() == 2);
    assert!(text.contains("which threads, only `run --watchdog` records"), "{text}");
    assert!(text.contains("no deadlock found: the holder is unknown"), "{text}");
}

#[test]
fn wrong_options_are_rejected() {
    let stage = Stage::new();
    for wrong in ["0", "soon", "1d"] {
        let command = ["run", "--watchdog", wrong, "--", "true"];
        stage.unconvoy().args(command).assert().code(2);
    }
    for own in [&["--load", "none"][..], &["--stats", "s.json"], &["--confine"]] {
        let command = [&["run", "--lock", "libc"], own, &["--", "true"]].concat();
        stage.unconvoy().args(command).assert().code(2);
    }
    stage.unconvoy().args(["run", "--watchdog-report", "r", "--", "true"]).assert().code(2);
    let command = ["run", "--watchdog", "10s", "--watchdog-report", "no/such/r", "--", "true"];
    let output = stage.unconvoy().args(command).assert().success();
    let errors = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(errors.contains("running without a watchdog"), "{errors}");
}

/// The library's own tests of POSIX, with held locks recorded.
#[test]
fn watched_program_passes_the_conformance_tests() {
    let stage = Stage::new();
    let Some(library) = stage::library() else { return };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/tests/c");
    for name in ["conformance_mutex", "conformance_rwlock", "conformance_cond"] {
        let source = sources.join(name).with_extension("c");
        let compiled = stage.compile(name, &source, &["-O2", "-pthread"]).expect("a C compiler");
        for lock in ["loiter", "libc"] {
            let mut command = stage.unconvoy();
            command.env("UNCONVOY_LIBRARY", &library);
            command.args(["run", "--watchdog", "3600s", "--lock", lock, "--"]).arg(&compiled);
            command.assert().success();
        }
    }
}
