//! `unconvoy run` starts the program in the process state that it would have without unconvoy.

mod stage;

use std::os::unix::process::ExitStatusExt;

use predicates::prelude::*;
use predicates::str::{contains, is_empty};
use stage::Stage;

#[test]
fn exit_status_is_the_programs() {
    let stage = Stage::new();
    for status in [0, 1, 42, 255] {
        let script = format!("exit {status}");
        stage
            .unconvoy()
            .args(["run", "--", "sh", "-c", &script])
            .assert()
            .code(status)
            .stderr(is_empty());
    }
}

#[test]
fn signal_status_is_the_programs() {
    let stage = Stage::new();
    for signal in [9, 11, 13, 15] {
        let script = format!("kill -{signal} $$");
        let output = stage.unconvoy().args(["run", "--", "sh", "-c", &script]).output().unwrap();
        assert_eq!(output.status.signal(), Some(signal));
    }
}

#[test]
fn process_id_is_the_programs() {
    let stage = Stage::new();
    let script = format!("echo $$; exec {} run -- sh -c 'echo $$'", env!("CARGO_BIN_EXE_unconvoy"));
    let mut shell = assert_cmd::Command::new("sh");
    shell.env("UNCONVOY_LIBRARY", stage.library()).timeout(stage::LIMIT);
    let output = shell.args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let ids: Vec<&str> = text.lines().collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn signal_dispositions_are_inherited() {
    let stage = Stage::new();
    let ignored_in = |prefix: &str, setup: &str| {
        let script = format!("{setup} exec {prefix} grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status");
        let mut shell = assert_cmd::Command::new("sh");
        shell.env("UNCONVOY_LIBRARY", stage.library()).timeout(stage::LIMIT);
        String::from_utf8(shell.args(["-c", &script]).output().unwrap().stdout).unwrap()
    };
    let run = format!("{} run --", env!("CARGO_BIN_EXE_unconvoy"));
    for setup in ["", "trap '' PIPE;", "trap '' INT HUP;"] {
        let plain = ignored_in("", setup);
        assert!(plain.contains("SigIgn"));
        assert_eq!(ignored_in(&run, setup), plain, "{setup}");
    }
}

#[test]
fn confine_sets_search_variable() {
    let stage = Stage::new();
    for (option, value) in [
        ("--confine", "refined"),
        ("--confine=published", "published"),
        ("--ssc", "refined"),
        ("--no-children", ""),
    ] {
        let arguments = ["run", option, "--", "sh", "-c", "echo $UNCONVOY_SSC"];
        stage.unconvoy().args(arguments).assert().success().stdout(format!("{value}\n"));
    }
    stage
        .unconvoy()
        .args(["run", "--confine=nosuch", "--", "true"])
        .assert()
        .failure()
        .stderr(contains("refined"));
}

#[test]
fn options_set_environment_variables() {
    let stage = Stage::new();
    let script = "echo $LD_PRELOAD $UNCONVOY_LOCK $UNCONVOY_LOAD $UNCONVOY_INTERVAL_MS \
                  $UNCONVOY_SLEEP_MS $UNCONVOY_POLICY $UNCONVOY_CHILDREN $UNCONVOY_STATS";
    let expected = format!(
        "{} tpmcs published 9 50 kalman 0 {}\n",
        stage.library().display(),
        stage.path("s.json").canonicalize().unwrap_or(stage.path("s.json")).display()
    );
    stage
        .unconvoy()
        .args(["run", "--lock", "tpmcs", "--load", "published", "--interval", "9"])
        .args(["--sleep-timeout", "50", "--policy", "kalman", "--no-children", "--stats", "s.json"])
        .args(["--", "sh", "-c", script])
        .assert()
        .success()
        .stdout(expected);
    let mut command = stage.unconvoy();
    command.args(["run", "--load", "backoff", "--backoff", "20", "--", "sh", "-c"]);
    command.arg("echo $UNCONVOY_LOAD $UNCONVOY_BACKOFF_MS").assert().stdout("backoff 20\n");
}

#[test]
fn options_of_another_load_manager_are_refused() {
    let stage = Stage::new();
    for (options, cause) in [
        (&["--backoff", "50"][..], "--backoff is for `--load backoff`, not for `control`: omit it"),
        (&["--sleep-timeout", "50", "--load", "park"], "`--load control` and `--load published`"),
    ] {
        let mut command = stage.unconvoy();
        command.arg("run").args(options).args(["--", "true"]);
        command.assert().code(2).stderr(contains(cause));
    }
    // A strategy may choose that load manager for single locks.
    stage.write("some.toml", "version = 1\n[process]\nlock = \"tpmcs\"\n");
    let mut command = stage.unconvoy();
    command.args(["run", "--backoff", "50", "--strategy", "some.toml", "--", "true"]);
    command.assert().success();
}

#[test]
fn existing_preload_follows_interposer() {
    let stage = Stage::new();
    let source = stage.write("other.c", "int other;\n");
    let other = stage.compile("other.so", &source, &["-shared", "-fPIC"]).unwrap();
    let expected = format!("{}:{}\n", stage.library().display(), other.display());
    stage
        .unconvoy()
        .env("LD_PRELOAD", &other)
        .args(["run", "sh", "-c", "echo $LD_PRELOAD"])
        .assert()
        .success()
        .stdout(expected);
}

#[test]
fn users_variables_hold_without_options() {
    let stage = Stage::new();
    stage
        .unconvoy()
        .env("UNCONVOY_LOCK", "ticket")
        .args(["run", "--", "sh", "-c", "echo $UNCONVOY_LOCK:$UNCONVOY_LOAD"])
        .assert()
        .stdout("ticket:\n");
}

/// Started in a program that already runs under unconvoy.
#[test]
fn inner_run_has_files_and_locks_of_its_own() {
    let stage = Stage::new();
    let names = ["REPLACE", "STATS_OWNER", "PROFILE", "STATS"].map(|it| format!("UNCONVOY_{it}"));
    let script = names.each_ref().map(|name| format!("echo ${name}")).join("; ");
    let run = |options: &[&str]| {
        let mut command = stage.unconvoy();
        for name in &names {
            command.env(name, "0");
        }
        command.arg("run").args(options).args(["--", "sh", "-c", &script]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(run(&[]), "0\n0\n0\n0\n");
    assert_eq!(run(&["--lock", "tpmcs"]), "\n0\n0\n0\n");
    let own = run(&["--stats", "own.json"]);
    assert!(own.starts_with("0\n\n\n/") && own.ends_with("/own.json\n"), "{own}");
}

#[test]
fn options_of_load_control_are_refused_with_libcs_locks() {
    let stage = Stage::new();
    for option in [
        ["--policy", "pid"],
        ["--interval", "5"],
        ["--sensor", "psi"],
        ["--metrics", "server.prom"],
    ] {
        let mut command = stage.unconvoy();
        command.args(["run", "--lock", "libc"]).args(option).args(["--", "true"]);
        command.assert().code(2).stderr(contains(option[0]));
    }
}

#[test]
fn arguments_pass_unchanged() {
    let stage = Stage::new();
    stage
        .unconvoy()
        .args(["run", "--lock", "mcs", "--", "printf", "%s|", "--lock", "a b", "", "--", "-x"])
        .assert()
        .success()
        .stdout("--lock|a b||--|-x|");
}

#[test]
fn closed_descriptors_stay_closed_for_the_program() {
    let stage = Stage::new();
    let look = "for number in 0 1; do test -e /proc/$$/fd/$number && echo open >&2; done; true";
    let shell = format!("exec <&- >&-; exec \"$0\" run -- sh -c '{look}'");
    let command = stage.process();
    let mut run = std::process::Command::new("sh");
    run.arg("-c").arg(shell).arg(command.get_program()).current_dir(stage.path(""));
    let output = run.env("UNCONVOY_LIBRARY", stage.library()).output().expect("it runs");
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn script_without_interpreter_line_runs_under_sh() {
    let stage = Stage::new();
    stage.script("plain", "echo plain $1\n");
    stage.unconvoy().args(["run", "--", "./plain", "x"]).assert().success().stdout("plain x\n");
}

#[test]
fn unwritable_statistics_warn_and_program_runs() {
    let stage = Stage::new();
    stage
        .unconvoy()
        .args([
            "run",
            "--stats",
            "missing/s.json",
            "--",
            "sh",
            "-c",
            "echo ran \"$UNCONVOY_STATS\"",
        ])
        .assert()
        .success()
        .stdout("ran \n")
        .stderr(
            contains("cannot write to")
                .and(predicate::function(|text: &str| text.lines().count() == 1)),
        );
}

#[test]
fn missing_library_names_places_and_remedy() {
    let stage = Stage::new();
    stage
        .unconvoy()
        .env("UNCONVOY_LIBRARY", "/nonexistent/libunconvoy.so")
        .args(["run", "--", "true"])
        .assert()
        .code(125)
        .stderr(contains("looked for /nonexistent/libunconvoy.so").and(contains("cargo build")));
}

#[test]
fn library_path_with_space_is_rejected() {
    let stage = Stage::new();
    let path = stage.path("with space.so");
    std::fs::copy(stage.library(), &path).unwrap();
    stage
        .unconvoy()
        .env("UNCONVOY_LIBRARY", &path)
        .args(["run", "--", "true"])
        .assert()
        .code(125)
        .stderr(contains("spaces and colons"));
}
