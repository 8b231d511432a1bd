//! `unconvoy predict` on small programs with known results.

mod stage;

use std::path::PathBuf;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use stage::{Stage, lacks_emulator};

/// Time limit for emulated runs on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);

/// `SECTION` is each thread's work, with the thread's number in `me` and the iteration in `i`. A
/// barrier every 40 iterations keeps the threads together on a busy machine. Two such rounds have
/// 320 sections, so that a window of 512 contains sections of all threads.
const FRAME: &str = "\
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define THREADS 4
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static long counter;
static struct { long cells[64]; } lines[THREADS] __attribute__((aligned(64)));
static long words[THREADS] __attribute__((aligned(64)));
struct shared { pthread_mutex_t lock; long value; } *shared;
static pthread_barrier_t ready;
static void *work(void *argument)
{
	long me = (long)argument;
	pthread_barrier_wait(&ready);
	for (long i = 0; i < 4000; i++) {
		if (i % 40 == 0)
			pthread_barrier_wait(&ready);
		SECTION
	}
	return 0;
}
int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	shared = calloc(1, sizeof *shared);
	pthread_mutex_init(&shared->lock, 0);
	pthread_barrier_init(&ready, 0, THREADS);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, work, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	END
	return 0;
}
";

fn locked(statement: &str) -> String {
    format!("pthread_mutex_lock(&lock); {statement} pthread_mutex_unlock(&lock); sched_yield();")
}

/// Compiles a program with this section and end.
fn program(stage: &Stage, section: &str, end: &str) -> PathBuf {
    let text = format!(
        "#define _GNU_SOURCE\n#include <sched.h>\n{}",
        FRAME.replace("SECTION", section).replace("END", end)
    );
    let source = stage.write("program.c", &text);
    stage.compile("program", &source, &["-O1", "-g", "-pthread"]).unwrap()
}

/// Returns the command with the real parts beside it.
fn unconvoy(stage: &Stage) -> Command {
    let mut command = stage.unconvoy();
    command.env_remove("UNCONVOY_LIBRARY").timeout(LIMIT).arg("syncchar");
    command
}

/// Returns the report of a program with every section sampled.
fn report(section: &str) -> Option<Value> {
    if lacks_emulator() {
        return None;
    }
    let stage = Stage::new();
    program(&stage, section, "");
    let arguments =
        ["--rate", "1", "--processors", "2,4", "--json", "report.json", "--", "./program"];
    unconvoy(&stage).args(arguments).assert().success().stderr("");
    Some(serde_json::from_str(&stage.read("report.json")).unwrap())
}

fn lock<'a>(report: &'a Value, name: &str) -> &'a Value {
    let locks = report["locks"].as_array().unwrap();
    let found = locks.iter().find(|lock| lock["name"].as_str().unwrap().contains(name));
    found.unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

/// Returns the sections' speed-up for 4 processors.
fn speed_up(lock: &Value, unit: &str) -> f64 {
    let estimate = &lock["analysis"]["estimates"][1][unit];
    let part = |name: &str| estimate[name].as_f64().unwrap();
    part("independence") + part("conflicting") - part("density")
}

fn advice(lock: &Value) -> Vec<&str> {
    lock["advice"]
        .as_array()
        .unwrap()
        .iter()
        .map(|advice| advice["kind"].as_str().unwrap())
        .collect()
}

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn independent_sections_speed_up_by_thread_count() {
    let Some(report) = report(&locked("lines[me].cells[i % 64]++;")) else { return };
    let lock = lock(&report, "lock");
    assert_eq!(lock["name"], "lock");
    assert!(speed_up(lock, "byte") > 3.8, "{lock:#}");
    assert!(speed_up(lock, "line") > 3.8, "{lock:#}");
    assert_eq!(advice(lock), ["transactions"]);
    // 4 threads with 4000 acquisitions each, also natively.
    assert_eq!(lock["times"]["acquisitions"], 16000);
    assert!(lock["times"]["held"].as_f64().unwrap() > 0.0);
    assert!(lock["projections"][1]["program"].as_f64().unwrap() > 1.0);
}

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn shared_counter_has_no_speed_up() {
    let Some(report) = report(&locked("counter++;")) else { return };
    let lock = lock(&report, "lock");
    assert!(speed_up(lock, "byte") < 1.05, "{lock:#}");
    assert_eq!(advice(lock), ["per-thread-counter"]);
    let spot = &lock["analysis"]["hot_spots"][0];
    assert_eq!(report["words"][spot["address"].as_str().unwrap()], "counter");
    let writer = spot["writers"][0]["place"].to_string();
    let place = report["places"][&writer].as_str().unwrap();
    assert!(place.starts_with("work (program.c:"), "{place}");
}

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn false_sharing_slows_lines_only() {
    let Some(report) = report(&locked("words[me]++;")) else { return };
    let lock = lock(&report, "lock");
    assert!(speed_up(lock, "byte") > 3.8, "{lock:#}");
    assert!(speed_up(lock, "line") < 1.1, "{lock:#}");
    assert!(advice(lock).contains(&"pad"), "{lock:#}");
    let word = lock["analysis"]["false_sharing"][0]["word"].as_str().unwrap();
    assert!(report["words"][word].as_str().unwrap().starts_with("words"), "{report:#}");
}

