//! `unconvoy bench`: grids and sweeps, with scripts in place of the workload programs. These tests
//! are about the harness: order, failures, interruption, files, figures.

#[path = "../../crates/cli/tests/stage/mod.rs"]
mod stage;

use std::collections::HashSet;
use std::fs;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use stage::Stage;
use unconvoy::catalogue::{Availability, CONTENTION, LOAD, availability};

/// Prints what every workload prints. Throughput falls with the number of threads; `mcs` has half.
const PROGRAM: &str = "\
#!/bin/sh
# Any order of the options will do.
while [ $# -gt 0 ]; do
  case $1 in --threads) threads=$2 ;; esac
  shift
done
ops=$((1000000 / (threads + 1)))
[ \"$UNCONVOY_LOCK\" = mcs ] && ops=$((ops / 2))
printf 'threads %s\\nops_per_sec %s\\ntps %s\\nseconds 0.5\\njain 0.95\\n' \"$threads\" $ops $ops
printf 'cpu_ns_per_op 100\\nvoluntary_csw 7\\ninvoluntary_csw 3\\n'
";

/// The programs of all workloads.
const PROGRAMS: [&str; 9] = [
    "counter",
    "hashtable",
    "nested",
    "leveldb_bench",
    "tatp",
    "tpcc",
    "tachyon",
    "raytrace",
    "spin",
];

fn stage_with(program: &str) -> Stage {
    let stage = Stage::new();
    fs::create_dir(stage.path("w")).unwrap();
    for name in PROGRAMS {
        stage.script(&format!("w/{name}"), program);
    }
    stage
}

/// Runs `unconvoy bench` with the stage's programs, writing `r.json` and its companions.
fn bench(stage: &Stage, words: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = stage.unconvoy();
    command.arg("bench").args(words).args(["--workloads", "w", "--out", "r", "--seconds", "0.01"]);
    command.assert()
}

fn record(stage: &Stage) -> Value {
    serde_json::from_str(&stage.read("r.json")).unwrap()
}

fn array<'a>(value: &'a Value, field: &str) -> &'a Vec<Value> {
    value[field].as_array().unwrap_or_else(|| panic!("{field} is no array"))
}

/// Checks that every run is recorded once, in CSV as in JSON.
fn check_files(stage: &Stage, runs: usize) -> Value {
    let record = record(stage);
    assert_eq!(record["complete"], true, "{:?}", record["ended_by"]);
    assert_eq!(array(&record, "runs").len(), runs);
    let places: HashSet<String> = array(&record, "runs")
        .iter()
        .map(|run| format!("{} {}", run["cell"], run["round"]))
        .collect();
    assert_eq!(places.len(), runs, "a run is recorded twice");
    let mut csv = csv::Reader::from_path(stage.path("r.csv")).unwrap();
    let columns = csv.headers().unwrap().clone();
    let lines: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
    assert_eq!(lines.len(), runs);
    for (line, run) in lines.iter().zip(array(&record, "runs")) {
        let (cell, measured) =
            (run["cell"].as_object().unwrap(), run["measured"].as_object().unwrap());
        // If a cell and a measured value have the same name, the measured value gets a prefix.
        let name_of = |name: &String| {
            if cell.contains_key(name) { format!("measured.{name}") } else { name.clone() }
        };
        let cells = cell.iter().map(|(name, value)| (name.clone(), value));
        let members: Vec<_> =
            cells.chain(measured.iter().map(|(name, value)| (name_of(name), value))).collect();
        assert_eq!(line[0], run["round"].to_string());
        for (name, value) in &members {
            let column = columns
                .iter()
                .position(|column| column == name)
                .unwrap_or_else(|| panic!("no {name}"));
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            assert_eq!(line[column], text, "{name}");
        }
        let others = ["transfer_ns", "resumed"].iter().filter(|name| !run[**name].is_null());
        let count = 1 + others.count() + members.len();
        let filled = line.iter().filter(|field| !field.is_empty()).count();
        assert_eq!(filled, count, "more than in JSON");
    }
    record
}

