//! `unconvoy sim`, as a user calls it.

use std::path::Path;

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;

fn sim(arguments: &str) -> assert_cmd::assert::Assert {
    Command::cargo_bin("unconvoy-study")
        .expect("built")
        .arg("sim")
        .args(arguments.split_whitespace())
        .assert()
}

#[test]
fn run_prints_table_and_writes_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("r.json");
    sim(&format!(
        "--machine niagara2-16 --threads 8,24 --locks default,mcs+none --seconds 0.02 --json {}",
        json.display()
    ))
    .success()
    .stdout(
        contains("loiter")
            .or(contains("default"))
            .and(contains("Simulated: counter on niagara2-16 (16 contexts)")),
    );
    let record: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    assert_eq!(record["complete"], true);
    assert_eq!(record["simulated"], true);
    assert_eq!(record["results"].as_array().map(Vec::len), Some(4));
}

#[test]
fn unwritable_json_is_rejected_before_simulation() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("written");
    // The simulation would take hours.
    Command::cargo_bin("unconvoy-study")
        .expect("built")
        .args(["sim", "--seconds", "3600", "--json"])
        .arg(file.join("r.json"))
        .timeout(std::time::Duration::from_secs(60))
        .assert()
        .failure()
        .code(1)
        .stderr(contains("cannot make the directory"));
}

#[test]
fn printed_machine_is_accepted_as_machine_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("m.toml");
    let printed = sim("--machine server --print-machine").success().get_output().stdout.clone();
    std::fs::write(&file, printed).expect("written");
    sim(&format!("--machine {} --threads 4 --locks default --seconds 0.01", file.display()))
        .success();
    // A directory with the name of a preset does not hide it.
    std::fs::create_dir(directory.path().join("server")).expect("made");
    let mut beside = Command::cargo_bin("unconvoy-study").expect("built");
    beside.current_dir(directory.path()).args(["sim", "--machine", "server", "--print-machine"]);
    beside.assert().success();
    let wrong =
        std::fs::read_to_string(&file).expect("there").replace("sockets = 2", "sockets = 0");
    std::fs::write(&file, wrong).expect("written");
    sim(&format!("--machine {}", file.display()))
        .failure()
        .stderr(contains("sockets").and(contains("line ")));
}

#[test]
fn unknown_name_is_rejected_with_known_names() {
    sim("nosuch").failure().code(2).stderr(contains("raytrace"));
    sim("--think 5 tm1").failure().code(2).stderr(contains("tm1"));
    sim("--section 18446744073709551615").failure().code(2).stderr(contains("3600000000000"));
    sim("--machine nosuch").failure().code(2).stderr(contains("niagara2-64"));
    sim("--machine /dev/zero").failure().code(2).stderr(contains("1 MiB"));
    sim("--locks nosuch").failure().stderr(contains("CONTENTION+LOAD"));
    sim("--figure nosuch").failure().stderr(contains("asplos-11"));
}

#[test]
fn transactions_need_machine_that_has_them() {
    let output =
        sim("rb-tree --machine metatm-8 --threads 32 --locks ttas+none,elided+none,transactions \
            --seconds 0.01")
        .success();
    let output = String::from_utf8(output.get_output().stdout.clone()).expect("text");
    assert!(output.contains("aborts") && output.contains("│ transactions"), "{output}");
    sim("prob --machine metatm-32 --threads 32 --locks transactions --seconds 0.01").success();
    sim("rw --machine metatm-16 --threads 32 --locks transactions --seconds 0.01").success();
    sim("rw --machine opteron-32 --threads 8 --locks transactions")
        .failure()
        .stderr(contains("[transactions]"));
}

/// Writes a calibration of the preset `host` into the test's own configuration directory.
fn configured(directory: &std::path::Path, text: &str) -> Command {
    let file = directory.join("unconvoy/host.toml");
    std::fs::create_dir_all(file.parent().expect("it has one")).expect("made");
    std::fs::write(file, text).expect("written");
    let mut command = Command::cargo_bin("unconvoy-study").expect("built");
    command.env("XDG_CONFIG_HOME", directory).arg("sim");
    command
}

