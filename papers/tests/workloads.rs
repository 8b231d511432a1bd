//! The workload programs that `bench.rs` does not cover: each measures with and without the
//! library, detects a lock that does not exclude, and explains bad input. No number is judged here.

mod built;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Output};
use std::time::Duration;

use assert_cmd::Command;
use assert_cmd::assert::OutputAssertExt;
use built::program;
use tempfile::TempDir;

/// Time limit of a command, so that no test hangs.
const LIMIT: Duration = Duration::from_secs(600);

const TACHYON: &str = "/usr/bin/tachyon";

/// The interposer: `UNCONVOY_LIBRARY`, or what cargo builds now.
fn library() -> PathBuf {
    if let Some(named) = std::env::var_os("UNCONVOY_LIBRARY") {
        return PathBuf::from(named);
    }
    let built = Process::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "unconvoy-preload"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "cargo build of libunconvoy.so: {built}");
    let profile = std::path::Path::new(env!("CARGO_BIN_EXE_unconvoy-study"));
    profile
        .ancestors()
        .nth(2)
        .expect("target/PROFILE/unconvoy-study")
        .join("release/libunconvoy.so")
}

/// A command without any preloaded library or unconvoy setting.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.timeout(LIMIT).env_remove("LD_PRELOAD");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNCONVOY_") {
            command.env_remove(name);
        }
    }
    command
}

