//! `unconvoy inspect`: processes that run, are stopped, or have left a core, and bad input.

#[path = "hang/program.rs"]
mod program;
mod stage;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use program::{Program, until};
use stage::{LIMIT, Stage};

/// A user without privileges.
const NOBODY: u32 = 65534;

/// `unconvoy run` of the program with these arguments; `None` after a message if that is useless.
fn run(stage: &Stage, options: &[&str], arguments: &[&str]) -> Option<Program> {
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", stage::library()?).arg("run").args(options).arg("--");
    stage::may_read_processes().then_some(())?;
    command.arg(program::compile(stage)).args(arguments);
    Some(Program::start(&mut command))
}

fn inspect(stage: &Stage, arguments: &[&str]) -> Output {
    stage.unconvoy().arg("inspect").args(arguments).output().expect("the command runs")
}

/// The report on a process or core.
fn report(stage: &Stage, arguments: &[&str]) -> String {
    let output = inspect(stage, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that a target is rejected, with status 1 and one line.
fn assert_rejected(output: &Output, why: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(why) && errors.lines().count() == 1, "not {why:?}: {errors}");
    assert!(output.stdout.is_empty());
}

/// Waits until all of the program's waits sleep, and returns the report.
fn asleep(stage: &Stage, program: &Program, waits: usize) -> String {
    let id = program.id().to_string();
    let count = |text: &str| text.matches("asleep until a release").count();
    until(|| report(stage, &[&id]), |text| count(text) == waits)
}

fn assert_deadlock(text: &str, threads: usize, place: &str) {
    assert!(text.contains(&format!("Deadlock of {threads} threads")), "{text}");
    assert_eq!(text.matches("    and waits for ").count(), threads, "{text}");
    assert_eq!(text.matches("part of the deadlock").count(), threads, "{text}");
    assert!(text.contains(place), "{text}");
}

#[test]
fn running_process_shows_its_deadlock_and_goes_on() {
    let stage = Stage::new();
    let Some(mut program) = run(&stage, &[], &["mutex", "2"]) else { return };
    let text = asleep(&stage, &program, 2);
    assert_deadlock(&text, 2, "in take_second (cycle.c:");
    assert!(text.contains("loiter+control") && text.contains("2 threads of 3 wait for 2 locks"));
    assert!(text.contains("Load control: 0 threads asleep for load"), "{text}");
    program.poke();
    program.finish();
}

#[test]
fn top_announces_waits_that_go_on() {
    let stage = Stage::new();
    let Some(program) = run(&stage, &[], &["mutex", "2"]) else { return };
    let id = program.id().to_string();
    let command = ["top", &id, "--once", "--interval", "0.1"];
    let top = || stage.unconvoy().args(command).output().expect("the command runs").stdout;
    let said = ["2 threads have waited for a lock", &format!("see `unconvoy inspect {id}`")];
    let text = || String::from_utf8(top()).expect("text");
    until(text, |text| said.iter().all(|part| text.contains(part)));
}

/// The main thread is then a zombie, through which `/proc` shows neither program nor mappings.
#[test]
fn process_without_its_main_thread_shows_its_deadlock() {
    let stage = Stage::new();
    let Some(program) = run(&stage, &[], &["mutex", "2", "leave"]) else { return };
    let status = || fs::read_to_string(format!("/proc/{}/status", program.id())).expect("it runs");
    until(status, |status| status.contains("State:\tZ"));
    assert_deadlock(&asleep(&stage, &program, 2), 2, "take_second");
}

#[test]
fn libcs_mutexes_show_their_deadlock_and_keep_waiting() {
    let stage = Stage::new();
    let Some(mut program) = run(&stage, &["--lock", "libc"], &["mutex", "3"]) else { return };
    let text = asleep(&stage, &program, 3);
    assert_deadlock(&text, 3, "in take_second (cycle.c:");
    // The threads were stopped for a moment, and wait again.
    let again = asleep(&stage, &program, 3);
    assert_deadlock(&again, 3, "in take_second (cycle.c:");
    program.poke();
    program.finish();
}

#[test]
fn stopped_process_shows_its_deadlock_and_stays_stopped() {
    let stage = Stage::new();
    for options in [&[][..], &["--lock", "libc"]] {
        let Some(mut program) = run(&stage, options, &["mutex", "2"]) else { return };
        asleep(&stage, &program, 2);
        let pid = Pid::from_raw(program.id().cast_signed());
        kill(pid, Signal::SIGSTOP).expect("ours");
        let status = || fs::read_to_string(format!("/proc/{pid}/status")).expect("it exists");
        until(status, |text| text.contains("T (stopped)"));
        assert_deadlock(&asleep(&stage, &program, 2), 2, "in take_second (cycle.c:");
        assert!(status().contains("T (stopped)"));
        kill(pid, Signal::SIGCONT).expect("ours");
        program.poke();
        program.finish();
    }
}

#[test]
fn process_in_a_debugger_shows_its_deadlock() {
    let stage = Stage::new();
    let Some(mut program) = run(&stage, &[], &["mutex", "2"]) else { return };
    asleep(&stage, &program, 2);
    let pid = program.id().to_string();
    let command = stage.process().get_program().to_owned();
    let shell = format!("shell {} inspect {pid} > traced.txt 2>&1", command.display());
    let mut gdb = Command::new("gdb");
    gdb.current_dir(stage.path("")).args(["-p", &pid, "-batch", "-nx", "-ex", &shell]);
    let output = gdb.output().expect("gdb (scripts/packages-test.txt)");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("ptrace: "), "{output:?}");
    assert_deadlock(&stage.read("traced.txt"), 2, "in take_second (cycle.c:");
    program.poke();
    program.finish();
}

