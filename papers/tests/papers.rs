//! `unconvoy papers`, as a user calls it.

#[path = "../../crates/cli/tests/stage/mod.rs"]
mod stage;

use std::time::Duration;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::json;
use stage::Stage;
use unconvoy_measure::record::Record;
use unconvoy_measure::table::Table;
use unconvoy_papers::catalogue::FIGURES;

fn papers(stage: &Stage, arguments: &str) -> assert_cmd::assert::Assert {
    stage.unconvoy().arg("papers").args(arguments.split_whitespace()).assert()
}

#[test]
fn list_names_every_figure_with_its_paper() {
    let listed = papers(&Stage::new(), "list").success();
    let text = String::from_utf8_lossy(&listed.get_output().stdout).into_owned();
    for figure in FIGURES {
        let is_there = |line: &str| {
            line.contains(figure.name)
                && line.contains(&figure.paper.to_string())
                && line.contains(figure.made.name())
        };
        assert!(text.lines().any(is_there), "{}: {text}", figure.name);
    }
}

#[test]
fn unknown_figure_is_rejected_with_nearest_name() {
    let stage = Stage::new();
    papers(&stage, "run sim-asplos-13")
        .code(2)
        .stderr(contains("tip:").and(contains("'sim-asplos-1")));
    papers(&stage, "run nosuch").code(2).stderr(contains("sim-taco-9"));
    papers(&stage, "run sim-taco-1 --from r.json").code(1).stderr(contains("r.json"));
    papers(&stage, "run sim-taco-1 sim-taco-3 --from r.json")
        .code(2)
        .stderr(contains("one figure"));
    papers(&stage, "run sim-taco-1 --seeds 0").code(2).stderr(contains("--seeds"));
    stage
        .unconvoy()
        .args(["sim", "--figure", "nosuch"])
        .assert()
        .code(2)
        .stderr(contains("asplos-11"));
}

#[test]
fn simulated_figure_has_a_record_that_resume_keeps() {
    let stage = Stage::new();
    papers(&stage, "run sim-syncchar-6 --quick --out f")
        .success()
        .stdout(contains("holds").and(contains("f/sim-")));
    let record = stage.read("f/sim-syncchar-6.json");
    assert!(
        record.contains("\"figure\": \"syncchar-6\"") && record.contains("\"complete\": true"),
        "{record}"
    );
    assert!(stage.path("f/sim-syncchar-6.svg").exists());
    papers(&stage, "run sim-syncchar-6 --quick --out f --resume")
        .success()
        .stderr(contains("and kept"));
    let old = ["sim", "--figure", "syncchar-6", "--reduced", "--plot", "o", "--json", "o.json"];
    stage.unconvoy().args(old).assert().success();
    assert_eq!(stage.read("o.json"), record);
    assert_eq!(stage.read("o.svg"), stage.read("f/sim-syncchar-6.svg"));
}

#[test]
fn quick_version_that_would_replace_full_results_is_rejected() {
    let stage = Stage::new();
    papers(&stage, "run sim-syncchar-6 --quick --out f").success();
    // A full version takes minutes. Its record differs in these two.
    let quick = stage.read("f/sim-syncchar-6.json");
    let full = quick.replace("  \"quick\": true,\n", "").replace("\"plan\": \"", "\"plan\": \"0");
    assert!(full.len() < quick.len() && !full.contains("\"quick\""), "{quick}");
    stage.write("f/sim-syncchar-6.json", &full);
    for command in ["run sim-syncchar-6", "run sim-syncchar-6 --resume", "all", "all simulated"] {
        let words = command.split(' ').chain(["--quick", "--out", "f"]);
        let mut made = stage.unconvoy();
        made.arg("papers").args(words).timeout(Duration::from_secs(60));
        made.assert()
            .code(2)
            .stderr(contains("f/sim-syncchar-6.json\n").and(contains("another directory")));
    }
    assert_eq!(stage.read("f/sim-syncchar-6.json"), full);
    papers(&stage, "run sim-syncchar-6 --quick --out g").success();
}