#[test]
#[ignore = "make test-all: needs Tachyon"]
fn every_workload_runs_as_grid() {
    let stage = stage_with(PROGRAM);
    fs::create_dir(stage.path("data")).unwrap();
    stage.write("data/dataset", "");
    let mut workloads = vec![
        (vec!["counter", "--cs", "50"], 4),
        (vec!["hashtable"], 3),
        (vec!["nested"], 3),
        (vec!["leveldb", "--workload", "fillrandom"], 3),
        (vec!["tatp", "--data", "data"], 3),
        (vec!["tpcc", "--data", "data", "--io-ms", "6", "--without-delivery"], 3),
        (vec!["splash"], 3),
    ];
    if fs::exists("/usr/bin/tachyon").unwrap() {
        workloads.push((vec!["raytrace"], 3));
    } else {
        eprintln!("missing: raytrace, since /usr/bin/tachyon is not installed");
        bench(&stage, &["raytrace"])
            .code(1)
            .stderr(contains("apt-get install tachyon-bin-nox libtachyon-mt-0"));
    }
    for (mut words, rows) in workloads {
        let name = words[0];
        words.extend(["--threads", "1,2,8", "--runs", "2", "--locks", "mcs+none"]);
        let printed = bench(&stage, &words).success();
        let printed = String::from_utf8_lossy(&printed.get_output().stdout).into_owned();
        assert!(printed.contains("mcs+none") && printed.contains("Jain"), "{printed}");
        let record = check_files(&stage, 2 * 3 * rows);
        assert_eq!(record["benchmark"], name);
        for field in
            ["cpu", "kernel", "processors_online", "libc", "unconvoy", "seed", "command", "date"]
        {
            assert!(!record["context"][field].is_null(), "no {field}");
        }
        let near = array(&record, "judgements")
            .iter()
            .find(|judgement| judgement["goal"] == "near-best")
            .unwrap();
        assert!(near["measured"].as_f64() > Some(0.0));
        let plot = stage.path("f-1.5");
        stage
            .unconvoy()
            .args(["bench", "--figure", "throughput", "r.json", "--plot"])
            .arg(&plot)
            .assert()
            .success();
        assert!(stage.read("f-1.5.svg").contains("threads"));
    }
}

#[test]
fn sweep_draws_varied_quantity_on_axis() {
    let stage = stage_with(PROGRAM);
    let sweeps = [
        (vec!["interval", "--intervals", "0.5,7", "--loads", "100,200"], 4, "asplos-10"),
        (vec!["contention", "--think", "0.1,10"], 8, "asplos-9"),
        (vec!["interference", "--others", "100,400"], 7, "asplos-12"),
    ];
    for (mut words, cells, figure) in sweeps {
        words.extend(["--runs", "2"]);
        bench(&stage, &words).success();
        let record = check_files(&stage, 2 * cells);
        assert_eq!(
            array(&array(&record, "tables")[0], "header").len(),
            3 + usize::from(figure == "asplos-12")
        );
        let drawn =
            stage.unconvoy().args(["bench", "--figure", figure, "r.json"]).assert().success();
        drawn.stdout(contains("Paper: ASPLOS 2010").and(contains("r-asplos")));
        let svg = stage.read(&format!("r-{figure}.svg"));
        assert!(svg.contains("Sun") && svg.contains("Niagara"));
    }
}

