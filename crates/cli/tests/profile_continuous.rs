//! `unconvoy profile --continuous`: the profiles of all intervals add up to the whole.

mod stage;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use prost::Message;
use stage::{LIMIT, Running, Stage, library};

const ROUNDS: &str = include_str!("profile_continuous/rounds.c");

/// The parts of pprof's `profile.proto` that the tests read.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

impl Profile {
    fn delay(&self) -> i64 {
        self.sample.iter().map(|sample| sample.value[1]).sum()
    }

    /// The labels of all samples.
    fn labels(&self) -> BTreeSet<(&str, &str)> {
        let text = |index: i64| &*self.string_table[index as usize];
        let labels = self.sample.iter().flat_map(|sample| &sample.label);
        labels.map(|label| (text(label.key), text(label.str))).collect()
    }
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().expect("the command starts"))
    }

    fn finish(mut self) -> Output {
        let end = Instant::now() + LIMIT;
        while self.0.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < end, "the command does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = self.0.wait().expect("a child");
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.0.stdout.take().expect("a pipe").read_to_end(&mut stdout).expect("text");
        self.0.stderr.take().expect("a pipe").read_to_end(&mut stderr).expect("text");
        Output { status, stdout, stderr }
    }
}

fn program(stage: &Stage) -> PathBuf {
    let source = stage.write("rounds.c", ROUNDS);
    let flags = ["-g", "-O1", "-pthread", "-Wl,--build-id=0x5eed0001"];
    stage.compile("rounds", &source, &flags).expect("a C compiler")
}

/// The command with one profile per second.
fn continuous(stage: &Stage, library: &Path, more: &[&str]) -> Command {
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", library);
    command.args(["profile", "--continuous", "1s", "--to", "parts", "--json", "whole.json"]);
    command.args(more).arg("--").arg(program(stage));
    command
}

/// The profiles by file name, so in the order of their times.
fn parts(stage: &Stage) -> Vec<(String, Profile)> {
    let entries = std::fs::read_dir(stage.path("parts")).expect("a directory").flatten();
    let mut parts: Vec<_> = entries
        .map(|entry| {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(entry.path()).expect("a file");
            GzDecoder::new(file).read_to_end(&mut bytes).expect("compressed");
            let profile = Profile::decode(&*bytes).expect("a profile");
            (entry.file_name().into_string().expect("text"), profile)
        })
        .collect();
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts
}

/// Checks that the parts add up to the whole report's time waited for locks.
fn assert_complete(stage: &Stage, parts: &[(String, Profile)]) {
    let whole: serde_json::Value = serde_json::from_str(&stage.read("whole.json")).expect("JSON");
    let rows = whole["locks"].as_array().expect("rows").iter();
    let waited = rows.filter(|row| row["kind"] != "cond").map(|row| row["waited_ns"].as_i64());
    let waited: i64 = waited.map(|ns| ns.expect("a number")).sum();
    let delays: i64 = parts.iter().map(|(_, part)| part.delay()).sum();
    let samples: usize = parts.iter().map(|(_, part)| part.sample.len()).sum();
    // Each sample's time is rounded down to a nanosecond.
    assert!((0..=samples as i64).contains(&(waited - delays)), "{delays} of {waited}");
    assert!(waited > 0);
}

#[test]
fn parts_add_up_to_whole_and_have_labels() {
    let Some(library) = library() else { return };
    let stage = Stage::new();
    let run = continuous(&stage, &library, &["--service", "shop"]).arg("5").output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let parts = parts(&stage);
    assert!(parts.len() >= 3, "{:?}", parts.iter().map(|part| &part.0).collect::<Vec<_>>());
    assert_complete(&stage, &parts);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for (name, part) in &parts {
        assert!(name.starts_with("shop."), "{name}");
        let labels = part.labels();
        let expected = [
            ("service", "shop"),
            ("host", host.trim()),
            ("build", "5eed0001"),
            ("lock", "turn_lock"),
        ];
        assert!(expected.iter().all(|label| labels.contains(label)), "{labels:?}");
    }
    // The intervals follow each other.
    for pair in parts.windows(2) {
        let (first, second) = (&pair[0].1, &pair[1].1);
        assert_eq!(first.time_nanos + first.duration_nanos, second.time_nanos);
    }
}

