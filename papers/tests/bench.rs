//! `unconvoy bench`: runs every subcommand for a moment, and checks the shape of its record. No
//! number is judged here.

mod commands;

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// Time limit of a command, so that no test hangs.
const LIMIT: Duration = Duration::from_secs(600);

fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unconvoy-study"));
    command.arg("bench").timeout(LIMIT).env_remove("UNCONVOY_LIBRARY");
    command
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Runs a benchmark and reads its record.
fn record(directory: &Path, words: &[&str], programs: Option<&Built>) -> Value {
    let out = directory.join(words[0]);
    let mut command = bench();
    command.args(words).arg("--out").arg(&out);
    if let Some(built) = programs {
        command.arg("--workloads").arg(&built.directory).env("UNCONVOY_LIBRARY", &built.library);
    }
    let ended = command.assert().success();
    let markdown = std::fs::read_to_string(out.with_extension("md")).expect("a Markdown file");
    assert_eq!(String::from_utf8_lossy(&ended.get_output().stdout), markdown);
    let json = std::fs::read_to_string(out.with_extension("json")).expect("a JSON file");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(record["schema"], "unconvoy-bench-1");
    assert_eq!(record["benchmark"], words[0]);
    assert_eq!(record["complete"], true, "{:?}", record["ended_by"]);
    for field in [
        "cpu",
        "processors",
        "kernel",
        "libc",
        "date",
        "command",
        "load_average_before",
        "load_average_after",
        "seed",
    ] {
        assert!(!record["context"][field].is_null(), "no {field}");
    }
    for table in array(&record, "tables") {
        let columns = array(table, "header").len();
        assert!(
            array(table, "rows")
                .iter()
                .all(|row| row.as_array().is_some_and(|row| row.len() == columns))
        );
    }
    record
}

fn array<'a>(value: &'a Value, field: &str) -> &'a Vec<Value> {
    value[field].as_array().unwrap_or_else(|| panic!("{field} is no array"))
}

/// The judgement of a goal.
fn judgement<'a>(record: &'a Value, goal: &str) -> &'a Value {
    array(record, "judgements")
        .iter()
        .find(|judgement| judgement["goal"] == goal)
        .unwrap_or_else(|| panic!("no {goal}"))
}

/// Workload programs, and a shared object in place of the interposer, because these tests are about
/// the harness.
struct Built {
    directory: PathBuf,
    library: PathBuf,
}

