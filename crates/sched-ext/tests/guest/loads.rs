//! The loads on the kernel's own locks (papers/workloads/tasks) under the default scheduler and under this one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::PROCESSORS;
use crate::machine::{Machine, Said};

const SCHEDULERS: [&str; 2] = ["default", "unconvoy"];

/// The names that loads.sh gives them.
const LOADS: [&str; 7] = ["mmapbench", "sockbench", "postmark-few", "postmark-many", "find", "grep", "compile"];

/// Those that the guest has all for: a compiler it has if someone puts one there.
fn loads(said: &Said) -> &'static [&'static str] {
    let [others @ .., _] = &LOADS;
    if said.words("compiler") == ["yes"] {
        return &LOADS;
    }
    println!("left out: compile, for the guest has no compiler\n");
    others
}

/// The loads as one program without libraries.
fn tasks(directory: &Path) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/workloads");
    let program = directory.join("tasks");
    let mut make = Command::new("make");
    make.arg("--silent").arg("-C").arg(sources).arg("LDFLAGS=-static");
    make.arg(format!("OUT={}", directory.display())).arg(&program);
    assert!(make.status().expect("make runs").success(), "the loads cannot be compiled");
    program
}

fn boot(settings: &[(&str, u32)], patience: Duration) -> Option<Said> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let programs = [tasks(directory.path())];
    Machine { settings, programs: &programs, patience, ..Machine::new("loads.sh", PROCESSORS) }.boot()
}

/// What a load said of itself, and its scheduler meanwhile, in one round.
struct Work<'a> {
    said: &'a Said,
    name: String,
}

impl<'a> Work<'a> {
    fn of(said: &'a Said, scheduler: &str, round: u32, load: &str) -> Self {
        Work { said, name: format!("{scheduler}.{round}.{load}") }
    }

    fn figure(&self, name: &str) -> f64 {
        let line = self.said.file(&self.name).lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("{}: no {name} in:\n{}", self.name, self.said.console))
    }

    /// An observation when the window had `when`.
    fn words(&self, when: &str) -> &[String] {
        self.said.words(&format!("{}.{when}", self.name))
    }

    /// It ended well, did work, and the scheduler that it ran under was the same one from before to after.
    fn is_sound(&self, state: &str) {
        assert_eq!(self.figure("status"), 0.0, "{}:\n{}", self.name, self.said.console);
        assert!(self.figure("ops") >= f64::from(PROCESSORS), "{}: not each task did anything", self.name);
        for when in ["open", "closed", "after"] {
            assert_eq!(self.words(when)[0], state, "{} {when}:\n{}", self.name, self.said.console);
        }
        assert_eq!(self.words("open.loaded").len(), 1);
        assert_eq!(self.words("open.loaded"), self.words("closed.loaded"), "{}: loaded anew", self.name);
    }

    /// The lines of `--monitor` from its window.
    fn monitor(&self, round: u32) -> Vec<&'a str> {
        let line = |when: &str| self.words(when)[0].parse::<usize>().expect("a number");
        let lines = self.said.file(&format!("unconvoy.{round}.said")).lines();
        lines.take(line("closed.lines")).skip(line("open.lines")).collect()
    }
}

#[test]
fn each_load_does_its_work_under_either_scheduler() {
    let settings = [
        ("ROUNDS", 1),
        ("SECONDS", 1),
        ("WARM_UP", 0),
        ("MMAP_MEGABYTES", 8),
        ("POSTMARK_FEW", 50),
        ("POSTMARK_MANY", 200),
        ("FIND_FILES", 100),
        ("GREP_MEGABYTES", 1),
    ];
    let Some(said) = boot(&settings, Duration::from_secs(300)) else { return };
    let loads = loads(&said);
    for &load in loads {
        for (scheduler, state) in SCHEDULERS.into_iter().zip(["disabled", "enabled"]) {
            Work::of(&said, scheduler, 1, load).is_sound(state);
        }
    }
    let slices = |load, when| said.numbers(&format!("unconvoy.1.{load}.{when}.slices"))[0];
    assert!(slices("grep", "closed") > slices("mmapbench", "open"), "it did not schedule them:\n{}", said.console);
    assert_eq!(said.words("unconvoy.1.status"), ["0"], "Ctrl-C is no failure");
    assert_eq!(said.words("unconvoy.1.ended"), ["disabled"]);
}

