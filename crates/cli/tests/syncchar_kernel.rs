//! `unconvoy predict --kernel` on a real kernel in QEMU. Only the test of rejected arguments needs
//! no kernel and no QEMU.

mod stage;

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use stage::Stage;

/// Time limit for several emulated boots on a busy machine.
const LIMIT: Duration = Duration::from_secs(400);

/// Creates and removes files and directories on four processors, then exits with a status of 3.
const COMMAND: &str = "\
echo from the guest; \
for i in 1 2 3 4; do \
    (for j in $(seq 15); do \
        mkdir -p d$i/$j; cp /init d$i/$j/f; ls -l d$i > /dev/null; rm -r d$i/$j; \
    done) & \
done; \
wait; exit 3";

/// Returns the command with its temporary files in the stage's directory, so that leftovers are
/// found. The cache of symbols is shared by the tests.
fn unconvoy(stage: &Stage) -> Command {
    Command::from_std(process(stage))
}

fn process(stage: &Stage) -> Process {
    let temporary = stage.path("temporary");
    std::fs::create_dir_all(&temporary).unwrap();
    let mut process = stage.process();
    process.env_remove("UNCONVOY_LIBRARY").env("TMPDIR", temporary);
    process
        .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
        .arg("syncchar");
    process
}

/// Returns whether a part is missing, and prints which.
fn is_skipped() -> bool {
    let beside = Path::new(env!("CARGO_BIN_EXE_unconvoy")).parent().unwrap();
    if !beside.join("libunconvoy_plugin_system.so").is_file() {
        println!("missing: libunconvoy_plugin_system.so is not built (cargo build --workspace)");
        return true;
    }
    let stage = Stage::new();
    // The command checks its parts before the debug file, so an error about the missing debug file
    // means that all parts exist.
    let output = process(&stage)
        .args(["--kernel", "--debug-info", "/nowhere", "--", "true"])
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&output.stderr).trim().to_string();
    if output.status.code() == Some(125) {
        println!("missing: {why}");
        return true;
    }
    assert!(why.contains("--debug-info /nowhere"), "{why}");
    false
}