#[test]
fn report_on_a_closed_standard_output_reaches_no_other_file() {
    let stage = Stage::new();
    let Some(mut program) = run(&stage, &[], &["mutex", "2"]) else { return };
    let command = stage.process().get_program().to_owned();
    let pid = program.id().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec >&-; exec \"$0\" inspect \"$1\""]).arg(command).arg(&pid);
    let output = shell.output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {errors}", output.status);
    program.poke();
    program.finish();
}

#[test]
fn holder_that_has_ended_is_said_to_have_ended() {
    let stage = Stage::new();
    for options in [&[][..], &["--lock", "libc"]] {
        let Some(mut program) = run(&stage, options, &["ended", "1"]) else { return };
        program.poke();
        let text = asleep(&stage, &program, 1);
        assert!(text.contains(", which has ended\n"), "{text}");
        assert!(text.contains(" ended and did not release it\n"), "{text}");
        assert!(!text.contains("runs now") && !text.contains("waits for no lock"), "{text}");
    }
}

#[test]
fn writer_that_has_not_named_itself_yet_has_not_ended() {
    let stage = Stage::new();
    let Some(mut program) = run(&stage, &[], &["unnamed", "1"]) else { return };
    program.poke();
    let id = program.id().to_string();
    let text = until(|| report(&stage, &[&id]), |text| text.contains("to write for"));
    assert!(text.contains("  held by a writer that has just acquired it"), "{text}");
    assert!(text.contains("no deadlock found: the holder is unknown"), "{text}");
    assert!(!text.contains("thread 0"), "{text}");
    program.finish();
}

#[test]
fn waiters_are_listed_in_order_of_arrival() {
    let stage = Stage::new();
    let Some(mut program) = run(&stage, &[], &["shared", "3"]) else { return };
    let mut text = String::new();
    for arrived in 1..=3 {
        program.poke();
        text = asleep(&stage, &program, arrived);
    }
    let places = (0..3).map(|index| {
        let line = format!("  {}. thread ", index + 1);
        let line = text.lines().find(|it| it.starts_with(&line)).expect("a waiter");
        assert!(line.contains(&format!("(worker-{index})")), "{text}");
        assert!(line.contains("in pass_shared (cycle.c:"), "{text}");
    });
    assert_eq!(places.count(), 3);
    assert!(text.contains("shared (mutex at") && text.contains("(cycle)"), "{text}");
    assert!(text.contains("no deadlock: thread"), "{text}");
    program.finish();
}