#[test]
fn unwritable_record_is_rejected_before_simulation() {
    let stage = Stage::new();
    stage.write("file", "");
    let words = ["papers", "run", "sim-asplos-11", "--json", "file/r.json"];
    let assert = stage.unconvoy().args(words).timeout(Duration::from_secs(60)).assert();
    assert.code(1).stderr(contains("cannot make the directory"));
}

#[test]
fn further_seeds_extend_a_record() {
    let stage = Stage::new();
    let run = |arguments: &str| papers(&stage, &format!("run sim-syncchar-5 --quick {arguments}"));
    run("--out f").success();
    let first = stage.read("f/sim-syncchar-5.json");
    run("--out f --seeds 2 --resume").success().stderr(contains("seed 2, 2 of 2"));
    let extended = stage.read("f/sim-syncchar-5.json");
    assert!(extended.contains("\"seeds_that_hold\""), "{extended}");
    let table = stage.read("f/sim-syncchar-5.csv");
    assert!(table.starts_with("panel,line,x,median,min,max,seed 1,seed 2\n"), "{table}");
    assert!(stage.read("f/sim-syncchar-5.svg").contains("seeds 1 to 2: medians"));
    // The same two seeds at once, and put together from two records, give the same figure.
    run("--out g --seeds 2").success();
    assert_eq!(stage.read("g/sim-syncchar-5.json"), extended);
    run("--out h --seed 2").success();
    run("--from f/sim-syncchar-5.json h/sim-syncchar-5.json --out i").success();
    assert_eq!(stage.read("i/sim-syncchar-5.svg"), stage.read("f/sim-syncchar-5.svg"));
    run("--out f --seeds 2 --resume").success().stderr(contains("and kept"));
    // A record that was simulated again in part continues.
    stage.write("f/sim-syncchar-5.json.new", &first);
    run("--out f --seeds 2 --resume").success().stderr(contains("seed 2, 2 of 2"));
    assert!(!stage.path("f/sim-syncchar-5.json.new").exists());
    assert_eq!(stage.read("f/sim-syncchar-5.json"), extended);
    // A record of other points is another experiment.
    let other = stage.read("h/sim-syncchar-5.json").replace("\"plan\": \"", "\"plan\": \"0");
    stage.write("h/sim-syncchar-5.json", &other);
    run("--out h --seed 2 --resume").success().stderr(contains("has other points"));
}

#[test]
fn interrupted_seeds_are_continued() {
    let stage = Stage::new();
    papers(&stage, "run sim-syncchar-5 --quick --out f --seeds 3").success();
    let whole = stage.read("f/sim-syncchar-5.json");
    let mut cut: serde_json::Value = serde_json::from_str(&whole).unwrap();
    cut["complete"] = false.into();
    for cell in cut["results"].as_array_mut().unwrap().iter_mut().skip(2) {
        cell["seeds"].as_array_mut().unwrap().truncate(1);
    }
    stage.write("f/sim-syncchar-5.json", &cut.to_string());
    papers(&stage, "run sim-syncchar-5 --quick --out f --seeds 3 --resume")
        .success()
        .stderr(contains("seed 2, 2 of 3").and(contains("seed 1,").not()));
    assert_eq!(stage.read("f/sim-syncchar-5.json"), whole);
}

