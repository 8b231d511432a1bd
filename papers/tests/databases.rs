//! The database workloads: they measure, leave nothing behind, and their consistency checks find
//! broken data.

mod commands;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Probes for a C++ compiler with RocksDB's headers.
fn rocksdb() -> Command {
    let mut probe = Command::new("c++");
    probe.args([
        "-std=c++17",
        "-E",
        "-include",
        "rocksdb/db.h",
        "-x",
        "c++",
        "/dev/null",
        "-o",
        "/dev/null",
    ]);
    probe
}

/// Builds the workload `name` and the program that breaks its data, or prints why it cannot.
fn build(name: &'static str) -> Option<Workload> {
    if !commands::succeed([rocksdb()]) {
        return None;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = directory.path().join(name);
    let alter_key = directory.path().join("alter_key");
    let mut make = Command::new("make");
    make.arg("--silent").arg("-C").arg(here.join("workloads"));
    make.arg(format!("OUT={}", directory.path().display())).arg(&program);
    let mut compiler = Command::new("c++");
    compiler
        .args(["-std=c++17", "-O1", "-o"])
        .arg(&alter_key)
        .arg(here.join("tests/alter_key.cc"))
        .arg("-lrocksdb");
    commands::run([make, compiler]);
    let data = directory.path().join("data");
    Some(Workload { name, directory, program, alter_key, data })
}

struct Workload {
    name: &'static str,
    directory: TempDir,
    program: PathBuf,
    alter_key: PathBuf,
    data: PathBuf,
}

impl Workload {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--data").arg(&self.data).args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the workload starts")
    }

    /// Runs the workload and reads its `name value` lines; it may print nothing else.
    fn values(&self, words: &[&str]) -> Values {
        let output = self.run(words);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        self.assert_clean();
        let text = String::from_utf8(output.stdout).expect("text");
        Values(
            text.lines()
                .map(|line| {
                    let (name, value) =
                        line.split_once(' ').unwrap_or_else(|| panic!("no value in {line:?}"));
                    (
                        name.to_owned(),
                        value.parse().unwrap_or_else(|_| panic!("no number in {line:?}")),
                    )
                })
                .collect(),
        )
    }

    /// Runs the workload, which must fail, and returns its one line of error.
    fn complaint(&self, words: &[&str]) -> String {
        self.ends_with(1, words)
    }

    /// Checks the data set, which must be inconsistent, and returns the one line of error.
    fn violation(&self) -> String {
        self.ends_with(3, &["--check"])
    }

    fn ends_with(&self, status: i32, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        self.assert_clean();
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    }

    fn copies(&self) -> Vec<PathBuf> {
        let prefix = format!("unconvoy-{}-run.", self.name);
        let entries = std::fs::read_dir(self.directory.path()).expect("a directory");
        entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
            })
            .collect()
    }

    fn assert_clean(&self) {
        assert_eq!(self.copies(), Vec::<PathBuf>::new(), "a copy was left behind");
    }

    /// Changes a row; returns false if it does not exist.
    fn alter(&self, words: &str) -> bool {
        let mut alter = Command::new(&self.alter_key);
        let altered = alter
            .arg(self.data.join("db"))
            .args(words.split(' '))
            .output()
            .expect("alter_key starts");
        assert!(altered.status.success() || altered.status.code() == Some(3), "{altered:?}");
        altered.status.success()
    }

    /// Makes these changes, expects the check to find them, and undoes them.
    fn assert_found(&self, changes: &[String], expected: &str) {
        let saved = self.directory.path().join("saved");
        copy(&self.data.join("db"), &saved);
        for words in changes {
            assert!(self.alter(words), "no row for {words}");
        }
        let complaint = self.violation();
        assert!(complaint.contains(expected), "{changes:?}: {complaint}");
        std::fs::remove_dir_all(self.data.join("db")).expect("removed");
        std::fs::rename(&saved, self.data.join("db")).expect("renamed");
    }

    /// Starts a long run, waits for its copy, ends the run by a signal and returns its status.
    fn interrupted(&self, signal: libc::c_int) -> std::process::ExitStatus {
        let mut child = self
            .command(&["--seconds", "3000"])
            .stdout(Stdio::null())
            .spawn()
            .expect("the workload starts");
        let start = Instant::now();
        while self.copies().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(600), "no copy appears");
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: the child has not been waited for, so its process ID is still its own.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        child.wait().expect("the child ends")
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

struct Values(Vec<(String, f64)>);

impl Values {
    fn get(&self, name: &str) -> f64 {
        let found = self.0.iter().find(|(found, _)| found == name);
        found.unwrap_or_else(|| panic!("no {name} in {:?}", self.0)).1
    }
}

