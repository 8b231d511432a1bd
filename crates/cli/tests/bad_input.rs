//! Wrong input ends with an exit status, a cause and a remedy.

mod stage;

use predicates::prelude::*;
use predicates::str::contains;
use stage::Stage;

#[test]
fn unknown_name_lists_valid_names() {
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
fn unknown_option_lists_valid_options() {
    let stage = Stage::new();
    let run = ["run", "--nosuch", "--", "true"];
    stage.unconvoy().args(run).assert().code(2).stderr(contains("--sleep-timeout"));
    let compare = ["compare", "--nosuch", "--", "true"];
    stage.unconvoy().args(compare).assert().code(2).stderr(contains("--lower-is-better"));
    stage.unconvoy().arg("nosuch").assert().code(2).stderr(contains("completions"));
    stage.unconvoy().assert().code(2);
}

#[test]
fn missing_program_exits_127() {
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
fn non_executable_program_exits_126() {
    let stage = Stage::new();
    stage.write("data", "no program\n");
    for command in ["run", "compare"] {
        for program in ["./data", "./"] {
            let assert = stage.unconvoy().args([command, "--", program]).assert();
            let cause = if program == "./" { "it is a directory" } else { "Permission denied" };
            assert.code(126).stderr(contains("cannot execute").and(contains(cause)));
        }
    }
}

#[test]
fn missing_interpreter_is_named() {
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
fn number_out_of_range_exits_2() {
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
fn wrong_thread_count_names_the_form() {
    let stage = Stage::new();
    for wrong in ["0", "1-8", "1,x"] {
        let compare = ["compare", "--threads", wrong, "--", "true", "{threads}"];
        stage.unconvoy().args(compare).assert().code(2).stderr(contains("such as 1,2,4"));
    }
}

#[test]
fn thread_counts_without_placeholder_exit_2() {
    let stage = Stage::new();
    stage
        .unconvoy()
        .args(["compare", "--threads", "1,2", "--", "true"])
        .assert()
        .code(2)
        .stderr(contains("{threads}"));
}

#[test]
fn invalid_statistics_file_names_cause() {
    let stage = Stage::new();
    stage.write("empty", "");
    stage.write("text", "locks");
    stage.write("other", "{}");
    stage.write("newer", r#"{"schema":"unconvoy-stats-9"}"#);
    stage.write("half", r#"{"schema":"unconvoy-stats-1","#);
    stage.write("cut", r#"{"schema":"unconvoy-stats-1"}"#);
    for (file, cause) in [
        ("missing", "cannot read missing"),
        ("empty", "is empty: "),
        ("text", "not JSON"),
        ("other", "not a record of"),
        ("newer", "unconvoy-stats-9"),
        ("half", "is cut off"),
        ("cut", "not a complete"),
    ] {
        stage.unconvoy().args(["stats", file]).assert().code(1).stderr(contains(cause));
    }
}

#[test]
fn empty_statistics_name_the_largest_record_of_a_child() {
    let stage = Stage::new();
    for (file, text) in
        [("w.json", ""), ("w.json.7", "{}"), ("w.json.12", "{ }"), ("w.json.x", "{  }")]
    {
        stage.write(file, text);
    }
    let read = |file: &str| stage.unconvoy().args(["stats", file]).assert().code(1);
    read("w.json").stderr(contains("unconvoy stats w.json.12\n"));
    let absolute = stage.path("w.json.12");
    let named = format!("unconvoy stats {}", absolute.display());
    read(stage.path("w.json").to_str().expect("UTF-8")).stderr(contains(named));
}

#[test]
fn trace_in_a_pipe_is_refused() {
    let stage = Stage::new();
    let made = std::process::Command::new("mkfifo").arg(stage.path("pipe")).status();
    assert!(made.expect("it runs").success());
    let predict = ["predict", "--keep-trace", "pipe", "--", "true"];
    stage.unconvoy().args(predict).assert().code(2).stderr(contains("name a regular file"));
    assert!(!stage.path("pipe").is_file(), "the pipe is gone");
}

#[test]
fn one_file_for_two_outputs_exits_2() {
    let stage = Stage::new();
    for outputs in [
        &["compare", "--json", "x", "--csv", "./x"][..],
        &["compare", "--json", "x.svg", "--plot", "x"],
        &["profile", "--json", "x", "--csv", "x"],
        &["profile", "--output", "x", "--html", "x"],
        &["predict", "--json", "x", "--html", "x"],
        &["run", "--stats", "x", "--metrics", "x"],
        &["tune", "--output", "x", "--json", "./x"],
    ] {
        let mut command = stage.unconvoy();
        command.args(outputs).args(["--", "true"]);
        command.assert().code(2).stderr(contains("both name"));
    }
}

/// A writer to a full disk, here to the device that stands for one.
#[test]
fn text_that_cannot_be_printed_is_an_error_that_says_so() {
    let stage = Stage::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    for words in
        [&["locks"][..], &["doctor"], &["--help"], &["--version"], &["run", "--help"], &["-V"]]
    {
        let mut command = stage.process();
        let output = command.args(words).stdout(full()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("cannot print the results: No space left"), "{words:?}: {said}");
    }
}

#[test]
fn missing_temporary_directory_names_the_remedy() {
    let stage = Stage::new();
    let mut command = stage.unconvoy();
    command.args(["profile", "--", "true"]).env("TMPDIR", "/no/such");
    command.assert().code(1).stderr(contains("set TMPDIR").and(contains("No such file")));
}

#[test]
fn record_that_is_no_trace_is_named_so() {
    let stage = Stage::new();
    stage.write("s.json", "{\"schema\":\"unconvoy-stats-1\"}");
    let mut command = stage.unconvoy();
    command
        .args(["predict", "--analyse", "s.json"])
        .assert()
        .code(1)
        .stderr(contains("s.json: not a trace of").and(contains("--keep-trace")));
}

#[test]
fn endless_file_is_read_up_to_a_limit() {
    let stage = Stage::new();
    for (command, status, limit) in [
        (&["run", "--strategy", "/dev/zero", "--", "true"][..], 2, "1 MiB"),
        (&["stats", "/dev/zero"], 1, "64 MiB"),
        (&["tune", "--advise", "/dev/zero"], 1, "64 MiB"),
    ] {
        stage.unconvoy().args(command).assert().code(status).stderr(contains(limit));
    }
}

/// The check happens before the measurement, whose time would exceed the test's.
#[test]
fn benchmark_with_unwritable_record_does_not_start() {
    let stage = Stage::new();
    std::fs::write(stage.path("file"), "").expect("a file");
    for benchmark in
        ["pair", "condvar", "rwlock", "sensor", "bump", "steadiness", "idle", "memory", "counter"]
    {
        let out = stage.path("file").join("record");
        let mut command = stage.unconvoy();
        command.args(["bench", benchmark, "--seconds", "3000", "--out"]).arg(out);
        command.assert().code(1).stdout("").stderr(contains("file"));
    }
}