/// The section ended at the inner unlock, so its later accesses were lost.
#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn read_section_lasts_until_the_last_unlock() {
    let take = "pthread_rwlock_rdlock(&table);";
    let release = "pthread_rwlock_unlock(&table);";
    let section = format!("{take} {take} {release} lines[me].cells[0]++; {release} sched_yield();");
    let Some(report) = report(&section) else { return };
    let lock = lock(&report, "table");
    assert_eq!(lock["analysis"]["read_only"], 0.0, "{lock:#}");
    assert!(advice(lock).iter().all(|it| !it.contains("reader-writer")), "{lock:#}");
}

/// The times of the second program stood beside the sections of the first.
#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn program_after_exec_has_no_times_in_the_report() {
    if lacks_emulator() {
        return;
    }
    let stage = Stage::new();
    program(&stage, &locked("counter++;"), "if (argc == 1) execl(argv[0], argv[0], \"2\", NULL);");
    let arguments = ["--rate", "1", "--json", "report.json", "--", "./program"];
    let assert = unconvoy(&stage).args(arguments).assert().success();
    assert.stdout(contains("No lock times: the native run's are of the program that followed"));
    let report: Value = serde_json::from_str(&stage.read("report.json")).unwrap();
    assert!(lock(&report, "lock")["times"].is_null(), "{report:#}");
}

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn heap_lock_without_member_is_named_after_first_acquisition() {
    let section =
        "pthread_mutex_lock(&shared->lock); shared->value++; pthread_mutex_unlock(&shared->lock);";
    let Some(report) = report(section) else { return };
    let lock = lock(&report, "mutex first taken in work (program.c:");
    assert_eq!(lock["times"]["acquisitions"], 16000);
    let spot = lock["analysis"]["hot_spots"][0]["address"].as_str().unwrap();
    let word = report["words"][spot].as_str().unwrap();
    assert!(word.starts_with("byte 40 of 48 bytes allocated in main (program.c:"), "{word}");
}

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn kept_trace_gives_same_report_without_program() {
    if lacks_emulator() {
        return;
    }
    let stage = Stage::new();
    program(&stage, &locked("counter++;"), "");
    let arguments =
        ["--rate", "2", "--keep-trace", "kept.parquet", "--json", "first.json", "--", "./program"];
    unconvoy(&stage).args(arguments).assert().success();
    let first: Value = serde_json::from_str(&stage.read("first.json")).unwrap();
    std::fs::remove_file(stage.path("program")).unwrap();

    let again = ["--analyse", "kept.parquet", "--json", "again.json"];
    unconvoy(&stage).args(again).assert().success().stderr("").stdout(contains("counter"));
    assert_eq!(first, serde_json::from_str::<Value>(&stage.read("again.json")).unwrap());

    let onto_itself = ["--analyse", "kept.parquet", "--json", "kept.parquet"];
    unconvoy(&stage).args(onto_itself).assert().code(2).stderr(contains("both name"));
    let other =
        ["--analyse", "kept.parquet", "--processors", "3", "--window", "64", "--html", "page.html"];
    unconvoy(&stage).args(other).assert().success().stdout(contains("indep. 3"));
    assert!(stage.read("page.html").contains("program.c:"));

    let whole = std::fs::read(stage.path("kept.parquet")).unwrap();
    std::fs::write(stage.path("half.parquet"), &whole[..whole.len() / 2]).unwrap();
    let half = format!("half.parquet: truncated: it ends at byte {}", whole.len() / 2);
    unconvoy(&stage).args(["--analyse", "half.parquet"]).assert().code(1).stderr(contains(half));
    assert!(!stage.path("kept.parquet.unfinished").exists());
}

#[test]
fn invalid_trace_names_offset() {
    let stage = Stage::new();
    stage.write("text", "not a trace, but long enough to be one");
    stage.write("cut.stream", "UNCVSET1\u{1}\0\0\0\u{9}\0\0\0");
    for (file, words) in [
        ("text", "not a trace of `unconvoy predict --keep-trace`"),
        ("cut.stream", "the record at byte 8 is incomplete"),
        ("none", "cannot read none"),
    ] {
        unconvoy(&stage)
            .args(["--analyse", file])
            .assert()
            .code(1)
            .stderr(contains(words).and(contains(file)));
    }
}