#[test]
#[ignore = "make test-all: needs unconvoy-png"]
fn figure_of_sweep_is_drawn_as_png_too() {
    let stage = stage_with(PROGRAM);
    bench(&stage, &["contention", "--think", "0.1,10", "--runs", "2"]).success();
    stage.unconvoy().args(["bench", "--figure", "asplos-9", "r.json"]).assert().success();
    assert!(fs::read(stage.path("r-asplos-9.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn locks_all_measures_every_pair() {
    let stage = stage_with(PROGRAM);
    let printed =
        bench(&stage, &["hashtable", "--locks", "all", "--threads", "1", "--runs", "1"]).success();
    let printed = String::from_utf8_lossy(&printed.get_output().stdout).into_owned();
    let locks = CONTENTION.iter().filter(|entry| availability(entry.name) == Availability::Full);
    let pairs = locks.count() * LOAD.len();
    let record = check_files(&stage, pairs + 2);
    let table = &array(&record, "tables")[0];
    assert_eq!(array(table, "rows").len(), pairs + 3);
    let first = printed.split("the best, operations/s").nth(1).unwrap();
    let shown = first.lines().skip(1).take_while(|line| line.starts_with('|')).count();
    assert!((15..=17).contains(&shown), "{shown} rows of {pairs}");
    assert!(stage.read("r.md").lines().count() > printed.lines().count());
}

/// The interposer may report that a lock runs without a feature that the machine lacks. That line
/// does not fail the run; any other line on standard error does.
#[test]
fn lock_that_runs_reduced_is_measured() {
    let lacking = CONTENTION.iter().find_map(|entry| match availability(entry.name) {
        Availability::Reduced(reason) => Some((entry.name, reason)),
        _ => None,
    });
    let Some((lock, reason)) = lacking else {
        eprintln!("skipped: no lock lacks anything on this machine");
        return;
    };
    let notice = format!(
        "{PROGRAM}[ -n \"$UNCONVOY_LOCK\" ] && echo 'unconvoy: {lock}: {reason}; running without \
            it' >&2\n"
    );
    let stage = stage_with(&format!("{notice}true\n"));
    let row = format!("{lock}+control");
    let words = ["hashtable", "--locks", &row, "--threads", "1", "--runs", "1"];
    bench(&stage, &words)
        .success()
        .stdout(contains(format!("{lock} has reduced function: {reason}")));
    check_files(&stage, 3);
    let stage = stage_with(&format!("{notice}echo 'unconvoy: what is this?' >&2\n"));
    bench(&stage, &words).code(1).stdout(contains("unconvoy: what is this?"));
}

/// `mcs` lets two threads in; under `ticket` the disk is full at 8 threads.
const FAILING: &str = "\
case \"$UNCONVOY_LOCK:$threads\" in
  mcs:*) echo 'hashtable: 10 critical sections, but the counter says 9: the lock did not exclude' \
>&2; exit 3 ;;
  ticket:8) echo 'tatp: RocksDB: IO error: No space left on device' >&2; exit 1 ;;
esac
";

#[test]
fn failure_ends_cell_and_violation_ends_lock() {
    let program = PROGRAM.replace("ops=$((1", &format!("{FAILING}ops=$((1"));
    let stage = stage_with(&program);
    let words = ["hashtable", "--threads", "1,8", "--runs", "2", "--locks", "ticket+none"];
    bench(&stage, &words)
        .code(1)
        .stderr(contains("No space left").and(contains("VIOLATION").not()));
    let full = record(&stage);
    assert_eq!((array(&full, "runs").len(), array(&full, "failures").len()), (10, 1));
    assert_eq!(array(&full, "failures")[0]["cell"]["configuration"], "ticket+none");
    assert_eq!(full["complete"], false);
    assert!(stage.read("r.csv").contains("No space left"));
    let judgement = |goal: &str| {
        let all = array(&full, "judgements");
        all.iter().find(|judgement| judgement["goal"] == goal).cloned().unwrap()
    };
    let near = judgement("near-best");
    assert_eq!(near["verdict"], "not judged", "every row decides this goal");
    assert!(near["note"].as_str().unwrap().starts_with("a run failed: ticket+none, 8 threads"));

    let words = ["hashtable", "--threads", "1,8", "--runs", "2", "--locks", "ticket+none,mcs+none"];
    let said = bench(&stage, &words).code(3).stdout(contains("**CONSISTENCY VIOLATION:**"));
    said.stderr(
        contains("CONSISTENCY VIOLATION: mcs+none").and(contains("do not use these locks")),
    );
    let wrong = record(&stage);
    assert_eq!((array(&wrong, "runs").len(), array(&wrong, "failures").len()), (10, 2));
    assert!(
        array(&wrong, "judgements").iter().all(|judgement| judgement["verdict"] == "not judged")
    );
}

#[test]
fn hanging_program_is_killed_and_named() {
    let stage =
        stage_with("#!/bin/sh\nsleep 3000 & echo $! >child.new; mv child.new child; wait\n");
    let words = ["nested", "--threads", "1", "--runs", "1", "--timeout", "2"];
    bench(&stage, &words).code(1).stderr(contains("was killed 2 s after its start"));
    assert!(stage::has_ended(&stage.read("child")));
}

/// Sends SIGINT once `r.json` exists, after the first round.
fn interrupted(stage: &Stage, words: &[&str]) -> Output {
    let mut process = stage.process();
    process.arg("bench").args(words).args(["--workloads", "w", "--out", "r", "--seconds", "0.01"]);
    let child = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + stage::LIMIT;
    while !stage.path("r.json").exists() {
        assert!(Instant::now() < deadline, "the first round did not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn resume_continues_interrupted_grid() {
    // The last runs wait to be resumed, so the signal never comes too late.
    let stage = stage_with(&PROGRAM.replace(
        "ops=$((1",
        "echo $threads >>started\nwhile [ $(wc -l <started) -gt 12 ] && [ ! -e resumed ]; do \
            sleep 0.05; done\nops=$((1",
    ));
    let words = ["hashtable", "--threads", "1,2,4", "--runs", "4", "--seed", "9"];
    let output = interrupted(&stage, &words);
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let command =
        said.lines().find_map(|line| line.split_once("to resume: ")).expect("how to resume").1;
    assert!(command.ends_with(" --resume r.json"), "{command}");
    let partial = record(&stage);
    assert_eq!(
        (&partial["complete"], &partial["ended_by"]),
        (&Value::Bool(false), &Value::from("interrupted"))
    );
    let before = array(&partial, "runs").len();
    assert!((6..24).contains(&before), "{before} runs");

    // A different plan is rejected, and the message names the difference.
    let mut other: Vec<&str> = words.to_vec();
    other[2] = "1,2";
    other.extend(["--resume", "r.json"]);
    bench(&stage, &other).code(1).stderr(contains("its threads are [1,2,4] and not [1,2]"));
    bench(&stage, &["nested", "--resume", "r.json"]).code(1).stderr(contains("its workload is"));

    fs::remove_file(stage.path("started")).unwrap();
    stage.write("resumed", "");
    let mut shell = assert_cmd::Command::new("sh");
    let shell = shell
        .args(["-c", command])
        .current_dir(stage.path("."))
        .env("UNCONVOY_LIBRARY", stage.library());
    shell.timeout(stage::LIMIT).assert().success();
    let whole = check_files(&stage, 24);
    assert_eq!(
        array(&whole, "runs")[..before],
        array(&partial, "runs")[..],
        "measured values are kept as they are"
    );
    assert_eq!(stage.read("started").lines().count(), 24 - before, "nothing is measured again");
    // The order is that of an uninterrupted run.
    let cells = |record: &Value| {
        array(record, "runs")
            .iter()
            .map(|run| format!("{} {}", run["round"], run["cell"]))
            .collect::<Vec<_>>()
    };
    bench(&stage, &words).success();
    assert_eq!(cells(&record(&stage)), cells(&whole));
    let mut again: Vec<&str> = words.to_vec();
    again.extend(["--resume", "r.json"]);
    bench(&stage, &again).code(1).stderr(contains("nothing to resume"));
}

#[test]
fn interrupt_kills_program_and_keeps_results_without_out() {
    let stage = stage_with(&PROGRAM.replace(
        "ops=$((1",
        "echo >>started\nif [ $(wc -l <started) -gt 3 ]; then sleep 3000 & echo $! >child.new; mv \
            child.new child; wait; fi\nops=$((1",
    ));
    let mut process = stage.process();
    process
        .args(["bench", "hashtable", "--workloads", "w", "--seconds", "0.01"])
        .stdout(Stdio::null());
    let child = process.stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + stage::LIMIT;
    while !stage.path("child").exists() {
        assert!(Instant::now() < deadline, "the fourth run did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(stage::has_ended(&stage.read("child")));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("--resume unconvoy-bench-partial.json")
    );
    let partial: Value = serde_json::from_str(&stage.read("unconvoy-bench-partial.json")).unwrap();
    assert_eq!(array(&partial, "runs").len(), 3);
}

#[test]
fn missing_part_is_reported_with_remedy() {
    let stage = stage_with(PROGRAM);
    let ends_with = |code: i32, words: &[&str], text: &str| {
        let is_short = predicate::function(|text: &str| text.trim_end().lines().count() <= 2);
        stage
            .unconvoy()
            .arg("bench")
            .args(words)
            .assert()
            .code(code)
            .stderr(contains(text).and(is_short));
    };
    let says = |words: &[&str], text: &str| ends_with(1, words, text);
    fs::create_dir(stage.path("empty")).unwrap();
    says(&["hashtable", "--workloads", "empty"], "make workloads");
    says(&["leveldb", "--workloads", "empty"], "after `apt-get install libleveldb-dev`");
    says(
        &["tatp", "--data", "nosuch", "--workloads", "empty"],
        "after `apt-get install librocksdb-dev`",
    );
    says(
        &["tatp", "--data", "nosuch", "--workloads", "w"],
        "bench tatp --load --data nosuch --subscribers 100000",
    );
    says(&["interval", "--data", "empty", "--workloads", "w"], "bench tatp --load --data empty");
    let adaptive = ["hashtable", "--workloads", "w", "--locks", "libc-adaptive"];
    ends_with(2, &adaptive, "no option for the kind");
    says(&["hashtable", "--workloads", "w", "--resume", "nosuch.json"], "cannot read nosuch.json");
    says(&["--figure", "asplos-9", "nosuch.json"], "unconvoy bench contention");
    // This is reported at the start and not after the runs.
    says(
        &["hashtable", "--workloads", "w", "--out", "w/hashtable/r"],
        "cannot make the directory w/hashtable",
    );
    fs::create_dir(stage.path("x.md")).unwrap();
    says(&["hashtable", "--workloads", "w", "--out", "x"], "cannot write x.md");
    stage.script("w/tatp", "#!/bin/sh\necho 'tatp: empty holds no tatp data set' >&2\nexit 1\n");
    says(&["tatp", "--data", "empty", "--workloads", "w"], "holds no tatp data set");
    stage.script("w/hashtable", "#!/bin/sh\necho threads 1\n");
    bench(&stage, &["hashtable", "--threads", "1", "--runs", "1"])
        .code(1)
        .stderr(contains("has no ops_per_sec"));
}

#[test]
fn data_set_is_loaded_once_and_reused() {
    let stage =
        stage_with("#!/bin/sh\necho \"$*\" >>words\nprintf 'ops_per_sec 5\\nsubscribers 7\\n'\n");
    let load = ["tatp", "--data", "new", "--subscribers", "7", "--load"];
    bench(&stage, &load).success().stdout(contains("subscribers").and(contains("7")));
    assert_eq!(stage.read("words"), "--data new --subscribers 7 --load\n");
    fs::create_dir(stage.path("new")).unwrap();
    let run = ["tatp", "--data", "new", "--subscribers", "7", "--threads", "2", "--runs", "1"];
    bench(&stage, &run).success();
    let words = stage.read("words");
    assert!(words.contains("--data new --subscribers 7 --threads 2 --seconds 0.01\n"), "{words}");
}
