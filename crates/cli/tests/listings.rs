//! The commands that print lists and reference text.

#[path = "../../locks/tests/generated/mod.rs"]
mod generated;
mod stage;

use generated::{assert_up_to_date, repository};
use predicates::prelude::*;
use predicates::str::contains;
use stage::Stage;
use unconvoy::catalogue::{Availability, CONTENTION, LOAD, POLICY, availability};

#[test]
fn locks_lists_every_name() {
    let stage = Stage::new();
    let output = stage.unconvoy().arg("locks").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for entry in CONTENTION.iter().chain(LOAD).chain(POLICY) {
        assert!(text.contains(&format!("│ {}", entry.name)), "{}", entry.name);
    }
}

#[test]
fn verbose_version_names_commit_and_parts() {
    let stage = Stage::new();
    stage.unconvoy().arg("--version").assert().success().stdout(contains("unconvoy 0.").count(1));
    let verbose = stage.unconvoy().args(["--version", "--verbose"]).assert().success();
    verbose.stdout(contains("\ncommit: ").and(contains("\nBPF programs: ")));
}

/// Joins the lines of a wrapped table cell.
fn unwrapped(text: &str) -> String {
    text.replace(['│', '┆'], " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn unavailable_lock_is_listed_with_reason_and_rejected() {
    let stage = Stage::new();
    let text = String::from_utf8(stage.unconvoy().arg("locks").output().unwrap().stdout).unwrap();
    let mut refused = 0;
    for entry in CONTENTION {
        match availability(entry.name) {
            Availability::Full => {}
            Availability::Reduced(reason) => {
                assert!(unwrapped(&text).contains(&format!("On this machine: {reason}")), "{text}")
            }
            Availability::Refused(reason) => {
                refused += 1;
                assert!(
                    unwrapped(&text).contains(&format!("Not available on this machine: {reason}")),
                    "{text}"
                );
                let compare =
                    stage.unconvoy().args(["compare", "--locks", entry.name, "true"]).assert();
                compare.code(2).stderr(contains(reason));
            }
        }
    }
    if refused == 0 {
        println!("skipped: every lock runs on this machine");
    }
}

#[test]
fn help_has_examples() {
    let stage = Stage::new();
    for command in [
        &["--help"][..],
        &["run", "--help"],
        &["inspect", "--help"],
        &["compare", "--help"],
        &["locks", "--help"],
        &["stats", "--help"],
        &["man", "--help"],
        &["completions", "--help"],
    ] {
        stage.unconvoy().args(command).assert().success().stdout(contains("Examples:\n  unconvoy"));
    }
}

#[test]
fn study_gets_arguments_or_its_absence_has_a_remedy() {
    let stage = Stage::new();
    let study = stage.script("study", "#!/bin/sh\necho \"$*\"; exit 3\n");
    for line in [
        "bench counter --threads 2",
        "sim --help",
        "papers list",
        "help bench counter",
        "man .",
        "completions x",
    ] {
        let assert = stage.unconvoy().env("UNCONVOY_STUDY", &study).args(line.split(' ')).assert();
        assert.code(3).stdout(format!("{line}\n"));
    }
    let missing =
        stage.unconvoy().env("UNCONVOY_STUDY", "/nonexistent").arg("bench").assert().code(125);
    missing.stderr(contains("unconvoy-study is missing").and(contains("-p unconvoy-papers")));
    stage.unconvoy().env("UNCONVOY_STUDY", "/nonexistent").arg("man").assert().success();
}

#[test]
fn completions_and_manual_pages_name_every_part() {
    let stage = Stage::new();
    for shell in ["bash", "zsh", "fish"] {
        let assert = stage.unconvoy().args(["completions", shell]).assert();
        assert.success().stdout(contains("sleep-timeout").and(contains("papers")));
    }
    stage.unconvoy().args(["completions", "nosuch"]).assert().code(2).stderr(contains("bash"));
    stage.unconvoy().arg("man").assert().success().stdout(contains(".TH unconvoy"));
    stage.unconvoy().args(["man", "."]).assert().success();
    assert!(stage.read("unconvoy-compare.1").contains("lower"));
    assert!(stage.read("unconvoy-bench.1").contains("goals"));
    let assert = stage.unconvoy().args(["man", "missing"]).assert();
    assert.code(1).stderr(contains("cannot write the manual pages to missing"));
}

const STATISTICS: &str = r#"{
    "schema":"unconvoy-stats-1","program":"server","pid":42,"lock":"loiter",
    "load":"control","wall_ns":2000000000,"processors":2,
    "controller":{"starts":1,"ticks":280,"cpu_ns":900000},
    "slots":{"slept":5,"left":2,"woken":2,"timed_out":1,"given_back":3},"dropped_locks":4,"locks":[
    {"address":"0x1000","kind":"mutex","where":"server+0x12","acquisitions":1000,"contended":250,
     "wait_ns":5000000,"max_wait_ns":90000,"hold_ns":700,"slept":1},
    {"address":"0x2000","kind":"rwlock","where":"","acquisitions":0,"contended":0,
     "wait_ns":0,"max_wait_ns":0,"hold_ns":0,"slept":0},
    {"address":"0x3000","kind":"spin","where":"f","acquisitions":10,"contended":9,
     "wait_ns":8000000000,"max_wait_ns":1,"hold_ns":1,"slept":0}]}"#;

