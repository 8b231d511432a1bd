//! `unconvoy bench` on the kernel's locks, and the remedies against one contended lock: rows,
//! records, energy, rejections, Ctrl-C. No number is judged here.

mod built;
mod space;
#[path = "../../crates/cli/tests/stage/mod.rs"]
mod stage;

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use assert_cmd::assert::Assert;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use stage::Stage;

/// A stage with a directory for the loads' files, which must be empty at the end.
fn stage() -> Stage {
    built::program("tasks");
    let stage = Stage::new();
    fs::create_dir(stage.path("files")).unwrap();
    stage
}

fn is_empty(stage: &Stage) -> bool {
    fs::read_dir(stage.path("files")).unwrap().next().is_none()
}

/// Runs a load with the built programs, writing `r.json` and its companions.
fn bench(stage: &Stage, words: &[&str]) -> Assert {
    let mut command = stage.unconvoy();
    command
        .timeout(stage::LIMIT)
        .arg("bench")
        .args(words)
        .arg("--workloads")
        .arg(built::directory());
    command.args(["--directory", "files", "--out", "r", "--warm-up", "0"]).assert()
}

fn record(stage: &Stage) -> Value {
    serde_json::from_str(&stage.read("r.json")).unwrap()
}

fn array<'a>(value: &'a Value, field: &str) -> &'a Vec<Value> {
    value[field].as_array().unwrap_or_else(|| panic!("{field} is no array"))
}

/// Whether any table's title contains `word`.
fn has_table(record: &Value, word: &str) -> bool {
    array(record, "tables")
        .iter()
        .any(|table| table["title"].as_str().is_some_and(|title| title.contains(word)))
}

const LOADS: [&[&str]; 6] = [
    &["mmapbench", "--megabytes", "4"],
    &["sockbench", "--family", "unix"],
    &["postmark", "--files", "50"],
    &["find", "--files", "300"],
    &["grep", "--megabytes", "1"],
    &["compile", "--sources", "3", "--functions", "1"],
];

#[test]
fn every_load_writes_record() {
    let stage = stage();
    for words in LOADS {
        let words = [words, &["--tasks", "2,1,2", "--runs", "2", "--seconds", "0.05"]].concat();
        let printed = bench(&stage, &words).success();
        let printed = String::from_utf8_lossy(&printed.get_output().stdout).into_owned();
        assert_eq!(printed, stage.read("r.md"));
        assert!(is_empty(&stage), "{words:?} left something");
        let record = record(&stage);
        assert_eq!(
            (&record["benchmark"], &record["complete"]),
            (&Value::from(words[0]), &Value::from(true))
        );
        for field in ["cpu", "kernel", "date", "command"] {
            assert!(!record["context"][field].is_null(), "no {field}");
        }
        let rows = array(&record["parameters"], "configurations");
        assert_eq!(array(&record["parameters"], "tasks"), &[2, 1]);
        assert_eq!(array(&record, "runs").len(), 2 * 2 * rows.len());
        for run in array(&record, "runs") {
            let of =
                |name: &str| run["measured"][name].as_f64().unwrap_or_else(|| panic!("no {name}"));
            assert_eq!(Some(of("tasks")), run["cell"]["tasks"].as_f64());
            assert!(
                of("ops") >= of("tasks") && of("ops_per_sec") > 0.0 && of("cpu_ns_per_op") > 0.0
            );
        }
        assert_eq!(stage.read("r.csv").lines().count(), 1 + array(&record, "runs").len());
        assert!(
            has_table(&record, "processor time per operation")
                && has_table(&record, "the kernel's")
        );
        // `unconvoy sched` has a row, or a note says why it has none.
        let is_named =
            |text: &Value| text.as_str().is_some_and(|text| text.contains("unconvoy sched"));
        assert!(rows.iter().chain(array(&record, "notes")).any(is_named), "{printed}");
        stage
            .unconvoy()
            .args(["bench", "--figure", "throughput", "r.json", "--plot", "f"])
            .assert()
            .success();
        assert!(stage.read("f.svg").contains("tasks"));
    }
}

#[test]
fn energy_table_follows_energy_counter() {
    let stage = stage();
    fs::create_dir_all(stage.path("powercap/intel-rapl:0")).unwrap();
    let run = |words: &[&str]| {
        let mut command = stage.unconvoy();
        command.env("UNCONVOY_POWERCAP", stage.path("powercap")).arg("bench").args(words);
        command.arg("--workloads").arg(built::directory()).args([
            "--out",
            "r",
            "--runs",
            "1",
            "--seconds",
            "0.05",
        ]);
        command.assert().success();
        record(&stage)
    };
    let sockbench = ["sockbench", "--family", "unix", "--tasks", "1", "--warm-up", "0"];
    let without = run(&sockbench);
    assert!(has_table(&without, "stands in for energy") && !has_table(&without, "joules"));
    stage.write("powercap/intel-rapl:0/name", "package-0\n");
    stage.write("powercap/intel-rapl:0/energy_uj", "12\n");
    stage.write("powercap/intel-rapl:0/max_energy_range_uj", "100\n");
    let with = run(&sockbench);
    assert!(has_table(&with, "joules") && !has_table(&with, "stands in"));
    // This counter never advances.
    let measured = &array(&with, "runs")[0]["measured"];
    assert_eq!(
        (measured["joules"].as_f64(), measured["joules_per_op"].as_f64()),
        (Some(0.0), Some(0.0))
    );
    built::program("counter");
    let counter = run(&["counter", "--threads", "1,2"]);
    assert!(has_table(&counter, "Energy per operation"));
    assert!(
        array(&counter, "notes")
            .iter()
            .any(|note| note.as_str().is_some_and(|note| note.contains("package-0")))
    );
}