const ROUNDS: u32 = 3;

/// Throughput and cost of each load, and what the scheduler said of it. No bound: a guest's processors here are no real ones.
#[test]
#[ignore = "a measurement: make bench-sched"]
fn throughput() {
    let settings = [
        ("ROUNDS", ROUNDS),
        ("SECONDS", 4),
        ("WARM_UP", 3),
        ("MMAP_MEGABYTES", 16),
        ("POSTMARK_FEW", 500),
        ("POSTMARK_MANY", 1000),
        ("FIND_FILES", 300),
        ("GREP_MEGABYTES", 1),
    ];
    let Some(said) = boot(&settings, Duration::from_secs(3600)) else { return };
    let loads = loads(&said);
    println!("{PROCESSORS} virtual processors, as many tasks; median (least to most); {settings:?}\n");
    println!("| load | scheduler | operations/s | to the default's | processor time per operation, us |");
    println!("| --- | --- | --- | --- | --- |");
    for &load in loads {
        for (scheduler, state) in SCHEDULERS.into_iter().zip(["disabled", "enabled"]) {
            let spread = |value: &dyn Fn(u32, &Work) -> f64| {
                let of = |round| value(round, &Work::of(&said, scheduler, round, load));
                Spread::of((1..=ROUNDS).map(of).collect())
            };
            let rate = spread(&|_, work| {
                work.is_sound(state);
                work.figure("ops_per_sec")
            });
            let to_default = spread(&|round, work| {
                work.figure("ops_per_sec") / Work::of(&said, "default", round, load).figure("ops_per_sec")
            });
            let cost = spread(&|_, work| work.figure("cpu_ns_per_op") / 1e3);
            println!("| {load} | {scheduler} | {} | {} | {} |", rate.text(), to_default.text(), cost.text());
        }
    }
    println!("\n| load, under unconvoy sched | processors waited | lock-intensive tasks | bound | votes: waited, % |");
    println!("| --- | --- | --- | --- | --- |");
    for &load in loads {
        let reports: Vec<_> =
            (1..=ROUNDS).flat_map(|round| Work::of(&said, "unconvoy", round, load).monitor(round)).collect();
        // A line of what there is, then one of what happened; tasks by name after them.
        let field = |before: &str, after: &str| -> Vec<f64> {
            let value = |line: &str| line.split_once(after)?.0.rsplit_once(before)?.1.trim().parse().ok();
            reports.iter().filter_map(|line| value(line)).collect()
        };
        let shown =
            [("  ", " processors waited"), ("), ", " lock-intensive"), ("bound ", " of "), ("votes: ", " % waited")]
                .map(|(before, after)| Spread::of(field(before, after)).text());
        println!("| {load} | {} |", shown.join(" | "));
    }
}

/// Values, in order of size.
struct Spread(Vec<f64>);

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        Spread(values)
    }

    /// Median (least to most), to three digits.
    fn text(&self) -> String {
        let show = |value: f64| {
            let digits = if value.abs() < 1.0 { 3 } else { 2_usize.saturating_sub(value.abs().log10() as usize) };
            format!("{value:.digits$}")
        };
        match (self.0.first(), self.0.get(self.0.len() / 2), self.0.last()) {
            (Some(&least), Some(&median), Some(&most)) => {
                format!("{} ({} to {})", show(median), show(least), show(most))
            }
            _ => "-".into(),
        }
    }
}