/// Dumps the program's core by gcore; `None` if that is not installed.
fn dump(stage: &Stage, program: &Program) -> Option<PathBuf> {
    let id = program.id().to_string();
    let mut gcore = Command::new("gcore");
    gcore.args(["-o", "core", &id]).current_dir(stage.path(""));
    match gcore.output() {
        Ok(output) if output.status.success() => Some(stage.path(&format!("core.{id}"))),
        Ok(output) => {
            println!("skipped: gcore: {}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(_) => {
            println!("missing: gcore not found (gdb in scripts/packages-test.txt)");
            None
        }
    }
}

fn name(path: &Path) -> &str {
    path.to_str().expect("an ASCII path")
}

#[test]
fn core_shows_the_deadlock() {
    let stage = Stage::new();
    for options in [&[][..], &["--lock", "libc"]] {
        let Some(program) = run(&stage, options, &["mutex", "2"]) else { return };
        asleep(&stage, &program, 2);
        let Some(core) = dump(&stage, &program) else { return };
        drop(program);
        let text = report(&stage, &[name(&core)]);
        assert_deadlock(&text, 2, "in take_second (cycle.c:");
        assert!(text.starts_with("Core ") && text.contains("cycle"), "{text}");
    }
}

#[test]
fn kernels_core_shows_the_deadlock() {
    let stage = Stage::new();
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        println!("skipped: the kernel writes cores to {}", pattern.trim());
        return;
    }
    let Some(library) = stage::library() else { return };
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", library).args(["run", "--"]);
    command.arg(program::compile(&stage)).args(["mutex", "2"]);
    // SAFETY: `setrlimit` may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
            // Without permission the limit stays, and no core appears.
            libc::setrlimit(libc::RLIMIT_CORE, &raw const all);
            Ok(())
        });
    }
    let program = Program::start(&mut command);
    asleep(&stage, &program, 2);
    let pid = program.id();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGABRT).expect("ours");
    program.wait();
    let found = ["core".to_string(), format!("core.{pid}")].map(|name| stage.path(&name));
    let Some(core) = found.iter().find(|path| path.is_file()) else {
        println!("skipped: the kernel wrote no core");
        return;
    };
    assert_deadlock(&report(&stage, &[name(core)]), 2, "in take_second (cycle.c:");
}

#[test]
fn moved_core_names_its_missing_files_and_finds_copies_by_build_id() {
    let stage = Stage::new();
    let Some(library) = stage::library() else { return };
    let there = stage.path("libunconvoy-there.so");
    fs::copy(&library, &there).expect("a copy");
    let compiled = program::compile(&stage);
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", &there).args(["run", "--"]).arg(&compiled);
    let program = Program::start(command.args(["mutex", "2"]));
    asleep(&stage, &program, 2);
    let Some(core) = dump(&stage, &program) else { return };
    drop(program);
    // Another machine: the core in a folder without the files, whose paths are gone.
    let (elsewhere, copies) = (stage.path("elsewhere"), stage.path("copies"));
    fs::create_dir(&elsewhere).and_then(|()| fs::create_dir(&copies)).expect("new folders");
    let moved = elsewhere.join("dump");
    fs::rename(&core, &moved).expect("the same file system");
    fs::rename(&there, copies.join("renamed.so")).expect("the same file system");
    fs::rename(&compiled, copies.join("old-program")).expect("the same file system");
    let text = report(&stage, &[name(&moved)]);
    assert!(text.contains("Deadlock") || text.contains("wait for 2 locks"), "{text}");
    for missing in [&there, &compiled] {
        assert!(text.contains(&format!("Missing: {}.", name(missing))), "{text}");
    }
    assert!(!text.contains("take_second") && text.contains("cycle+0x"), "{text}");
    let text = report(&stage, &["--files", name(&copies), name(&moved)]);
    assert!(!text.contains("Missing"), "{text}");
    assert_deadlock(&text, 2, "in take_second (cycle.c:");
    // A file of another build at the old path does not give wrong names.
    fs::copy("/bin/true", &compiled).expect("a copy");
    let text = report(&stage, &[name(&moved)]);
    assert!(text.contains(&format!("Another build: {}.", name(&compiled))), "{text}");
}

#[test]
fn truncated_core_is_reported_as_far_as_it_goes() {
    let stage = Stage::new();
    let Some(program) = run(&stage, &[], &["mutex", "2"]) else { return };
    asleep(&stage, &program, 2);
    let Some(core) = dump(&stage, &program) else { return };
    drop(program);
    let length = fs::metadata(&core).expect("a core").len();
    // From the start of the last bytes on, ever less is there.
    for (kept, part) in (0..20).rev().map(|part| (length * part / 20, part)) {
        fs::File::options().write(true).open(&core).and_then(|it| it.set_len(kept)).expect("cut");
        let output = inspect(&stage, &[name(&core)]);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => assert!(text.contains("The core is cut off"), "{part}/20: {text}"),
            Some(1) => assert_eq!(errors.lines().count(), 1, "{part}/20: {errors}"),
            _ => panic!("{part}/20: {}: {errors}", output.status),
        }
    }
}

