//! The scripts that fill records and print their tables: no machine, commit or doubt is left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(folder: &Path, name: &str, record: &Value) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, record.to_string()).expect("a record");
    path
}

/// Runs a script, and returns whether it succeeded and what it printed.
fn run(mut command: Command) -> (bool, String) {
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("python3");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn script(name: &str) -> Command {
    Command::new(repository().join("scripts").join(name))
}

/// What a script prints of records.
fn table(name: &str, records: &[PathBuf]) -> String {
    let mut command = script(name);
    command.args(records);
    let (succeeded, text) = run(command);
    assert!(succeeded, "{text}");
    text
}

/// A copy of a script outside the repository, with the files it reads beside it. Python reads the
/// copy: the kernel executes no file while the child of another test's `fork` has it open.
fn copied(folder: &Path, names: &[&str]) -> Command {
    fs::create_dir_all(folder.join("scripts")).expect("a folder");
    for name in names.iter().chain(&["origins.py"]) {
        let path = Path::new("scripts").join(name);
        fs::copy(repository().join(&path), folder.join(&path)).expect("a copy");
    }
    let mut command = Command::new("python3");
    command.arg(folder.join("scripts").join(names[0]));
    command
}

/// A record of `compare` at 2 and at 8 threads. The ratios are those at 8; at 2, both rates agree.
fn compared(cpu: &str, complete: bool, ratios: &[f64]) -> Value {
    let (mut runs, mut summary) = (Vec::new(), Vec::new());
    for threads in [2, 8] {
        for configuration in ["libc", "default"] {
            for (round, ratio) in ratios.iter().enumerate() {
                let is_slow = configuration == "default" && threads == 8;
                let wobble = if configuration == "libc" { 1.0 } else { 1.0 + 1e-3 * round as f64 };
                runs.push(json!({
                    "configuration": configuration, "threads": threads, "round": round,
                    "metric": if is_slow { 1000.0 * ratio } else { 1000.0 * wobble },
                    "user_s": 1.0, "system_s": 0.0, "wall_s": 1.0,
                }));
            }
            summary.push(json!({
                "configuration": configuration, "threads": threads,
                "metric": {"median": 1000.0, "mad": 1.0}, "ratio": 0.92, "low": 0.9, "high": 0.94,
            }));
        }
    }
    json!({
        "title": "one: what runs", "complete": complete, "runs": runs, "summary": summary,
        "plan": {"configurations": ["libc", "default"], "threads": [2, 8]},
        "context": {
            "cpu": cpu, "processors": 2, "memory_kib": 8 << 20, "kernel": "Linux 6.1",
            "libc": "glibc 2.36", "unconvoy": "0.1.0", "date": "2026-11-27", "load_average": 0.1,
        },
    })
}

/// By Student's t, their probability is .017; the least of five ranks is .031.
const LOW: [f64; 5] = [0.9652, 0.9437, 0.9227, 0.9022, 0.8821];

#[test]
fn ranks_that_cannot_decide_do_not_hide_a_loss() {
    let folder = folder();
    let record = write(folder.path(), "one.json", &compared("Z80", true, &LOW));
    let text = table("programs-table.py", &[record]);
    assert!(text.contains("for the table: one at 8 (0.92)."), "{text}");
}

#[test]
fn incomplete_record_and_each_machine_are_named() {
    let folder = folder();
    let mut other = compared("6502", false, &LOW);
    other["commit"] = "badc0de".into();
    let records = [
        write(folder.path(), "one.json", &compared("Z80", true, &LOW)),
        write(folder.path(), "two.json", &other),
    ];
    let text = table("programs-table.py", &records);
    assert!(text.starts_with("Z80, 2 processors, 8 GiB"), "{text}");
    assert!(text.contains("\n6502, 2 processors") && text.contains("(badc0de)"), "{text}");
    let incomplete = |name| {
        let row = text.lines().find(|line| line.starts_with(name)).expect("a row");
        row.contains("| 5 (incomplete) |")
    };
    assert!(!incomplete("| one") && incomplete("| two"), "{text}");
}

#[test]
fn table_of_tune_names_the_commits_and_machines_of_all_steps() {
    let folder = folder();
    let known = repository().join("docs/records/tune/counter-2.json");
    let known = fs::read_to_string(known).expect("a record");
    let mut record: Value = serde_json::from_str(&known).expect("JSON");
    let first = write(folder.path(), "first.json", &record);
    record["oracle"]["commit"] = "badc0de".into();
    record["threads"] = 8.into();
    for step in ["oracle", "tune", "fresh"] {
        record[step]["context"]["cpu"] = "Z80".into();
    }
    let text = table("tune-table.py", &[first, write(folder.path(), "second.json", &record)]);
    let heading: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(heading.len(), 3, "two machines and the dates: {heading:?}");
    let second = heading.iter().find(|line| line.contains("Z80")).expect("a line");
    assert!(second.contains("badc0de: oracle"), "{heading:?}");
}

#[test]
fn cell_of_another_machine_is_not_continued() {
    let folder = folder();
    let mut command = copied(folder.path(), &["bench-tune.py", "tune-programs.toml"]);
    let record = json!({"name": "counter", "threads": 2, "oracle": {"context": {"cpu": "Z80"}}});
    fs::create_dir(folder.path().join("out")).expect("a folder");
    write(folder.path(), "out/counter-2.json", &record);
    command.args(["--out", "out", "--step", "oracle", "counter@2"]);
    let (succeeded, text) = run(command);
    assert!(!succeeded && text.contains("another machine: its cpu was Z80"), "{text}");
}

#[test]
fn patched_record_of_another_commit_is_not_relabelled() {
    let folder = folder();
    let mut command = copied(folder.path(), &["bench-patched.py"]);
    let built = folder.path().join("target/patched");
    fs::create_dir_all(&built).expect("a folder");
    for source in ["leveldb", "sqlite3"] {
        fs::write(built.join(format!("{source}.version")), "1\n").expect("a file");
    }
    let versions = json!({"leveldb": "1", "sqlite3": "1"});
    let record = json!({"commit": "badc0de", "versions": versions, "runs": [], "predictions": {}});
    let path = write(folder.path(), "patched.json", &record);
    command.arg("--out").arg(folder.path()).env("UNCONVOY", "/bin/true");
    let (succeeded, text) = run(command);
    assert!(!succeeded && text.contains("its commit was badc0de"), "{text}");
    assert!(fs::read_to_string(path).expect("a record").contains("badc0de"));
}

#[test]
fn cost_of_sampling_on_another_machine_is_not_relabelled() {
    let folder = folder();
    let qemu = folder.path().join("qemu-x86_64");
    fs::write(&qemu, "#!/bin/sh\necho qemu 1\n").expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&qemu, mode).expect("a mode");
    let record = json!({"machine": {"cpu": "Z80"}, "programs": {}});
    let path = write(folder.path(), "cost.json", &record);
    let mut command = script("syncchar-cost.py");
    let paths = format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("a path"));
    command.arg("--out").arg(path).arg("pigz").env("PATH", paths);
    let (succeeded, text) = run(command);
    assert!(!succeeded && text.contains("another machine: its cpu was Z80"), "{text}");
}

