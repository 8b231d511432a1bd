//! `unconvoy profile` of real programs under load: the profile names the lock that is known to be
//! contended in each, its waiters and its holders. The programs come from Debian's packages without
//! debug symbols.

mod stage;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use stage::{LIMIT, Stage, library};

/// Number of runs until one has sampled the lock. A run on a busy machine may sample few waits.
const RUNS: usize = 10;

fn has_programs(programs: &[(&str, &str)]) -> bool {
    let directories = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(Path::new);
    let mut is_complete = true;
    for (program, package) in programs {
        if !directories.iter().any(|directory| directory.join(program).is_file()) {
            println!("missing: {program} not installed (apt-get install {package})");
            is_complete = false;
        }
    }
    is_complete
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// The report of a run of `crates/bench/workloads/programs/NAME.sh`.
fn report_of_script(
    stage: &Stage,
    library: &Path,
    name: &str,
    variables: &[(&str, &str)],
) -> Value {
    let workloads = repository().join("crates/bench/workloads");
    let (json, text) = (stage.path("report.json"), stage.path("report.txt"));
    let under = format!(
        "{} profile --period 0.1 --json {} --text {} --",
        env!("CARGO_BIN_EXE_unconvoy"),
        json.display(),
        text.display()
    );
    let mut command =
        assert_cmd::Command::new(workloads.join("programs").join(format!("{name}.sh")));
    command.args(["8", "2"]).env("PROGRAMS_UNDER", under).env("UNCONVOY_LIBRARY", library);
    command.env("WORKLOADS", stage.path("")).env("PROGRAMS_CACHE", stage.path("cache"));
    command.env_remove("LD_PRELOAD").envs(variables.iter().copied()).timeout(LIMIT);
    command.assert().success();
    serde_json::from_str(&stage.read("report.json")).expect("a report")
}

/// Compiles a client of the benchmarks.
fn build_client(stage: &Stage, name: &str) {
    let workloads = repository().join("crates/bench/workloads");
    let status = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-pthread", "-I"])
        .arg(&workloads)
        .arg("-o")
        .arg(stage.path(name))
        .arg(workloads.join(format!("{name}.c")))
        .arg("-lm")
        .status();
    assert!(status.is_ok_and(|status| status.success()), "the tests need a C compiler");
}

fn rows<'a>(report: &'a Value, list: &str) -> Vec<&'a Value> {
    let rows = report[list].as_array().expect("rows").iter();
    rows.filter(|row| row["kind"] != "cond").collect()
}

fn places(row: &Value, side: &str) -> Vec<String> {
    let places = row[side].as_array().expect("places").iter();
    places.map(|place| place["place"].as_str().expect("a name").to_string()).collect()
}

/// Checks reports until one satisfies `check`.
fn assert_one(mut report: impl FnMut() -> Value, check: impl Fn(&Value) -> Result<(), String>) {
    let mut faults = Vec::new();
    for _ in 0..RUNS {
        match check(&report()) {
            Ok(()) => return,
            Err(fault) => faults.push(fault),
        }
    }
    panic!("{faults:#?}");
}

/// Whether one of the places has one of these names.
fn has_any(places: &[String], names: &[&str]) -> bool {
    places.iter().any(|place| names.iter().any(|name| place.contains(name)))
}

/// memcached guards its items by an array of locks, which `memcached_thread_init` initialises. With
/// one key, all threads wait for one of them.
#[test]
#[ignore = "make test-all: needs memcached"]
fn memcacheds_item_lock_is_most_contended() {
    let Some(library) = library() else { return };
    if !has_programs(&[("memcached", "memcached")]) {
        return;
    }
    let stage = Stage::new();
    build_client(&stage, "kv_load");
    let run = || report_of_script(&stage, &library, "memcached", &[("KEYS", "1")]);
    assert_one(run, |report| {
        let first = rows(report, "locks")[0];
        let name = first["name"].as_str().expect("a name");
        let is_item_lock = name.starts_with("mutex initialised in memcached");
        let share = first["share"].as_f64().expect("a share");
        let (waiters, holders) = (places(first, "waiters"), places(first, "holders"));
        // Without debug symbols, a place is the file and the offset in it.
        let is_placed = !waiters.is_empty() && !holders.is_empty();
        let remarks = report["remarks"].to_string();
        let is_explained = remarks.contains("memcached-dbgsym") || has_any(&waiters, &[".c:"]);
        (is_item_lock && share > 0.5 && is_placed && is_explained)
            .then_some(())
            .ok_or(format!("{name}: {share} {waiters:?} {holders:?} {remarks}"))
    });
}