#[test]
fn files_that_are_no_cores_are_rejected() {
    let stage = Stage::new();
    stage.write("text", "no core");
    assert_rejected(&inspect(&stage, &["text"]), "is no core dump");
    assert_rejected(&inspect(&stage, &["libunconvoy.so"]), "is no core dump");
    assert_rejected(&inspect(&stage, &["missing"]), "missing");
    assert_rejected(&inspect(&stage, &["."]), "");
}

#[test]
fn core_without_the_library_is_rejected() {
    let stage = Stage::new();
    let program = Program::start(Command::new(program::compile(&stage)).args(["mutex", "2"]));
    let Some(core) = dump(&stage, &program) else { return };
    assert_rejected(&inspect(&stage, &[name(&core)]), "no libunconvoy.so in core");
}

#[test]
fn process_without_the_library_is_rejected_and_goes_on() {
    let stage = Stage::new();
    let mut program = Program::start(Command::new(program::compile(&stage)).args(["mutex", "2"]));
    let output = inspect(&stage, &[&program.id().to_string()]);
    assert_rejected(&output, "no libunconvoy.so in process");
    program.poke();
    program.finish();
}

#[test]
fn process_without_its_main_thread_is_not_said_to_have_ended() {
    let stage = Stage::new();
    let mut command = Command::new(program::compile(&stage));
    let program = Program::start(command.args(["mutex", "2", "leave"]));
    let status = || fs::read_to_string(format!("/proc/{}/status", program.id())).expect("it runs");
    until(status, |status| status.contains("State:\tZ"));
    let id = program.id().to_string();
    assert_rejected(&inspect(&stage, &[&id]), "no libunconvoy.so in process");
}

#[test]
fn process_that_is_gone_is_rejected() {
    let stage = Stage::new();
    let mut child = Command::new("true").spawn().expect("true");
    child.wait().expect("it ends");
    assert_rejected(&inspect(&stage, &[&child.id().to_string()]), "no process");
}

/// Runs a command as another user, or returns `None` after a message.
fn as_nobody(mut command: Command) -> Option<Command> {
    if !nix::unistd::getuid().is_root() {
        println!("skipped: only root can start a process of another user");
        return None;
    }
    command.uid(NOBODY).gid(NOBODY);
    Some(command)
}

/// A copy of the command that other users may execute.
fn open_to_all(stage: &Stage) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(stage.path(""), fs::Permissions::from_mode(0o755)).expect("ours");
    stage.copy_of_command()
}

fn output_of(command: Command) -> Output {
    assert_cmd::Command::from_std(command).timeout(LIMIT).output().expect("the command runs")
}

#[test]
fn process_of_another_user_is_rejected_and_goes_on() {
    let stage = Stage::new();
    let Some(mut program) = run(&stage, &[], &["mutex", "2"]) else { return };
    let mut command = Command::new(open_to_all(&stage));
    command.args(["inspect", &program.id().to_string()]);
    let Some(command) = as_nobody(command) else { return };
    assert_rejected(&output_of(command), "no permission to look into process");
    program.poke();
    program.finish();
}

#[test]
fn process_that_is_not_dumpable_is_rejected_and_goes_on() {
    let stage = Stage::new();
    let Some(library) = stage::library() else { return };
    let own = stage.path("libunconvoy-copy.so");
    fs::copy(library, &own).expect("a copy");
    let inspector = open_to_all(&stage);
    let mut command = Command::new(program::compile(&stage));
    command.env("LD_PRELOAD", &own).args(["mutex", "2", "secret"]);
    let Some(mut command) = as_nobody(command) else { return };
    let mut program = Program::start(&mut command);
    let mut command = Command::new(inspector);
    command.args(["inspect", &program.id().to_string()]);
    let Some(command) = as_nobody(command) else { return };
    assert_rejected(&output_of(command), "no permission to look into process");
    program.poke();
    program.finish();
}

#[test]
fn library_of_another_version_is_rejected() {
    let stage = Stage::new();
    let Some(library) = stage::library() else { return };
    let mut bytes = fs::read(library).expect("the library");
    let magic = b"unconvoy inspect";
    let at = bytes.windows(magic.len()).position(|it| it == magic).expect("a descriptor");
    bytes[at + magic.len()] = 99;
    let other = stage.path("libunconvoy-other.so");
    fs::write(&other, bytes).expect("a copy");
    let mut command = Command::new(program::compile(&stage));
    let mut program = Program::start(command.env("LD_PRELOAD", &other).args(["mutex", "2"]));
    let output = inspect(&stage, &[&program.id().to_string()]);
    assert_rejected(&output, "another version: tables of version 99");
    program.poke();
    program.finish();
}
