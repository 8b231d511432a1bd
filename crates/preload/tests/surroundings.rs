//! Surroundings that take away what the library uses: files, `/proc`, devices, namespaces, time.
//! The program must count as ever, and the library may print one line for each thing it cannot do.

mod support;

use std::fs::{Permissions, copy, create_dir, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, prlimit};
use support::group::{Group, version_2_parent};
use support::{LIMIT, Running, compile, installed, library, plain, room, run};

/// The program of these tests contends for 1.5 s (`long-contention` in `c/behaviour.c`).
const COUNTED: &str = "started\nall counted\n";

/// A directory with the program and the library, which every user can read.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        compile(directory.path(), "behaviour.c", &[]);
        copy(library(), directory.path().join("libunconvoy.so")).expect("a copy");
        for name in ["", "behaviour", "libunconvoy.so"] {
            let path = directory.path().join(name);
            set_permissions(path, Permissions::from_mode(0o755)).expect("permissions");
        }
        Place(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program, started by a shell script that ends with `"$@"`.
    fn command(&self, script: &str) -> Command {
        let mut command = plain("sh");
        command.args(["-c", script, "sh", "env"]).current_dir(self.0.path());
        // The shell itself runs without the library.
        command.arg(format!("LD_PRELOAD={}", self.path("libunconvoy.so").display()));
        command
    }

    /// Runs the program, and returns the library's lines on standard error. `None` if the machine
    /// does not let the test make these surroundings.
    #[track_caller]
    fn run(&self, script: &str, settings: &[String]) -> Option<Vec<String>> {
        let mut trial = plain("sh");
        trial.args(["-c", script, "sh", "true"]).current_dir(self.0.path());
        let trial = room::output(&mut trial).expect("sh runs");
        if !trial.status.success() {
            println!("skipped: {script}: {}", String::from_utf8_lossy(&trial.stderr));
            return None;
        }
        let mut command = self.command(script);
        let finished =
            run(command.args(settings).arg(self.path("behaviour")).arg("long-contention"));
        let finished = finished.success(script);
        assert_eq!(finished.text(), COUNTED, "{script}\n{}", finished.stderr);
        let lines: Vec<String> = finished.stderr.lines().map(str::to_owned).collect();
        assert!(lines.iter().all(|line| line.starts_with("unconvoy: ")), "{lines:#?}");
        Some(lines)
    }

    /// As [`run`](Self::run), and asserts that the library prints at most one line.
    #[track_caller]
    fn counts_in(&self, script: &str) {
        if let Some(lines) = self.run(script, &[]) {
            assert!(lines.len() <= 1, "{lines:#?}");
        }
    }

    /// Starts the program with the library, and returns once its threads contend.
    #[track_caller]
    fn start(&self, settings: &[String]) -> Running {
        let mut command = self.command("exec \"$@\"");
        let mut running = Running::start(
            command.args(settings).arg(self.path("behaviour")).arg("long-contention"),
        );
        let deadline = Instant::now() + LIMIT;
        while !running.printed().contains("started") {
            assert!(Instant::now() < deadline, "the program does not start");
            sleep(Duration::from_millis(2));
        }
        running
    }
}

/// Settings with which the library writes three files into a directory.
fn outputs(directory: &Path) -> [String; 3] {
    [("STATS", "statistics"), ("PROFILE", "profile"), ("METRICS", "metrics.prom")]
        .map(|(name, file)| format!("UNCONVOY_{name}={}", directory.join(file).display()))
}

#[test]
fn program_without_proc_counts() {
    Place::new().counts_in("exec unshare -m sh -c 'umount -l /proc && exec \"$@\"' sh \"$@\"");
}

#[test]
fn program_with_hidden_processes_counts() {
    Place::new().counts_in(
        "exec unshare -m -p -f sh -c 'mount -t proc -o hidepid=2 proc /proc &&
         exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"' sh \"$@\"",
    );
}

