//! `unconvoy profile`: reports on profiles with known content, and rejection of bad input. The
//! interposer's own tests check what it records.

mod known;
mod stage;

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use known::Known;
use predicates::prelude::*;
use predicates::str::contains;
use stage::Stage;
use unconvoy_profile::Kind;
use unconvoy_profile::layout::COUNT_UNIT;

#[test]
fn summary_names_locks_and_places_within_100_columns() {
    let known = Known::new().with_waits();
    let text = known.report(&[]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for part in [
        "40.0 ms of waiting in 3 waits for 3 locks",
        "\nqueue_lock\n",
        "2 x mutex initialised in main+0x2 in server",
        "75 %",
        "25 %",
        "waits in  wait_here in server",
        "held by   hold_here in server",
        "waits for a signal",
        "900 ms",
        "Shorten what hold_here in server does while it holds the lock.",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let single = known.report(&["--by", "lock", "--top", "1"]);
    assert!(single.contains("2 more: raise --top") && !single.contains("\n2 x"), "{single}");
    let waiters = known.report(&["--by", "waiter"]);
    assert!(waiters.contains("waiting place") && !waiters.contains("queue_lock\n"), "{waiters}");
}

#[test]
fn files_hold_what_the_summary_says() {
    let known = Known::new().with_waits();
    known.report(&[
        "--json",
        "locks.json",
        "--csv",
        "locks.csv",
        "--folded",
        "waiters.txt",
        "--folded-holders",
        "holders.txt",
    ]);
    let json: serde_json::Value = serde_json::from_str(&known.stage.read("locks.json")).unwrap();
    assert_eq!(json["schema"], "unconvoy-profile-1");
    assert_eq!(json["complete"], true);
    let class = json["classes"].as_array().unwrap().iter().find(|class| class["locks"] == 2);
    assert_eq!(class.unwrap()["waited_ns"], 10_000_000);
    assert_eq!(json["holders"][0]["ns"], 40_000_000);
    let row = json["locks"].as_array().unwrap().iter().find(|row| row["name"] == "queue_lock");
    let counts = row.unwrap()["wait"]["histogram"].as_array().unwrap();
    assert_eq!((counts.len(), &counts[0][1]), (1, &serde_json::json!(1)));
    let csv = known.stage.read("locks.csv");
    assert_eq!(csv.lines().count(), 5, "{csv}");
    assert!(csv.contains("queue_lock,mutex,"), "{csv}");
    let waiters = known.stage.read("waiters.txt");
    assert!(waiters.contains("wait_here in server;queue_lock 30000\n"), "{waiters}");
    let holders = known.stage.read("holders.txt");
    assert!(holders.contains("hold_here in server;queue_lock 30000\n"), "{holders}");
}

#[test]
fn profile_without_waits_says_so() {
    let text = Known::new().report(&["--json", "empty.json"]);
    assert!(text.contains("no lock was waited for"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn unfinished_profile_and_lost_waits_are_remarked() {
    let known = Known::new().with_waits();
    known.profile.header.ended.store(0, Relaxed);
    known.profile.header.lost_stacks.store(7, Relaxed);
    known.profile.header.registered.store(1, Relaxed);
    let text = known.report(&[]);
    for remark in ["profile so far", "7 stacks did not fit", "registered generated code"] {
        assert!(text.contains(remark), "{remark}: {text}");
    }
}

#[test]
fn program_without_symbols_is_remarked() {
    let known = Known::new().with_waits();
    let stripped = std::process::Command::new("strip").arg(known.stage.path("server")).status();
    assert!(stripped.is_ok_and(|status| status.success()), "the tests need binutils");
    let text = known.report(&[]);
    assert!(text.contains("server+0x") && text.contains("No symbols for server"), "{text}");
}

/// `debuginfod-find` keeps the debug files that it fetches in its cache.
#[test]
fn replaced_program_gives_offsets_and_remark() {
    let known = Known::new().with_waits();
    known.with_inode(0);
    let text = known.report(&[]);
    assert!(text.contains("queue_lock") && !text.contains("No names for server"), "{text}");
    known.with_inode(1);
    let text = known.report(&[]);
    assert!(text.contains("server+0x") && text.contains("No names for server"), "{text}");
    assert!(!text.contains("queue_lock") && !text.contains("wait_here"), "{text}");
    // Written after the recording, under the same inode.
    known.with_inode(0);
    known.profile.header.begin_unix_ns.store(1_000_000_000, Relaxed);
    let text = known.report(&[]);
    assert!(text.contains("server+0x") && text.contains("No names for server"), "{text}");
}

#[test]
fn more_mapped_files_than_descriptors_have_names() {
    use std::os::unix::process::CommandExt;
    let known = Known::new().with_waits();
    known.with_mappings(200);
    known.report(&[]);
    let mut command = known.stage.process();
    command.args(["profile", "--read", "locks.profile"]);
    // SAFETY: a system call.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 40, rlim_max: 40 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            Ok(())
        })
    };
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(text.contains("queue_lock") && text.contains("wait_here"), "{text}");
}

#[test]
fn debug_file_in_debuginfods_cache_names_stripped_program() {
    use object::Object;
    let known = Known::new().with_waits();
    let program = known.stage.path("server");
    let bytes = std::fs::read(&program).unwrap();
    let id = object::File::parse(&*bytes).unwrap().build_id().unwrap();
    let id = id.expect("gcc and clang of distributions write build ids");
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = known.stage.path("debuginfod_client").join(id);
    std::fs::create_dir_all(&folder).unwrap();
    let debug = folder.join("debuginfo");
    for arguments in [&["--only-keep-debug"][..], &["--strip-all"]] {
        let to = if arguments == ["--strip-all"] { &program } else { &debug };
        let mut command = std::process::Command::new("objcopy");
        let status = command.args(arguments).arg(&program).arg(to).status();
        assert!(status.is_ok_and(|status| status.success()), "the tests need binutils");
    }
    let path = known.stage.path("locks.profile");
    std::fs::write(&path, known.profile.to_bytes()).unwrap();
    let report = |variable: &str, cache: PathBuf| {
        let mut command = known.stage.unconvoy();
        command.env_remove("DEBUGINFOD_CACHE_PATH").env(variable, cache);
        command.args(["profile", "--read", "locks.profile"]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    for (variable, cache) in
        [("XDG_CACHE_HOME", ""), ("DEBUGINFOD_CACHE_PATH", "debuginfod_client")]
    {
        let text = report(variable, known.stage.path(cache));
        assert!(text.contains("\nqueue_lock\n") && text.contains("wait_here in server"), "{text}");
    }
    // The cache remembers by an empty file that no server has the debug file.
    std::fs::write(&debug, "").unwrap();
    let text = report("XDG_CACHE_HOME", known.stage.path(""));
    assert!(text.contains("No symbols for server"), "{text}");
}

#[test]
fn text_option_writes_report_to_file() {
    let known = Known::new().with_waits();
    let report = known.report(&[]);
    assert_eq!(known.report(&["--text", "report.txt"]), "");
    assert_eq!(known.stage.read("report.txt"), report);
}

#[test]
fn short_waits_give_no_advice() {
    let known = Known::new().with_waits();
    known.profile.header.last_ns.store(5_000_000_000, Relaxed);
    let text = known.report(&[]);
    let little = "Other locks can gain little: all threads together waited for 40.0 ms of 5.00 s.";
    assert!(text.contains(little) && !text.contains("Shorten"), "{text}");
}

#[test]
fn bad_input_is_rejected_with_reason() {
    let known = Known::new();
    let stage = &known.stage;
    let mut other = known.profile.to_bytes();
    other[8] = 77;
    std::fs::write(stage.path("other"), &other).unwrap();
    std::fs::write(stage.path("good"), known.profile.to_bytes()).unwrap();
    std::fs::write(stage.path("short"), &known.profile.to_bytes()[..9000]).unwrap();
    stage.write("text", "what is this?");
    for (arguments, status, message) in [
        (&["--read", "other"][..], 1, "version 77"),
        (&["--read", "short"], 1, "truncated"),
        (&["--read", "text"], 1, "not a lock profile"),
        (&["--read", "missing"], 1, "cannot read missing"),
        (&["--read", "text", "--json", "."], 2, "is a directory"),
        (&["--load", "park", "--", "true"], 2, "--load needs --lock"),
        (&["--lock", "nosuch", "--", "true"], 2, "loiter"),
        (&["--period", "0", "--", "true"], 2, "0.001 to 1000"),
        (&["--read", "text", "--", "true"], 2, "cannot be used"),
        (&["--read", "short", "-o", "kept"], 2, "cannot be used"),
        (&["-o", "text", "--", "true"], 2, "is not a profile"),
        (&["-o", "short", "--", "/no/such/program"], 127, "not found"),
        (&["--", "/etc/passwd"], 126, "cannot execute"),
        (&["-o", "good", "--", "/etc/passwd"], 126, "cannot execute"),
    ] {
        let mut command = stage.unconvoy();
        command.arg("profile").args(arguments).assert().code(status).stderr(contains(message));
    }
    assert!(["text", "short", "good"].iter().all(|name| stage.path(name).exists()));
}

#[test]
fn program_that_loads_no_interposer_has_no_profile() {
    let stage = Stage::new();
    // The test's stand-in for the interposer records nothing.
    let mut command = stage.unconvoy();
    let output = command.args(["profile", "--", "sh", "-c", "exit 3"]).assert();
    output.code(1).stderr(contains("no profile")).stdout(predicate::str::is_empty());
}

#[test]
fn program_gets_settings_of_the_profile() {
    let stage = Stage::new();
    let show = stage.script("show", "#!/bin/sh\nenv | grep UNCONVOY_ | sort > shown\n");
    let mut command = stage.unconvoy();
    command.args(["profile", "--period", "0.5", "-o", "kept", "--"]).arg(&show).assert().code(1);
    let shown = stage.read("shown");
    for line in ["UNCONVOY_REPLACE=0", "UNCONVOY_PROFILE_PERIOD_MS=0.5", "/kept"] {
        assert!(shown.contains(line), "no {line} in:\n{shown}");
    }
    let mut command = stage.unconvoy();
    command.args(["profile", "--lock", "mcs", "--load", "park", "--"]).arg(&show).assert().code(1);
    let shown = stage.read("shown");
    assert!(shown.contains("UNCONVOY_LOCK=mcs") && shown.contains("UNCONVOY_LOAD=park"), "{shown}");
    assert!(!shown.contains("UNCONVOY_REPLACE"), "{shown}");
}

#[test]
fn waits_without_stack_count_for_known_stacks_of_same_lock() {
    let known = Known::new();
    let (waiter, holder) = (known.address("wait_here") + 2, known.address("hold_here") + 2);
    let (waiter, holder) = (known.profile.stack(&[waiter], 0), known.profile.stack(&[holder], 0));
    let queue = known.address("queue_lock") as usize;
    let (index, lock) = known.profile.lock(Kind::Mutex, queue).unwrap();
    for _ in 0..4 {
        known.profile.record_wait(lock, 10_000_000, 1_000, false);
    }
    known.profile.add_sample(index, (waiter, holder), 10_000_000, COUNT_UNIT);
    known.profile.add_sample(index, (0, 0), 30_000_000, 3 * COUNT_UNIT);
    // A lock without any known stack.
    let (index, lock) = known.profile.lock(Kind::Mutex, 0x1000).unwrap();
    known.profile.record_wait(lock, 10_000_000, 1_000, false);
    known.profile.add_sample(index, (0, 0), 10_000_000, COUNT_UNIT);
    let text = known.report(&["--json", "locks.json", "--folded", "waiters.txt"]);
    assert!(text.contains("mutex without a sampled wait"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&known.stage.read("locks.json")).unwrap();
    let holder = &json["holders"][0];
    assert_eq!((&holder["ns"], &holder["share"]), (&40_000_000.into(), &0.8.into()), "{holder}");
    assert_eq!(holder["waits"], 4.0, "{holder}");
    let waiters = known.stage.read("waiters.txt");
    assert!(waiters.contains("wait_here in server;queue_lock 40000\n"), "{waiters}");
    assert!(waiters.contains("unknown;mutex without a sampled wait 10000\n"), "{waiters}");
}

#[test]
fn graphs_and_page_show_every_lock_and_place() {
    let known = Known::new().with_waits();
    known.report(&["--flamegraph", "f.svg", "--firefox", "f.json", "--html", "f.html"]);
    let (svg, page) = (known.stage.read("f.svg"), known.stage.read("f.html"));
    for text in [&svg, &page] {
        for part in ["queue_lock", "wait_here in server", "hold_here in server"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }
    let widths: Vec<f64> = svg
        .split("class=\"f l")
        .skip(1)
        .map(|lock| lock.split("width=\"").nth(1).unwrap().split('%').next().unwrap())
        .map(|width| width.parse().unwrap())
        .collect();
    assert_eq!(widths, [75.0, 25.0]);
    assert!(!page.contains("http") && !page.contains("src="), "the page needs other files");
    let firefox: serde_json::Value = serde_json::from_str(&known.stage.read("f.json")).unwrap();
    let threads = firefox["threads"].as_array().unwrap();
    let all = threads.iter().find(|thread| thread["name"] == "All waits").unwrap();
    let weights = all["samples"]["weight"].as_array().unwrap();
    let sum: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
    assert_eq!((sum, &all["samples"]["weightType"]), (40.0, &"tracing-ms".into()));
}

#[test]
fn profile_without_waits_has_valid_files() {
    let known = Known::new();
    known.report(&["--flamegraph", "f.svg", "--firefox", "f.json", "--html", "f.html"]);
    assert!(known.stage.read("f.svg").ends_with("</svg>\n"));
    assert!(known.stage.read("f.html").contains("no lock was waited for"));
    assert!(serde_json::from_str::<serde_json::Value>(&known.stage.read("f.json")).is_ok());
}

#[test]
fn process_left_behind_is_named_with_the_commands_that_profile_it() {
    let stage = Stage::new();
    // The file stands for the profile that a daemon under the library writes.
    let daemon = "#!/bin/sh\nsleep 20 >/dev/null 2>&1 &\necho $! > child\ncp child o.$!\n";
    stage.script("daemon", daemon);
    let profile = |options: &[&str], program: &str| {
        let mut command = stage.unconvoy();
        let output = command.arg("profile").args(options).args(["--", program]).output();
        String::from_utf8(output.expect("it runs").stderr).expect("UTF-8")
    };
    let said = profile(&["--output", "o"], "./daemon");
    let child = stage.read("child");
    let child = child.trim();
    assert!(said.contains("left a process behind"), "{said}");
    assert!(said.contains(&format!("unconvoy profile --pid {child}\n")), "{said}");
    assert!(said.contains(&format!("unconvoy profile --read o.{child} shows")), "{said}");
    let said = profile(&[], "./daemon");
    assert!(said.contains("left a process behind") && !said.contains("--read"), "{said}");
    assert!(!profile(&[], "true").contains("left a process behind"));
}
