//! `unconvoy compare`: measurement, output and records.

mod stage;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use stage::{Stage, THROUGHPUT};

const METRIC: &str = "ops_per_sec: ([0-9]+)";

#[test]
fn comparison_writes_table_conclusion_and_files() {
    let stage = Stage::new();
    stage.script("program", THROUGHPUT);
    stage
        .unconvoy()
        .args(["compare", "--locks", "libc,default,mcs+none", "--threads", "1,2,8", "--runs", "3"])
        .args([
            "--metric",
            METRIC,
            "--ops",
            "operations: ([0-9]+)",
            "--fairness",
            "jain: ([0-9.]+)",
        ])
        .args(["--json", "o.json", "--csv", "o.csv", "--plot", "figure-0.5", "--title", "A title"])
        .args(["--seed", "7", "--", "./program", "{threads}"])
        .assert()
        .success()
        .stdout(
            contains("A title")
                .and(contains("cpu per op"))
                .and(contains("fairness"))
                .and(contains("7.92x"))
                .and(contains("at best default 7.92x (7.91 to 7.92) at 8 threads"))
                .and(contains("at worst mcs+none")),
        )
        .stderr(contains("seed 7"));

    let record: Value = serde_json::from_str(&stage.read("o.json")).unwrap();
    assert_eq!(record["schema"], "unconvoy-compare-1");
    assert_eq!(record["complete"], true);
    assert_eq!(record["plan"]["seed"], 7);
    for field in ["cpu", "kernel", "libc", "date", "unconvoy", "command", "memory_kib"] {
        assert!(!record["context"][field].is_null(), "context lacks {field}");
    }
    let runs = record["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 27);
    assert!(runs.iter().all(|run| run["exit_status"] == 0 && run["wall_s"].as_f64() > Some(0.0)));
    let summary = record["summary"].as_array().unwrap();
    assert_eq!(summary.len(), 9);
    assert_eq!(summary[8]["metric"]["median"], 15625.0);
    assert_eq!(summary[8]["differs"], true);
    assert!(summary[0]["ratio"].is_null());

    let csv = stage.read("o.csv");
    assert_eq!(csv.lines().count(), 28);
    assert!(csv.starts_with("configuration,threads,round,metric,"));

    let svg = stage.read("figure-0.5.svg");
    for text in ["A title", "mcs+none", "processor", "Jain", "threads", "Linux"] {
        assert!(svg.contains(text), "the figure lacks {text}");
    }
}

#[test]
#[ignore = "make test-all: needs unconvoy-png"]
fn figure_is_drawn_as_png_too() {
    let stage = Stage::new();
    stage.script("program", THROUGHPUT);
    stage
        .unconvoy()
        .args(["compare", "--threads", "1,2", "--runs", "1", "--metric", METRIC])
        .args(["--ops", "operations: ([0-9]+)", "--fairness", "jain: ([0-9.]+)"])
        .args(["--plot", "figure-0.5", "--", "./program", "{threads}"])
        .assert()
        .success();
    let (width, dark) = read_png(&stage.path("figure-0.5.png"));
    assert!(width > 2000 && dark > 5000, "{dark} dark pixels");
}

/// Returns a PNG's width and its number of dark pixels.
fn read_png(path: &std::path::Path) -> (u32, usize) {
    let file = std::fs::File::open(path).unwrap_or_else(|error| {
        panic!("{}: {error} (cargo build --release -p unconvoy-png)", path.display())
    });
    let mut reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let dark =
        pixels.chunks_exact(info.color_type.samples()).filter(|pixel| pixel[1] < 0x60).count();
    (info.width, dark)
}

#[test]
fn figure_without_rasteriser_is_svg_with_note() {
    let stage = Stage::new();
    stage.script("program", THROUGHPUT);
    let alone = stage.copy_of_command();
    assert_cmd::Command::new(&alone)
        .current_dir(stage.path("."))
        .env("UNCONVOY_LIBRARY", stage.library())
        .args([
            "compare",
            "--threads",
            "1",
            "--runs",
            "1",
            "--metric",
            METRIC,
            "--plot",
            "figure",
            "--",
            "./program",
            "{threads}",
        ])
        .assert()
        .success()
        .stderr(contains("note: the figure is an SVG only: unconvoy-png is missing"));
    assert!(stage.path("figure.svg").exists() && !stage.path("figure.png").exists());
}

#[test]
fn rounds_are_interleaved_in_seeded_order() {
    let stage = Stage::new();
    stage.script("program", THROUGHPUT);
    let order = |seed: &str| {
        stage
            .unconvoy()
            .args([
                "compare",
                "--threads",
                "1,2,3,4",
                "--runs",
                "2",
                "--seed",
                seed,
                "--json",
                "o.json",
            ])
            .args(["--", "./program", "{threads}"])
            .assert()
            .success();
        let record: Value = serde_json::from_str(&stage.read("o.json")).unwrap();
        let cells = record["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| format!("{} {} {}", run["round"], run["configuration"], run["threads"]));
        cells.collect::<Vec<_>>()
    };
    let first = order("1");
    assert!(first[..8].iter().all(|cell| cell.starts_with("1 ")));
    assert!(first[8..].iter().all(|cell| cell.starts_with("2 ")));
    assert_eq!(first, order("1"));
    assert_ne!(first, order("2"));
}

/// A program that prints the same with one thread, and whose output varies with two.
const VARYING: &str = "#!/bin/sh\necho >> count\n\
    [ $1 = 1 ] && echo ops_per_sec: 5 || echo ops_per_sec: $(($(wc -l < count) * 5 % 7 + 1))\n";

#[test]
fn precision_ends_steady_thread_count_before_varying_one() {
    let stage = Stage::new();
    stage.script("program", VARYING);
    stage
        .unconvoy()
        .args(["compare", "--threads", "1,2", "--runs", "10", "--precision", ".01"])
        .args(["--metric", METRIC, "--json", "o.json", "--", "./program", "{threads}"])
        .assert()
        .success()
        .stderr(contains("at most 40 runs"))
        .stdout(contains("median of 8 to 10 runs"));
    let record: Value = serde_json::from_str(&stage.read("o.json")).unwrap();
    let runs = record["runs"].as_array().unwrap();
    let of_count = |count: u64| runs.iter().filter(|run| run["threads"] == count).count();
    assert_eq!([of_count(1), of_count(2)], [16, 20]);
    assert_eq!((&record["complete"], &record["plan"]["precision"]), (&true.into(), &0.01.into()));
}

#[test]
fn impossible_precision_is_refused_before_first_run() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\necho >> count\n");
    for (arguments, message) in [
        (&["--precision", "1.5"][..], "expected a fraction from .001 to .5"),
        (&["--precision", ".02", "--locks", "libc"][..], "name two or more --locks"),
        (&["--precision", ".02", "--runs", "5"][..], "--runs takes 8 to 64"),
        (&["--precision", ".02", "--runs", "65"][..], "--runs takes 8 to 64"),
    ] {
        let mut command = stage.unconvoy();
        command.arg("compare").args(arguments).args(["--", "./program"]);
        command.assert().code(2).stderr(contains(message));
    }
    assert!(!stage.path("count").exists());
}

#[test]
fn comparison_without_metric_uses_wall_time() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\n[ -n \"$UNCONVOY_LOCK\" ] || sleep 1\n");
    stage
        .unconvoy()
        .args(["compare", "--runs", "3", "--json", "o.json", "--plot", "figure", "--", "./program"])
        .assert()
        .success()
        .stdout(
            contains("wall time").and(contains("lower is better")).and(contains("│       - ┆")),
        );
    let record: Value = serde_json::from_str(&stage.read("o.json")).unwrap();
    assert!(record["runs"][0]["threads"].is_null());
    assert!(record["summary"][1]["ratio"].as_f64().unwrap() > 2.0, "{record}");
    assert!(stage.read("figure.svg").contains("default"));
}

