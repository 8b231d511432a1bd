//! The library leaves the process as it is: its descriptors, signals, `errno`, and its parent's
//! memory (`c/intrusions.c`).

mod support;

use std::fs;
use std::process::{Command, Stdio};

use support::{compile, plain, preloaded, run};

struct Program {
    directory: tempfile::TempDir,
    path: std::path::PathBuf,
}

impl Program {
    fn with(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = compile(directory.path(), "intrusions.c", flags);
        Program { directory, path }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// The exit status of a case without the library, if the machine supports the case.
    #[track_caller]
    fn is_supported(&self, arguments: &[&str]) -> bool {
        let status = run(plain(&self.path).args(arguments)).status.code();
        if status == Some(4) {
            println!("skipped: {arguments:?}: not on this machine, or only as root");
        } else {
            assert_eq!(status, Some(0), "without the library");
        }
        status != Some(4)
    }
}

#[test]
fn errno_is_zero_when_main_starts() {
    let program = Program::with(&[]);
    let text = |command: &mut Command| run(command.arg("errno")).success("errno").text();
    assert_eq!(text(preloaded(&program.path).env("UNCONVOY_SSC", "1")), "errno 0\n");
    let nowhere = program.file("no/such/statistics");
    assert_eq!(text(preloaded(&program.path).env("UNCONVOY_STATS", nowhere)), "errno 0\n");
}

/// Without `/proc`, the library says at the first long wait that load control is off.
#[test]
fn late_message_does_not_go_into_a_data_file() {
    let program = Program::with(&[]);
    let root = program.file("root");
    fs::create_dir(&root).expect("a directory");
    let root = root.display().to_string();
    if program.is_supported(&["data", &root]) {
        fs::remove_file(program.file("root/data")).expect("its file");
        run(preloaded(&program.path).args(["data", &root])).success("data");
        let text = fs::read_to_string(program.file("root/data")).expect("its file");
        assert_eq!(text, "first\nsecond\n");
    }
}

#[test]
fn message_into_a_pipe_without_reader_does_not_end_program() {
    let program = Program::with(&[]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = preloaded(&program.path);
    command.arg("address").env("UNCONVOY_LOCK", "nosuch").stderr(writer).stdout(Stdio::null());
    let status = command.status().expect("the program starts");
    assert_eq!(status.code(), Some(0), "{status}");
}

/// Without room for a file, the kernel sends a signal that ends a program.
#[test]
fn file_beyond_the_limit_does_not_end_program() {
    let program = Program::with(&[]);
    for (variable, case) in [("UNCONVOY_STATS", "address"), ("UNCONVOY_METRICS", "vfork")] {
        let mut command = preloaded("sh");
        let line = "ulimit -f 0; exec \"$@\"";
        command.args(["-c", line, "sh"]).arg(&program.path).arg(case);
        let finished = run(command.env(variable, program.file("out")));
        finished.success(variable);
    }
}

#[test]
fn child_of_a_bare_clone_is_confined() {
    let program = Program::with(&[]);
    if program.is_supported(&["clone"]) {
        run(preloaded(&program.path).arg("clone")).success("clone");
    }
}

#[test]
fn child_by_vfork_does_not_end_its_parents_metrics() {
    let program = Program::with(&[]);
    let metrics = program.file("program.prom");
    run(preloaded(&program.path).arg("vfork").env("UNCONVOY_METRICS", &metrics)).success("vfork");
    assert!(fs::read_to_string(metrics).expect("metrics").contains("unconvoy"));
}

#[test]
fn program_at_fixed_addresses_may_take_a_functions_address() {
    let program = Program::with(&["-no-pie", "-fno-pie"]);
    let statistics = program.file("statistics.json");
    let finished = run(preloaded(&program.path).arg("address").env("UNCONVOY_STATS", &statistics));
    assert_eq!(finished.success("address").stderr, "");
    let text = fs::read_to_string(statistics).expect("statistics");
    let statistics: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(statistics["locks"][0]["acquisitions"], 10, "{text}");
}