fn remains(stage: &Stage) -> Vec<PathBuf> {
    std::fs::read_dir(stage.path("temporary")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
#[ignore = "make test-all: boots guests"]
fn kernel_locks_have_names_times_and_estimates() {
    if is_skipped() {
        return;
    }
    let stage = Stage::new();
    let arguments =
        ["--kernel", "--cpus", "4", "--memory", "512", "--rate", "4", "--processors", "2,4"];
    let outputs =
        ["--json", "report.json", "--html", "report.html", "--keep-trace", "trace.parquet"];
    let ran = unconvoy(&stage)
        .timeout(LIMIT)
        .args(arguments)
        .args(outputs)
        .args(["--", COMMAND])
        .assert()
        .success();
    ran.stderr("").stdout(
        contains("from the guest")
            .and(contains("The command in the guest ended with status 3."))
            .and(contains("one instruction").or(contains("a nanosecond each")))
            .and(contains("kind of lock")),
    );
    assert!(remains(&stage).is_empty(), "{:?}", remains(&stage));

    let report: Value = serde_json::from_str(&stage.read("report.json")).unwrap();
    assert_eq!(report["run"]["clock"], "instructions");
    assert!(report["run"]["seconds"].as_f64().unwrap() > 0.01, "{}", report["run"]);
    let locks = report["locks"].as_array().unwrap();
    assert!(locks.len() >= 15, "{}", locks.len());
    for lock in &locks[..15] {
        let name = lock["name"].as_str().unwrap();
        assert!(!name.starts_with("lock "), "the longest-held have names: {name}");
        assert!(name.contains("first taken in"), "{name}");
        let share = lock["share"].as_f64().unwrap();
        assert!(share > 0.0 && share < 1.0, "{name}: {share}");
        assert!(
            lock["times"]["acquisitions"].as_u64().unwrap()
                >= lock["analysis"]["sections"].as_u64().unwrap()
        );
    }
    let classes = report["classes"].as_array().unwrap();
    let class = |name: &str| {
        let found = classes.iter().find(|class| class["name"] == name);
        found.unwrap_or_else(|| {
            panic!(
                "no {name} among {:?}",
                classes.iter().map(|class| &class["name"]).collect::<Vec<_>>()
            )
        })
    };
    assert!(class("dentry.d_lockref")["locks"].as_u64().unwrap() > 10);
    assert_eq!(class("runqueues.__lock")["locks"], 4, "one per processor");
    assert!(class("pglist_data.node_zones[].lock").is_object(), "memory in no slab cache");
    let all: f64 = classes.iter().map(|class| class["share"].as_f64().unwrap()).sum();
    // Locks held at the same time all count.
    assert!(all > 0.001 && all < 4.0, "{all}");
    let places: Vec<&str> = report["places"]
        .as_object()
        .unwrap()
        .values()
        .map(|place| place.as_str().unwrap())
        .collect();
    assert!(
        places.iter().filter(|place| place.contains("+0x")).count() * 10 > places.len() * 9,
        "{places:?}"
    );
    assert!(stage.read("report.html").contains("Kinds of locks"));

    // The trace contains names and times, so its analysis needs neither kernel nor QEMU.
    let again = ["--analyse", "trace.parquet", "--processors", "2,4", "--json", "again.json"];
    unconvoy(&stage).timeout(LIMIT).args(again).env("PATH", "/nowhere").assert().success();
    let again: Value = serde_json::from_str(&stage.read("again.json")).unwrap();
    let differs =
        ["run", "options", "held", "classes", "average", "locks", "words", "places", "remarks"]
            .into_iter()
            .filter(|key| again[key] != report[key]);
    assert_eq!(differs.collect::<Vec<_>>(), [""; 0]);
}

#[test]
#[ignore = "make test-all: boots guests"]
fn guest_over_time_limit_is_ended() {
    if is_skipped() {
        return;
    }
    let stage = Stage::new();
    let arguments = [
        "--kernel",
        "--cpus",
        "2",
        "--memory",
        "512",
        "--timeout",
        "25",
        "--",
        "while :; do ls / > /dev/null; done",
    ];
    let ran = unconvoy(&stage).timeout(LIMIT).args(arguments).assert().success();
    ran.stdout(contains("The time-out ended the guest"));
    assert!(remains(&stage).is_empty(), "{:?}", remains(&stage));
}

#[test]
#[ignore = "make test-all: boots guests"]
fn interruption_leaves_nothing_behind() {
    if is_skipped() {
        return;
    }
    let stage = Stage::new();
    let mut command = process(&stage);
    command
        .args(["--kernel", "--cpus", "2", "--memory", "512", "--", "sleep 1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let qemu = || {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        std::fs::read_to_string(children)
            .unwrap()
            .split_whitespace()
            .find_map(|id| id.parse::<i32>().ok())
    };
    let start = Instant::now();
    let machine = loop {
        assert!(start.elapsed() < LIMIT, "QEMU was never started");
        std::thread::sleep(Duration::from_millis(100));
        let Some(id) = qemu() else { continue };
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        if line.contains("qemu-system") {
            break id;
        }
    };
    std::thread::sleep(Duration::from_secs(2));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(kill(Pid::from_raw(machine), None).is_err(), "QEMU is still running");
    assert!(remains(&stage).is_empty(), "{:?}", remains(&stage));
}

#[test]
#[ignore = "make test-all: boots guests"]
fn kernel_without_disk_names_remedy() {
    if is_skipped() {
        return;
    }
    let stage = Stage::new();
    let empty = stage.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let arguments =
        ["--kernel", "--cpus", "1", "--memory", "256", "--modules", "empty", "--", "true"];
    let ran = unconvoy(&stage).timeout(LIMIT).args(arguments).assert().code(1);
    ran.stderr(
        contains("no virtio disk")
            .and(contains("--modules DIR"))
            .and(predicate::str::is_match("\\A[^\n]*\n\\z").unwrap()),
    );
    assert!(remains(&stage).is_empty(), "{:?}", remains(&stage));
}

#[test]
#[ignore = "make test-all: boots guests"]
fn invalid_kernel_arguments_are_rejected() {
    let stage = Stage::new();
    stage.write("text", "no kernel\n");
    let refused = |arguments: &[&str], status: i32, what: &str| {
        let mut command = unconvoy(&stage);
        command.args(arguments).args(["--", "true"]);
        command.assert().code(status).stdout("").stderr(contains(what));
    };
    refused(&["--kernel", "--cpus", "65"], 2, "1..=64");
    refused(&["--cpus", "4"], 2, "--kernel");
    refused(&["--kernel", "--workload", "find"], 2, "cannot be used with");
    refused(&["--kernel", "--qemu", "/bin/true"], 2, "not QEMU");
    refused(&["--kernel", "--qemu", "/nowhere/qemu"], 2, "cannot execute");
    let old = stage.script("old", "#!/bin/sh\necho QEMU emulator version 7.2.22 '(Debian)'\n");
    refused(&["--kernel", "--qemu", old.to_str().unwrap()], 2, "release 7");
    let plain = stage.script("plain", "#!/bin/sh\necho QEMU emulator version 10.0.2\n");
    refused(&["--kernel", "--qemu", plain.to_str().unwrap()], 2, "built without plug-ins");
    let good = stage.script("good", "#!/bin/sh\necho QEMU emulator version 10.0.2\necho -plugin\n");
    let good = ["--qemu", good.to_str().unwrap()];
    refused(&[&["--kernel", "text"], &good[..]].concat(), 2, "neither a bzImage nor a vmlinux");
    refused(&[&["--kernel", "missing"], &good[..]].concat(), 2, "No such file");
    let mut nowhere = unconvoy(&stage);
    nowhere.env("UNCONVOY_KERNEL", "/nowhere").args(["--kernel"]).args(good).args(["--", "true"]);
    nowhere.assert().code(125).stderr(contains("no kernel").and(contains("make kernel")));
}