#[test]
fn configuration_sets_environment_of_run() {
    let stage = Stage::new();
    let words = "$UNCONVOY_LOCK $UNCONVOY_LOAD $LD_PRELOAD $UNCONVOY_STATS$UNCONVOY_REPLACE";
    stage.script("program", &format!("#!/bin/sh\necho \"{words}\" >> seen\n"));
    stage
        .unconvoy()
        .env("UNCONVOY_LOCK", "ttas")
        .env("UNCONVOY_STATS", "/nonexistent")
        .env("UNCONVOY_REPLACE", "0")
        .env("LD_PRELOAD", stage.library())
        .args([
            "compare",
            "--locks",
            "libc,default,ticket,tpmcs+none",
            "--runs",
            "1",
            "--",
            "./program",
        ])
        .assert()
        .success();
    let seen = stage.read("seen");
    let mut lines: Vec<&str> = seen.lines().collect();
    lines.sort_unstable();
    let library = stage.library().display().to_string();
    let expected =
        ["loiter control", "ticket control", "tpmcs none"].map(|lock| format!("{lock} {library} "));
    assert_eq!(lines[0].trim(), "");
    assert_eq!(lines[1..], expected);
}

#[test]
fn warm_up_runs_are_not_recorded() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\necho >> count\n");
    stage
        .unconvoy()
        .args(["compare", "--locks", "libc", "--runs", "2", "--warmup", "3", "--csv", "o.csv"])
        .args(["--", "./program"])
        .assert()
        .success()
        .stdout(contains("nothing to compare"));
    assert_eq!(stage.read("count").lines().count(), 5);
    assert_eq!(stage.read("o.csv").lines().count(), 3);
}

/// Such a record used to replace the earlier result after the warm-up.
#[test]
fn record_without_measured_runs_replaces_no_earlier_result() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\necho >> count\n[ $(wc -l < count) -lt 3 ]\n");
    stage.write("earlier.json", "an earlier result");
    stage
        .unconvoy()
        .args(["compare", "--locks", "libc", "--warmup", "2", "--json", "earlier.json"])
        .args(["--", "./program"])
        .assert()
        .code(1);
    assert_eq!(stage.read("count").lines().count(), 3);
    assert_eq!(stage.read("earlier.json"), "an earlier result");
}

