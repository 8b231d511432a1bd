//! The program `tasks`: each load does what it counts, leaves nothing behind, and reports errors in
//! one line. The program is also tested as a static one, which is how it runs in a guest. No number
//! is judged here.

mod built;
mod space;
#[path = "../../crates/cli/tests/stage/mod.rs"]
mod stage;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use built::program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Time limit of a command, so that no test hangs.
const LIMIT: Duration = Duration::from_secs(600);

/// Every load at a small size, with the system program that it runs.
const LOADS: [(&[&str], Option<&str>); 6] = [
    (&["mmapbench", "--megabytes", "4"], None),
    (&["sockbench", "--family", "unix"], None),
    (&["postmark", "--files", "50"], None),
    (&["find", "--files", "300"], Some("find")),
    (&["grep", "--megabytes", "1"], Some("grep")),
    (&["compile", "--sources", "3", "--functions", "1"], Some("cc")),
];

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn has(tool: Option<&str>) -> bool {
    let found = tool.is_none_or(|tool| Process::new(tool).arg("--version").output().is_ok());
    if !found {
        println!("missing: {tool:?} is not installed");
    }
    found
}

/// A run in a directory that must be empty at the end.
fn command(program: &Path, words: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.timeout(LIMIT).args(words);
    if words[0] != "sockbench" {
        command.arg("--directory").arg(directory);
    }
    command
}

#[track_caller]
fn is_empty(directory: &Path) {
    let left: Vec<_> = fs::read_dir(directory).expect("a directory").collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// The `name value` lines of a run that succeeds, prints no error and leaves nothing.
#[track_caller]
fn values(program: &Path, words: &[&str]) -> HashMap<String, f64> {
    let directory = directory();
    let ended = command(program, words, directory.path()).assert().success().stderr("");
    is_empty(directory.path());
    let text = String::from_utf8_lossy(&ended.get_output().stdout).into_owned();
    let line = |line: &str| {
        let (name, value) =
            line.split_once(' ').unwrap_or_else(|| panic!("no `name value`: {line}"));
        (name.to_string(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
    };
    text.lines().map(line).collect()
}

#[test]
fn every_load_counts_its_operations() {
    let program = program("tasks");
    for (words, tool) in LOADS.into_iter().filter(|(_, tool)| has(*tool)) {
        let words = [words, &["--tasks", "3", "--seconds", "0.1", "--warm-up", "0"]].concat();
        let values = values(&program, &words);
        let get = |name: &str| {
            values.get(name).copied().unwrap_or_else(|| panic!("{words:?}: no {name}"))
        };
        assert_eq!(get("tasks"), 3.0);
        // At least one operation per task.
        assert!(
            get("ops") >= 3.0
                && get("ops_per_sec") > 0.0
                && get("seconds") > 0.0
                && get("cpu_seconds") > 0.0
        );
        assert!((get("user_seconds") + get("system_seconds") - get("cpu_seconds")).abs() < 1e-5);
        assert!(
            (get("cpu_seconds") * 1e9 / get("ops") / get("cpu_ns_per_op") - 1.0).abs() < 0.01,
            "{values:?}"
        );
        assert!((0.0..=1.0).contains(&get("jain")) && get("min_max") <= 1.0);
        match tool {
            Some("find") => assert_eq!(get("files_found"), 3.0 * get("files")),
            Some("grep") => assert!(get("files") > 50.0),
            _ => {}
        }
        if words[0] == "postmark" {
            assert_eq!(get("files_left"), 0.0);
            assert!(get("files_removed") >= 3.0);
        }
    }
}

#[test]
fn operations_option_fixes_the_count() {
    let program = program("tasks");
    for (words, _) in LOADS.into_iter().filter(|(_, tool)| has(*tool)) {
        let words = [words, &["--tasks", "2", "--operations", "3", "--warm-up", "0"]].concat();
        assert_eq!(values(&program, &words)["ops"], 6.0, "{words:?}");
    }
}

#[test]
fn static_program_runs() {
    let directory = directory();
    let built = built::make(directory.path(), "tasks", &["LDFLAGS=-static"]);
    if !built.status.success() {
        println!("skipped: no static C library: {}", String::from_utf8_lossy(&built.stderr));
        return;
    }
    let program = directory.path().join("tasks");
    let is_static =
        Process::new("ldd").arg(&program).output().is_ok_and(|output| !output.status.success());
    assert!(is_static, "the program is not static");
    for (words, _) in LOADS.into_iter().filter(|(_, tool)| has(*tool)) {
        let words = [words, &["--tasks", "2", "--operations", "1", "--warm-up", "0"]].concat();
        assert_eq!(values(&program, &words)["ops"], 2.0);
    }
}

#[test]
fn error_is_one_line() {
    let program = program("tasks");
    let fails = |words: &[&str], code: i32, text: &str| {
        let directory = directory();
        let ended = command(&program, words, directory.path()).assert().code(code);
        let stderr = String::from_utf8_lossy(&ended.get_output().stderr).into_owned();
        let mut lines = stderr.lines();
        assert!(
            lines.next().is_some_and(|line| line.contains(text)),
            "expected {text:?} in {stderr:?}"
        );
        // Wrong usage also prints the options.
        assert!(code == 2 || lines.next().is_none(), "{stderr}");
        is_empty(directory.path());
    };
    fails(&["nosuch"], 2, "unknown load nosuch");
    fails(&["find", "--tasks", "0"], 2, "from 1 to 4096");
    fails(&["sockbench", "--family", "nosuch"], 2, "inet or unix");
    fails(&["postmark", "--smallest", "10", "--largest", "9"], 2, "less than --smallest");
    if let Some(megabytes) = space::more_than_free(directory().path()) {
        fails(&["mmapbench", "--megabytes", &megabytes], 1, "no space");
    }
    fails(
        &["find", "--program", "nosuch"],
        1,
        "nosuch is not installed: apt-get install findutils",
    );
    fails(&["compile", "--compiler", "nosuch"], 1, "nosuch is not installed");
    fails(
        &["compile", "--compiler", "false", "--tasks", "3", "--sources", "2"],
        1,
        "false ended with status 1",
    );
    fails(&["grep", "--program", "true", "--megabytes", "1"], 1, "true found 0 of 95 files");
    let mut nowhere = Command::new(&program);
    nowhere.timeout(LIMIT).args(["find", "--directory", "/nosuch"]);
    let ended = nowhere.assert().code(1);
    assert!(
        String::from_utf8_lossy(&ended.get_output().stderr).contains("choose another --directory")
    );
}

#[test]
fn signal_leaves_nothing_behind() {
    let program = program("tasks");
    for (words, _) in
        LOADS.into_iter().filter(|(words, tool)| words[0] != "sockbench" && has(*tool))
    {
        let directory = directory();
        let mut process = Process::new(&program);
        process
            .args(words)
            .args(["--tasks", "3", "--seconds", "3000", "--directory"])
            .arg(directory.path());
        let child =
            process.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let deadline = Instant::now() + LIMIT;
        while fs::read_dir(directory.path()).expect("a directory").next().is_none() {
            assert!(Instant::now() < deadline, "{words:?} made nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The signal comes during preparation or measurement.
        std::thread::sleep(Duration::from_millis(150));
        let children = children_of(child.id());
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&output.status),
            Some(2),
            "{words:?}"
        );
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
        is_empty(directory.path());
        assert!(children.iter().all(|child| stage::has_ended(child)), "{words:?}: {children:?}");
    }
}

fn children_of(parent: u32) -> Vec<String> {
    let text =
        fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    text.split_whitespace().map(str::to_string).collect()
}