/// The end of a machine file that a calibration wrote.
const CALIBRATED: &str = "\n[calibrated]\ndate = \"D\"\nprocessor = \"P\"\nkernel = \"K\"\n\
    busy = true\n[calibrated.programs]\ncounter_turn_ps = 1\ncounter_dispatch_ps = 1\n\
    table_outside_ps = 1\ntable_section_ps = 1\ntable_visit_ps = 1\ntable_call_ps = 1\n\
    table_dispatch_ps = 1\n";

/// A record as `unconvoy bench counter` writes it, from locks, threads and operations per second.
fn record(runs: &[(&str, u32, f64)]) -> String {
    let run = |&(lock, threads, ops): &(&str, u32, f64)| {
        serde_json::json!({
            "cell": { "configuration": lock, "threads": threads, "think": 0 },
            "round": 1,
            "measured": { "ops_per_sec": ops, "threads": threads },
        })
    };
    serde_json::json!({
        "schema": "unconvoy-bench-1",
        "benchmark": "counter",
        "complete": true,
        "context": { "cpu": "a processor", "kernel": "Linux", "processors": 2, "date": "today" },
        "parameters": { "seconds": 0.01, "section_ns": 100, "latency": false },
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
    })
    .to_string()
}

#[test]
fn validate_compares_record_with_simulation() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let runs = [
        ("libc", 1, 9e6),
        ("default", 1, 9e6),
        ("default", 1, 8e6),
        ("mcs+none", 1, 1e3),
        ("default", 2, 8e6),
        ("mcs+none", 2, 4e6),
        ("default", 64, 8e6),
    ];
    std::fs::write(path("r.json"), record(&runs)).expect("written");
    let words = format!(
        "--machine server --validate {} --json {} --markdown {}",
        path("r.json").display(),
        path("v.json").display(),
        path("v.md").display()
    );
    sim(&words)
        .success()
        .stdout(
            contains("points with the same winner")
                .and(contains("left out: libc: not a lock of unconvoy (1 runs)")),
        )
        .stderr(contains("not calibrated").and(contains("2 processors, and this one has 128")));
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path("v.json")).expect("written"))
            .expect("JSON");
    assert_eq!((&report["complete"], &report["simulated"]), (&true.into(), &true.into()));
    assert_eq!(
        (&report["verdict"]["rows"], &report["verdict"]["points"]),
        (&4.into(), &2.into()),
        "{report}"
    );
    assert_eq!(report["verdict"]["same_winner"], 1.0);
    assert_eq!(report["rows"][0]["lock"], "loiter+control");
    assert_eq!(report["rows"][0]["measured"]["median"], 8.5e6);
    assert!(std::fs::read_to_string(path("v.md")).expect("written").contains("The worst rows"));
    // One lock has no rival and no order, one run is not repeated, and no row has 64 threads.
    std::fs::write(path("r.json"), record(&runs[1..2])).expect("written");
    sim(&words).success().stdout(contains("not judged").count(5));
    std::fs::write(path("r.json"), record(&runs[6..])).expect("written");
    sim(&words).success().stdout(contains("not judged").count(6));
}

/// The rows of a report: title, lock, threads, and whether the simulation did anything.
fn rows(report: &Path) -> Vec<(String, String, u64, bool)> {
    let text = std::fs::read_to_string(report).expect("written");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_string();
    let row = |row: &serde_json::Value| {
        let threads = row["threads"].as_u64().expect("a number");
        let is_busy = row["simulated"].as_f64().expect("a number") > 0.0;
        (text(&row["workload"]), text(&row["lock"]), threads, is_busy)
    };
    report["rows"].as_array().expect("rows").iter().map(row).collect()
}

