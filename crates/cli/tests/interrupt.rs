//! Ctrl-C ends the children, keeps the finished runs and sets the exit status.

mod stage;

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use stage::Stage;

/// A program whose first two runs are quick, and whose third run waits.
const PROGRAM: &str = "#!/bin/sh\necho >> count\nif [ $(wc -l < count) -gt 2 ]; then\n  \
                       sleep 3000 & echo $! > child.new; mv child.new child; wait\nfi\n";

/// Sends `signal` during the third run, and returns the exit status and all output.
fn interrupted(
    stage: &Stage,
    signal: Signal,
    program: &str,
    options: &[&str],
) -> (Option<i32>, String) {
    stage.script("program", program);
    let mut process = stage.process();
    process.args(["compare", "--runs", "3"]).args(options).args(["--", "./program"]);
    let child = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + stage::LIMIT;
    while !stage.path("child").exists() {
        assert!(Instant::now() < deadline, "the third run did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(Instant::now() < deadline, "the command did not end in time");
    let both = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(both).unwrap())
}

#[test]
fn signal_saves_and_prints_finished_runs() {
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGQUIT, 131)]
    {
        let stage = Stage::new();
        let (code, text) = interrupted(&stage, signal, PROGRAM, &[]);
        assert_eq!(code, Some(status), "{text}");
        assert!(text.contains("saved the 2 finished runs") && text.contains("wall time"), "{text}");
        let record: Value =
            serde_json::from_str(&stage.read("unconvoy-compare-partial.json")).unwrap();
        assert_eq!(record["runs"].as_array().unwrap().len(), 2);
        assert!(stage::has_ended(&stage.read("child")));
    }
}

/// `nohup` ignores SIGHUP, and a shell ignores SIGINT in a script's background jobs.
#[test]
fn ignored_signal_does_not_end_comparison() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\nkill -HUP $PPID\n");
    for (disposition, status) in [("ignore", 0), ("default", 129)] {
        let script = format!(
            "exec env --{disposition}-signal=HUP \"$0\" compare --runs 3 --quiet -- ./program"
        );
        let command = stage.process();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).arg(command.get_program()).current_dir(stage.path("."));
        shell.env("UNCONVOY_LIBRARY", stage.library());
        let output = shell.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{disposition} {text}");
    }
}

#[test]
fn signal_writes_requested_files() {
    let stage = Stage::new();
    let options = ["--json", "o.json", "--csv", "o.csv", "--plot", "figure"];
    let (code, text) = interrupted(&stage, Signal::SIGINT, PROGRAM, &options);
    assert_eq!(code, Some(130), "{text}");
    assert_eq!(stage.read("o.csv").lines().count(), 3);
    assert!(stage.read("o.json").contains("\"complete\": false"));
    assert!(stage.read("figure.svg").contains("INCOMPLETE"));
    assert!(!stage.path("unconvoy-compare-partial.json").exists());
}

#[test]
fn program_that_ignores_signal_is_killed() {
    let stage = Stage::new();
    let stubborn = PROGRAM.replacen("\n", "\ntrap '' INT TERM\n", 1);
    let (code, text) = interrupted(&stage, Signal::SIGINT, &stubborn, &[]);
    assert_eq!(code, Some(130), "{text}");
    assert!(stage::has_ended(&stage.read("child")));
}