/// Builds both, or prints why it cannot.
fn build(directory: &Path) -> Option<Built> {
    let version = |program: &str| {
        let mut probe = Process::new(program);
        probe.arg("--version");
        probe
    };
    if !commands::succeed([version("make"), version("cc")]) {
        return None;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads");
    let programs = ["counter", "pair", "condvar", "rwlock"].map(|name| directory.join(name));
    let source = directory.join("stand_in.c");
    let library = directory.join("libunconvoy.so");
    std::fs::write(&source, "int unconvoy_stand_in;\n").expect("a file");
    let mut make = Process::new("make");
    make.arg("--silent")
        .arg("-C")
        .arg(sources)
        .arg(format!("OUT={}", directory.display()))
        .args(&programs);
    let mut compiler = Process::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    commands::run([make, compiler]);
    Some(Built { directory: directory.to_path_buf(), library })
}

#[test]
fn counter() {
    let directory = directory();
    let Some(built) = build(directory.path()) else {
        return;
    };
    let words = [
        "counter",
        "--runs",
        "2",
        "--seconds",
        "0.05",
        "--threads",
        "1,2",
        "--think",
        "0,10000",
        "--locks",
        "tpmcs+control",
        "--latency",
    ];
    let record = record(directory.path(), &words, Some(&built));
    // Four rows, two counts, two think times; one of these cells is the serial limit.
    assert_eq!(array(&record, "runs").len(), 2 * 16);
    let run = &array(&record, "runs")[0];
    assert!(
        run["measured"]["ops_per_sec"].is_f64()
            && run["cell"]["configuration"].is_string()
            && run["round"] == 1
    );
    assert!(judgement(&record, "saturated-throughput")["measured"].is_f64());
    assert!(judgement(&record, "saturated-latency")["measured"].is_f64());
    assert!(judgement(&record, "think-10us")["measured"].is_f64());
    assert_eq!(judgement(&record, "saturated-fairness")["verdict"], "not judged");
    assert_eq!(judgement(&record, "think-1us-rows")["verdict"], "not judged");
}

#[test]
fn pair() {
    let directory = directory();
    let Some(built) = build(directory.path()) else {
        return;
    };
    let record = record(
        directory.path(),
        &["pair", "--runs", "1", "--seconds", "0.02", "--kinds", "normal,rwlock-read"],
        Some(&built),
    );
    assert_eq!(array(&record, "runs").len(), 8);
    assert!(
        judgement(&record, "pair-single")["measured"].is_f64()
            && judgement(&record, "pair-threaded")["measured"].is_f64()
    );
}

#[test]
fn condvar() {
    let directory = directory();
    let Some(built) = build(directory.path()) else {
        return;
    };
    let record = record(
        directory.path(),
        &["condvar", "--runs", "1", "--seconds", "0.02", "--threads", "2", "--waiters", "3"],
        Some(&built),
    );
    assert_eq!(array(&record, "runs").len(), 6);
    assert_eq!(array(&array(&record, "tables")[0], "rows").len(), 3);
}

#[test]
fn rwlock() {
    let directory = directory();
    let Some(built) = build(directory.path()) else {
        return;
    };
    let words = ["rwlock", "--runs", "1", "--seconds", "0.02", "--threads", "2"];
    let record = record(directory.path(), &words, Some(&built));
    assert_eq!(array(&record, "runs").len(), 6);
    assert!(judgement(&record, "rwlock-readers")["measured"].is_f64());
}

#[test]
fn memory() {
    let directory = directory();
    let Some(built) = build(directory.path()) else {
        return;
    };
    let record = record(
        directory.path(),
        &["memory", "--runs", "1", "--seconds", "0.1", "--threads", "4"],
        Some(&built),
    );
    assert!(
        array(&record, "runs").iter().all(|run| run["measured"]["private_kib"].as_u64() > Some(0))
    );
    assert_eq!(judgement(&record, "memory-mutex")["verdict"], "PASS");
    assert!(judgement(&record, "memory-thread")["measured"].is_f64());
}

#[test]
fn sensor() {
    let directory = directory();
    let words = [
        "sensor",
        "--runs",
        "1",
        "--seconds",
        "0.05",
        "--threads",
        "1,4",
        "--readings",
        "3",
        "--interval",
        "100000",
        "--contenders",
        "8",
    ];
    let record = record(directory.path(), &words, None);
    assert_eq!(array(&record, "runs").len(), 5);
    assert_eq!(array(&array(&record, "runs")[0], "measured").len(), 3);
    assert_eq!(judgement(&record, "sensor-reading")["verdict"], "not judged");
    assert_eq!(judgement(&record, "controller-share")["verdict"], "not judged", "8 contenders");
}

#[test]
fn bump() {
    let directory = directory();
    let words = ["bump", "--runs", "1", "--threads", "4", "--sampler", "contenders"];
    assert_eq!(array(&record(directory.path(), &words, None), "runs").len(), 4);
    let record = record(directory.path(), &["bump", "--runs", "1", "--threads", "4"], None);
    assert_eq!(array(&record, "runs").len(), 4);
    assert_eq!(judgement(&record, "bump-steady")["verdict"], "not judged");
    let csv = std::fs::read_to_string(directory.path().join("bump.csv")).expect("time series");
    assert!(csv.starts_with("round,target_before,target,time_ns,awake\n1,0,2,0,"));
}

#[test]
fn idle() {
    let directory = directory();
    let record = record(directory.path(), &["idle", "--runs", "1", "--seconds", "0.05"], None);
    assert_eq!(array(&record, "runs").len(), 3);
    assert!(judgement(&record, "idle-uncontended")["measured"].is_f64());
}

#[test]
fn report_lists_every_goal_and_record() {
    let directory = directory();
    record(directory.path(), &["bump", "--runs", "1", "--threads", "4"], None);
    let page = bench().arg("report").arg(directory.path()).assert().success();
    let page = String::from_utf8_lossy(&page.get_output().stdout).into_owned();
    assert!(page.starts_with("# Measurements\n") && page.contains("\n## bump\n"));
    assert!(page.contains("LevelDB readrandom") && page.contains("run `unconvoy bench idle`"));
}

#[test]
fn bad_input_names_the_remedy() {
    let says = |words: &[&str], status: i32, text: &str| {
        let ended = bench().args(words).assert().code(status);
        let stderr = String::from_utf8_lossy(&ended.get_output().stderr).into_owned();
        assert!(stderr.contains(text), "{words:?} said {stderr}");
    };
    says(&["counter", "--locks", "nosuch+control"], 2, "ttas");
    says(&["counter", "--threads", "0"], 2, "from 1 to 4096");
    says(&["pair", "--seconds", "nan"], 2, "from 0.01 to 3600");
    says(&["counter", "--workloads", "/nonexistent"], 1, "make workloads");
    says(&["report", "/nonexistent"], 1, "cannot read the directory");
    let empty = directory();
    says(&["report", &empty.path().display().to_string()], 1, "holds no record");
}

#[test]
fn failing_program_is_named_and_finished_runs_are_kept() {
    let directory = directory();
    let Some(built) = build(directory.path()) else {
        return;
    };
    // The dynamic loader prints an error and runs the program with libc. The result must not count
    // as a measurement of the default.
    std::fs::write(&built.library, "no shared object").expect("a file");
    let out = directory.path().join("out");
    let ended = bench()
        .args(["pair", "--runs", "1", "--seconds", "0.02", "--kinds", "normal", "--out"])
        .arg(&out)
        .arg("--workloads")
        .arg(&built.directory)
        .env("UNCONVOY_LIBRARY", &built.library)
        .assert()
        .code(1);
    assert!(
        String::from_utf8_lossy(&ended.get_output().stderr).contains("printed on standard error")
    );
    let json = std::fs::read_to_string(out.with_extension("json")).expect("a record all the same");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(record["complete"], false);
}

/// Whether the process has a handler for SIGINT.
fn catches_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
    let interrupt = 1 << (libc::SIGINT - 1);
    u64::from_str_radix(caught, 16).is_ok_and(|caught| caught & interrupt != 0)
}

#[test]
fn interrupt_keeps_finished_runs() {
    let directory = directory();
    let out = directory.path().join("out");
    let mut child = Process::new(env!("CARGO_BIN_EXE_unconvoy-study"))
        .args(["bench", "idle", "--runs", "1000", "--seconds", "0.05", "--out"])
        .arg(&out)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let deadline = Instant::now() + LIMIT;
    while !catches_interrupts(child.id()) {
        assert!(Instant::now() < deadline, "it does not watch for interrupts");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_secs(1)); // so that some runs have finished
    let killed =
        Process::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill exists");
    assert!(killed.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let json = std::fs::read_to_string(out.with_extension("json")).expect("a record all the same");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&record["complete"], &record["ended_by"]),
        (&Value::Bool(false), &Value::from("interrupted"))
    );
    assert_eq!(judgement(&record, "idle-uncontended")["verdict"], "not judged");
}
