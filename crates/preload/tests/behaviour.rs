//! The library's behaviour inside other programs: its output, its files and threads, inheritance by
//! child processes, and fork, exit and stop.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use support::{LIMIT, Running, compile, plain, preloaded, run};
use unconvoy_locks::catalogue::{Availability, CONTENTION, Entry, LOAD, POLICY, availability};
use unconvoy_profile::Recorded;

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

/// The statistics in a file.
#[track_caller]
fn statistics(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("the record is written");
    serde_json::from_str(&text).expect("the record is JSON")
}

#[test]
fn preloaded_program_keeps_output_and_status() {
    let program = program();
    let finished = run(preloaded(&program.path).arg("counts"));
    assert_eq!(finished.text(), "counted 4000\n");
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.status.code(), Some(7));
}

/// An invalid value costs one line, which names the value and the choices, and changes nothing
/// else.
#[track_caller]
fn bad_value(variable: &str, choices: &[Entry]) {
    let program = program();
    // The line shows the value. A line break in the value must not break the line.
    for (value, shown) in
        [("nosuch", "nosuch"), ("LOITER loiter", "LOITER loiter"), ("no\nsuch", "such")]
    {
        let finished = run(preloaded(&program.path).arg("counts").env(variable, value));
        assert_eq!(finished.text(), "counted 4000\n", "{variable}={value:?}");
        assert_eq!(finished.status.code(), Some(7), "{variable}={value:?}");
        let line = one_line(&finished.stderr);
        assert!(line.contains(variable), "{variable} is not in the line: {line}");
        assert!(line.contains(shown), "{value:?} is not in the line: {line}");
        for choice in choices {
            assert!(line.contains(choice.name), "{} is not among the choices: {line}", choice.name);
        }
    }
}

#[test]
fn invalid_lock_warns_once_and_uses_default() {
    bad_value("UNCONVOY_LOCK", CONTENTION);
}

#[test]
fn invalid_load_manager_warns_once_and_uses_default() {
    bad_value("UNCONVOY_LOAD", LOAD);
}

#[test]
fn unsupported_lock_warns_once_and_uses_default() {
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
    assert_eq!(
        (&record["lock"], &record["load"]),
        (&CONTENTION[0].name.into(), &LOAD[0].name.into()),
        "{text}"
    );
}

#[test]
fn process_elides_once_it_has_a_second_thread() {
    if let Availability::Refused(reason) = availability("elided") {
        return println!("skipped: {reason}");
    }
    let program = program();
    let finished = run(preloaded(&program.path).arg("elides").env("UNCONVOY_LOCK", "elided"));
    assert_eq!(finished.text(), "alone no, beside yes\nchild yes\ncounted 1000\n");
    assert_eq!(finished.stderr, "");
}

#[test]
fn invalid_policy_warns_once_and_uses_default() {
    bad_value("UNCONVOY_POLICY", POLICY);
}

#[test]
fn statistics_count_acquisitions() {
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
    // Stable from run to run: the static lock's offset, and the call's.
    let busy =
        record["locks"].as_array().into_iter().flatten().find(|lock| lock["acquisitions"] == 4000);
    let busy = busy.expect("just counted");
    for place in ["at", "first_taken"] {
        assert_eq!(
            busy[place]["object"].as_str().map(Path::new),
            program.path.canonicalize().ok().as_deref(),
            "{text}"
        );
        let offset = busy[place]["offset"]
            .as_str()
            .and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
        assert!(offset.is_some_and(|offset| offset > 0 && offset < 1 << 20), "{place} of {text}");
    }
}

#[test]
fn unwritable_statistics_file_warns_once() {
    let program = program();
    let missing = program.directory.path().join("no/such/place/stats.json");
    for file in [missing.as_path(), program.directory.path(), Path::new("/dev/full")] {
        let finished = run(preloaded(&program.path).arg("counts").env("UNCONVOY_STATS", file));
        assert_eq!(finished.text(), "counted 4000\n", "{}", file.display());
        assert_eq!(finished.status.code(), Some(7), "{}", file.display());
        let line = one_line(&finished.stderr);
        assert!(
            line.contains(&*file.to_string_lossy()),
            "{} is not in the line: {line}",
            file.display()
        );
    }
}