#[test]
fn program_in_bare_root_directory_counts() {
    // A bind mount without the file systems below it: no /proc, /sys or /dev.
    Place::new().counts_in(
        "mkdir -p root && exec unshare -m sh -c 'mount --bind / root &&
         { [ -e \"root$PWD/behaviour\" ] || mount --bind \"$PWD\" \"root$PWD\"; } &&
         exec chroot root \"$@\"' sh \"$@\"",
    );
}

#[test]
fn program_in_other_namespaces_counts() {
    let place = Place::new();
    place.counts_in("exec unshare -U -r \"$@\"");
    // /proc still shows the outer process ids.
    place.counts_in("exec unshare -p -f \"$@\"");
    place.counts_in("exec unshare -T -f --monotonic 1000000 --boottime 1000000 \"$@\"");
}

#[test]
fn full_file_system_costs_one_line_per_file() {
    let place = Place::new();
    create_dir(place.path("full")).expect("a directory");
    let script = "exec unshare -m sh -c 'mount -t tmpfs -o size=4k none full &&
                  { cat /dev/zero >full/zeroes 2>/dev/null; exec \"$@\"; }' sh \"$@\"";
    if let Some(lines) = place.run(script, &outputs(&place.path("full"))) {
        assert!((1..=3).contains(&lines.len()), "{lines:#?}");
    }
}

#[test]
fn read_only_file_system_costs_one_line_per_file() {
    let place = Place::new();
    create_dir(place.path("fixed")).expect("a directory");
    let script = "exec unshare -m sh -c 'mount -t tmpfs -o ro none fixed && exec \"$@\"' sh \"$@\"";
    if let Some(lines) = place.run(script, &outputs(&place.path("fixed"))) {
        assert_eq!(lines.len(), 3, "{lines:#?}");
    }
}

#[test]
fn program_that_may_open_no_file_counts() {
    let place = Place::new();
    let running = place.start(&[]);
    let limit = Rlimit { current: Some(3), maximum: Some(3) };
    prlimit(Some(running.id()), Resource::Nofile, limit).expect("the child is ours");
    let finished = running.finish(LIMIT).success("without descriptors");
    assert_eq!(finished.text(), COUNTED);
    assert!(finished.stderr.lines().count() <= 1, "{}", finished.stderr);
}

#[test]
fn frozen_and_thawed_program_counts() {
    let group = match version_2_parent().and_then(|parent| Group::make(&parent)) {
        Ok(group) => group,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let place = Place::new();
    let running = place.start(&[]);
    group.add(running.id()).expect("the child is ours");
    for _ in 0..4 {
        for frozen in ["1", "0"] {
            group.write("cgroup.freeze", frozen);
            sleep(Duration::from_millis(120));
        }
    }
    assert_eq!(running.finish(LIMIT).success("frozen").text(), COUNTED);
}

#[test]
fn debugger_attaches_and_detaches() {
    let Some(debugger) = installed("gdb", "gdb") else { return };
    let place = Place::new();
    let running = place.start(&[]);
    let mut has_attached = false;
    for _ in 0..3 {
        let mut command = Command::new(&debugger);
        let process = running.id().as_raw_nonzero().to_string();
        command.args(["-nx", "-p", &process, "-batch", "-ex", "thread apply all bt"]);
        let output = room::output(&mut command).expect("gdb runs");
        has_attached |= String::from_utf8_lossy(&output.stdout).contains("#0");
        if !has_attached {
            println!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
            break;
        }
    }
    assert_eq!(running.finish(LIMIT).success("debugged").text(), COUNTED);
}

#[test]
fn program_killed_at_any_time_leaves_readable_profile() {
    let place = Place::new();
    let mut settings = outputs(place.0.path()).to_vec();
    for round in 0..20 {
        let running = place.start(&settings);
        sleep(Duration::from_micros(fastrand::u64(..100_000)));
        running.signal(Signal::KILL);
        let finished = running.finish(LIMIT);
        assert!(!finished.status.success(), "round {round}");
        let profile = std::fs::read(place.path("profile")).expect("a profile");
        let recorded = unconvoy_profile::Recorded::parse(&profile).expect("a valid profile");
        assert!(!recorded.has_ended, "round {round}");
        settings.rotate_left(1);
    }
}
