//! `unconvoy top` on a program whose locks are known, and bad input.

#[path = "top/scene.rs"]
mod scene;
mod stage;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use scene::{Scene, wait_until};
use serde_json::Value;
use stage::Running;
use unconvoy_cli::top::watcher::Watcher;

/// A user without privileges: `nobody`.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() == 0 }
}

fn lock<'a>(snapshot: &'a Value, name: &str) -> Option<&'a Value> {
    snapshot["locks"].as_array()?.iter().find(|lock| lock["name"] == name)
}

fn has_place(lock: &Value, side: &str, place: &str) -> bool {
    let places = lock[side].as_array().expect("places");
    places.iter().any(|at| at["place"].as_str().is_some_and(|it| it.starts_with(place)))
}

/// The identifiers of the segments that a process has mapped.
fn segments(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = maps.lines().filter(|line| line.contains("/SYSV"));
    lines.filter_map(|line| line.split_whitespace().nth(4).map(str::to_string)).collect()
}

/// Whether the kernel still has a segment.
fn exists(segment: &str) -> bool {
    let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    segments.lines().any(|line| line.split_whitespace().nth(1) == Some(segment))
}

#[test]
fn snapshot_names_locks_and_places_of_running_process() {
    let Some(scene) = Scene::new() else { return };
    let (running, _) = scene.start(scene.program().arg("2000"));
    let pid = running.0.id();
    let snapshot = scene.snapshot(pid, |snapshot| {
        lock(snapshot, "queue_lock").is_some_and(|lock| {
            has_place(lock, "waiters", "use_queue") && has_place(lock, "holders", "use_queue")
        }) && lock(snapshot, "ring_lock").is_some()
    });
    assert_eq!(snapshot["lock"], "loiter");
    let queue = lock(&snapshot, "queue_lock").expect("checked above");
    assert!(queue["held_p50_ns"].as_u64().is_none_or(|ns| ns >= 1_900_000), "{queue:#}");
    let listed = scene.top(&[&pid.to_string(), "--once"]);
    let text = String::from_utf8(listed.stdout).expect("text");
    assert!(text.contains("queue_lock") && text.contains("waits/s"), "{text}");
}

/// The main thread is then a zombie, through which `/proc` shows no mappings.
#[test]
fn process_without_its_main_thread_is_shown() {
    let Some(scene) = Scene::new() else { return };
    let (running, _) = scene.start(scene.program().args(["2000", "leave"]));
    let pid = running.0.id();
    let status = format!("/proc/{pid}/status");
    wait_until("the main thread has ended", || {
        std::fs::read_to_string(&status).expect("it runs").contains("State:\tZ")
    });
    let snapshot = scene.snapshot(pid, |snapshot| lock(snapshot, "queue_lock").is_some());
    assert!(snapshot["program"].as_str().is_some_and(|it| it.ends_with("/locks")), "{snapshot:#}");
}

#[test]
fn process_stops_recording_when_nobody_watches() {
    let Some(scene) = Scene::new() else { return };
    let (running, _) = scene.start(scene.program().arg("500"));
    let pid = running.0.id();
    wait_until("a page", || segments(pid).len() == 1);
    scene.snapshot(pid, |snapshot| lock(snapshot, "queue_lock").is_some());
    assert_eq!(segments(pid).len(), 2, "page and table");
    // A viewer that asks for nothing: an old snapshot after a pause has no waits, because none was
    // recorded in the pause.
    std::thread::sleep(Duration::from_secs(8));
    let before = Instant::now();
    let snapshot = scene.snapshot(pid, |snapshot| lock(snapshot, "queue_lock").is_some());
    let waited = lock(&snapshot, "queue_lock").unwrap()["waited_ns"].as_u64().unwrap();
    // Two of three threads wait at any time.
    assert!(waited < 3 * before.elapsed().as_nanos() as u64, "{snapshot:#}");
    assert_eq!(segments(pid).len(), 2, "the same table");
}

#[test]
fn replaced_program_keeps_its_names_while_it_runs() {
    let Some(scene) = Scene::new() else { return };
    let (running, _) = scene.start(scene.program().arg("2000"));
    std::fs::remove_file(&scene.program).expect("the test's own file");
    std::fs::copy("/bin/true", &scene.program).expect("the test's own file");
    let pid = running.0.id();
    scene.snapshot(pid, |snapshot| {
        lock(snapshot, "queue_lock").is_some_and(|lock| has_place(lock, "waiters", "use_queue"))
    });
}

#[test]
fn long_interval_is_recorded_to_its_end() {
    let Some(scene) = Scene::new() else { return };
    let (running, _) = scene.start(scene.program().arg("500"));
    let pid = running.0.id();
    scene.snapshot(pid, |snapshot| lock(snapshot, "queue_lock").is_some());
    let output = scene.top(&[&pid.to_string(), "--json", "--interval", "10"]);
    let snapshot: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let waited = lock(&snapshot, "queue_lock").unwrap()["waited_ns"].as_f64().unwrap() * 1e-9;
    // Two of three threads wait at any time.
    let expected = 2.0 * snapshot["seconds"].as_f64().unwrap();
    assert!(waited > 0.75 * expected, "{waited} of {expected}: {snapshot:#}");
}

