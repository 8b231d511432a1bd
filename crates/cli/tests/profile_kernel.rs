//! `unconvoy profile --kernel`: programs that wait for known locks of the kernel, and bad input.

mod stage;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stage::{LIMIT, Running, Stage};

const FILES: &str = include_str!("profile_kernel/files.c");
const MAPS: &str = include_str!("profile_kernel/maps.c");

/// Runs a command, with a line on its standard input.
fn output(command: &mut Command) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Running(command.spawn().expect("the command starts"));
    let _ = writeln!(child.0.stdin.take().expect("a pipe"));
    finish(child)
}

fn finish(mut child: Running) -> Output {
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            bytes
        })
    };
    let stdout = read(Box::new(child.0.stdout.take().expect("a pipe")));
    let stderr: Option<_> = child.0.stderr.take().map(|pipe| read(Box::new(pipe)));
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.0.try_wait().expect("a child") {
            let stdout = stdout.join().expect("text");
            let stderr = stderr.map(|it| it.join().expect("text")).unwrap_or_default();
            return Output { status, stdout, stderr };
        }
        assert!(Instant::now() < end, "the command does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Prints why a test is skipped, if this system lets nobody record.
fn is_skipped(said: &str) -> bool {
    let reasons = ["the kernel rejected", "no /sys/kernel/btf", "without clang", "no tracepoint"];
    let is_skipped = reasons.iter().any(|reason| said.contains(reason));
    if is_skipped {
        println!("skipped: {}", said.trim());
    }
    is_skipped
}

fn compiled(stage: &Stage, name: &str, source: &str) -> PathBuf {
    let source = stage.write(&format!("{name}.c"), source);
    stage.compile(name, &source, &["-O2", "-pthread"]).expect("a C compiler")
}

fn report(stage: &Stage) -> Value {
    serde_json::from_slice(&std::fs::read(stage.path("report.json")).expect("a report"))
        .expect("JSON")
}

fn names<'a>(report: &'a Value, list: &str, key: &str) -> Vec<&'a str> {
    let rows = report[list].as_array().expect("rows");
    rows.iter().filter_map(|row| row[key].as_str()).collect()
}

/// The lock of the directory, which may be behind a spin lock of the file system.
fn directory(report: &Value) -> Option<&Value> {
    report["classes"].as_array().expect("rows").iter().find(|class| class["kind"] == "rwsem")
}

/// Runs `files` under the command with more and more rounds, until its threads have waited often.
fn record_files(stage: &Stage, kind: &[&str]) -> Option<(Value, String)> {
    let program = compiled(stage, "files", FILES);
    for rounds in ["1000", "10000", "100000"] {
        let mut command = stage.process();
        command.args(["profile", "--kernel", "--json", "report.json", "-o", "kept.profile"]);
        let run = output(command.arg("--").arg(&program).args(kind).arg(rounds));
        let said = String::from_utf8_lossy(&run.stderr);
        if is_skipped(&said) {
            return None;
        }
        if !kind.is_empty() && run.status.code() == Some(128 + libc::SIGSEGV) {
            println!("skipped: this kernel serves no system calls of 32-bit programs");
            return None;
        }
        assert_eq!(run.status.code(), Some(0), "{said}");
        let report = report(stage);
        let text = String::from_utf8(run.stdout).expect("text");
        if directory(&report).and_then(|class| class["waits"].as_u64()) > Some(100) {
            return Some((report, text));
        }
    }
    println!("skipped: the program's threads hardly wait for each other on this machine");
    None
}