#[test]
fn interrupt_writes_last_interval() {
    let Some(library) = library() else { return };
    let stage = Stage::new();
    let command = Running::start(continuous(&stage, &library, &[]).arg("10000"));
    let end = Instant::now() + LIMIT;
    let folder = stage.path("parts");
    let count = || std::fs::read_dir(&folder).map_or(0, |entries| entries.flatten().count());
    while count() == 0 {
        assert!(Instant::now() < end, "no profile of the first interval");
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = command.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
    let run = command.finish();
    assert_eq!(run.status.code(), Some(130), "{run:?}");
    let parts = parts(&stage);
    assert!(parts.len() >= 2);
    assert_complete(&stage, &parts);
}

#[test]
fn oldest_profiles_are_removed_beyond_the_bound() {
    let Some(library) = library() else { return };
    let stage = Stage::new();
    let run = continuous(&stage, &library, &["--keep", "2"]).arg("6").output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let parts = parts(&stage);
    assert_eq!(parts.len(), 2);
    let begins = parts.iter().map(|(_, part)| part.time_nanos).collect::<Vec<_>>();
    let whole: serde_json::Value = serde_json::from_str(&stage.read("whole.json")).expect("JSON");
    let begin = whole["begin_unix_ns"].as_i64().expect("a number");
    // The first interval is not among them.
    assert!(begins.iter().all(|at| *at >= begin + 1_000_000_000), "{begins:?} from {begin}");
}

#[test]
fn child_processes_have_profiles_of_their_own() {
    let Some(library) = library() else { return };
    let stage = Stage::new();
    let run = continuous(&stage, &library, &[]).args(["3", "2"]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let parts = parts(&stage);
    let processes: BTreeSet<&str> =
        parts.iter().filter_map(|(name, _)| name.split('.').nth(1)).collect();
    assert_eq!(processes.len(), 2, "{processes:?}");
    for process in processes {
        let own = parts.iter().filter(|(name, _)| name.split('.').nth(1) == Some(process));
        let delay: i64 = own.map(|(_, part)| part.delay()).sum();
        // Two threads in turns: one of them nearly always waits.
        assert!(delay > 1_000_000_000, "{process}: {delay}");
    }
}

#[test]
fn report_covers_child_that_ended_before() {
    let Some(library) = library() else { return };
    let stage = Stage::new();
    // The child ends some intervals before its parent, which waits for no lock.
    let script = "\"$0\" 2 1; sleep 2.5";
    let run = |more: &[&str]| {
        let mut command = stage.process();
        command.env("UNCONVOY_LIBRARY", &library);
        command.args(["profile", "--continuous", "1s", "--to", "parts", "--json", "whole.json"]);
        let command = command.args(more).args(["--", "sh", "-c", script]).arg(program(&stage));
        let run = command.output().unwrap();
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        let whole: serde_json::Value = serde_json::from_str(&stage.read("whole.json")).unwrap();
        assert_eq!(whole["locks"][0]["name"], "turn_lock", "{whole:#}");
    };
    run(&[]);
    run(&["-o", "kept"]);
    let files = std::fs::read_dir(stage.path("")).unwrap().flatten();
    let kept = files.filter(|it| it.file_name().to_string_lossy().starts_with("kept."));
    assert!(kept.count() >= 1, "the child's profile");
}

#[test]
fn killed_program_has_its_whole_run_time() {
    let Some(library) = library() else { return };
    let stage = Stage::new();
    let source = "#include <signal.h>\n#include <unistd.h>\n\
                  int main() { sleep(3); raise(SIGKILL); }";
    let killed = stage.write("killed.c", source);
    let killed = stage.compile("killed", &killed, &[]).expect("a C compiler");
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", library);
    command.args(["profile", "--json", "killed.json", "-o", "kept", "--"]).arg(killed);
    let run = command.output().unwrap();
    assert_eq!(run.status.code(), Some(137), "{run:?}");
    let check = || {
        let report: serde_json::Value = serde_json::from_str(&stage.read("killed.json")).unwrap();
        let seconds = report["seconds"].as_f64().unwrap();
        assert!((2.9..30.0).contains(&seconds), "{report:#}");
        let remarks = report["remarks"].to_string();
        assert!(remarks.contains("ended by a signal") && !remarks.contains("still running"));
    };
    check();
    let mut command = stage.process();
    command.args(["profile", "--json", "killed.json", "--read", "kept"]);
    assert!(command.output().unwrap().status.success());
    check();
}

#[test]
fn full_disk_costs_one_line_and_program_is_undisturbed() {
    let Some(library) = library() else { return };
    let stage = Stage::new();
    let command = continuous(&stage, &library, &["--text", "report.txt"]);
    let script = "mkdir parts && mount -t tmpfs -o size=16k none parts && \
                  head -c 20000 /dev/zero > parts/full 2>/dev/null; exec \"$@\" 3";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script, "sh"]).arg(command.get_program());
    unshare.args(command.get_args()).current_dir(stage.path("."));
    let run = unshare.env("UNCONVOY_LIBRARY", &library).output().expect("unshare is installed");
    let said = String::from_utf8_lossy(&run.stderr);
    if said.contains("unshare") || said.contains("mount") {
        println!("skipped: {}", said.trim());
        return;
    }
    assert_eq!((run.status.code(), &*run.stdout), (Some(0), &b"done\n"[..]), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("cannot be written: No space left on device"), "{said}");
}

#[test]
fn wrong_options_are_refused() {
    let stage = Stage::new();
    stage.write("file", "");
    let refused = |arguments: &[&str], message: &str| {
        let run = stage.process().arg("profile").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains(message), "{said}");
    };
    refused(&["--continuous", "60s", "--", "true"], "--to");
    refused(&["--to", "x", "--", "true"], "--continuous");
    refused(&["--continuous", "0s", "--to", "x", "--", "true"], "such as 60s or 5m");
    refused(&["--continuous", "1s", "--to", "x", "--keep", "0", "--", "true"], "such as 500M");
    refused(&["--continuous", "1s", "--to", "file", "--", "true"], "--to file: ");
    refused(&["--continuous", "1s", "--to", "x", "--pid", "1"], "cannot be used with");
}