#[test]
fn drawing_from_a_record_keeps_its_failures() {
    let stage = Stage::new();
    papers(&stage, "run sim-syncchar-6 --quick --out f").success();
    let whole = stage.read("f/sim-syncchar-6.json");
    let mut failed: serde_json::Value = serde_json::from_str(&whole).unwrap();
    failed["failures"] = serde_json::json!(["Prob projected at 8: the simulated program hangs"]);
    failed["results"].as_array_mut().unwrap().remove(0);
    stage.write("f/sim-syncchar-6.json", &failed.to_string());
    papers(&stage, "run sim-syncchar-6 --from f/sim-syncchar-6.json --out g").success();
    assert!(stage.read("g/sim-syncchar-6.json").contains("Prob projected at 8: the simulated"));
    assert!(stage.read("g/sim-syncchar-6.svg").contains("INCOMPLETE. Simulated"));
    papers(&stage, "run sim-syncchar-6 --quick --out g --resume").success();
    assert_eq!(stage.read("g/sim-syncchar-6.json"), whole);
    // Beside a whole record, neither the failed record nor a begun one supplies results.
    failed["failures"] = json!([]);
    failed["complete"] = false.into();
    stage.write("f/begun.json", &failed.to_string());
    let records = "f/begun.json f/sim-syncchar-6.json g/sim-syncchar-6.json";
    papers(&stage, &format!("run sim-syncchar-6 --from {records} --out h")).success();
    assert_eq!(stage.read("h/sim-syncchar-6.svg"), stage.read("g/sim-syncchar-6.svg"));
    let drawn: serde_json::Value =
        serde_json::from_str(&stage.read("h/sim-syncchar-6.json")).unwrap();
    assert_eq!((&drawn["complete"], &drawn["failures"]), (&json!(true), &json!([])));
}

#[test]
fn changed_parameters_are_printed_with_their_reason() {
    let stage = Stage::new();
    papers(&stage, "run sim-asplos-8 --quick").success().stdout(
        contains("1.5 us instead of a section of 40 to 80 ns (section 4): waiters here")
            .and(contains("sim-asplos-8-published")),
    );
    assert!(stage.read("sim-asplos-8.svg").contains("Changed:"));
    papers(&stage, "run sim-asplos-8-published --quick").success().stdout(
        contains("63 threads, as published: the first thread").and(contains("Changed").not()),
    );
}

#[test]
fn native_figure_is_measured_and_drawn() {
    let stage = Stage::new();
    papers(&stage, "run asplos-5 --quick")
        .success()
        .stdout(contains("Figure 5").and(contains("./asplos-5.svg")));
    assert!(stage.read("asplos-5.json").contains("steadiness"));
    papers(&stage, "run asplos-5 --from asplos-5.json")
        .success()
        .stdout(contains("asplos-5-asplos-5.svg"));
}

/// A benchmark prints its tables when it runs. The tables of a kept record are not yet printed.
#[test]
fn kept_record_of_a_figure_without_a_drawing_shows_its_tables() {
    let stage = Stage::new();
    let mut record = Record::begin("contention-aware", 1, json!({ "runs": 5, "seconds": 1.0 }));
    record.tables.push(Table::new("remedies compared", ["lock"]));
    record.complete = true;
    std::fs::create_dir(stage.path("f")).unwrap();
    stage.write("f/contention-aware.json", &serde_json::to_string(&record).unwrap());
    papers(&stage, "run contention-aware --out f --resume")
        .success()
        .stderr(contains("is complete and kept"))
        .stdout(contains("remedies compared"));
}

#[test]
fn help_of_the_study_has_examples() {
    let stage = Stage::new();
    for command in ["bench", "sim", "papers"] {
        let examples = || {
            contains("Examples:\n  unconvoy").and(contains(format!("Usage: unconvoy {command}")))
        };
        stage.unconvoy().args([command, "--help"]).assert().success().stdout(examples());
        stage.unconvoy().args(["help", command]).assert().success().stdout(examples());
    }
    let wrong = stage.unconvoy().args(["bench", "counter", "--lok", "x"]).assert().code(2);
    wrong.stderr(contains("Options of unconvoy bench counter:").and(contains("--think <NS>")));
}

#[test]
fn completions_and_manual_cover_all_commands() {
    let stage = Stage::new();
    for shell in ["bash", "zsh", "fish"] {
        let assert = stage.unconvoy().args(["completions", shell]).assert();
        assert
            .success()
            .stdout(contains("sleep-timeout").and(contains("think")).and(contains("quick")));
    }
    stage.unconvoy().args(["man", "."]).assert().success();
    assert!(stage.read("unconvoy-compare.1").contains("lower"));
    assert!(stage.read("unconvoy-bench-counter.1").contains("think"));
    assert!(stage.read("unconvoy-papers-run.1").contains("quick"));
}
