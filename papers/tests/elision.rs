//! Compares Syncchar's predictions with hardware: a program's gain at two threads under `elided`,
//! over the default lock, and under glibc's elision, over glibc's lock. Intel RTM; on the binaries
//! that the prediction analysed. `make validate-elision` runs it in full.
//!
//! Without hardware transactions there is nothing to compare. Programs, prediction and comparison
//! still run for a moment, with elision off in both runs of a comparison.

#[path = "elision/judge.rs"]
mod judge;
#[path = "../../crates/cli/tests/stage/mod.rs"]
mod stage;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use judge::{Case, Gains, Verdict, judge};
use serde_json::Value;
use stage::Stage;
use unconvoy::catalogue::{Availability, availability};

/// A larger mean error is a defect.
const MEAN_ERROR: f64 = 0.15;
const REPEATS: usize = 5;

/// How to run a program and read its throughput.
enum Kind {
    /// A workload program with these arguments, which prints its operations per second.
    Workload(&'static str, &'static [&'static str]),
    /// A server of two threads, driven by the load generator.
    Memcached,
}

/// The three programs of the Syncchar report, a table under one lock at four rates of conflict, and
/// two real programs.
const SUBJECTS: [(&str, Kind); 9] = [
    ("Prob", Kind::Workload("optimistic", &["--program", "prob"])),
    ("RW", Kind::Workload("optimistic", &["--program", "rw"])),
    ("RB-Tree", Kind::Workload("optimistic", &["--program", "rb-tree"])),
    ("table of 1", Kind::Workload("optimistic", &["--program", "table", "--keys", "1"])),
    ("table of 2", Kind::Workload("optimistic", &["--program", "table", "--keys", "2"])),
    ("table of 8", Kind::Workload("optimistic", &["--program", "table", "--keys", "8"])),
    ("table of 1024", Kind::Workload("optimistic", &["--program", "table", "--keys", "1024"])),
    ("LevelDB", Kind::Workload("leveldb_bench", &["--workload", "readrandom", "--num", "20000"])),
    ("memcached", Kind::Memcached),
];

/// Builds the workload programs with the Makefile that users call.
fn workloads(names: &[&str]) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("elision");
    let targets = names.iter().map(|name| out.join(name));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads");
    let mut make = Process::new("make");
    make.arg("--silent").arg("-C").arg(folder).arg(format!("OUT={}", out.display())).args(targets);
    assert!(make.status().expect("make runs (apt-get install make gcc)").success());
    out
}

/// A build product beside this test's.
fn beside(part: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_unconvoy-study")).with_file_name(part)
}

fn is_skipped() -> bool {
    for part in ["unconvoy", "libunconvoy.so", "libunconvoy_plugin_user.so"] {
        if !beside(part).is_file() {
            println!("missing: {part} is not built (cargo build --workspace)");
            return true;
        }
    }
    if Process::new("qemu-x86_64").arg("-version").stdout(Stdio::null()).status().is_err() {
        println!("missing: there is no qemu-x86_64 (scripts/packages-syncchar.txt)");
        return true;
    }
    false
}

fn has(program: &str) -> bool {
    Process::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// What serves a program's locks.
#[derive(Clone, Copy)]
enum Served {
    Default,
    Elided,
    Glibc,
    GlibcElides,
}

impl Served {
    fn serve(self, command: &mut Process) -> &mut Process {
        let library = beside("libunconvoy.so");
        match self {
            Served::Default => command.env("LD_PRELOAD", library),
            Served::Elided => command.env("LD_PRELOAD", library).env("UNCONVOY_LOCK", "elided"),
            Served::Glibc => command,
            Served::GlibcElides => command.env("GLIBC_TUNABLES", "glibc.elision.enable=1"),
        }
    }
}

/// The set-up of a validation.
struct Validation {
    stage: Stage,
    built: PathBuf,
    /// Length of each measurement, and of the native and the emulated run of a prediction.
    seconds: String,
    elides: bool,
}

impl Validation {
    /// Predicts the program's speed-up at two processors, by cache line, since hardware detects
    /// conflicts by line: ideally, and on this machine if transactions commit here.
    fn predicted(&self, kind: &Kind) -> (f64, Option<f64>) {
        let mut command = Process::new(beside("unconvoy"));
        command.current_dir(self.stage.path(".")).env_remove("UNCONVOY_LIBRARY");
        command.args([
            "syncchar",
            "--processors",
            "2",
            "--json",
            "report.json",
            "--timeout",
            "100",
            "--",
        ]);
        command.stdout(Stdio::null());
        match kind {
            Kind::Workload(name, arguments) => {
                command.arg(self.built.join(name)).args(*arguments).args([
                    "--threads",
                    "2",
                    "--seconds",
                    &self.seconds,
                ]);
                assert!(command.status().unwrap().success());
            }
            Kind::Memcached => {
                command.args(self.memcached());
                let mut child = command.spawn().unwrap();
                // The server runs once natively and once emulated.
                for _ in 0..2 {
                    self.rate_of_memcached();
                }
                assert!(ended(&mut child), "the analysis of memcached does not end");
            }
        }
        let report: Value = serde_json::from_str(&self.stage.read("report.json")).unwrap();
        let projection = &report["projections"][0];
        let ideal = projection["program_by_line"].as_f64();
        let ideal = ideal.unwrap_or_else(|| panic!("no projection: {:?}", report["remarks"]));
        (ideal, projection["elided"].as_f64())
    }

    /// Operations per second.
    fn throughput(&self, kind: &Kind, served: Served) -> f64 {
        match kind {
            Kind::Workload(name, arguments) => {
                let mut command = Process::new(self.built.join(name));
                command.args(*arguments).args(["--threads", "2", "--seconds", &self.seconds]);
                let output = served.serve(&mut command).output().unwrap();
                assert!(output.status.success(), "{output:?}");
                value(&String::from_utf8_lossy(&output.stdout), "ops_per_sec ")
            }
            Kind::Memcached => {
                let arguments = self.memcached();
                let mut server = Process::new(&arguments[0]);
                let mut server = served.serve(server.args(&arguments[1..])).spawn().unwrap();
                let rate = self.rate_of_memcached();
                assert!(ended(&mut server), "memcached does not end");
                rate
            }
        }
    }

    fn socket(&self) -> PathBuf {
        self.stage.path("socket")
    }

    fn memcached(&self) -> Vec<String> {
        let socket = self.socket().display().to_string();
        ["memcached", "-A", "-u", "root", "-t", "2", "-m", "64", "-s", &socket]
            .map(String::from)
            .to_vec()
    }

    /// Waits for the server, drives it, and shuts it down.
    fn rate_of_memcached(&self) -> f64 {
        let socket = self.socket();
        await_that("memcached does not start", || UnixStream::connect(&socket).is_ok());
        let mut client = Process::new(self.built.join("kv_load"));
        client.args([
            "--protocol",
            "memcached",
            "--connections",
            "16",
            "--depth",
            "16",
            "--seconds",
            &self.seconds,
        ]);
        let output = client.arg("--socket").arg(&socket).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut control = UnixStream::connect(&socket).unwrap();
        control.write_all(b"shutdown\r\n").unwrap();
        let _ = control.read(&mut [0; 64]);
        await_that("memcached does not shut down", || UnixStream::connect(&socket).is_err());
        value(&String::from_utf8_lossy(&output.stdout), "rate ")
    }

    /// Predicts and measures. If elision is off in both runs, the gains are noise.
    fn case(&self, name: &'static str, kind: &Kind, repeats: usize) -> Case {
        let (ideal, here) = self.predicted(kind);
        let rate = |served| self.throughput(kind, served);
        let (mut measured, mut glibc) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            let (elided, elides) = match self.elides {
                true => (Served::Elided, Served::GlibcElides),
                false => (Served::Default, Served::Glibc),
            };
            let without = rate(Served::Default);
            measured.push(rate(elided) / without);
            let without = rate(Served::Glibc);
            glibc.push(rate(elides) / without);
        }
        let predicted = here.unwrap_or(ideal);
        Case { name, ideal, predicted, measured: Gains(measured), glibc: Gains(glibc) }
    }
}

fn value(text: &str, name: &str) -> f64 {
    let rest = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_else(|| panic!("no {name}: {text}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

fn await_that(otherwise: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(600), "{otherwise}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ended(child: &mut Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(600) {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    false
}

fn validate(seconds: &str, repeats: usize, elides: bool, wanted: impl Fn(&str) -> bool) -> Verdict {
    let has_memcached = has("memcached");
    let chosen = || {
        SUBJECTS.iter().filter(|(name, kind)| {
            let missing = matches!(kind, Kind::Memcached) && !has_memcached;
            if missing {
                println!("skipped: memcached is not installed");
            }
            wanted(name) && !missing
        })
    };
    let names = chosen().map(|(_, kind)| match kind {
        Kind::Workload(name, _) => *name,
        Kind::Memcached => "kv_load",
    });
    let built = workloads(&names.collect::<Vec<_>>());
    let validation = Validation { stage: Stage::new(), built, seconds: seconds.into(), elides };
    judge(chosen().map(|(name, kind)| validation.case(name, kind, repeats)).collect())
}

/// Takes minutes; runs only with `UNCONVOY_VALIDATE=1`.
#[test]
#[ignore = "make test-all: needs QEMU and databases"]
fn predicted_gain_matches_elision() {
    if let Availability::Refused(reason) = availability("elided") {
        return println!("skipped: no prediction was compared with elision: {reason}");
    }
    if is_skipped() {
        return;
    }
    if std::env::var_os("UNCONVOY_VALIDATE").is_none() {
        return println!(
            "skipped: it takes ten minutes of a quiet machine (make validate-elision)"
        );
    }
    let verdict = validate("3", REPEATS, true, |_| true);
    println!("{verdict}");
    assert!(verdict.mean_error <= MEAN_ERROR, "{verdict}");
}

/// Tests everything but the comparison. With elision off there is no gain to compare, but the
/// predictions must still follow the programs' conflicts.
#[test]
#[ignore = "make test-all: needs QEMU and databases"]
fn validation_runs_without_elision() {
    if is_skipped() {
        return;
    }
    let wanted = ["Prob", "RB-Tree", "table of 1", "table of 1024", "LevelDB", "memcached"];
    let all = std::env::var_os("UNCONVOY_VALIDATE").is_some();
    let verdict =
        validate(if all { "2" } else { "0.5" }, 1, false, |name| all || wanted.contains(&name));
    println!("with elision off in both runs:\n{verdict}");
    let case = |name: &str| verdict.cases.iter().find(|case| case.name == name).unwrap();
    // Half of Prob's sections write, so a quarter of its pairs conflict. The bounds are wide,
    // because the time in sections depends on the machine's other work.
    assert!((1.1..1.8).contains(&case("Prob").ideal), "{verdict}");
    assert!((0.9..1.1).contains(&case("table of 1").ideal), "{verdict}");
    assert!((1.2..2.01).contains(&case("table of 1024").ideal), "{verdict}");
    assert!((1.1..2.01).contains(&case("RB-Tree").ideal), "{verdict}");
    assert!(
        verdict.cases.iter().all(|case| case.ideal >= 1.0 && case.measured.0.len() == 1),
        "{verdict}"
    );
    // Check only that gains were measured: their size depends on other work on the machine.
    assert!(verdict.cases.iter().all(|case| case.measured.median() > 0.0), "{verdict}");
}