/// The path aborted the program at its exit.
#[test]
fn program_with_path_that_is_not_utf8_writes_statistics() {
    let program = program();
    let directory = program.directory.path().join(OsStr::from_bytes(b"not\xffutf8"));
    fs::create_dir(&directory).expect("a directory");
    let path = directory.join("behaviour");
    fs::rename(&program.path, &path).expect("a rename in one file system");
    let file = program.directory.path().join("stats.json");
    let finished = run(preloaded(&path).arg("counts").env("UNCONVOY_STATS", &file));
    assert_eq!(finished.text(), "counted 4000\n");
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.status.code(), Some(7));
    let record = statistics(&file);
    let path = record["program"].as_str().expect("a path");
    assert!(path.ends_with("/not\u{fffd}utf8/behaviour"), "{path}");
}

/// The child of a line such as "child 4711, status 0".
#[track_caller]
fn child_of(text: &str) -> i64 {
    let line = text.lines().last().unwrap_or_default();
    let [child, 0] = numbers(line)[..] else { panic!("{text}") };
    child
}

/// The child's record contained all that its parent had counted before.
#[test]
fn statistics_of_forked_child_begin_at_the_fork() {
    let program = program();
    let file = program.directory.path().join("stats.json");
    let finished = run(preloaded(&program.path).arg("fork-counted").env("UNCONVOY_STATS", &file));
    let child = child_of(&finished.success("fork-counted").text());
    let parent = statistics(&file);
    let child = statistics(&file.with_extension(format!("json.{child}")));
    let locks = |record: &Value| record["locks"].as_array().expect("a list of locks").clone();
    let shared = locks(&parent).into_iter().find(|lock| lock["acquisitions"] == 1000);
    let shared = shared.expect("the parent's lock");
    for lock in locks(&child) {
        assert_eq!(lock["acquisitions"], 1, "{child:#}");
    }
    let addresses: Vec<_> = locks(&child).iter().map(|lock| lock["address"].clone()).collect();
    assert!(addresses.contains(&shared["address"]), "{child:#}");
    let slots = |key: &str| child["slots"][key].as_u64().expect("a count");
    let ended = slots("woken") + slots("timed_out") + slots("given_back");
    assert!(ended <= slots("slept"), "{child:#}");
    assert!(child["wall_ns"].as_u64() < parent["wall_ns"].as_u64(), "{child:#}");
}

/// The child wrote its parent's statistics.
#[test]
fn child_that_library_does_not_notice_writes_no_statistics() {
    let program = program();
    let file = program.directory.path().join("stats.json");
    let finished = run(preloaded(&program.path).arg("fork-silent").env("UNCONVOY_STATS", &file));
    finished.success("fork-silent");
    assert_eq!(fs::read_to_string(&file).expect("created at the start"), "");
}

/// A process in a container replaced the record of a process outside that has the same id.
#[test]
fn process_of_another_namespace_writes_its_own_file() {
    let program = program();
    let own = fs::metadata("/proc/self/ns/pid").expect("a namespace").ino();
    for (namespace, is_owner) in [(own, true), (own + 1, false)] {
        let file = program.directory.path().join(format!("{namespace}.json"));
        let script = format!("UNCONVOY_STATS_OWNER=$$:{namespace} exec \"$0\" counts");
        let mut command = preloaded(Path::new("sh"));
        command.args(["-c", &script]).arg(&program.path).env("UNCONVOY_STATS", &file);
        let finished = run(&mut command);
        assert_eq!((finished.text(), finished.stderr.as_str()), ("counted 4000\n".into(), ""));
        let written = fs::read_to_string(&file).expect("created at the start");
        assert_eq!(!written.is_empty(), is_owner, "{namespace}: {written}");
    }
}

