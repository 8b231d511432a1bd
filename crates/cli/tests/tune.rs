//! `unconvoy tune`: the search on programs whose speed is known, its files, and its ends.

mod stage;

use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::assert::Assert;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use stage::Stage;

/// A program whose rate depends on the lock alone, with noise of 1 % that differs between runs.
const RATED: &str = "\
#!/bin/sh
case \"$UNCONVOY_LOCK+$UNCONVOY_LOAD\" in
  +) ops=1000 ;;
  futex+none) ops=1900 ;;
  *+park) ops=1500 ;;
  loiter+control) ops=${DEFAULT:-1200} ;;
  *) ops=700 ;;
esac
echo \"ops: $((ops * 1000 + ops * ($$ % 3)))\"
";

/// A program that is as fast under any lock.
const LEVEL: &str = "#!/bin/sh\necho \"ops: $((100000 + $$ % 300))\"\n";

const METRIC: [&str; 2] = ["--metric", "ops: ([0-9.]+)"];

/// A program that loses time to one lock under libc: threads that hold it for very short sections.
const CONTENDED: &str = "\
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
static pthread_mutex_t hot_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long total;
static atomic_int stop;
static atomic_long all;
__attribute__((noinline)) void *count(void *unused)
{
	long n = 0;
	for (; !stop; n++) {
		pthread_mutex_lock(&hot_lock);
		total++;
		pthread_mutex_unlock(&hot_lock);
	}
	all += n;
	return unused;
}
int main(void)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], 0, count, 0);
	nanosleep(&(struct timespec){ 0, 100000000 }, 0);
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	printf(\"ops: %ld\\n\", (long)all);
	return 0;
}
";