/// A record of `profile-cost.py` with runs of 1 s.
fn profiled(rounds: usize) -> Value {
    let cell = json!({
        "program": "counter", "profiler": "unconvoy profile", "off": 2.0, "on": 1.0,
        "waits_per_s": null,
    });
    let round = json!({"date": "2026-11-27", "commit": "badc0de", "cells": [cell]});
    json!({
        "machine": {"cpu": "Z80", "processors": 2, "kernel": "Linux", "libc": "glibc"},
        "command": ["scripts/profile-cost.py"], "rounds": vec![round; rounds],
    })
}

#[test]
fn interval_of_few_rounds_has_its_true_level() {
    let folder = folder();
    let text = |rounds| {
        let path = write(folder.path(), "cost.json", &profiled(rounds));
        table("profile-cost.py", &["--table".into(), path])
    };
    let few = text(3);
    assert!(few.contains("| 0.500 to 0.500 (75 %) |") && !few.contains("95 %"), "{few}");
    let enough = text(6);
    assert!(enough.contains("| 95 % interval |") && !enough.contains("(9"), "{enough}");
}

#[test]
fn rounds_of_other_lengths_are_not_pooled() {
    let folder = folder();
    let path = write(folder.path(), "cost.json", &profiled(1));
    let mut command = script("profile-cost.py");
    command.arg("--out").arg(path).args(["--seconds", "3", "counter"]);
    let (succeeded, text) = run(command);
    assert!(!succeeded && text.contains("has runs of 1 s"), "{text}");
}

