//! `unconvoy sim`, as a user calls it.

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;

fn sim(arguments: &str) -> assert_cmd::assert::Assert {
    Command::cargo_bin("unconvoy").expect("built").arg("sim").args(arguments.split_whitespace()).assert()
}

#[test]
fn a_table_and_a_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("r.json");
    sim(&format!("--machine niagara2-16 --threads 8,24 --locks default,mcs+none --seconds 0.02 --json {}", json.display()))
        .success()
        .stdout(contains("loiter").or(contains("default")).and(contains("Simulated: counter on niagara2-16 (16 contexts)")));
    let record: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    assert_eq!(record["complete"], true);
    assert_eq!(record["simulated"], true);
    assert_eq!(record["results"].as_array().map(Vec::len), Some(4));
}

#[test]
fn a_printed_machine_is_a_machine_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("m.toml");
    let printed = sim("--machine server --print-machine").success().get_output().stdout.clone();
    std::fs::write(&file, printed).expect("written");
    sim(&format!("--machine {} --threads 4 --locks default --seconds 0.01", file.display())).success();
    let wrong = std::fs::read_to_string(&file).expect("there").replace("sockets = 2", "sockets = 0");
    std::fs::write(&file, wrong).expect("written");
    sim(&format!("--machine {}", file.display())).failure().stderr(contains("sockets").and(contains("line ")));
}

#[test]
fn unknown_names_are_told_with_what_there_is() {
    sim("nosuch").failure().stderr(contains("raytrace"));
    sim("--machine nosuch").failure().stderr(contains("niagara2-64"));
    sim("--locks nosuch").failure().stderr(contains("CONTENTION+LOAD"));
    sim("--figure nosuch").failure().stderr(contains("asplos-11"));
}

#[test]
fn transactions_are_simulated_where_the_machine_has_some() {
    let output = sim("rb-tree --machine metatm-8 --threads 32 --locks ttas+none,elided+none,transactions --seconds 0.01")
        .success();
    let output = String::from_utf8(output.get_output().stdout.clone()).expect("text");
    assert!(output.contains("aborts") && output.contains("│ transactions"), "{output}");
    sim("prob --machine metatm-32 --threads 32 --locks transactions --seconds 0.01").success();
    sim("rw --machine metatm-16 --threads 32 --locks transactions --seconds 0.01").success();
    sim("rw --machine opteron-32 --threads 8 --locks transactions").failure().stderr(contains("[transactions]"));
}
