//! How the library behaves as a guest in somebody's process: what it prints, writes and starts, whom
//! it follows, and what happens at fork, exit and stop.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{LIMIT, Running, compile, plain, preloaded, run};
use unconvoy_locks::catalogue::{Availability, CONTENTION, Entry, LOAD, POLICY, availability};

struct Program {
    directory: tempfile::TempDir,
    path: PathBuf,
}

fn program() -> Program {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = compile(directory.path(), "behaviour.c", &[]);
    Program { directory, path }
}

#[track_caller]
fn one_line(stderr: &str) -> &str {
    assert_eq!(stderr.lines().count(), 1, "not one line on stderr: {stderr:?}");
    stderr.trim_end()
}

#[test]
fn nothing_is_printed_and_the_status_is_the_programs() {
    let program = program();
    let finished = run(preloaded(&program.path).arg("counts"));
    assert_eq!(finished.text(), "counted 4000\n");
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.status.code(), Some(7));
}

/// One line names the value and the choices; the program notices nothing.
#[track_caller]
fn bad_value(variable: &str, choices: &[Entry]) {
    let program = program();
    // The value and what of it must be in the line: a line break in a value must not break the line.
    for (value, shown) in [("nosuch", "nosuch"), ("LOITER loiter", "LOITER loiter"), ("no\nsuch", "such")] {
        let finished = run(preloaded(&program.path).arg("counts").env(variable, value));
        assert_eq!(finished.text(), "counted 4000\n", "{variable}={value:?}");
        assert_eq!(finished.status.code(), Some(7), "{variable}={value:?}");
        let line = one_line(&finished.stderr);
        assert!(line.contains(variable), "{variable} is not named: {line}");
        assert!(line.contains(shown), "{value:?} is not named: {line}");
        for choice in choices {
            assert!(line.contains(choice.name), "{} is not offered: {line}", choice.name);
        }
    }
}

#[test]
fn a_bad_lock_is_one_line_and_the_default() {
    bad_value("UNCONVOY_LOCK", CONTENTION);
}

#[test]
fn a_bad_load_manager_is_one_line_and_the_default() {
    bad_value("UNCONVOY_LOAD", LOAD);
}

#[test]
fn a_lock_that_cannot_run_here_is_one_line_and_the_default() {
    let lock = "elided";
    let Availability::Refused(reason) = availability(lock) else {
        println!("skipped: {lock} can run here");
        return;
    };
    let program = program();
    let file = program.directory.path().join("stats.json");
    let finished = run(preloaded(&program.path)
        .arg("counts")
        .env("UNCONVOY_LOCK", lock)
        .env("UNCONVOY_LOAD", LOAD[1].name)
        .env("UNCONVOY_STATS", &file));
    assert_eq!(finished.text(), "counted 4000\n");
    assert_eq!(finished.status.code(), Some(7));
    let line = one_line(&finished.stderr);
    assert!(line.contains(lock) && line.contains(reason), "{line}");
    let text = fs::read_to_string(&file).expect("the record is written");
    let record: serde_json::Value = serde_json::from_str(&text).expect("the record is JSON");
    assert_eq!((&record["lock"], &record["load"]), (&CONTENTION[0].name.into(), &LOAD[0].name.into()), "{text}");
}

#[test]
fn a_bad_policy_is_one_line_and_the_default() {
    bad_value("UNCONVOY_POLICY", POLICY);
}

#[test]
fn the_record_counts_what_the_program_did() {
    let program = program();
    let file = program.directory.path().join("stats.json");
    let finished = run(preloaded(&program.path).arg("counts").env("UNCONVOY_STATS", &file));
    assert_eq!(finished.text(), "counted 4000\n");
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.status.code(), Some(7));
    let text = fs::read_to_string(&file).expect("the record is written");
    let record: serde_json::Value = serde_json::from_str(&text).expect("the record is JSON");
    assert_eq!(record["lock"], CONTENTION[0].name, "{text}");
    assert_eq!(record["load"], LOAD[0].name, "{text}");
    let mut acquisitions: Vec<u64> = record["locks"]
        .as_array()
        .expect("the record lists locks")
        .iter()
        .map(|lock| lock["acquisitions"].as_u64().expect("each lock counts acquisitions"))
        .collect();
    acquisitions.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(acquisitions[0], 4000, "{text}");
    assert!(acquisitions.contains(&400), "{text}");
    // What stays the same from run to run: the static lock's place, and that of the call.
    let busy = record["locks"].as_array().into_iter().flatten().find(|lock| lock["acquisitions"] == 4000);
    let busy = busy.expect("just counted");
    for place in ["at", "first_taken"] {
        assert_eq!(
            busy[place]["object"].as_str().map(Path::new),
            program.path.canonicalize().ok().as_deref(),
            "{text}"
        );
        let offset =
            busy[place]["offset"].as_str().and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
        assert!(offset.is_some_and(|offset| offset > 0 && offset < 1 << 20), "{place} of {text}");
    }
}

#[test]
fn a_record_that_cannot_be_written_is_one_line() {
    let program = program();
    let missing = program.directory.path().join("no/such/place/stats.json");
    for file in [missing.as_path(), program.directory.path(), Path::new("/dev/full")] {
        let finished = run(preloaded(&program.path).arg("counts").env("UNCONVOY_STATS", file));
        assert_eq!(finished.text(), "counted 4000\n", "{}", file.display());
        assert_eq!(finished.status.code(), Some(7), "{}", file.display());
        let line = one_line(&finished.stderr);
        assert!(line.contains(&*file.to_string_lossy()), "{} is not named: {line}", file.display());
    }
}

fn presence(text: &str) -> Vec<bool> {
    text.lines().map(|line| line.starts_with("library loaded")).collect()
}