#[test]
fn stats_lists_longest_waited_for_lock_first() {
    let stage = Stage::new();
    stage.write("s.json", STATISTICS);
    let output = stage.unconvoy().args(["stats", "s.json"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let at = |address: &str| text.find(address).unwrap();
    assert!(at("0x3000") < at("0x1000") && at("0x1000") < at("0x2000"));
    for part in [
        "loiter+control",
        "2.00 s",
        "250 (25.0 %)",
        "5.00 ms",
        "280 ticks",
        "4 more locks not recorded",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    stage.unconvoy().args(["stats", "--top", "1", "s.json"]).assert().success().stdout(
        contains("0x3000").and(contains("0x1000").not()).and(contains("2 more locks not shown")),
    );
}

#[test]
fn stats_shows_special_set() {
    let stage = Stage::new();
    let with = |special: &str| {
        STATISTICS
            .replace(r#""dropped_locks""#, &format!("\"special\":{special},\"dropped_locks\""))
    };
    stage.write(
        "s.json",
        &with(
            r#"{"cores":8,"bound":4,"tasks":9,"most_tasks":16,
        "moves":120,"votes":300,"searches":1,"cpu_ns":1500000,
        "changes":[[1000000,1],[8000000,2],[15000000,4],[1900000000,0]],"changes_left_out":0}"#,
        ),
    );
    let assert = stage.unconvoy().args(["stats", "s.json"]).assert().success();
    assert.stdout(
        contains("up to 16 threads, 4 of 8 processors")
            .and(contains("120 moves, 300 votes, 1 search, 1.50 ms of processor time"))
            .and(contains("1 at 1.00 ms, 2 at 8.00 ms, 4 at 15.0 ms, 0 at 1.90 s\n")),
    );
    stage.write("none.json", &with(r#"{"cores":0}"#));
    stage
        .unconvoy()
        .args(["stats", "none.json"])
        .assert()
        .success()
        .stdout(contains("special set: never used"));
    stage.write("off.json", &with("null"));
    stage
        .unconvoy()
        .args(["stats", "off.json"])
        .assert()
        .success()
        .stdout(contains("special set").not());
}

/// The example of docs/reference/stats.md: a program that ran with `--confine`.
const EXAMPLE: &str = r#"{
    "schema":"unconvoy-stats-1","program":"./server","pid":4917,"lock":"loiter",
    "load":"control","wall_ns":1003875908,"processors":2,
    "controller":{"starts":2,"ticks":117,"cpu_ns":8429049,"sensor":"schedstat","runnable":1.553,
    "most_runnable":9.204,
     "capacity":2.0},
    "slots":{"slept":233,"left":233,"woken":86,"timed_out":4,"given_back":143},
    "special":{"cores":2,"bound":2,"tasks":16,"most_tasks":16,"moves":32,"votes":92,
     "searches":2,"cpu_ns":1966618,"changes":[[31262832,1],[688046678,2]],"changes_left_out":0},
    "dropped_locks":5,"locks":[
    {"address":"0x55632ed1e0a0","kind":"mutex","where":"lock","acquisitions":7628100,
     "contended":1055,"wait_ns":14389272664,"max_wait_ns":575257552,"hold_ns":476742016,
     "slept":1027},{},{},{}]}"#;

/// Replaces each number by `N`, and each time by `T`.
fn with_placeholders(text: &str) -> String {
    let number = |word: &&str| word.parse::<f64>().is_ok();
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        match word {
            "s" | "ms" | "µs" if words.last() == Some(&"N") => *words.last_mut().unwrap() = "T",
            _ => words.push(if number(&word) { "N" } else { word }),
        }
    }
    words.join(" ")
}

#[test]
fn page_explains_every_count_of_stats() {
    let stage = Stage::new();
    stage.write("locks.json", EXAMPLE);
    let output = stage.unconvoy().args(["stats", "--top", "1", "locks.json"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_up_to_date("reference/stats.md", &[("example", format!("```text\n{text}```\n"))]);

    let page = std::fs::read_to_string(repository().join("docs/reference/stats.md")).unwrap();
    let (above, rest) = text.split_once('┌').unwrap();
    let (table, below) = rest.split_once('┘').unwrap();
    let heading = table.lines().find(|line| line.starts_with('│')).unwrap();
    let columns = heading.trim_matches('│').split('┆').map(|column| column.trim().to_string());
    let counts = above.lines().flat_map(|line| line.split_once(": ").unwrap().1.split([',', ';']));
    let remarks = below.lines().filter_map(|line| line.split(':').next());
    let counts = counts.chain(remarks).map(with_placeholders);
    let counts = counts.filter(|count| count.contains(['N', 'T']));
    let printed: Vec<String> = columns.chain(counts).collect();
    assert!(printed.len() > 25, "{printed:?}");
    for count in printed {
        assert!(page.contains(&format!("`{count}` |")), "the page lacks `{count}`");
    }
}

#[test]
fn stats_without_locks_states_reason() {
    let stage = Stage::new();
    let text = r#"{"schema":"unconvoy-stats-1","program":"p","pid":1,
        "lock":"mcs","load":"none","wall_ns":1}"#;
    stage.write("s.json", text);
    stage
        .unconvoy()
        .args(["stats", "s.json"])
        .assert()
        .success()
        .stdout(contains("No locks recorded"));
}

#[test]
fn closed_output_pipe_is_no_error() {
    let stage = Stage::new();
    let script = format!("{} completions zsh | head -1", env!("CARGO_BIN_EXE_unconvoy"));
    let mut shell = assert_cmd::Command::new("sh");
    shell.timeout(stage::LIMIT).args(["-c", &script]).current_dir(stage.path("."));
    shell.assert().success().stderr(predicate::str::is_empty());
}

#[test]
fn full_disk_is_an_error_without_panic() {
    let stage = Stage::new();
    for command in ["locks", "man", "completions bash"] {
        let script = format!("{} {command} > /dev/full", env!("CARGO_BIN_EXE_unconvoy"));
        let mut shell = assert_cmd::Command::new("sh");
        shell.timeout(stage::LIMIT).args(["-c", &script]).current_dir(stage.path("."));
        shell.assert().code(1).stderr(contains("No space left").and(contains("panicked").not()));
    }
}