/// MariaDB takes `Table_cache_instance::LOCK_table_cache`, which `tdc_init` initialises, twice for
/// each table of each statement.
#[test]
#[ignore = "make test-all: needs databases"]
fn mariadbs_table_cache_is_contended() {
    let Some(library) = library() else { return };
    let needed = [("mariadbd", "mariadb-server"), ("sysbench", "sysbench")];
    if !has_programs(&needed) {
        return;
    }
    let stage = Stage::new();
    let run = || report_of_script(&stage, &library, "mariadb", &[]);
    assert_one(run, |report| {
        let users = ["tc_acquire_table", "tc_release_table"];
        // `tc_release_table` jumps to its last unlock, which then returns to its caller.
        let releasers = ["tc_acquire_table", "tc_release_table", "close_thread_tables"];
        let is_cache = |row: &&Value| {
            let name = row["name"].as_str().expect("a name");
            ["tdc_init", "LOCK_table_cache"].iter().any(|part| name.contains(part))
        };
        let classes = rows(report, "classes");
        let found = classes.iter().copied().find(is_cache);
        let row = found.ok_or_else(|| format!("no table cache in {}", report["classes"]))?;
        let (waiters, holders) = (places(row, "waiters"), places(row, "holders"));
        (row["waits"].as_u64() > Some(10)
            && has_any(&waiters, &users)
            && has_any(&holders, &releasers))
        .then_some(())
        .ok_or(format!("{} waits; {waiters:?}, {holders:?}", row["waits"]))
    });
}

/// Threads of the virtual machine start and end under its `Threads_lock`, which `mutex_init`
/// creates among others.
#[test]
#[ignore = "make test-all: needs programs of others"]
fn javas_threads_lock_is_contended_while_threads_start() {
    let Some(library) = library() else { return };
    if !has_programs(&[("javac", "default-jdk-headless")]) {
        return;
    }
    let stage = Stage::new();
    let source = repository().join("crates/preload/tests/c/Contention.java");
    let compiled = Command::new("javac").arg("-d").arg(stage.path("")).arg(source).status();
    assert!(compiled.is_ok_and(|status| status.success()));
    let run = || {
        let mut command = stage.unconvoy();
        command.env("UNCONVOY_LIBRARY", &library);
        command.args(["profile", "--period", "0.1", "--json", "report.json", "--"]);
        command.args(["java", "-XX:-UsePerfData", "-cp", ".", "Contention"]);
        command.assert().success();
        serde_json::from_str(&stage.read("report.json")).expect("a report")
    };
    assert_one(run, |report| {
        let is_threads_lock = |row: &&Value| {
            has_any(&places(row, "holders"), &["JVM_StartThread"])
                && row["name"]
                    .as_str()
                    .expect("a name")
                    .starts_with("mutex initialised in mutex_init")
        };
        let classes = rows(report, "classes");
        let row = classes.iter().copied().find(is_threads_lock);
        let row = row.ok_or_else(|| format!("no Threads_lock in {}", report["classes"]))?;
        let waiters = places(row, "waiters");
        let users = ["JVM_StartThread", "Threads::", "ThreadsSMRSupport::", "JavaThread::"];
        (row["waits"].as_u64() > Some(10) && has_any(&waiters, &users))
            .then_some(())
            .ok_or(format!("{} waits; {waiters:?}", row["waits"]))
    });
}