/// Bad input that both workloads reject, before and after a load.
fn bad_input(workload: &Workload, load: &[&str], scale: &str) {
    let complaint = workload.complaint(&[]);
    assert!(
        complaint.contains(&format!("--data {} --{scale}", workload.data.display())),
        "{complaint}"
    );
    assert!(complaint.contains("--load"), "{complaint}");

    workload.values(load);
    // A second load does nothing.
    workload.values(load);
    let complaint = workload.complaint(&["--seed", "77", "--load", load[1], load[2]]);
    assert!(complaint.contains("--seed 1 and not 77"), "{complaint}");
    let complaint = workload.complaint(&[&format!("--{scale}"), "3"]);
    assert!(complaint.contains(&format!("--{scale} {} and not 3", load[2])), "{complaint}");
    let complaint = workload.complaint(&["--scratch", "/nonexistent"]);
    assert!(complaint.contains("No such file or directory"), "{complaint}");
    assert_eq!(workload.run(&["--threads", "0"]).status.code(), Some(2));
    let without = Command::new(&workload.program).output().expect("the workload starts");
    assert_eq!(without.status.code(), Some(2));

    // A directory with other contents and an interrupted load are both rejected.
    let elsewhere = Workload {
        data: workload.directory.path().to_path_buf(),
        directory: tempfile::tempdir().expect("a temporary directory"),
        program: workload.program.clone(),
        alter_key: workload.alter_key.clone(),
        ..*workload
    };
    assert!(elsewhere.complaint(load).contains("is not empty"));
    let marker = workload.data.join("dataset");
    let hidden = workload.directory.path().join("hidden");
    std::fs::rename(&marker, &hidden).expect("renamed");
    std::fs::write(workload.data.join("loading"), "").expect("a file");
    assert!(workload.complaint(&[]).contains("no complete data set"));
    workload.values(load);
}