#[test]
fn validate_simulates_nested_sections_and_two_processes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let nested = record(&[("mcs+park", 2, 1e6)]).replace("\"counter\"", "\"nested\"");
    std::fs::write(path("n.json"), nested).expect("written");
    let run = |line: &str, x: f64| {
        serde_json::json!({
            "cell": { "line": line, "threads": 2, "x": x },
            "round": 1,
            "measured": { "self_per_sec": 1e6, "other_per_sec": 1e6 },
        })
    };
    let mut two: serde_json::Value = serde_json::from_str(&record(&[])).expect("JSON");
    two["benchmark"] = "interference".into();
    two["parameters"]["workload"] = "counter".into();
    two["parameters"]["without_load_control"] = "tpmcs+none".into();
    two["runs"] = serde_json::json!([
        run("alone", 0.0),
        run("other without load control", 150.0),
        run("other with load control", 50.0),
        run("other only spins", 50.0),
    ]);
    std::fs::write(path("i.json"), two.to_string()).expect("written");
    let files = [path("n.json"), path("i.json"), path("v.json")].map(|it| it.display().to_string());
    let [nested, two, report] = files;
    sim(&format!("--machine server --validate {nested} {two} --json {report}"))
        .success()
        .stdout(contains("left out: other only spins: not simulated (1 runs)"));
    let lock = || "loiter+control".to_string();
    let title = |title: &str| title.to_string();
    let expected = [
        (title("nested"), title("mcs+park"), 2, true),
        (title("counter"), lock(), 2, true),
        (title("counter beside 1 thread of default"), lock(), 2, true),
        (title("1 thread of default beside counter"), lock(), 2, true),
        (title("counter beside 3 threads of tpmcs+none"), lock(), 2, true),
        (title("3 threads of tpmcs+none beside counter"), title("tpmcs+none"), 2, true),
    ];
    assert_eq!(rows(&path("v.json")), expected);
}

/// A hypervisor moves virtual processors, and the machine is then another one.
#[test]
fn validate_leaves_out_runs_on_moved_processors() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let printed = sim("--machine server --print-machine").success().get_output().stdout.clone();
    let machine = String::from_utf8(printed).expect("text") + CALIBRATED;
    assert!(machine.contains("\nsame_cache_ns = 60\n"), "{machine}");
    std::fs::write(path("m.toml"), machine).expect("written");
    let runs = [("default", 1, 9e6), ("default", 2, 9e6), ("default", 3, 9e6)];
    let mut record: serde_json::Value = serde_json::from_str(&record(&runs)).expect("JSON");
    for (run, ns) in [(0, 60), (1, 239), (2, 240)] {
        record["runs"][run]["transfer_ns"] = ns.into();
    }
    std::fs::write(path("r.json"), record.to_string()).expect("written");
    let [machine, record, report] =
        ["m.toml", "r.json", "v.json"].map(|name| path(name).display().to_string());
    sim(&format!("--machine {machine} --validate {record} --json {report}"))
        .success()
        .stdout(contains("than at the calibration (2 runs)"));
    let rows = rows(&path("v.json"));
    assert_eq!(rows.iter().map(|row| row.2).collect::<Vec<_>>(), [2], "{rows:?}");
}

