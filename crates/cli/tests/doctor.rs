//! `unconvoy doctor`.

mod stage;

use std::os::unix::fs::PermissionsExt;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use stage::{Running, Stage};

#[test]
fn doctor_lists_every_check_and_exits_0() {
    let stage = Stage::new();
    let assert = stage.unconvoy().arg("doctor").assert().success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    for name in [
        "library",
        "processors",
        "load sensor",
        "run --sensor bpf",
        "profile --pid",
        "profile --kernel",
        "elided locks",
        "predict",
        "predict --kernel",
        "sched",
        "inspect",
        "top",
        "predict --keep-trace",
        "bench, sim, papers",
        "compare --plot X.png",
    ] {
        let answers = |answer: &str| text.contains(&format!(" {answer:<4} {name} "));
        assert!(answers("yes") || answers("no"), "{name}: {text}");
    }
}

#[test]
fn missing_parts_have_their_remedy() {
    let stage = Stage::new();
    let missing = stage.path("missing");
    let assert = stage
        .unconvoy()
        .args(["doctor", "--json"])
        .env("UNCONVOY_LIBRARY", &missing)
        .env("UNCONVOY_PLUGIN", &missing)
        .env("UNCONVOY_SCHED_EXT", &missing)
        .assert()
        .success();
    for (name, remedy) in
        [("library", "unconvoy-preload"), ("predict", "plugin-user"), ("sched", "sched-ext")]
    {
        let check = check(&assert.get_output().stdout, name);
        assert_eq!(check["works"], false, "{check}");
        assert!(check["detail"].as_str().unwrap().contains(remedy), "{check}");
    }
}

/// The check `name` in the output of `doctor --json`.
fn check(text: &[u8], name: &str) -> Value {
    let found: Value = serde_json::from_slice(text).unwrap();
    let checks = found["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap().clone()
}

/// The sensor's BPF programs need less than those of `profile`.
#[test]
fn check_of_a_profile_agrees_with_that_profile() {
    let stage = Stage::new();
    let asleep = Running(std::process::Command::new("sleep").arg("300").spawn().unwrap());
    let id = asleep.0.id().to_string();
    let of_process = ["--pid", id.as_str()];
    let doctor = stage.unconvoy().args(["doctor", "--json"]).output().unwrap();
    for (name, of) in [("profile --pid", &of_process[..]), ("profile --kernel", &["--kernel"][..])]
    {
        let check = check(&doctor.stdout, name);
        let words = ["--seconds", "0.2", "-o", "p.locks"];
        let run = stage.unconvoy().arg("profile").args(of).args(words).output().unwrap();
        let complaint = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(check["works"], complaint.contains("recording "), "{check}: {complaint}");
        let detail = check["detail"].as_str().unwrap();
        assert!(check["works"] == true || complaint.contains(detail), "{check}: {complaint}");
    }
}

/// `profile --pid` works there, with the privilege, but not the sensor.
#[test]
fn bpf_in_a_pid_namespace_serves_profiles() {
    let stage = Stage::new();
    let outside = stage.unconvoy().args(["doctor", "--json"]).output().unwrap();
    let profile = check(&outside.stdout, "profile --pid");
    if profile["works"] == false {
        println!("skipped: {}", profile["detail"]);
        return;
    }
    let inside = std::process::Command::new("unshare")
        .args(["--pid", "--mount", "--fork", "--mount-proc", "--"])
        .arg(stage.process().get_program())
        .args(["doctor", "--json"])
        .output();
    let Ok(inside) = inside.as_ref().map_err(|error| println!("skipped: {error}")) else { return };
    if !inside.status.success() {
        println!("skipped: no PID namespace: {}", String::from_utf8_lossy(&inside.stderr));
        return;
    }
    let [profile, sensor] =
        ["profile --pid", "run --sensor bpf"].map(|name| check(&inside.stdout, name));
    assert_eq!(profile["works"], true, "{profile}");
    let detail = sensor["detail"].as_str().unwrap();
    assert!(sensor["works"] == false && detail.contains("PID namespace"), "{sensor}");
}

#[test]
fn library_that_the_loader_rejects_is_named_with_the_complaint() {
    let stage = Stage::new();
    let broken = stage.write("broken.so", "no library");
    let assert = stage.unconvoy().arg("doctor").env("UNCONVOY_LIBRARY", broken).assert();
    assert.success().stdout(contains("cannot be preloaded"));
}

const LOCKS: &str = "\
#include <pthread.h>
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int use(void) { return pthread_mutex_lock(&lock); }
";

#[test]
fn library_that_brings_locks_is_named() {
    let stage = Stage::new();
    let source = stage.write("locks.c", LOCKS);
    stage.compile("liblocks.so", &source, &["-shared", "-fPIC"]).unwrap();
    let source = stage.write("main.c", "int use(void); int main(void) { return use(); }");
    let library = stage.path("liblocks.so");
    let program =
        stage.compile("program", &source, &[library.to_str().unwrap()]).expect("a C compiler");
    let assert = stage.unconvoy().args(["doctor", "--"]).arg(&program).assert().success();
    assert.stdout(contains("its pthread locks can be replaced").and(contains("liblocks.so")));
}

#[test]
fn program_whose_locks_cannot_be_replaced_is_explained() {
    let stage = Stage::new();
    let source = stage.write("main.c", "int main(void) { return 0; }");
    let fixed = stage.compile("fixed", &source, &["-static"]).unwrap();
    let assert = stage.unconvoy().args(["doctor", "--"]).arg(&fixed).assert().success();
    assert.stdout(contains("statically linked"));
    let plain = stage.compile("plain", &source, &[]).unwrap();
    let assert = stage.unconvoy().args(["doctor", "--"]).arg(&plain).assert().success();
    assert.stdout(contains("no pthread lock in it"));
    stage.unconvoy().args(["doctor", "--", "./missing"]).assert().code(127);
    stage.unconvoy().args(["doctor", "--nosuch"]).assert().code(2);
}

#[test]
fn file_that_is_no_program_is_refused() {
    let stage = Stage::new();
    let text = stage.script("text", "no magic\0here");
    let script = stage.script("script", &format!("#!{}\n", text.display()));
    for (path, why) in [
        (stage.path("."), "is a directory"),
        (text, "neither an ELF file nor a script"),
        (script, "neither an ELF file nor a script"),
    ] {
        let assert = stage.unconvoy().args(["doctor", "--"]).arg(&path).assert().code(126);
        assert.stderr(contains(why)).stdout("");
    }
    let orphan = stage.script("orphan", "#!/nonexistent/interpreter\n");
    let assert = stage.unconvoy().args(["doctor", "--"]).arg(&orphan).assert().code(127);
    assert.stderr(contains("/nonexistent/interpreter"));
}

#[test]
fn program_that_cannot_be_read_is_refused() {
    if nix::unistd::geteuid().is_root() {
        println!("skipped: root may read any file");
        return;
    }
    let stage = Stage::new();
    let sealed = stage.script("sealed", "#!/bin/sh\n");
    std::fs::set_permissions(&sealed, std::fs::Permissions::from_mode(0o111)).unwrap();
    let assert = stage.unconvoy().args(["doctor", "--"]).arg(&sealed).assert().code(126);
    assert.stderr(contains("Permission denied"));
}