#[test]
fn segments_end_with_process() {
    let Some(scene) = Scene::new() else { return };
    let (mut running, _) = scene.start(scene.program().arg("500"));
    let pid = running.0.id();
    scene.snapshot(pid, |snapshot| lock(snapshot, "queue_lock").is_some());
    let ids = segments(pid);
    assert!(ids.len() == 2 && ids.iter().all(|id| exists(id)), "{ids:?}");
    running.0.kill().expect("a child");
    running.0.wait().expect("a child");
    assert!(!ids.iter().any(|id| exists(id)), "{ids:?}");
    let output = scene.top(&[&pid.to_string(), "--once"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("no process"), "{said}");
}

#[test]
fn child_of_fork_has_a_page_of_its_own() {
    let Some(scene) = Scene::new() else { return };
    let (running, said) = scene.start(scene.program().args(["2000", "fork"]));
    let child = said.lines().find_map(|line| line.strip_prefix("child ")).expect("a child");
    let (pid, child) = (running.0.id(), child.parse().expect("a number"));
    let _kill = scene::Orphan(child);
    scene.snapshot(child, |snapshot| lock(snapshot, "queue_lock").is_some());
    scene.snapshot(pid, |snapshot| lock(snapshot, "queue_lock").is_some());
    let shared: Vec<String> =
        segments(pid).into_iter().filter(|id| segments(child).contains(id)).collect();
    assert!(shared.is_empty(), "{shared:?}");
}

#[test]
fn program_sees_no_descriptor() {
    let Some(scene) = Scene::new() else { return };
    let (running, _) = scene.start(scene.program().arg("500"));
    let pid = running.0.id();
    let count = || std::fs::read_dir(format!("/proc/{pid}/fd")).expect("our child").count();
    wait_until("a page", || !segments(pid).is_empty());
    let before = count();
    scene.snapshot(pid, |snapshot| lock(snapshot, "queue_lock").is_some());
    assert_eq!(count(), before);
}

#[test]
fn unprivileged_user_watches_own_process() {
    let Some(scene) = Scene::new() else { return };
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let (running, _) = scene.start(scene.program().arg("2000").uid(NOBODY).gid(NOBODY));
    let copy = scene.stage.copy_of_command();
    let pid = running.0.id().to_string();
    let watch = || {
        let mut command = Command::new(&copy);
        command.args(["top", &pid, "--once"]).uid(NOBODY).gid(NOBODY);
        command.current_dir("/").output().expect("the command runs")
    };
    wait_until("the user's own lock", || {
        let output = watch();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).contains("queue_lock")
    });
}