/// An engine that cannot write ends the run with one line of error. A run removes its copy, and
/// also the copies that killed runs left behind.
fn ends(workload: &Workload) {
    // A limit on the file size stands for a full disk, which would need privilege. `ulimit -f 128`
    // is 64 KiB in dash, whose unit is 512 bytes, and 128 KiB in bash, whose unit is 1024 bytes.
    let script = format!(
        "trap '' XFSZ; ulimit -f 128; exec {} --data {} --seconds 10",
        workload.program.display(),
        workload.data.display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().expect("sh starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.lines().count() == 1 && text.contains("File too large"), "{output:?}");
    workload.assert_clean();

    use std::os::unix::process::ExitStatusExt;
    assert_eq!(workload.interrupted(libc::SIGTERM).signal(), Some(libc::SIGTERM));
    workload.assert_clean();
    assert_eq!(workload.interrupted(libc::SIGKILL).signal(), Some(libc::SIGKILL));
    assert_eq!(workload.copies().len(), 1);
    workload.values(&["--seconds", "0.01"]);
}

#[test]
#[ignore = "make test-all: builds and runs databases"]
fn tatp() {
    let Some(workload) = build("tatp") else {
        return;
    };
    let load = ["--load", "--subscribers", "1000"];
    bad_input(&workload, &load, "subscribers");
    ends(&workload);
    let below = workload.directory.path().join("not/there/yet");
    let loaded = Command::new(&workload.program)
        .arg("--data")
        .arg(&below)
        .args(load)
        .output()
        .expect("it starts");
    assert!(loaded.status.success() && below.join("dataset").exists(), "{loaded:?}");

    let values = workload.values(&["--seconds", "0.2", "--threads", "4"]);
    assert_eq!(values.get("threads"), 4.0);
    assert_eq!(values.get("subscribers"), 1000.0);
    assert!(values.get("mqth") < values.get("tps"));
    for (name, share) in
        [("get_subscriber_data", 0.35), ("get_access_data", 0.35), ("update_location", 0.14)]
    {
        let measured = values.get(&format!("tps_{name}")) / values.get("tps");
        assert!((measured - share).abs() < 0.05, "{name}: {measured}");
        let success = values.get(&format!("success_percent_{name}"));
        let expected = values.get(&format!("expected_percent_{name}"));
        assert!((success - expected).abs() < 10.0, "{name}: {success} instead of {expected}");
    }

    workload.values(&["--check"]);
    let number: String = "000000000000500".bytes().map(|digit| format!("{digit:02x}")).collect();
    let found = |change: String, expected| workload.assert_found(&[change], expected);
    found("delete 01000001f4".into(), "SUBSCRIBER 500 is missing");
    found("add 01000001f4 14 1".into(), "SUBSCRIBER 500 has another subscriber's sub_nbr");
    found(format!("delete 02{number}"), "the index on sub_nbr lacks SUBSCRIBER 500");
    found(format!("put 02{number} 01000000"), "from SUBSCRIBER 500's number to 1");
    found(format!("put 03ffffffff01 {}", "00".repeat(10)), "ACCESS_INFO (4294967295, 1) has no");
    found(format!("put 05000001f40508 {}", "00".repeat(16)), "has no SPECIAL_FACILITY");
    // Which rows exist depends on the population. Delete the first one that exists, and do not
    // restore it.
    let mut keys =
        (0..100).map(|n| format!("05{:08x}{:02x}{:02x}", 500 + n / 12, 1 + n / 3 % 4, n % 3 * 8));
    assert!(keys.any(|key| workload.alter(&format!("delete {key}"))), "no CALL_FORWARDING");
    assert!(workload.violation().contains("CALL_FORWARDING has"));
}

#[test]
#[ignore = "make test-all: builds and runs databases"]
fn tpcc() {
    let Some(workload) = build("tpcc") else {
        return;
    };
    bad_input(&workload, &["--load", "--warehouses", "1"], "warehouses");
    ends(&workload);

    let values = workload.values(&["--seconds", "0.5", "--threads", "4"]);
    assert_eq!(values.get("threads"), 4.0);
    assert_eq!(values.get("warehouses"), 1.0);
    assert!(values.get("tpmC") > 0.0);
    assert!(values.get("tps_payment") > values.get("tps_delivery"));
    assert_eq!(values.get("delivers"), 1.0);
    let others = workload.values(&["--seconds", "0.5", "--threads", "4", "--without-delivery"]);
    assert_eq!((others.get("delivers"), others.get("tps_delivery")), (0.0, 0.0));
    assert!(others.get("tps_new_order") > 0.0);
    // Four threads that sleep 5 ms per commit; about 2 of 100 transactions only read.
    let slow = workload.values(&["--seconds", "0.5", "--threads", "4", "--io-ms", "5"]);
    assert!(slow.get("ops_per_sec") < 4.0 / 0.005 / 0.9, "{}", slow.get("ops_per_sec"));

    // Offsets follow tpcc/schema.h; all rows are of the first district of the first warehouse.
    workload.values(&["--check"]);
    let found = |changes: &[&str], expected| {
        workload.assert_found(
            &changes.iter().map(|change| change.to_string()).collect::<Vec<_>>(),
            expected,
        );
    };
    found(
        &["add 020001 83 1"],
        "condition 1, warehouse 1, district 0: W_YTD and the sum of D_YTD: 300000.01 and 300000.00",
    );
    found(
        &["add 03000101 91 1"],
        "condition 2, warehouse 1, district 1: D_NEXT_O_ID - 1 and the largest O_ID: 3001 and 3000",
    );
    found(
        &["delete 0900010100000bb8"],
        "condition 2, warehouse 1, district 1: the largest NO_O_ID and O_ID: 2999 and 3000",
    );
    found(
        &["delete 09000101000009c4"],
        "condition 3, warehouse 1, district 1: the span of NO_O_ID and the rows of NEW-ORDER: 900 \
            and 899",
    );
    found(&["delete 0a0001010000000101"], "condition 4, warehouse 1, district 1");
    found(
        &["add 0700010100000bb8 10 1"],
        "condition 5, warehouse 1, district 1: rows in NEW-ORDER and O_CARRIER_ID: 1 and 1, order \
            3000",
    );
    found(
        &["add 0700010100000001 11 1", "add 0700010100000002 11 -1"],
        "condition 6, warehouse 1, district 1",
    );
    found(
        &["add 0a00010100000bb801 6 1"],
        "condition 7, warehouse 1, district 1: OL_DELIVERY_D and O_CARRIER_ID: 1 and 0, order 3000",
    );
    found(
        &["add 06000101000000000001 13 1"],
        "condition 8, warehouse 1, district 0: W_YTD and the sum of H_AMOUNT: 300000.00 and \
            300000.01",
    );
    found(
        &["add 03000101 83 1", "add 03000102 83 -1"],
        "condition 9, warehouse 1, district 1: D_YTD and the sum of H_AMOUNT: 30000.01 and \
         30000.00",
    );
    found(
        &["add 040001010001 141 1"],
        "condition 10, warehouse 1, district 1: a C_BALANCE, and OL_AMOUNT delivered minus \
            H_AMOUNT: -9.99 and -10.00",
    );
    found(&["add 040001010001 149 1"], "condition 12, warehouse 1, district 1");
    found(
        &["add 040001010001 0 1"],
        "the index on names has customer 1 of district 1 of warehouse 1",
    );
    found(
        &["add 0700010100000001 0 1"],
        "the index on orders has order 1 of district 1 of warehouse 1",
    );
    found(&["delete 0100000001"], "ITEM, warehouse 0: item 1 is missing");
    found(&["delete 0b0001000186a0"], "STOCK");
}

/// A separate program tests the loop that repeats a transaction after a deadlock or a time-out.
#[test]
#[ignore = "make test-all: builds and runs databases"]
fn conflicts() {
    if !commands::succeed([rocksdb()]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let engine = tests.join("../workloads/engine");
    let program = directory.path().join("conflicts");
    let mut compiler = Command::new("c++");
    compiler
        .args(["-std=c++17", "-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(tests.join("conflicts.cc"));
    compiler
        .arg("-I")
        .arg(tests.join("../../crates/bench/workloads"))
        .arg("-I")
        .arg(tests.join("../workloads"));
    compiler.args(
        ["database.cc", "dataset.cc", "scratch.cc", "session.cc"].map(|name| engine.join(name)),
    );
    compiler.arg("-lrocksdb");
    commands::run([compiler]);
    let output =
        Command::new(&program).arg(directory.path().join("data")).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}