/// The `name value` lines of a run that succeeds without error output.
#[track_caller]
fn values(mut command: Command) -> HashMap<String, f64> {
    let ended = command.assert().success().stderr("");
    let text = String::from_utf8_lossy(&ended.get_output().stdout).into_owned();
    text.lines()
        .map(|line| {
            let (name, value) =
                line.split_once(' ').unwrap_or_else(|| panic!("no `name value`: {line}"));
            (name.to_string(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
        })
        .collect()
}

/// Runs the program without and with the library; both must measure something.
#[track_caller]
fn both(name: &str, words: &[&str]) -> [HashMap<String, f64>; 2] {
    let program = program(name);
    let mut with = command(&program);
    with.args(words).env("LD_PRELOAD", library());
    let mut without = command(&program);
    without.args(words);
    [values(without), values(with)]
}

/// Whether the four percentiles with `prefix` exist and are in order.
fn percentiles_are_ordered(values: &HashMap<String, f64>, prefix: &str) -> bool {
    let named = ["p50", "p99", "p999", "max"].map(|name| values[&format!("{prefix}{name}_ns")]);
    named.is_sorted() && named[3] > 0.0
}

#[track_caller]
fn fails(command: &mut Command, code: i32, text: &str) {
    failed(command.output().expect("the workload starts"), code, text);
}

#[track_caller]
fn failed(output: Output, code: i32, text: &str) {
    let ended = output.assert().code(code);
    let stderr = String::from_utf8_lossy(&ended.get_output().stderr).into_owned();
    assert!(stderr.contains(text), "expected {text:?} in {stderr:?}");
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn counter_reports_preemptions_only_on_request() {
    let words =
        ["--threads", "4", "--seconds", "0.4", "--lines", "64", "--latency", "--preemptions"];
    for values in both("counter", &words) {
        assert!(values["ops"] > 0.0 && values["min_max"] <= 1.0 && values["cpu_ns_per_op"] > 0.0);
        assert!(percentiles_are_ordered(&values, ""));
        assert!(
            values["lhp"] >= 0.0
                && values["lhp_per_sec"] >= values["lhp"]
                && values["lhp_lost_seconds"] >= 0.0
        );
    }
    let mut plain = command(&program("counter"));
    plain.args(["--seconds", "0.05"]);
    assert!(!values(plain).contains_key("lhp"), "counted without being asked to");
}

/// A section longer than the window leaves no operation in it, so fairness and cost are undefined.
#[test]
fn window_without_operations_has_no_fairness_or_cost() {
    let mut counter = command(&program("counter"));
    counter.args(["--threads", "1", "--seconds", "0.05", "--cs", "1000000000"]);
    let values = values(counter);
    assert_eq!(values["ops"], 0.0);
    assert!(!["jain", "min_max", "cpu_ns_per_op"].iter().any(|&name| values.contains_key(name)));
}

/// Threads that wait for a lock during the whole window have waited in it.
#[test]
fn nested_counts_a_wait_around_the_window() {
    let mut nested = command(&program("nested"));
    nested.args(["--threads", "1", "--seconds", "0.05", "--inner-cs", "1000000000"]);
    let values = values(nested);
    assert!(values["nested"] >= 1.0 && values["probed"] >= 1.0);
    assert!(values["outer_hold_max_ns"] > 5e8 && values["outer_wait_max_ns"] > 5e8);
}

/// A probe that sleeps until after the window has not waited in it.
#[test]
fn nested_probe_that_wakes_after_the_window_counts_no_wait() {
    let mut nested = command(&program("nested"));
    nested.args(["--threads", "1", "--seconds", "0.05", "--probe-gap", "1000000000"]);
    let values = values(nested);
    assert!(values["probed"] == 0.0 && !values.contains_key("outer_wait_max_ns"), "{values:?}");
}

/// Twice as many spinners as processors preempt the holder repeatedly, and the counter notices.
#[test]
fn counter_counts_holder_preemptions() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut spinner = Process::new(program("spin"))
        .args(["--seconds", "3000", "--threads", &(2 * processors).to_string()])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    // One thread, nearly always inside its section.
    let mut counter = command(&program("counter"));
    counter.args([
        "--threads",
        "1",
        "--seconds",
        "1",
        "--lines",
        "64",
        "--cs",
        "0",
        "--preemptions",
    ]);
    let output = counter.output();
    spinner.kill().expect("it still runs");
    spinner.wait().expect("it ends");
    let text = String::from_utf8_lossy(&output.expect("it runs").stdout).into_owned();
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    };
    // The first switch may have been just before the window.
    assert!(value("lhp") >= 1.0 && value("lhp") <= value("involuntary_csw") + 1.0, "{text}");
    assert!(
        value("lhp_lost_seconds") > 0.0 && value("lhp_lost_seconds") < value("seconds"),
        "{text}"
    );
}

#[test]
fn hashtable() {
    for words in [
        &["--threads", "8", "--seconds", "0.4", "--shift", "10", "--latency"][..],
        &[
            "--threads",
            "2",
            "--seconds",
            "0.4",
            "--theta",
            "0",
            "--buckets",
            "1",
            "--keys",
            "50",
            "--latency",
        ],
        &["--threads", "4", "--seconds", "0.4", "--theta", "10", "--shift", "0", "--latency"],
    ] {
        for values in both("hashtable", words) {
            assert!(
                values["ops"] > 0.0
                    && values["elements"] > 0.0
                    && percentiles_are_ordered(&values, "")
            );
        }
    }
}

/// Runs each program for a time, and for a number of sections. The programs check their own data.
#[test]
fn optimistic() {
    for name in ["prob", "rw", "rb-tree", "table", "all"] {
        for values in both("optimistic", &["--program", name, "--threads", "4", "--seconds", "0.4"])
        {
            assert!(values["ops"] > 0.0, "{name}");
        }
    }
    let counted =
        ["--program", "all", "--threads", "3", "--sections", "500", "--yield", "--work", "0"];
    for values in both("optimistic", &counted) {
        assert!(values["threads"] == 3.0 && values["ops"] == 1500.0, "{values:?}");
    }
}

/// A hundred keys, each chosen thousands of times: the final contents are known.
#[test]
fn hashtable_follows_insert_and_remove_shares() {
    let few = ["--threads", "4", "--seconds", "0.4", "--theta", "0", "--keys", "100"];
    for (inserts, removes, elements) in [("100", "0", 100.0), ("0", "100", 0.0), ("0", "0", 50.0)] {
        let words = [&few[..], &["--inserts", inserts, "--removes", removes]].concat();
        for values in both("hashtable", &words) {
            assert_eq!(values["elements"], elements, "{inserts} % inserts, {removes} % removes");
        }
    }
}

#[test]
fn nested() {
    let words = [
        "--threads",
        "4",
        "--nesting",
        "4",
        "--probes",
        "2",
        "--outers",
        "2",
        "--inner-cs",
        "2000",
        "--outer-cs",
        "3000",
        "--nesting-gap",
        "50000",
        "--probe-gap",
        "100000",
    ];
    // A thread begins a nested section every 50 us of its own time, which a busy machine may not
    // grant it in a short run.
    let runs = ["0.4", "4", "40"].map(|seconds| [&words[..], &["--seconds", seconds]].concat());
    let of_all = |words: &Vec<&str>| {
        let runs = both("nested", words);
        runs.iter().all(|values| values["nested"] > 0.0).then_some(runs)
    };
    let runs = runs.iter().find_map(of_all).expect("a nested section in 40 s");
    for values in runs {
        assert_eq!(values["threads"], 10.0);
        assert!(values["ops"] > 0.0, "{values:?}");
        assert!(percentiles_are_ordered(&values, "outer_hold_"));
        // The clock's calibration may be off by 1 %.
        assert!(
            values["outer_hold_p50_ns"] >= 0.99 * 5000.0,
            "held for less than both sections: {values:?}"
        );
        // A probe may wait for the whole of such a short window.
        assert!(values["probed"] == 0.0 || percentiles_are_ordered(&values, "outer_wait_"));
    }
}

#[test]
fn spin() {
    for values in both("spin", &["--threads", "2", "--seconds", "0.4"]) {
        assert!(values["ops"] > 0.0 && values["cpu_seconds"] > 0.0);
        // The kernel charges processor time up to a tick of 10 ms late, for each thread.
        assert!(values["cpu_seconds"] <= 2.0 * (values["seconds"] + 0.01), "{values:?}");
    }
}

#[test]
fn leveldb_reads_while_writing() {
    if !Path::new("/usr/include/leveldb/db.h").exists() {
        eprintln!("missing: LevelDB's headers are not installed (apt-get install libleveldb-dev)");
        return;
    }
    let words =
        ["--workload", "readwhilewriting", "--threads", "3", "--seconds", "0.4", "--num", "10000"];
    for values in both("leveldb_bench", &words) {
        assert_eq!(values["threads"], 4.0);
        assert!(values["ops_per_sec"] > 0.0 && values["writes"] > 0.0);
        let rate = values["writes"] / values["seconds"];
        assert!((values["writes_per_sec"] - rate).abs() <= 0.001 * rate, "{values:?}");
    }
}

/// A small picture, to keep runs short.
const SMALL: [&str; 6] = ["--width", "160", "--height", "120", "--spheres", "300"];

fn tachyon_is_installed() -> bool {
    let installed = Path::new(TACHYON).exists();
    if !installed {
        eprintln!(
            "missing: tachyon is not installed (apt-get install tachyon-bin-nox libtachyon-mt-0)"
        );
    }
    installed
}

#[test]
#[ignore = "make test-all: needs Tachyon"]
fn tachyon() {
    if !tachyon_is_installed() {
        return;
    }
    for threads in ["1", "2", "16"] {
        for values in both("tachyon", &[&SMALL[..], &["--threads", threads]].concat()) {
            assert_eq!(values["pixels"], 160.0 * 120.0);
            assert!(
                values["seconds"] > 0.0
                    && values["pixels_per_sec"] > 0.0
                    && values["cpu_seconds"] > 0.0
            );
        }
    }
}

#[test]
#[ignore = "make test-all: needs Tachyon"]
fn tachyon_detects_wrong_picture() {
    if !tachyon_is_installed() {
        return;
    }
    let directory = directory();
    let wrong = directory.path().join("wrong");
    // The driver passes SCENE -numthreads N -format PPM -o PICTURE. This script spoils one byte
    // unless N is 1.
    let script = format!(
        "#!/bin/sh\n{TACHYON} \"$@\"\n[ \"$3\" = 1 ] || printf '\\377' | dd of=\"$7\" bs=1 \
            seek=1000 conv=notrunc 2>/dev/null\n"
    );
    script_file(&wrong, &script);
    let run = |threads: &str| {
        let mut command = command(&program("tachyon"));
        command.args(SMALL).args(["--threads", threads, "--program"]).arg(&wrong);
        command
    };
    values(run("1"));
    fails(&mut run("2"), 3, "byte 1000 of the picture is 255");
}

#[test]
fn tachyon_reports_failures_of_the_program() {
    let run = |tachyon: &str| {
        let mut command = command(&program("tachyon"));
        command.args(SMALL).args(["--program", tachyon]);
        command
    };
    fails(&mut run("/nonexistent/tachyon"), 1, "install the packages tachyon-bin-nox");
    fails(&mut run("/bin/true"), 1, "got 0;");
    fails(&mut run("/bin/false"), 1, "ended with status 1");
}

fn script_file(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).expect("a temporary file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// A mutex that excludes no thread must not pass for a fast one.
#[test]
fn lock_without_exclusion_is_detected() {
    let directory = directory();
    let (source, open) = (directory.path().join("open.c"), directory.path().join("open.so"));
    let text = "int pthread_mutex_lock(void *mutex) { (void)mutex; return 0; }\n\
                int pthread_mutex_unlock(void *mutex) { (void)mutex; return 0; }\n";
    std::fs::write(&source, text).expect("a temporary file");
    let built = Process::new("cc")
        .args(["-shared", "-fPIC", "-fno-builtin", "-o"])
        .arg(&open)
        .arg(&source)
        .status()
        .expect("cc runs (apt-get install gcc)");
    assert!(built.success());
    for (name, words) in [
        ("counter", &["--threads", "4", "--cs", "0"][..]),
        ("counter", &["--threads", "4", "--lines", "16", "--cs", "0"]),
        // One key, so that a broken list cannot become a cycle.
        (
            "hashtable",
            &[
                "--threads",
                "4",
                "--keys",
                "1",
                "--buckets",
                "1",
                "--inserts",
                "50",
                "--removes",
                "50",
            ],
        ),
        ("nested", &["--threads", "4", "--inner-cs", "0"]),
        ("optimistic", &["--threads", "4", "--program", "table", "--keys", "1"]),
    ] {
        let mut command = command(&program(name));
        command.args(words).args(["--seconds", "0.5"]).env("LD_PRELOAD", &open);
        // A run without a race passes, and beside busy processes there may be many.
        let mut runs = (0..100).map(|_| command.output().expect("the workload starts"));
        let raced = runs.find(|output| !output.status.success()).expect("a race in 100 runs");
        failed(raced, 3, "the lock did not exclude");
    }
}

#[test]
fn wrong_option_is_rejected_with_reason() {
    for (name, words, text) in [
        ("counter", &["--lines", "0"][..], "from 1 to 64"),
        ("counter", &["--lines", "65"], "from 1 to 64"),
        ("counter", &["--preemptions=1"], "takes no value"),
        ("hashtable", &["--inserts", "60", "--removes", "50"], "expected 100 at most"),
        ("hashtable", &["--keys", "99"], "at least as many as --buckets"),
        ("hashtable", &["--theta", "-1"], "from 0 to 20"),
        ("hashtable", &["--shift", "soon"], "expected a number"),
        ("optimistic", &["--program", "tree"], "prob, rw, rb-tree, table, all"),
        ("nested", &["--outers", "2"], "at least as many as --outers"),
        ("nested", &["--probes", "0"], "from 1 to 1024"),
        ("spin", &["--threads"], "needs a value"),
        ("spin", &["--cs", "1"], "unknown option --cs"),
        ("tachyon", &["--width", "1e9"], "from 1 to 16384"),
    ] {
        fails(command(&program(name)).args(words), 2, text);
    }
}