#[test]
fn processes_of_others_and_undumpable_ones_are_refused() {
    let Some(scene) = Scene::new() else { return };
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let copy = scene.stage.copy_of_command();
    let refused = |pid: u32, reason: &str| {
        let mut command = Command::new(&copy);
        command.args(["top", &pid.to_string(), "--once"]).uid(NOBODY).gid(NOBODY);
        let output = command.current_dir("/").output().expect("the command runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(reason) && said.contains("sudo unconvoy top"), "{said}");
    };
    let (roots, _) = scene.start(scene.program().arg("2000"));
    refused(roots.0.id(), "belongs to user 0");
    let (hidden, _) =
        scene.start(scene.program().args(["2000", "undumpable"]).uid(NOBODY).gid(NOBODY));
    refused(hidden.0.id(), "is not dumpable");
    // Root may look into it, and it runs on.
    scene.snapshot(hidden.0.id(), |snapshot| lock(snapshot, "queue_lock").is_some());
}

#[test]
fn processes_without_a_page_are_explained() {
    let Some(scene) = Scene::new() else { return };
    let sleeping = Running(Command::new("sleep").arg("1000").spawn().expect("sleep"));
    let output = scene.top(&[&sleeping.0.id().to_string()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("unconvoy run"), "{said}");
    let (idle, _) = scene.start(scene.program().arg("500").env("UNCONVOY_TOP", "0"));
    let output = scene.top(&[&idle.0.id().to_string(), "--interval", "0.1"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("UNCONVOY_TOP=0"), "{said}");
    assert!(segments(idle.0.id()).is_empty());
    // No process has an id that high.
    let output = scene.top(&["4194305"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("no process"), "{said}");
    assert_eq!(scene.top(&["4294967296"]).status.code(), Some(2));
    for wrong in [["--interval", "0"], ["--interval", "soon"]] {
        assert_eq!(scene.top(&wrong).status.code(), Some(2));
    }
}

#[test]
fn filtered_process_shows_itself_only_if_the_filter_allows() {
    let Some(scene) = Scene::new() else { return };
    let source = scene.stage.write("filter.c", include_str!("top/filter.c"));
    let filter = scene.stage.compile("filter", &source, &[]).expect("a C compiler");
    let start = |mode: &str| {
        let mut command = Command::new(&filter);
        command.args([mode, env!("CARGO_BIN_EXE_unconvoy"), "run", "--"]).arg(&scene.program);
        command.arg("2000").env("UNCONVOY_LIBRARY", &scene.library).env_remove("LD_PRELOAD");
        command.env_remove("UNCONVOY_TOP").stdin(Stdio::null()).stdout(Stdio::piped());
        scene.start(&mut command).0
    };
    let allowed = start("allow");
    scene.snapshot(allowed.0.id(), |snapshot| lock(snapshot, "queue_lock").is_some());
    let mut killed = start("kill");
    let pid = killed.0.id();
    // Long enough for some waits.
    std::thread::sleep(Duration::from_millis(500));
    assert!(killed.0.try_wait().expect("a child").is_none() && segments(pid).is_empty());
    let snapshot = scene.snapshot(pid, |_| true);
    assert!(snapshot["remarks"][0].as_str().is_some_and(|it| it.contains("seccomp")));
}

#[test]
fn root_enters_the_ipc_namespace_of_a_container() {
    let Some(scene) = Scene::new() else { return };
    let mut command = Command::new("unshare");
    command.arg("--ipc").arg(&scene.program).arg("2000").env("LD_PRELOAD", &scene.library);
    let can_unshare = Command::new("unshare").args(["--ipc", "true"]).output();
    if !can_unshare.is_ok_and(|output| output.status.success()) {
        println!("skipped: only root can create an IPC namespace");
        return;
    }
    command.env_remove("UNCONVOY_TOP").stdin(Stdio::null()).stdout(Stdio::piped());
    let (running, _) = scene.start(&mut command);
    let pid = running.0.id();
    scene.snapshot(pid, |snapshot| lock(snapshot, "queue_lock").is_some());
    // Also in the list, beside a process in this namespace.
    let (here, _) = scene.start(scene.program().arg("2000"));
    wait_until("a page", || segments(here.0.id()).len() == 1);
    let listed = String::from_utf8_lossy(&scene.top(&[]).stdout).into_owned();
    for pid in [pid, here.0.id()] {
        assert!(listed.contains(&pid.to_string()), "{pid}: {listed}");
    }
}

#[test]
fn page_of_another_version_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let (running, _) = scene.start(scene.program().arg("2000"));
    let pid = running.0.id();
    wait_until("a page", || segments(pid).len() == 1);
    let id: i32 = segments(pid)[0].parse().expect("a number");
    // SAFETY: the segment is a page of the process, which reads its version never.
    unsafe {
        let page = libc::shmat(id, std::ptr::null(), 0).cast::<unconvoy_profile::page::Page>();
        assert_ne!(page.addr(), usize::MAX);
        // The process writes the version before this.
        let magic = &(*page).magic;
        wait_until("a complete page", || magic.load(std::sync::atomic::Ordering::Acquire) != 0);
        (*page).version.store(0x7_0009, std::sync::atomic::Ordering::Relaxed);
        libc::shmdt(page.cast());
    }
    let output = scene.top(&[&pid.to_string()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("another version"), "{said}");
}

#[test]
fn snapshot_is_printed_if_only_the_output_is_a_terminal() {
    let Some(scene) = Scene::new() else { return };
    let (running, _) = scene.start(scene.program().arg("500"));
    let mut script = Command::new("script");
    let command = "exec \"$COMMAND\" top \"$PROCESS\" < /dev/null";
    script.args(["-qec", command, "/dev/null"]).env("SHELL", "/bin/sh").env("TERM", "xterm");
    script.env("COMMAND", scene.stage.process().get_program());
    script.env("PROCESS", running.0.id().to_string());
    let Ok(mut script) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        println!("missing: script not found (apt-get install bsdutils)");
        return;
    };
    let input = script.stdin.take();
    let output = script.wait_with_output().expect("a child");
    drop(input);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("waits/s"), "{text}");
}

#[test]
fn program_after_exec_is_named() {
    let Some(scene) = Scene::new() else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "echo ready; read line; exec \"$0\" 2000"]).arg(&scene.program);
    command.env("LD_PRELOAD", &scene.library).env_remove("UNCONVOY_TOP");
    let (mut running, _) = scene.start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let pid = running.0.id();
    let program = || std::fs::read_link(format!("/proc/{pid}/exe")).expect("it runs");
    let shell = program();
    let mut watcher = Watcher::open(pid).expect("the shell runs under unconvoy");
    drop(running.0.stdin.take());
    wait_until("the program", || program() != shell);
    let snapshot = watcher.look().expect("the program runs under unconvoy");
    assert_eq!(Path::new(&snapshot.program), program());
}

#[test]
fn recorded_profile_is_shown_live() {
    let Some(scene) = Scene::new() else { return };
    let file = scene.stage.path("profile");
    let mut command = scene.program();
    let (running, _) = scene.start(command.arg("2000").env("UNCONVOY_PROFILE", &file));
    let pid = running.0.id();
    scene.snapshot(pid, |snapshot| lock(snapshot, "queue_lock").is_some());
    assert_eq!(segments(pid).len(), 1, "the table is the profile's file");
}