#[test]
fn waits_for_directory_have_their_lock_place_and_system_call() {
    let stage = Stage::new();
    let Some((report, text)) = record_files(&stage, &[]) else { return };
    let first = directory(&report).expect("its waits");
    assert!(first["name"].as_str().unwrap().starts_with("rwsem first waited for in "), "{first:#}");
    let places: Vec<_> =
        first["waiters"].as_array().unwrap().iter().filter_map(|it| it["place"].as_str()).collect();
    assert!(places.iter().any(|place| place.contains("unlink")), "{places:?}");
    let callers = names(&report, "callers", "place");
    assert!(callers.contains(&"unlink by files"), "{callers:?}");
    assert!(callers.contains(&"openat by files"), "{callers:?}");
    assert!(callers.iter().all(|caller| caller.ends_with(" by files")), "{callers:?}");
    // Eight threads cannot wait longer than they run.
    let waited = first["waited_ns"].as_f64().unwrap() * 1e-9;
    assert!(waited < 8.0 * report["seconds"].as_f64().unwrap(), "{first:#}");
    assert!(text.contains("the kernel's locks; "), "{text}");
    assert!(text.contains("  unlink by files"), "{text}");
    // The kept profile has the kernel's names itself.
    let mut command = stage.unconvoy();
    command.args(["profile", "--read", "kept.profile", "--by", "caller"]);
    let read = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(read.contains("  unlink by files") && !read.contains("\nlock\n"), "{read}");
}

#[test]
fn system_calls_of_32_bit_programs_have_their_own_names() {
    let stage = Stage::new();
    if record_files(&stage, &["32"]).is_none() {
        return;
    }
    let mut command = stage.unconvoy();
    command.args(["profile", "--read", "kept.profile", "--folded", "stacks"]).assert().code(0);
    let stacks = stage.read("stacks");
    let removals: Vec<_> = stacks.lines().filter(|it| it.contains(";do_unlinkat;")).collect();
    assert!(!removals.is_empty(), "{stacks}");
    assert!(removals.iter().all(|it| it.starts_with("files;unlink;")), "{removals:#?}");
}

#[test]
fn exported_stacks_go_from_task_to_lock() {
    let stage = Stage::new();
    if record_files(&stage, &[]).is_none() {
        return;
    }
    let mut command = stage.unconvoy();
    command.args(["profile", "--read", "kept.profile", "--folded", "stacks", "--pprof", "p.pb"]);
    command.args(["--html", "p.html", "--firefox", "p.json", "--csv", "p.csv"]);
    command.assert().code(0);
    let stacks = stage.read("stacks");
    let mut stacks = stacks.lines().filter(|line| line.starts_with("files;unlink;"));
    let stack = stacks.find(|it| it.contains(";rwsem first waited for in ")).expect("a stack");
    assert!(stack.contains("unlink") && !stack.contains("bpf_"), "{stack}");
}

#[test]
fn waits_for_memory_of_child_process_are_named_and_status_is_kept() {
    let stage = Stage::new();
    let program = compiled(&stage, "maps", MAPS);
    for rounds in ["2000", "20000"] {
        let mut command = stage.process();
        command.args(["profile", "--kernel", "--json", "report.json", "--period", "0.1", "--"]);
        let run = output(command.arg(&program).arg(rounds));
        let said = String::from_utf8_lossy(&run.stderr);
        if is_skipped(&said) {
            return;
        }
        assert_eq!(run.status.code(), Some(3), "{said}");
        let report = report(&stage);
        let classes = report["classes"].as_array().unwrap();
        let found = classes.iter().find(|row| row["name"] == "mm_struct::mmap_lock");
        let Some(found) = found.filter(|row| row["waits"].as_u64() > Some(100)) else { continue };
        assert_eq!(found["kind"], "rwsem");
        let callers = names(&report, "callers", "place");
        let is_of_maps = |call: &str| callers.contains(&format!("{call} by maps").as_str());
        assert!(is_of_maps("mmap") && is_of_maps("munmap"), "{callers:?}");
        return;
    }
    println!("skipped: the program's threads hardly wait for each other on this machine");
}