#[test]
fn unmeasurable_load_is_rejected_before_running() {
    let stage = stage();
    let refuses = |words: &[&str], code: i32, text: &str| {
        let ended = bench(&stage, words).code(code);
        let stderr = String::from_utf8_lossy(&ended.get_output().stderr).into_owned();
        assert!(stderr.contains(text), "expected {text:?} in {stderr:?}");
        assert!(code == 2 || stderr.lines().count() <= 2, "{stderr}");
        assert!(is_empty(&stage) && !stage.path("r.json").exists());
    };
    refuses(&["find", "--tasks", "0"], 2, "from 1 to 4096");
    refuses(&["postmark", "--files", "0"], 2, "--files");
    if let Some(megabytes) = space::more_than_free(&stage.path("files")) {
        refuses(&["mmapbench", "--megabytes", &megabytes], 1, &format!("no space: {megabytes} MB"));
    }
    refuses(
        &["compile", "--compiler", "nosuch"],
        1,
        "nosuch is not installed: apt-get install gcc",
    );
    let mut command = stage.unconvoy();
    command
        .args(["bench", "find", "--directory", "/nosuch", "--workloads"])
        .arg(built::directory());
    command.assert().code(1).stderr(contains("/nosuch").and(contains("\n").count(1)));
    let mut command = stage.unconvoy();
    command.args(["bench", "find", "--workloads"]).arg(built::directory()).env("PATH", "/nosuch");
    command.assert().code(1).stderr(contains("find is not installed: apt-get install findutils"));
    let mut command = stage.unconvoy();
    command.args(["bench", "find", "--workloads", "nosuch"]);
    command.assert().code(1).stderr(contains("nosuch/tasks is missing"));
}

#[test]
fn signal_removes_files_and_keeps_finished_runs() {
    let stage = stage();
    let mut process = stage.process();
    process.args([
        "bench",
        "postmark",
        "--files",
        "2000",
        "--tasks",
        "2",
        "--runs",
        "1000",
        "--seconds",
        "0.05",
    ]);
    process
        .args(["--warm-up", "0", "--directory", "files", "--out", "r", "--workloads"])
        .arg(built::directory());
    let child = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + stage::LIMIT;
    while !stage.path("r.json").exists() {
        assert!(Instant::now() < deadline, "no round has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("--resume r.json"), "{stderr}");
    assert!(is_empty(&stage));
    assert!(!array(&record(&stage), "runs").is_empty());
}

/// Stands for `counter`, and writes statistics as the interposer would.
const COUNTER: &str = "\
#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --threads) threads=$2 ;; esac
  shift
done
special=null
[ \"$UNCONVOY_SSC\" = 1 ] && special=SPECIAL
if [ -n \"$UNCONVOY_STATS\" ]; then
  printf '{\"special\":%s,\"locks\":[{\"wait_ns\":150000000}]}' \"$special\" >\"$UNCONVOY_STATS\"
fi
ops=1000
[ \"$UNCONVOY_LOCK\" = mcs ] && ops=3000
printf 'threads %s\\nops_per_sec %s\\nprocess_wall_seconds 0.32\\ncpu_ns_per_op 100\\n' \
\"$threads\" $ops
";

#[test]
fn contention_aware_compares_remedies_in_one_table() {
    let stage = Stage::new();
    fs::create_dir(stage.path("w")).unwrap();
    let run = || {
        let words = [
            "bench",
            "contention-aware",
            "--workloads",
            "w",
            "--threads",
            "1,2",
            "--runs",
            "2",
            "--out",
            "r",
        ];
        stage.unconvoy().args(words).assert().success();
        record(&stage)
    };
    stage.script("w/counter", &COUNTER.replace("SPECIAL", "'{}'"));
    let with = run();
    let table = &array(&with, "tables")[0];
    let field = |row: &Value, column: usize| row[column].as_str().unwrap().to_string();
    let names: Vec<String> = array(table, "rows").iter().map(|row| field(row, 0)).collect();
    let all = [
        "default",
        "mutex",
        "adaptive",
        "requester-based",
        "scheduler",
        "MCS",
        "scheduler with MCS",
    ];
    assert_eq!(names, all);
    let last = &array(table, "rows")[6];
    assert_eq!(field(last, 1), "mcs+none --confine");
    assert_eq!(field(last, 2), "3.00 (3.00..3.00)");
    // Two threads for 0.32 s, less the time before the threads start.
    assert_eq!(field(last, 4), "25.0 (25.0..25.0)");
    assert_eq!(array(&with, "runs").len(), 2 * 2 * 7);
    stage.script("w/counter", &COUNTER.replace("SPECIAL", "null"));
    let without = run();
    assert_eq!(array(&array(&without, "tables")[0], "rows").len(), 5);
    let notes = array(&without, "notes").iter().filter_map(Value::as_str);
    assert_eq!(notes.filter(|note| note.contains("special set of cores")).count(), 1);
}