#[test]
fn children_inherit_the_library() {
    let program = program();
    let without = run(plain(&program.path).arg("loaded").arg(&program.path).arg("loaded"));
    assert_eq!(presence(&without.success("plain").text()), [false, false]);
    let finished = run(preloaded(&program.path).arg("loaded").arg(&program.path).arg("loaded"));
    assert_eq!(presence(&finished.success("preloaded").text()), [true, true]);
    // Also through a program that starts others: a shell and what it forks.
    let finished = run(preloaded("/bin/sh").arg("-c").arg(format!("{} loaded; true", program.path.display())));
    assert_eq!(presence(&finished.success("sh").text()), [true]);
}

#[test]
fn children_can_be_left_out() {
    let program = program();
    let finished =
        run(preloaded(&program.path).arg("loaded").arg(&program.path).arg("loaded").env("UNCONVOY_CHILDREN", "0"));
    assert_eq!(presence(&finished.success("without children").text()), [true, false]);
}

/// What else was to be preloaded stays so for the children.
#[test]
fn children_that_are_left_out_keep_other_libraries() {
    let program = program();
    let source = program.directory.path().join("neighbour.c");
    fs::write(&source, "int unconvoy_test_neighbour;\n").expect("a temporary file");
    let neighbour = support::compile_file(program.directory.path(), &source, &["-shared", "-fPIC"]);
    let preload = format!("{} {}", support::library().display(), neighbour.display());
    let finished = run(plain(&program.path)
        .args(["loaded", "/bin/sh", "-c", "echo \"$LD_PRELOAD\""])
        .env("LD_PRELOAD", preload)
        .env("UNCONVOY_CHILDREN", "0"))
    .success("with a neighbour");
    let left = finished.text().lines().nth(1).unwrap_or_default().to_owned();
    assert_eq!(left.split([' ', ':']).filter(|s| !s.is_empty()).collect::<Vec<_>>(), [neighbour.to_str().unwrap()]);
}

#[test]
fn a_set_user_id_program_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a set-user-ID program of another user takes root to make");
        return;
    }
    let program = program();
    // 65534 is nobody, who need not exist for this.
    chown(&program.path, Some(65534), None).expect("root may chown");
    fs::set_permissions(&program.path, fs::Permissions::from_mode(0o4755)).expect("root may chmod");
    let without = run(plain(&program.path).arg("loaded")).success("set-user-ID").text();
    if without != "library absent, user 65534\n" {
        println!("skipped: set-user-ID has no effect in {}", program.directory.path().display());
        return;
    }
    let finished = run(preloaded(&program.path).arg("loaded")).success("set-user-ID");
    assert_eq!(finished.text(), without);
}

/// The numbers in a line such as "extra 1, afterwards 0".
fn numbers(text: &str) -> Vec<i64> {
    text.split(|c: char| !c.is_ascii_digit() && c != '-').filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn no_thread_is_started_without_contention() {
    let program = program();
    let finished = run(preloaded(&program.path).arg("tasks-uncontended")).success("uncontended");
    assert_eq!(numbers(&finished.text()), [0], "{}", finished.text());
}

#[test]
fn at_most_one_thread_serves_contention_and_it_goes_away() {
    let program = program();
    for load in LOAD {
        let mut command = preloaded(&program.path);
        let finished = run(command.arg("tasks-contended").env("UNCONVOY_LOAD", load.name));
        let finished = finished.success(load.name);
        let [most, afterwards] = numbers(&finished.text())[..] else {
            panic!("{}: {}", load.name, finished.text());
        };
        assert!((0..=1).contains(&most), "{}: {most} extra threads", load.name);
        assert_eq!(afterwards, 0, "{}: a thread is left 2 s after the contention", load.name);
    }
}

/// The same output and status as without the library.
#[track_caller]
fn unchanged(mode: &str) {
    let program = program();
    let without = run(plain(&program.path).arg(mode));
    for load in LOAD {
        let with = run(preloaded(&program.path).arg(mode).env("UNCONVOY_LOAD", load.name));
        assert_eq!(with.text(), without.text(), "{mode} with {}", load.name);
        assert_eq!(with.stderr, without.stderr, "{mode} with {}", load.name);
        assert_eq!(with.status, without.status, "{mode} with {}", load.name);
    }
}

#[test]
fn fork_while_threads_hold_locks() {
    unchanged("fork-held");
}

#[test]
fn exit_while_threads_wait() {
    unchanged("exit-waiting");
}

/// As many waiters as no machine has processors, under the default pair: without load management
/// they would all spin.
#[test]
fn a_thousand_threads_on_small_stacks() {
    let program = program();
    let without = run(plain(&program.path).arg("thousand")).success("thousand");
    let with = run(preloaded(&program.path).arg("thousand")).success("thousand");
    assert_eq!(with.text(), without.text());
    assert_eq!(with.stderr, "");
}

/// Stopped in mid-contention, all threads at once, and continued: whatever the library measures or
/// waits for by the clock has run out meanwhile.
#[test]
fn stop_and_continue_in_contention() {
    let program = program();
    for load in LOAD {
        let mut running =
            Running::start(preloaded(&program.path).arg("long-contention").env("UNCONVOY_LOAD", load.name));
        let deadline = Instant::now() + LIMIT;
        while !running.printed().contains("started") {
            assert!(Instant::now() < deadline, "the program does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(60));
            running.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(120));
            running.signal(Signal::CONT);
        }
        let finished = running.finish(LIMIT).success(load.name);
        assert_eq!(finished.text(), "started\nall counted\n", "{}", load.name);
        assert_eq!(finished.stderr, "", "{}", load.name);
    }
}
