//! Every wrong input has its status, its cause and its remedy.

mod stage;

use predicates::prelude::*;
use predicates::str::contains;
use stage::Stage;

#[test]
fn unknown_names_end_with_the_list() {
    let stage = Stage::new();
    for (option, known) in [("--lock", "tpmcs"), ("--load", "yield")] {
        stage
            .unconvoy()
            .args(["run", option, "nosuch", "--", "true"])
            .assert()
            .code(2)
            .stderr(contains("nosuch").and(contains(known)));
    }
    for wrong in ["nosuch", "mcs+nosuch", "nosuch+none", "libc+none"] {
        stage
            .unconvoy()
            .args(["compare", "--locks", wrong, "--", "true"])
            .assert()
            .code(2)
            .stderr(contains("tpmcs").and(contains("yield")).and(contains("default")));
    }
}

#[test]
fn unknown_options_end_with_the_list() {
    let stage = Stage::new();
    let run = ["run", "--nosuch", "--", "true"];
    stage.unconvoy().args(run).assert().code(2).stderr(contains("--sleep-timeout"));
    let compare = ["compare", "--nosuch", "--", "true"];
    stage.unconvoy().args(compare).assert().code(2).stderr(contains("--lower-is-better"));
    stage.unconvoy().arg("nosuch").assert().code(2).stderr(contains("completions"));
    stage.unconvoy().assert().code(2);
}

#[test]
fn a_program_that_is_not_there_is_127() {
    let stage = Stage::new();
    for command in ["run", "compare"] {
        for program in ["no-such-program", "./no-such-program"] {
            stage
                .unconvoy()
                .args([command, "--", program])
                .assert()
                .code(127)
                .stderr(contains(program).and(contains("not found")));
        }
    }
}

#[test]
fn a_program_that_is_not_executable_is_126() {
    let stage = Stage::new();
    stage.write("data", "no program\n");
    for command in ["run", "compare"] {
        for program in ["./data", "./"] {
            let assert = stage.unconvoy().args([command, "--", program]).assert();
            assert.code(126).stderr(contains("cannot be executed"));
        }
    }
}

#[test]
fn a_missing_interpreter_is_named() {
    let stage = Stage::new();
    stage.script("script", "#!/nonexistent/interpreter\n");
    for command in ["run", "compare"] {
        stage
            .unconvoy()
            .args([command, "--", "./script"])
            .assert()
            .code(127)
            .stderr(contains("interpreter /nonexistent/interpreter"));
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    let stage = Stage::new();
    for wrong in [
        &["run", "--interval", "0", "--", "true"][..],
        &["run", "--sleep-timeout", "soon", "--", "true"],
        &["run", "--backoff", "0", "--", "true"],
        &["run", "--policy", "nosuch", "--", "true"],
        &["compare", "--runs", "0", "--", "true"],
        &["compare", "--threads", "1,0", "--", "true", "{threads}"],
        &["compare", "--threads", "1,1", "--", "true", "{threads}"],
        &["compare", "--timeout", "-1", "--", "true"],
        &["compare", "--locks", "libc,libc", "--", "true"],
        &["compare", "--metric", "ops [0-9]+", "--", "true"],
        &["compare", "--metric", "(ops) ([0-9]+)", "--", "true"],
        &["compare", "--metric", "(", "--", "true"],
        &["compare", "--json", "missing/f.json", "--", "true"],
        &["compare", "--plot", "missing/f", "--", "true"],
        &["run"],
        &["compare"],
    ] {
        stage.unconvoy().args(wrong).assert().code(2).stderr(predicate::str::is_empty().not());
    }
}

#[test]
fn thread_counts_need_a_place() {
    let stage = Stage::new();
    stage.unconvoy().args(["compare", "--threads", "1,2", "--", "true"]).assert().code(2).stderr(contains("{threads}"));
}

#[test]
fn statistics_that_are_none_are_said_to_be_none() {
    let stage = Stage::new();
    stage.write("empty", "");
    stage.write("other", "{}");
    stage.write("newer", r#"{"schema":"unconvoy-stats-9"}"#);
    stage.write("cut", r#"{"schema":"unconvoy-stats-1"}"#);
    for (file, cause) in [
        ("missing", "cannot read missing"),
        ("empty", "not JSON"),
        ("other", "no record of"),
        ("newer", "unconvoy-stats-9"),
        ("cut", "not a complete"),
    ] {
        stage.unconvoy().args(["stats", file]).assert().code(1).stderr(contains(cause));
    }
}

/// Before anything was measured, which would take longer than a test may.
#[test]
fn a_benchmark_that_could_not_write_its_record_does_not_begin() {
    let stage = Stage::new();
    std::fs::write(stage.path("file"), "").expect("a file");
    for benchmark in ["pair", "condvar", "rwlock", "sensor", "bump", "steadiness", "idle", "memory", "counter"] {
        let out = stage.path("file").join("record");
        let mut command = stage.unconvoy();
        command.args(["bench", benchmark, "--seconds", "3000", "--out"]).arg(out);
        command.assert().code(1).stdout("").stderr(contains("file"));
    }
}