/// A program that fails in its third run.
const FAILING: &str = "#!/bin/sh\necho >> count\n\
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do echo \"step $i\"; done\n\
    [ $(wc -l < count) -lt 3 ] || exit 3\necho ops_per_sec: 5\n";

#[test]
fn failed_run_shows_last_lines_and_saves_finished_runs() {
    let stage = Stage::new();
    stage.script("program", FAILING);
    stage
        .unconvoy()
        .args(["compare", "--threads", "4", "--runs", "3", "--metric", METRIC])
        .args(["--", "./program", "{threads}"])
        .assert()
        .code(1)
        .stderr(
            contains("4 threads, round 2: exit status 3")
                .and(contains("step 16"))
                .and(contains("step 1\n").not())
                .and(contains("saved the 2 finished runs to"))
                .and(contains("unconvoy-compare-partial.json")),
        );
    let record: Value = serde_json::from_str(&stage.read("unconvoy-compare-partial.json")).unwrap();
    assert_eq!(record["runs"].as_array().unwrap().len(), 2);
    assert_eq!(record["complete"], false);
    assert!(record["ended_by"].as_str().unwrap().contains("exit status 3"));
}

#[test]
fn failed_comparison_with_json_keeps_finished_runs() {
    let stage = Stage::new();
    stage.script("program", FAILING);
    stage
        .unconvoy()
        .args(["compare", "--runs", "3", "--json", "o.json", "--", "./program"])
        .assert()
        .code(1);
    let record: Value = serde_json::from_str(&stage.read("o.json")).unwrap();
    assert_eq!(record["runs"].as_array().unwrap().len(), 2);
    assert!(!stage.path("unconvoy-compare-partial.json").exists());
}

#[test]
fn run_killed_by_signal_is_described() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\nkill -SEGV $$\n");
    let assert = stage.unconvoy().args(["compare", "--", "./program"]).assert();
    assert.code(1).stderr(contains("signal 11 (SIGSEGV").and(contains("printed nothing")));
}

#[test]
fn unusable_output_names_cause() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\necho ops: many; echo ops: 0; echo jain: 2\n");
    for (options, cause) in [
        (["--metric", "nothing: ([0-9]+)"], "matches 'nothing: ([0-9]+)'"),
        (["--metric", "ops: (many)"], "'many', which is not a number"),
        (["--ops", "ops: ([0-9]+)"], "needs a positive count"),
        (["--fairness", "jain: ([0-9]+)"], "between 0 and 1"),
    ] {
        stage
            .unconvoy()
            .arg("compare")
            .args(options)
            .args(["--", "./program"])
            .assert()
            .code(1)
            .stderr(contains(cause).and(contains("round 1")).and(contains("jain: 2")));
    }
}

#[test]
fn program_whose_name_has_the_thread_count_is_found() {
    let stage = Stage::new();
    stage.script("program-2", "#!/bin/sh\n");
    let mut command = stage.unconvoy();
    command.args(["compare", "--runs", "1", "--threads", "2", "--", "./program-{threads}"]);
    command.assert().success();
}

#[test]
fn unwritable_file_is_refused_before_the_first_run() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\necho >> count\n");
    let mut command = stage.unconvoy();
    command.args(["compare", "--json", "/proc/o.json", "--", "./program"]);
    command.assert().code(2).stderr(contains("cannot write /proc/o.json"));
    assert!(!stage.path("count").exists());
}

#[test]
fn run_over_time_limit_is_killed_with_children() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\nsleep 3000 & echo $! > child\nsleep 3000\n");
    stage
        .unconvoy()
        .args(["compare", "--timeout", "2.5", "--", "./program"])
        .assert()
        .code(1)
        .stderr(contains("--timeout 2.5 s"));
    let child = stage.read("child");
    assert!(stage::has_ended(&child), "process {child} is still running");
}

#[test]
fn processes_left_by_run_are_killed() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\nsleep 3000 & echo $! > child\n");
    stage
        .unconvoy()
        .args(["compare", "--locks", "libc", "--runs", "1", "--", "./program"])
        .assert()
        .success();
    let child = stage.read("child");
    assert!(stage::has_ended(&child), "process {child} is still running");
}

#[test]
fn large_output_does_not_block() {
    let stage = Stage::new();
    stage.script(
        "program",
        "#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' x\necho\necho ops_per_sec: 5\n",
    );
    stage
        .unconvoy()
        .args(["compare", "--locks", "libc", "--runs", "1", "--metric", METRIC, "--", "./program"])
        .assert()
        .success();
}

#[test]
fn few_runs_and_wide_spread_cause_warnings() {
    let stage = Stage::new();
    stage.script(
        "program",
        "#!/bin/sh\necho >> count\nn=$(wc -l < count)\necho ops_per_sec: $((n * n))\n",
    );
    let compare = |runs: &str| {
        let mut command = stage.unconvoy();
        command.args(["compare", "--runs", runs, "--metric", METRIC, "--quiet", "--", "./program"]);
        command.assert().success()
    };
    compare("2").stderr(contains("use --runs 3"));
    compare("5").stderr(contains("spread exceeds 10 %").and(contains("raise --runs")));
}