#[test]
fn validate_rejects_unusable_records() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("r.json");
    let with = |text: &str| {
        std::fs::write(&file, text).expect("written");
        sim(&format!("--machine server --validate {}", file.display())).failure().code(1)
    };
    sim("--machine server --validate")
        .failure()
        .code(2)
        .stderr(contains("unconvoy bench counter --locks all"));
    sim("--machine server --validate /nonexistent.json")
        .failure()
        .stderr(contains("cannot read /nonexistent.json"));
    with("no JSON")
        .stderr(contains("is not a benchmark record").and(contains("unconvoy bench counter")));
    with("{}").stderr(contains("is not a benchmark record"));
    with(&record(&[("nosuch+none", 1, 1e6)])).stderr(contains("unknown lock nosuch+none"));
    with(&record(&[]).replace("unconvoy-bench-1", "unconvoy-bench-9"))
        .stderr(contains("unconvoy-bench-9"));
    with(&record(&[]).replace("\"counter\"", "\"leveldb\""))
        .stderr(contains("leveldb; counter, hashtable"));
    with(&record(&[]).replace("\"counter\"", "\"interference\"")).stderr(contains("interference;"));
    with(&record(&[]).replace("\"latency\":false", "\"latency\":true"))
        .stderr(contains("--latency"));
    sim("tm1 --validate r.json").failure().stderr(contains("cannot be used with"));
    for ignored in ["--validate r.json --locks mcs+none", "--calibrate --json r.json"] {
        sim(ignored).failure().code(2).stderr(contains("cannot be used with"));
    }
}

#[test]
fn preset_host_uses_calibration() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = "--threads 1 --locks default --seconds 0.01";
    let run =
        |text: &str| configured(directory.path(), text).args(words.split_whitespace()).assert();
    let printed = sim("--machine server --print-machine").success().get_output().stdout.clone();
    let machine =
        String::from_utf8(printed).expect("text").replace("name = \"server\"", "name = \"host\"");
    run(&machine).success().stdout(contains("host (128 contexts, not calibrated)"));
    let calibrated = machine + CALIBRATED;
    run(&calibrated)
        .success()
        .stdout(contains("host (128 contexts, calibrated D (P, K, WHILE IT WAS BUSY))"));
    let broken = calibrated.replace("hit_ns = ", "hit_ns = -");
    run(&broken)
        .failure()
        .stderr(contains("host.toml; calibrate again with").and(contains("line ")));
}

#[test]
fn calibration_writes_machine_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("here");
    std::fs::write(&file, "").expect("written");
    // Checked before anything is measured.
    sim(&format!("--calibrate {}", file.join("m.toml").display()))
        .failure()
        .stderr(contains("cannot make the directory"));
    let machine = directory.path().join("m.toml");
    sim(&format!("--calibrate {} --rounds 1", machine.display()))
        .success()
        .stdout(contains("Calibrated:").and(contains("--machine")));
    let text = std::fs::read_to_string(&machine).expect("written");
    assert!(
        text.contains("same_cache_ns") && text.contains("# futex wake without a sleeper ("),
        "{text}"
    );
    sim(&format!(
        "bench-counter --machine {} --threads 1,2 --locks default --seconds 0.01",
        machine.display()
    ))
    .success()
    .stdout(contains(", calibrated 2"));
    sim("tm1 --calibrate").failure().stderr(contains("cannot be used with"));
}

#[test]
fn profile_simulates_recorded_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.json");
    // The statistics are of four threads. Each thread repeats: hold one lock for 500 ns, spend 2 us
    // outside, then three times hold another lock for 200 ns and spend 1 us outside.
    std::fs::write(&file, include_str!("stats/two-locks.json")).expect("written");
    let with = |words: &str| {
        sim(&format!(
            "--profile {} --machine server --threads 2,8 --seconds 0.01 {words}",
            file.display()
        ))
    };
    with("--recorded-threads 4").success().stdout(
        contains("Simulated: profile of two-locks on server").and(contains(
            "Assumed: its threads computed whenever they did not hold a lock: 1452 ns between two \
            sections",
        )),
    );
    with("").success().stdout(contains("Assumed: the program ran with 2 threads"));
    std::fs::write(&file, "{}").expect("written");
    with("").failure().stderr(contains(
        "is not a record of locks; make one with `unconvoy run --stats FILE -- PROGRAM`",
    ));
    std::fs::write(&file, include_str!("stats/two-locks.json").replace("stats-1", "stats-7"))
        .expect("written");
    with("").failure().stderr(contains("unconvoy-stats-7"));
    sim("--profile /nonexistent.json").failure().stderr(contains("cannot read /nonexistent.json"));
}