#[test]
fn claims_table_names_dissenting_seeds_and_rejects_failed_points() {
    let folder = folder();
    let page = folder.path().join("claims.md");
    let heading = "| figure | claim | found | |\n| --- | --- | --- | --- |\n";
    let before = format!("0 of 1 claims hold.\n\n{heading}| taco-1 | rises | 1.000 | holds |\n");
    let claims = |failures: Value| {
        fs::write(&page, &before).expect("a page");
        let record = json!({
            "figure": "taco-1", "complete": true, "failures": failures,
            "claims": [{
                "claim": "rises", "found": "2.500 (1.000..4.000)", "holds": true,
                "numbers": [1.0, 4.0], "seeds_that_hold": 0,
            }],
        });
        let mut command = script("claims-table.py");
        command.arg(&page).arg(write(folder.path(), "taco-1.json", &record));
        let (succeeded, text) = run(command);
        (succeeded, text, fs::read_to_string(&page).expect("a page"))
    };
    let (succeeded, text, after) = claims(json!([]));
    assert!(succeeded, "{text}");
    let row = "| taco-1 | rises | 2.500 (1.000..4.000) | holds; with 0 of 2 seeds it does |";
    assert!(after.contains(row) && after.starts_with("1 of 1 claims hold."), "{after}");
    let (succeeded, text, after) = claims(json!(["rises at 8: the simulated program hangs"]));
    assert!(!succeeded && text.contains("taco-1 has failed points"), "{text}");
    assert_eq!(after, before);
}

/// Records before the second schema have one seed, and no numbers by seed.
#[test]
fn claims_table_reads_records_without_a_schema_and_rejects_others() {
    let folder = folder();
    let page = folder.path().join("claims.md");
    let heading = "| figure | claim | found | |\n| --- | --- | --- | --- |\n";
    let before = format!(
        "0 of 2 claims hold.\n\n{heading}| damon-2 | falls | 0.000 | **does not** [4] |\n\
         | damon-2 | rises | 0.000 | **does not** [5] |\n"
    );
    fs::write(&page, before).expect("a page");
    let claims = |name: &str, record: Value| {
        let mut command = script("claims-table.py");
        command.arg(&page).arg(write(folder.path(), name, &record));
        let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("python3");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let record = json!({
        "seed": 1, "figure": "damon-2", "complete": true, "failures": [],
        "claims": [
            { "claim": "falls", "found": "0.500", "holds": true },
            { "claim": "rises", "found": "0.900", "holds": false },
        ],
    });
    let (code, complaint) = claims("damon-2.json", record);
    assert_eq!(code, Some(0), "{complaint}");
    let after = fs::read_to_string(&page).expect("a page");
    let rows =
        "| damon-2 | falls | 0.500 | holds |\n| damon-2 | rises | 0.900 | **does not** [5] |\n";
    assert!(after.contains(rows) && after.starts_with("1 of 2 claims hold."), "{after}");
    let (code, complaint) = claims("idle.json", json!({ "processors": 2 }));
    assert_eq!(code, Some(2), "{complaint}");
    assert_eq!(complaint.trim_end().lines().count(), 1, "{complaint}");
    assert!(complaint.contains("idle.json is no record of a simulated figure"), "{complaint}");
    assert_eq!(fs::read_to_string(&page).expect("a page"), after);
}