#[test]
fn running_process_and_machine_are_recorded_for_some_seconds() {
    let stage = Stage::new();
    let program = compiled(&stage, "files", FILES);
    let mut files = Command::new(&program);
    files.arg("100000000").current_dir(stage.path(".")).stdin(Stdio::piped());
    let mut files = Running(files.spawn().expect("the program starts"));
    writeln!(files.0.stdin.take().expect("a pipe")).expect("the program reads");
    let pid = files.0.id().to_string();
    for whose in [&["--pid", &pid][..], &[]] {
        let mut command = stage.process();
        command.args(["profile", "--kernel", "--seconds", "2", "--json", "report.json"]);
        let run = output(command.args(whose));
        let said = String::from_utf8_lossy(&run.stderr);
        if is_skipped(&said) {
            return;
        }
        assert_eq!(run.status.code(), Some(0), "{said}");
        assert!(said.contains("for 2 s; Ctrl-C ends the recording"), "{said}");
        let report = report(&stage);
        let callers = names(&report, "callers", "place");
        assert!(callers.contains(&"unlink by files"), "{callers:?}");
        let is_alone = callers.iter().all(|caller| caller.ends_with(" by files"));
        assert!(is_alone || whose.is_empty(), "{callers:?}");
        assert_eq!(report["pid"].as_u64().unwrap() == 0, whose.is_empty());
    }
}

#[test]
fn interrupt_reports_profile_so_far() {
    let stage = Stage::new();
    let mut command = stage.process();
    command.args(["profile", "--kernel", "--seconds", "1000"]).stdout(Stdio::piped());
    let mut command = Running(command.stderr(Stdio::piped()).spawn().expect("the command starts"));
    let mut said = String::new();
    let mut stderr = BufReader::new(command.0.stderr.take().expect("a pipe"));
    stderr.read_line(&mut said).expect("a message");
    if is_skipped(&said) {
        return;
    }
    assert!(said.contains("recording the kernel's locks"), "{said}");
    let id = command.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
    let run = finish(command);
    assert_eq!(run.status.code(), Some(130));
    assert!(run.stdout.starts_with(b"this machine: "), "{:?}", run.stdout);
}

fn refused(output: &Output, status: i32, message: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(message), "{said}");
}

#[test]
fn wrong_options_and_missing_program_are_refused() {
    let stage = Stage::new();
    let profile =
        |arguments: &[&str]| output(stage.process().args(["profile", "--kernel"]).args(arguments));
    refused(&profile(&["--read", "x"]), 2, "cannot be used with");
    refused(&profile(&["--lock", "mcs"]), 2, "cannot be used with");
    refused(&profile(&["--seconds", "1", "--", "ls"]), 2, "cannot be used with");
    refused(&profile(&["--pid", "4194304"]), 1, "no process 4194304");
    let missing = profile(&["--", "/no/such/program"]);
    if !is_skipped(&String::from_utf8_lossy(&missing.stderr)) {
        refused(&missing, 127, "/no/such/program");
    }
}

#[test]
fn missing_privilege_or_type_information_is_named_with_remedy() {
    let stage = Stage::new();
    // SAFETY: the call has no arguments and changes nothing.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can become another user");
        return;
    }
    let copy = stage.copy_of_command();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(stage.path("."), open).unwrap();
    let arguments = ["profile", "--kernel", "--seconds", "0.1"];
    let nobody = output(Command::new(&copy).args(arguments).uid(65534));
    refused(&nobody, 1, "use root, or CAP_BPF and CAP_PERFMON");
    let script = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let mut hidden = Command::new("unshare");
    let hidden =
        output(hidden.args(["--mount", "sh", "-c", script, "sh"]).arg(&copy).args(arguments));
    if hidden.stderr.starts_with(b"unconvoy:") {
        refused(&hidden, 1, "use a kernel with CONFIG_DEBUG_INFO_BTF");
    } else {
        println!("skipped: {}", String::from_utf8_lossy(&hidden.stderr).trim());
    }
}