/// Starts `unconvoy profile` of a program that handles SIGTERM by `handler`, and sends SIGTERM as
/// soon as the handler is set.
fn profile_terminated(stage: &Stage, handler: &str) -> std::process::Child {
    let program = "trap 'HANDLER' TERM\necho > ready\nwhile :; do sleep 0.05; done\n";
    stage.script("program", &format!("#!/bin/sh\n{}", program.replace("HANDLER", handler)));
    let mut process = stage.process();
    process.args(["profile", "--", "./program"]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = process.spawn().unwrap();
    wait_for(stage, "ready");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    child
}

#[track_caller]
fn wait_for(stage: &Stage, file: &str) {
    let deadline = Instant::now() + stage::LIMIT;
    while !stage.path(file).exists() {
        assert!(Instant::now() < deadline, "no {file}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn profiled_program_may_take_its_time_to_end() {
    let stage = Stage::new();
    let mut child = profile_terminated(&stage, "sleep 4; echo > ended; exit 0");
    child.wait().unwrap();
    assert!(stage.path("ended").exists());
}

/// A terminal sends the program its own SIGINT.
#[test]
fn terminal_interrupts_profiled_program_once() {
    let stage = Stage::new();
    let program = "trap 'echo >> interrupts' INT\necho > ready\n\
                   while [ ! -e go ]; do sleep 0.05; done\n";
    stage.script("program", &format!("#!/bin/sh\n{program}"));
    let unconvoy = stage.process();
    let mut script = std::process::Command::new("script");
    script.args(["-qec", "exec \"$COMMAND\" profile -- ./program", "/dev/null"]);
    script.current_dir(stage.path(".")).env("SHELL", "/bin/sh");
    script.env("COMMAND", unconvoy.get_program()).env("UNCONVOY_LIBRARY", stage.library());
    script.stdin(Stdio::piped()).stdout(Stdio::null());
    let Ok(mut script) = script.spawn() else {
        println!("missing: script not found (apt-get install bsdutils)");
        return;
    };
    wait_for(&stage, "ready");
    script.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    wait_for(&stage, "interrupts");
    // Time in which a second signal would come.
    std::thread::sleep(Duration::from_secs(1));
    stage.write("go", "");
    script.wait().unwrap();
    assert_eq!(stage.read("interrupts"), "\n");
}

/// Ctrl-Z stops the command, but not the program, whose process group is its own.
#[test]
fn run_that_ended_while_the_command_was_stopped_is_repeated() {
    let stage = Stage::new();
    let program = "echo $$ >> ids\necho > ready\nwhile [ ! -e go ]; do sleep 0.05; done\n";
    stage.script("program", &format!("#!/bin/sh\n{program}"));
    let mut process = stage.process();
    process.args(["compare", "--locks", "libc", "--runs", "1"]);
    process.args(["--", "./program"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = process.spawn().unwrap();
    let id = Pid::from_raw(child.id().cast_signed());
    wait_for(&stage, "ready");
    kill(id, Signal::SIGSTOP).unwrap();
    stage.write("go", "");
    let stat = format!("/proc/{}/stat", stage.read("ids").trim());
    let deadline = Instant::now() + stage::LIMIT;
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        assert!(Instant::now() < deadline, "the program does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(id, Signal::SIGCONT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(stage.read("ids").lines().count(), 2);
}

/// Reading the terminal stops a program that is not in the foreground.
#[test]
fn program_that_asks_the_terminal_fails() {
    let stage = Stage::new();
    stage.script("program", "#!/bin/sh\nread answer < /dev/tty\n");
    let unconvoy = stage.process();
    let mut script = std::process::Command::new("script");
    let line = "exec \"$COMMAND\" compare --timeout 60 -- ./program > said 2>&1";
    script.args(["-qec", line, "/dev/null"]);
    script.current_dir(stage.path(".")).env("SHELL", "/bin/sh");
    script.env("COMMAND", unconvoy.get_program()).env("UNCONVOY_LIBRARY", stage.library());
    script.stdin(Stdio::piped()).stdout(Stdio::null());
    let Ok(mut script) = script.spawn() else {
        println!("missing: script not found (apt-get install bsdutils)");
        return;
    };
    let keyboard = script.stdin.take();
    assert_eq!(script.wait().unwrap().code(), Some(1));
    drop(keyboard);
    let said = stage.read("said");
    assert!(said.contains("round 1: uses the terminal"), "{said}");
}

#[test]
fn second_signal_kills_profiled_program() {
    let stage = Stage::new();
    let mut child = profile_terminated(&stage, "echo $$ > id.new; mv id.new id");
    wait_for(&stage, "id");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    child.wait().unwrap();
    assert!(stage::has_ended(&stage.read("id")));
}
