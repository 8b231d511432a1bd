//! `unconvoy papers`, as a user calls it.

#[path = "../../crates/cli/tests/stage/mod.rs"]
mod stage;

use predicates::prelude::*;
use predicates::str::contains;
use stage::Stage;
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
            line.contains(figure.name) && line.contains(&figure.paper.to_string()) && line.contains(figure.made.name())
        };
        assert!(text.lines().any(is_there), "{}: {text}", figure.name);
    }
}

#[test]
fn unknown_figure_is_refused_with_the_nearest_name() {
    let stage = Stage::new();
    papers(&stage, "run sim-asplos-13").code(2).stderr(contains("tip:").and(contains("'sim-asplos-1")));
    papers(&stage, "run nosuch").code(2).stderr(contains("sim-taco-9"));
    papers(&stage, "run sim-taco-1 --from r.json").code(1).stderr(contains("one native figure"));
    stage.unconvoy().args(["sim", "--figure", "nosuch"]).assert().code(2).stderr(contains("asplos-11"));
}

#[test]
fn simulated_figure_has_a_record_that_resume_keeps() {
    let stage = Stage::new();
    papers(&stage, "run sim-syncchar-6 --quick --out f").success().stdout(contains("holds").and(contains("f/sim-")));
    let record = stage.read("f/sim-syncchar-6.json");
    assert!(record.contains("\"figure\": \"syncchar-6\"") && record.contains("\"complete\": true"), "{record}");
    assert!(stage.path("f/sim-syncchar-6.svg").exists() && stage.path("f/sim-syncchar-6.png").exists());
    papers(&stage, "run sim-syncchar-6 --quick --out f --resume").success().stderr(contains("and kept"));
    let old = ["sim", "--figure", "syncchar-6", "--reduced", "--plot", "o", "--json", "o.json"];
    stage.unconvoy().args(old).assert().success();
    assert_eq!(stage.read("o.json"), record);
    assert_eq!(stage.read("o.svg"), stage.read("f/sim-syncchar-6.svg"));
}

#[test]
fn native_figure_is_measured_and_drawn() {
    let stage = Stage::new();
    papers(&stage, "run asplos-5 --quick").success().stdout(contains("Figure 5").and(contains("./asplos-5.svg")));
    assert!(stage.read("asplos-5.json").contains("steadiness"));
    papers(&stage, "run asplos-5 --from asplos-5.json").success().stdout(contains("asplos-5-asplos-5.svg"));
}

#[test]
fn help_of_the_study_has_examples() {
    let stage = Stage::new();
    for command in ["bench", "sim", "papers"] {
        let examples = || contains("Examples:\n  unconvoy").and(contains(format!("Usage: unconvoy {command}")));
        stage.unconvoy().args([command, "--help"]).assert().success().stdout(examples());
        stage.unconvoy().args(["help", command]).assert().success().stdout(examples());
    }
    let wrong = stage.unconvoy().args(["bench", "counter", "--lok", "x"]).assert().code(2);
    wrong.stderr(contains("Options of unconvoy bench counter:").and(contains("--think <NS>")));
}

#[test]
fn completions_and_manual_pages_have_the_options_of_all_commands() {
    let stage = Stage::new();
    for shell in ["bash", "zsh", "fish"] {
        let assert = stage.unconvoy().args(["completions", shell]).assert();
        assert.success().stdout(contains("sleep-timeout").and(contains("think")).and(contains("quick")));
    }
    stage.unconvoy().args(["man", "."]).assert().success();
    assert!(stage.read("unconvoy-compare.1").contains("lower"));
    assert!(stage.read("unconvoy-bench-counter.1").contains("think"));
    assert!(stage.read("unconvoy-papers-run.1").contains("quick"));
}
