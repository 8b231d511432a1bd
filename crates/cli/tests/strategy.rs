//! Strategy files: what they set, and what is wrong with them.

mod stage;

use predicates::prelude::*;
use predicates::str::{contains, is_empty};
use stage::Stage;

/// A program with two locks and a function for each.
const PROGRAM: &str = "\
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
pthread_mutex_t cache_lock, log_lock;
__attribute__((noinline)) void log_line(void) { pthread_mutex_lock(&log_lock); __asm__(\"\"); }
int main(void)
{
	log_line();
	const char *strategy = getenv(\"UNCONVOY_STRATEGY\");
	puts(strategy ? strategy : \"none\");
	return 0;
}
";

fn staged() -> Stage {
    let stage = Stage::new();
    let source = stage.write("server.c", PROGRAM);
    stage.compile("server", &source, &["-O1", "-pthread"]).unwrap();
    stage
}

/// Runs the program under a file, and returns the assertion.
fn run_under(stage: &Stage, text: &str) -> assert_cmd::assert::Assert {
    stage.write("server.toml", text);
    stage.unconvoy().args(["run", "--strategy", "server.toml", "--", "./server"]).assert()
}

#[test]
fn process_table_sets_variables_and_options_override_it() {
    let stage = staged();
    let process = "version = 1\n[process]\nlock = \"mcs\"\nload = \"default\"\n\
                   sensor = \"fixed:2\"\ninterval-ms = 9\nsleep-timeout-ms = 50.5\n\
                   policy = \"kalman\"\nbackoff-ms = 20\nnested = false\nconfine = \"published\"\n\
                   children = false\n";
    stage.write("server.toml", process);
    let script = "echo $UNCONVOY_LOCK $UNCONVOY_LOAD $UNCONVOY_SENSOR $UNCONVOY_INTERVAL_MS \
                  $UNCONVOY_SLEEP_MS $UNCONVOY_POLICY $UNCONVOY_BACKOFF_MS $UNCONVOY_NESTED \
                  $UNCONVOY_SSC $UNCONVOY_CHILDREN $UNCONVOY_STRATEGY";
    let run = |options: &[&str]| {
        let mut command = stage.unconvoy();
        command.args(["run", "--strategy", "server.toml"]).args(options);
        command.args(["--", "sh", "-c", script]).assert().success().stderr(is_empty())
    };
    run(&[]).stdout("mcs control fixed:2 9 50.5 kalman 20 0 published 0\n");
    run(&["--lock", "tpmcs", "--interval", "3"])
        .stdout("tpmcs control fixed:2 3 50.5 kalman 20 0 published 0\n");
}

#[test]
fn statistics_of_a_strategy_that_leaves_the_locks_to_libc_say_so() {
    let Some(library) = stage::library() else { return };
    let stage = staged();
    stage.write("server.toml", "version = 1\n[process]\nlock = \"libc\"\n");
    let mut command = stage.unconvoy();
    command.env("UNCONVOY_LIBRARY", library).args(["run", "--strategy", "server.toml"]);
    command.args(["--stats", "s.json", "--", "./server"]).assert().success();
    let stats = stage.unconvoy().args(["stats", "s.json"]).assert().success();
    stats.stdout(contains(": libc's locks, ").and(contains("leaves the locks to libc")));
}

#[test]
fn lock_option_serves_locks_that_the_file_leaves_to_libc() {
    let stage = staged();
    stage.write("server.toml", "version = 1\n[process]\nlock = \"libc\"\n");
    for (options, expected) in [(&[][..], true), (&["--lock", "tpmcs"], false)] {
        let mut command = stage.unconvoy();
        command.args(["run", "--strategy", "server.toml"]).args(options);
        command.args(["--", "sh", "-c", "echo $UNCONVOY_LOCK:$UNCONVOY_STRATEGY"]);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.contains("d:0"), expected, "{options:?}: {text}");
    }
}

#[test]
fn entries_reach_the_program_resolved() {
    let stage = staged();
    let entries = "version = 1\n\
                   [[lock]] # Many short sections.\nsymbol = \"cache_*\"\nlock = \"mcs\"\n\
                   [[lock]]\nfirst-taken = \"log_line\"\nlock = \"libc\"\n\
                   [[lock]]\nsymbol = \"cache_lock\"\nload = \"park:50\"\n";
    let assert = run_under(&stage, entries).success().stderr(is_empty());
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(text.starts_with("1 c:mcs+control c:libc c:loiter+park:50 m:"), "{text}");
    // The exact name prevails over the pattern, for mutexes and reader-writer locks.
    assert_eq!(text.matches("=2").count(), 2, "{text}");
    assert!(!text.contains("=0"), "{text}");
    assert!(text.contains(" t:") && text.contains(" T:") && text.contains("=1"), "{text}");
}

#[test]
fn empty_file_and_file_without_entries_change_nothing() {
    let stage = staged();
    for text in ["", "# nothing yet\n", "version = 1\n", "version = 1\n[process]\n"] {
        run_under(&stage, text).success().stdout("none\n").stderr(is_empty());
    }
}

#[test]
fn entry_without_match_or_for_another_build_is_one_line_and_program_runs() {
    let stage = staged();
    let entry = "version = 1\n[[lock]]\nlock = \"mcs\"\n";
    for (key, line) in [
        ("symbol = \"no_such_lock\"\n", "server.toml:4: symbol: no variable"),
        ("first-taken = \"no_such_function\"\n", "server.toml:4: first-taken: no function"),
        ("initialised = \"log_line+0x9999\"\n", "server.toml:4: initialised: no function"),
        ("symbol = \"cache_lock\"\nobject = \"libc.so*\"\n", "server.toml:4: symbol: no variable"),
        ("symbol = \"cache_lock\"\nbuild-id = \"00ff\"\n", "server has the build id"),
    ] {
        let assert = run_under(&stage, &format!("{entry}{key}")).success().stderr(contains(line));
        let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn wrong_file_names_line_and_key_and_starts_nothing() {
    let stage = staged();
    let entry = |rest: &str| format!("version = 1\n[[lock]]\nsymbol = \"cache_lock\"\n{rest}");
    let mcs = "lock = \"mcs\"\n";
    for (text, message) in [
        ("version = 2\n".into(), "server.toml:1: version: 2, but this command reads version 1"),
        ("version = \"1\"\n".into(), "server.toml:1: version: 1, but"),
        ("[process]\n".into(), "server.toml:1: version: not given"),
        ("version = 1\nlocks = 1\n".into(), "server.toml:2: locks: unknown key"),
        ("version = 1\n[process]\nlok = \"mcs\"\n".into(), "server.toml:3: lok: unknown key"),
        ("version = 1\n[process]\nlock = \"mc\"\n".into(), "server.toml:3: lock: expected one of"),
        ("version = 1\n[process]\nload = 7\n".into(), "server.toml:3: load: expected one of"),
        (
            "version = 1\n[process]\ninterval-ms = 0.1\n".into(),
            "server.toml:3: interval-ms: expected 0.5 to 1000 milliseconds",
        ),
        ("version = 1\n[process]\nsensor = \"x\"\n".into(), "server.toml:3: sensor: expected"),
        ("version = 1\n[process]\nnested = 1\n".into(), "server.toml:3: nested: expected one of"),
        ("version = 1\n[process]\nconfine = true\n".into(), "server.toml:3: confine: expected"),
        ("version = 1\nprocess = 1\n".into(), "server.toml:2: process: expected a table"),
        ("version = 1\n[lock]\n".into(), "server.toml:2: lock: expected entries"),
        ("version = 1\nlock = [1]\n".into(), "server.toml:2: lock: expected a table"),
        ("version = 1\n[[lock]]\nlock = \"mcs\"\n".into(), "server.toml:2: lock: the entry names"),
        (entry(""), "server.toml:2: lock: the entry chooses nothing"),
        (
            format!("version = 1\n[[lock]]\nsymbol = \"{}\"\n{mcs}", "*a".repeat(20_000)),
            "server.toml:3: symbol: expected at most 4096 bytes",
        ),
        (entry("lock = \"mcs\"\nlod = \"park\"\n"), "server.toml:5: lod: unknown key"),
        (entry("lock = 3\n"), "server.toml:4: lock: expected a text"),
        (entry("lock = \"\"\n"), "server.toml:4: lock: expected a text"),
        (entry("load = \"park:0\"\n"), "park:1 to park:10000000 (microseconds of spinning)"),
        (entry("load = \"control:9\"\n"), "server.toml:4: load: expected one of"),
        (entry("lock = \"libc\"\nload = \"park\"\n"), "server.toml:5: load: libc's lock"),
        (entry("kind = \"spin\"\nlock = \"mcs\"\n"), "server.toml:4: kind: expected mutex"),
        (entry("kind = \"rwlock\"\nlock = \"mcs\"\n"), "server.toml:5: lock: a reader-writer"),
        (entry("lock = \"mcs\"\nfirst-taken = \"f\"\n"), "server.toml:5: first-taken: the entry"),
        ("version = 1\nlock = \n".into(), "server.toml:2: not TOML"),
        (
            entry(mcs) + "[[lock]]\nsymbol = \"cache_lock\"\nlock = \"ttas\"\n",
            "server.toml:6: symbol: names a lock for which line 3 makes another choice",
        ),
        // Two patterns that both match, which only the program's symbols show.
        (
            "version = 1\n[[lock]]\nsymbol = \"cache*\"\nlock = \"mcs\"\n[[lock]]\n\
             symbol = \"*_lock\"\nlock = \"ttas\"\n"
                .into(),
            "server.toml:6: symbol: names a lock for which line 3 makes another choice",
        ),
    ] {
        run_under(&stage, &text).code(2).stdout(is_empty()).stderr(contains(message));
    }
}

#[test]
fn unreadable_file_is_reported() {
    let stage = staged();
    stage.write("latin.toml", "");
    std::fs::write(stage.path("latin.toml"), b"version = 1 # \xe9").unwrap();
    std::fs::create_dir(stage.path("folder")).unwrap();
    for file in ["missing.toml", "folder", "latin.toml"] {
        stage
            .unconvoy()
            .args(["run", "--strategy", file, "--", "./server"])
            .assert()
            .code(2)
            .stdout(is_empty())
            .stderr(contains(file).and(contains("cannot read")));
    }
}

#[test]
fn compare_takes_strategy_files_as_configurations() {
    let stage = staged();
    let entry = "version = 1\n[process]\nload = \"none\"\n[[lock]]\nsymbol = \"cache_lock\"\n";
    stage.write("server.toml", &format!("{entry}lock = \"mcs\"\n"));
    stage.write("wrong.toml", &format!("{entry}lok = \"mcs\"\n"));
    let program = "test -n \"$UNCONVOY_LOCK\" && echo n: $((1 + ${#UNCONVOY_STRATEGY}))";
    stage.script("bench", &format!("#!/bin/sh\n./server >/dev/null\n{program}\n"));
    let compare = |locks: &str| {
        let mut command = stage.unconvoy();
        command.args(["compare", "--locks", locks, "--runs", "3", "--metric", "n: ([0-9]+)"]);
        command.args(["--json", "c.json", "--", "./server"]);
        command
    };
    compare("default,wrong.toml").assert().code(2).stderr(contains("wrong.toml:6: lok"));
    stage
        .unconvoy()
        .args(["compare", "--locks", "libc,server.toml", "--runs", "3", "--", "./server"])
        .assert()
        .success()
        .stdout(contains("server.toml"));
    // The program that compare starts gets the rules.
    stage
        .unconvoy()
        .args(["compare", "--locks", "server.toml", "--runs", "1", "--metric", "m:([0-9a-f])"])
        .args(["--", "./server"])
        .assert()
        .success();
}