/// A program whose parent waits on a condition variable while its child's threads contend.
const FORKING: &str = "\
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER, work_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t no_work = PTHREAD_COND_INITIALIZER;
static volatile long total;
static atomic_int stop;
static void *work(void *unused)
{
	while (!stop) {
		pthread_mutex_lock(&work_lock);
		for (int i = 0; i < 1000; i++)
			total++;
		pthread_mutex_unlock(&work_lock);
	}
	return unused;
}
static void *idle(void *unused)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 500000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&idle_lock);
	pthread_cond_timedwait(&no_work, &idle_lock, &until);
	pthread_mutex_unlock(&idle_lock);
	return unused;
}
int main(void)
{
	pthread_t threads[4];
	int is_worker = fork() == 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], 0, is_worker ? work : idle, 0);
	if (is_worker) {
		nanosleep(&(struct timespec){ 0, 100000000 }, 0);
		stop = 1;
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	if (is_worker)
		return 0;
	wait(0);
	puts(\"ops: 1\");
	return 0;
}
";

/// Searches with the script `program`; `options` come before `--`.
fn tune(stage: &Stage, program: &str, options: &[&str]) -> Assert {
    stage.script("server", program);
    stage
        .unconvoy()
        .args(["tune", "--seed", "7"])
        .args(METRIC)
        .args(options)
        .args(["--", "./server"])
        .assert()
}

fn record(stage: &Stage, name: &str) -> Value {
    serde_json::from_str(&stage.read(name)).unwrap()
}

#[test]
fn search_finds_the_fastest_lock_and_writes_all_files() {
    let stage = Stage::new();
    let options = ["--budget", "20s", "--json", "o.json", "--html", "o.html"];
    tune(&stage, RATED, &options)
        .success()
        .stdout(contains("With server.toml: 1.90 times libc (1.").and(contains("`futex+none`")));
    let strategy = stage.read("server.toml");
    assert!(strategy.starts_with("# Written by `unconvoy tune` on 20"), "{strategy}");
    for part in ["1.90 times libc", "times default", "lock = \"futex\"\nload = \"none\"\n"] {
        assert!(strategy.contains(part), "no {part} in {strategy}");
    }
    assert!(strategy.lines().all(|line| line.len() <= 100), "{strategy}");
    // The file has the effect that it promises.
    stage
        .unconvoy()
        .args(["run", "--strategy", "server.toml", "--", "./server"])
        .assert()
        .success()
        .stdout(contains("ops: 19"));
    let record = record(&stage, "o.json");
    assert_eq!((&record["schema"], &record["complete"]), (&"unconvoy-tune-1".into(), &true.into()));
    assert_eq!(record["strategy"], strategy);
    let fresh = record["runs"].as_array().unwrap().iter();
    let fresh = fresh.filter(|run| run["stage"] == "confirmation").count();
    assert!(fresh >= 15 && fresh % 3 == 0, "{fresh} fresh runs");
    let html = stage.read("o.html");
    for part in ["Before and after", "How to apply it", "futex+none", "ExecStart="] {
        assert!(html.contains(part), "the page lacks {part}");
    }
    assert!(!html.contains("http://") && !html.contains("https://"), "the page is one file");
}

#[test]
fn search_without_a_gain_says_so_and_writes_no_strategy() {
    let stage = Stage::new();
    tune(&stage, LEVEL, &["--budget", "20s"])
        .success()
        .stdout(contains("Nothing found that helps by more than 2 %: "));
    assert!(!stage.path("server.toml").exists());
    // The state of a complete search is gone.
    assert!(!stage.path("server-tune.json").exists());
}

#[test]
fn failing_default_leaves_libc_if_others_are_slower() {
    let stage = Stage::new();
    let failing = RATED.replace("ops=${DEFAULT:-1200}", "exit 4");
    let failing = failing.replace("ops=1900", "ops=500").replace("ops=1500", "ops=600");
    tune(&stage, &failing, &["--budget", "20s", "--html", "o.html"])
        .success()
        .stdout(contains("Nothing found that helps by more than 2 %: "))
        .stderr(contains("the search drops default"));
}

#[test]
fn failing_program_is_reported_at_the_first_run() {
    let stage = Stage::new();
    tune(&stage, "#!/bin/sh\necho >> runs\necho no database\nexit 3\n", &[]).code(1).stderr(
        contains("run failed: libc, the first run: exit status 3").and(contains("no database")),
    );
    tune(&stage, "#!/bin/sh\necho >> runs\necho done\n", &[])
        .code(1)
        .stderr(contains("no line of the output matches").and(contains("its last lines:\n  done")));
    tune(&stage, "#!/bin/sh\necho >> runs\necho ops: 0\n", &[])
        .code(1)
        .stderr(contains("more than 0"));
    assert_eq!(stage.read("runs").lines().count(), 3, "one run each");
    assert!(!stage.path("server.toml").exists() && !stage.path("server-tune.json").exists());
}

#[test]
fn failure_in_the_confirmation_is_undecided_with_its_cause() {
    let stage = Stage::new();
    // Equal rates end the trials at their first look, after three rounds.
    let failing = "#!/bin/sh\nkey=runs-$UNCONVOY_LOCK+$UNCONVOY_LOAD+$UNCONVOY_SSC\necho >> $key\n\
                   [ $key = runs-loiter+control+ ] && [ $(wc -l < $key) -gt 3 ] &&\n\
                   echo no database && exit 4\necho ops: 1\n";
    tune(&stage, failing, &["--budget", "20s"])
        .code(3)
        .stdout(contains("Undecided: default failed in the confirmation (exit status 4)"))
        .stderr(contains("its last line: no database"));
}

#[test]
fn wrong_usage_starts_nothing() {
    let stage = Stage::new();
    let started = "#!/bin/sh\ntouch started\n";
    let folder = stage.path("sealed");
    std::fs::create_dir(&folder).unwrap();
    stage.write("server.toml", "version = 1\n");
    for (options, message) in [
        (&[][..], "server.toml exists and is not from `unconvoy tune`"),
        (&["--output", "nosuch/server.toml"], "--output nosuch/server.toml: "),
        (&["--output", "sealed"], "--output sealed: "),
        (&["--budget", "never"], "expected 1s to 24h"),
        (&["--error-rate", "2"], "expected 0.0001 to 0.5"),
        (&["--threads", "2"], "--threads has no effect without {threads}"),
        (&["--output", "o.toml", "--html", "/proc/nosuch/o.html"], "--html /proc/nosuch/o.html: "),
        (&["--output", "o.toml", "--html", "o", "--json", "o"], "--json and --html both name o: "),
    ] {
        tune(&stage, started, options).code(2).stderr(contains(message));
    }
    assert!(!stage.path("started").exists());
    let missing = stage.unconvoy().args(["tune", "--", "./nosuch"]).assert();
    missing.code(127).stderr(contains("nosuch"));
}

#[test]
fn read_only_folder_is_reported_before_the_first_run() {
    if nix::unistd::geteuid().is_root() {
        println!("skipped: root may write to any folder; see wrong_usage_starts_nothing");
        return;
    }
    let stage = Stage::new();
    std::fs::create_dir(stage.path("sealed")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o555);
    std::fs::set_permissions(stage.path("sealed"), mode).unwrap();
    tune(&stage, "#!/bin/sh\ntouch started\n", &["--output", "sealed/server.toml"])
        .code(2)
        .stderr(contains("sealed"));
    assert!(!stage.path("started").exists());
}

#[test]
fn varying_metric_says_how_many_runs_it_would_take() {
    let stage = Stage::new();
    // Rates are spread evenly over 1,000 to 2,600, for each configuration, in an order of its own
    // under libc. None is ahead for long, so the result does not depend on how many runs the budget
    // allows. The mean of a lock is a little above libc's.
    let varying = "#!/bin/sh\nkey=runs-$UNCONVOY_LOCK+$UNCONVOY_LOAD+$UNCONVOY_SSC\necho >> $key\n\
                   n=$(wc -l < $key)\nops=$((1000 + n * 618 % 1000 * 16 / 10))\n\
                   [ $key != runs-++ ] && ops=$((1060 + n * 755 % 1000 * 16 / 10))\n\
                   echo \"ops: $ops\"\n";
    tune(&stage, varying, &["--budget", "6s"])
        .code(3)
        .stdout(contains("Undecided: "))
        .stderr(contains("the metric varies too much").and(contains("runs of each")))
        .stderr(contains("much of it to start and end the program"));
}

#[test]
fn long_runs_say_which_budget_they_need() {
    let stage = Stage::new();
    tune(&stage, "#!/bin/sh\nsleep 0.4\necho ops: 1\n", &["--budget", "3s"])
        .code(3)
        .stdout(contains("so the budget is too small for trials: try --budget 1m"));
    assert!(!stage.path("server-tune.json").exists(), "nothing is worth resuming");
    tune(&stage, "#!/bin/sh\nexec sleep 300\n", &["--budget", "1s"])
        .code(3)
        .stdout(contains("the first run did not end within the budget of 1 s"));
}

#[test]
fn profile_is_of_the_process_that_waits_for_locks() {
    let Some(library) = stage::library() else { return };
    let stage = Stage::new();
    let source = stage.write("forking.c", FORKING);
    stage.compile("forking", &source, &["-O2", "-pthread"]).unwrap();
    let mut command = stage.unconvoy();
    command.env("UNCONVOY_LIBRARY", library).args(["tune"]).args(METRIC);
    // The budget ends after the profile.
    command.args(["--budget", "4s", "--json", "o.json", "--", "./forking"]);
    command.assert().code(3).stdout(contains("too small for trials"));
    let costs = &record(&stage, "o.json")["costs"];
    assert_eq!(costs["locks"][0]["name"], "work_lock", "{costs}");
    assert!(costs["remarks"].to_string().contains("also waited "), "{costs}");
}

/// A program whose 30th run waits.
fn waiting() -> String {
    let wait = "echo >> count\nif [ $(wc -l < count) -eq 30 ]; then\n\
                sleep 3000 & echo $! > child.new; mv child.new child; wait\nfi\n";
    RATED.replacen("#!/bin/sh\n", &format!("#!/bin/sh\n{wait}"), 1)
}

/// Interrupts a search in its 30th run, and returns the exit status and all output.
fn interrupted(stage: &Stage) -> (Option<i32>, String) {
    stage.script("server", &waiting());
    let mut process = stage.process();
    process.args(["tune", "--seed", "7", "--budget", "40s"]).args(METRIC).args(["--", "./server"]);
    let child = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + stage::LIMIT;
    while !stage.path("child").exists() {
        assert!(Instant::now() < deadline, "the 30th run did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let both = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(both).unwrap())
}

#[test]
fn interrupt_keeps_rounds_and_resume_goes_on() {
    let stage = Stage::new();
    let (code, text) = interrupted(&stage);
    assert_eq!(code, Some(130), "{text}");
    assert!(text.contains("So far, not confirmed: futex+none, 1.9"), "{text}");
    assert!(text.contains("--resume server-tune.json") && !text.contains("--seed"), "{text}");
    assert!(stage::has_ended(&stage.read("child")));
    assert!(!stage.path("server.toml").exists());
    let before = record(&stage, "server-tune.json");
    assert_eq!((&before["complete"], &before["ended_by"]), (&false.into(), &"signal 2".into()));
    let rounds = before["runs"].as_array().unwrap().len();
    assert!(rounds > 10, "{rounds}");
    let mut fresh = stage.unconvoy();
    fresh.args(["tune"]).args(METRIC).args(["--", "./server"]);
    fresh.assert().code(2).stderr(contains("continue that search with --resume server-tune.json"));

    let resume = |options: &[&str], program: &[&str]| {
        let mut command = stage.unconvoy();
        command
            .args(["tune", "--resume", "server-tune.json"])
            .args(options)
            .arg("--")
            .args(program);
        command.assert()
    };
    resume(&METRIC, &["./server", "--other"])
        .code(1)
        .stderr(contains("its program is [\"./server\"] and not [\"./server\",\"--other\"]"));
    resume(&[], &["./server"]).code(1).stderr(contains("its metric is"));
    let mut nothing = stage.unconvoy();
    nothing.args(["tune", "--resume", "nosuch.json", "--", "./server"]);
    nothing.assert().code(1).stderr(contains("nosuch.json does not exist"));
    let mut elsewhere = before.clone();
    elsewhere["context"]["cpu"] = "Z80".into();
    stage.write("elsewhere.json", &elsewhere.to_string());
    let mut command = stage.unconvoy();
    command.args(["tune", "--resume", "elsewhere.json"]).args(METRIC).args(["--", "./server"]);
    command.assert().code(1).stderr(contains("its machine's cpu is \"Z80\" and not"));

    let mut damaged = before.clone();
    damaged["runs"][3]["candidate"] = 99.into();
    stage.write("damaged.json", &damaged.to_string());
    let mut command = stage.unconvoy();
    command.args(["tune", "--resume", "damaged.json"]).args(METRIC).args(["--", "./server"]);
    command.assert().code(1).stderr(contains("damaged.json is not a record of `unconvoy tune`"));

    // 30 runs are over, so that the program does not wait again.
    let options = [&METRIC[..], &["--budget", "40s", "--json", "o.json"]].concat();
    resume(&options, &["./server"]).success().stdout(contains("1.90 times libc"));
    let after = record(&stage, "o.json");
    let runs = after["runs"].as_array().unwrap();
    assert_eq!(runs[..rounds], before["runs"].as_array().unwrap()[..]);
    assert!(after["elapsed_s"].as_f64() > before["elapsed_s"].as_f64());
    let mut again = stage.unconvoy();
    again.args(["tune", "--resume", "o.json"]).args(METRIC).args(["--", "./server"]);
    again.assert().code(1).stderr(contains("o.json is complete: there is nothing to resume"));

    // A confirmation that was interrupted at the end of the budget goes on.
    let mut late = after.clone();
    late["complete"] = false.into();
    late["elapsed_s"] = 39.9.into();
    let last = runs.last().unwrap()["round"].clone();
    let is_last = |run: &Value| run["stage"] == "confirmation" && run["round"] == last;
    late["runs"].as_array_mut().unwrap().retain(|run| !is_last(run));
    stage.write("late.json", &late.to_string());
    let mut command = stage.unconvoy();
    command.args(["tune", "--resume", "late.json", "--json", "late.json", "--budget", "40s"]);
    command.args(METRIC).args(["--", "./server"]).assert().success();
    let late = record(&stage, "late.json");
    assert_eq!(late["complete"], true);
    assert_eq!(late["runs"].as_array().unwrap().len(), runs.len());
}

#[test]
#[ignore = "make test-all: needs a browser"]
fn page_works_in_browser_in_every_size_and_colour() {
    let stage = Stage::new();
    tune(&stage, RATED, &["--budget", "20s", "--html", "o.html"]).success();
    let script = "const count = (what) => document.querySelectorAll(what).length;
check(count('#ratios .row') === 2 && count('#ratios .best') === 1, 'chart');
check(count('#ratios .one') === 1 && count('#ratios .tick') > 2, 'axis');
const fill = getComputedStyle(document.querySelector('#ratios text')).fill;
check(fill === getComputedStyle(document.body).color, 'colour of the chart: ' + fill);
check(document.querySelector('.result').innerText.includes('1.90 times libc'), 'result');";
    stage.check_in_browser("o.html", script);
}

#[test]
#[ignore = "make test-all: measures for half a minute"]
fn contended_program_gets_a_verdict_that_names_its_lock() {
    let command = env!("CARGO_BIN_EXE_unconvoy");
    let library = Path::new(command).parent().unwrap().join("libunconvoy.so");
    if !library.is_file() {
        println!("missing: libunconvoy.so is not built (cargo build --workspace)");
        return;
    }
    let stage = Stage::new();
    let source = stage.write("hot.c", CONTENDED);
    stage.compile("hot", &source, &["-O2", "-pthread"]).unwrap();
    let mut process = Process::new(command);
    process.current_dir(stage.path(".")).env("UNCONVOY_LIBRARY", &library).args(["tune"]);
    process.args(METRIC).args(["--budget", "30s", "--json", "o.json", "--", "./hot"]);
    let mut command = assert_cmd::Command::from_std(process);
    let output = command.timeout(stage::LIMIT).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // Which verdict is right depends on the machine, and on its other load.
    let expected = match output.status.code() {
        Some(0) if text.contains("Nothing found") => "Nothing found",
        Some(0) => "With hot.toml: ",
        _ => "Undecided: ",
    };
    assert!(text.contains(expected), "{}: {text}", output.status);
    assert_eq!(stage.path("hot.toml").is_file(), expected.starts_with("With"), "{text}");
    let record = record(&stage, "o.json");
    assert_eq!(record["costs"]["locks"][0]["name"], "hot_lock");
    assert!(record["costs"]["share"].as_f64() > Some(0.05), "{}", record["costs"]);
}