#[test]
fn missing_part_is_named_briefly_before_any_run() {
    let stage = Stage::new();
    let mark = "touch ran";
    let shell = ["--", "/bin/sh", "-c", mark];
    let lines = |count| predicate::function(move |text: &str| text.lines().count() == count);
    let one_line = || lines(1);
    unconvoy(&stage)
        .args(["--", "/no/program"])
        .assert()
        .code(127)
        .stderr(contains("not found").and(one_line()));
    stage.write("data", "text");
    unconvoy(&stage)
        .args(["--", "./data"])
        .assert()
        .code(126)
        .stderr(contains("cannot execute").and(one_line()));
    unconvoy(&stage).args(["--", "/"]).assert().code(126).stderr(one_line());
    let library = stage.library();
    let with_library = || {
        let mut command = unconvoy(&stage);
        command.env("UNCONVOY_LIBRARY", &library);
        command
    };
    let plugin = || {
        let mut command = with_library();
        command.env("UNCONVOY_PLUGIN", &library);
        command
    };
    unconvoy(&stage)
        .env("UNCONVOY_LIBRARY", "/no/lib.so")
        .args(shell)
        .assert()
        .code(125)
        .stderr(contains("unconvoy-preload"));
    with_library()
        .env("UNCONVOY_PLUGIN", "/no/plugin.so")
        .args(shell)
        .assert()
        .code(125)
        .stderr(contains("unconvoy-plugin-user").and(lines(2)));
    plugin()
        .env("PATH", "/no/directory")
        .args(shell)
        .assert()
        .code(125)
        .stderr(contains("install qemu-user").and(one_line()));
    for option in ["--json", "--html", "--keep-trace"] {
        plugin()
            .args([option, "/no/directory/file"])
            .args(shell)
            .assert()
            .code(2)
            .stderr(contains(option).and(one_line()));
    }
    plugin().args(["--processors", "0"]).args(shell).assert().code(2);
    plugin().assert().code(2);
    assert!(!stage.path("ran").exists());
}

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn report_states_reason_for_missing_data() {
    if lacks_emulator() {
        return;
    }
    let stage = Stage::new();
    let run = |arguments: &[&str]| {
        let output =
            unconvoy(&stage).args(["--timeout", "50", "--"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let source = stage.write("none.c", "int main(void) { return 3; }\n");
    stage.compile("none", &source, &[]).unwrap();
    let report = run(&["./none"]);
    assert!(
        report.contains("exit status 3") && report.contains("No critical section was seen"),
        "{report}"
    );

    program(&stage, &locked("counter++;"), "abort();");
    let report = run(&["./program"]);
    assert!(
        report.contains("SIGABRT") && report.contains("counter") && !report.contains("end early"),
        "{report}"
    );

    // The plug-in flushes pending records ten times a second.
    program(&stage, &locked("counter++;"), "usleep(500000); *(volatile int *)8 = 0;");
    let report = run(&["./program"]);
    assert!(
        report.contains("SIGSEGV") && report.contains("end early") && report.contains("counter"),
        "{report}"
    );

    program(&stage, &locked("counter++;"), "if (!fork()) _exit(0); ");
    let report = run(&["./program"]);
    assert!(report.contains("created 1 process, whose locks"), "{report}");

    let built = Process::new("strip").arg(stage.path("program")).status();
    if built.is_ok_and(|status| status.success()) {
        let report = run(&["./program"]);
        assert!(report.contains("program+0x"), "{report}");
    }

    let source = stage.path("program.c");
    if stage.compile("static", &source, &["-O1", "-pthread", "-static"]).is_ok() {
        let report = run(&["./static"]);
        assert!(report.contains("statically linked") && report.contains("counter"), "{report}");
    } else {
        println!("skipped: this compiler does not link statically");
    }
}

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn ctrl_c_reports_the_run_so_far() {
    if lacks_emulator() {
        return;
    }
    let stage = Stage::new();
    // Only the second run continues. It takes the lock from time to time, because the plug-in
    // writes only when there are records.
    let end = "{ FILE *f = fopen(\"again\", \"r\"); \
        if (!f) { fclose(fopen(\"again\", \"w\")); return 0; } \
        for (int i = 0; i < 6000; i++) { \
            for (int j = 0; j < 100; j++) { \
                pthread_mutex_lock(&lock); counter++; pthread_mutex_unlock(&lock); } \
            if (i == 50) { puts(\"goes on\"); fflush(stdout); } \
            usleep(10000); } }";
    program(&stage, &locked("counter++;"), end);
    let mut process = stage.process();
    process
        .env_remove("UNCONVOY_LIBRARY")
        .args(["syncchar", "--", "./program"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = process.spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "goes on\n");
    Process::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let mut report = String::new();
    std::io::Read::read_to_string(&mut out, &mut report).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(report.contains("interrupted") && report.contains("counter"), "{report}");
}