/// The files that the library creates or writes after the start were missing.
#[test]
fn program_that_clears_its_environment_writes_all_files() {
    let program = program();
    let place = |name: &str| program.directory.path().join(name);
    let mut command = preloaded(&program.path);
    command.arg("cleared").env("UNCONVOY_REPLACE", "1");
    for (variable, name) in
        [("STATS", "stats.json"), ("PROFILE", "locks.profile"), ("METRICS", "server.prom")]
    {
        command.env(format!("UNCONVOY_{variable}"), place(name));
    }
    let finished = run(&mut command).success("cleared");
    assert_eq!(finished.stderr, "");
    let child = child_of(&finished.text());
    for end in [String::new(), format!(".{child}")] {
        let record = statistics(&place(&format!("stats.json{end}")));
        assert_eq!(record["schema"], "unconvoy-stats-1");
        let profile = fs::read(place(&format!("locks.profile{end}"))).expect("a profile");
        let recorded = Recorded::parse(&profile).expect("a valid profile");
        assert!(recorded.has_ended && !recorded.locks.is_empty(), "{recorded:#?}");
        let metrics = fs::read_to_string(place(&format!("server{end}.prom"))).expect("metrics");
        assert!(metrics.contains("unconvoy_lock_waits_total{process=\"server"), "{metrics}");
    }
}

fn is_loaded_in_each(text: &str) -> Vec<bool> {
    text.lines().map(|line| line.starts_with("library loaded")).collect()
}

#[test]
fn children_inherit_the_library() {
    let program = program();
    let without = run(plain(&program.path).arg("loaded").arg(&program.path).arg("loaded"));
    assert_eq!(is_loaded_in_each(&without.success("plain").text()), [false, false]);
    let finished = run(preloaded(&program.path).arg("loaded").arg(&program.path).arg("loaded"));
    assert_eq!(is_loaded_in_each(&finished.success("preloaded").text()), [true, true]);
    // Also through a program that starts others: a shell and its child.
    let finished =
        run(preloaded("/bin/sh").arg("-c").arg(format!("{} loaded; true", program.path.display())));
    assert_eq!(is_loaded_in_each(&finished.success("sh").text()), [true]);
}

#[test]
fn children_with_children_0_run_without_library() {
    let program = program();
    let finished = run(preloaded(&program.path)
        .arg("loaded")
        .arg(&program.path)
        .arg("loaded")
        .env("UNCONVOY_CHILDREN", "0"));
    assert_eq!(is_loaded_in_each(&finished.success("without children").text()), [true, false]);
}

/// The children keep the other preloaded libraries.
#[test]
fn children_with_children_0_keep_other_preloads() {
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
    assert_eq!(
        left.split([' ', ':']).filter(|s| !s.is_empty()).collect::<Vec<_>>(),
        [neighbour.to_str().unwrap()]
    );
}

#[test]
fn set_user_id_program_runs_without_library() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a set-user-ID program of another user can be made by root only");
        return;
    }
    let program = program();
    // 65534 is the user `nobody`; it need not exist.
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
    text.split(|c: char| !c.is_ascii_digit() && c != '-')
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[test]
fn uncontended_program_starts_no_thread() {
    let program = program();
    let finished = run(preloaded(&program.path).arg("tasks-uncontended")).success("uncontended");
    assert_eq!(numbers(&finished.text()), [0], "{}", finished.text());
}

#[test]
fn contention_starts_at_most_one_thread_that_ends_later() {
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

/// Checks that output and status are the same as without the library.
#[track_caller]
fn assert_unchanged(mode: &str) {
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
fn fork_with_locks_held_changes_nothing() {
    assert_unchanged("fork-held");
}

#[test]
fn exit_with_waiting_threads_changes_nothing() {
    assert_unchanged("exit-waiting");
}

/// More waiters than any machine has processors, under the default pair: without load management,
/// all of them would spin.
#[test]
fn thousand_threads_on_small_stacks_finish() {
    let program = program();
    let without = run(plain(&program.path).arg("thousand")).success("thousand");
    let with = run(preloaded(&program.path).arg("thousand")).success("thousand");
    assert_eq!(with.text(), without.text());
    assert_eq!(with.stderr, "");
}

/// All threads are stopped during contention and then continued, so all of the library's time
/// limits pass in between.
#[test]
fn stop_and_continue_in_contention_changes_nothing() {
    let program = program();
    for load in LOAD {
        let mut running = Running::start(
            preloaded(&program.path).arg("long-contention").env("UNCONVOY_LOAD", load.name),
        );
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
