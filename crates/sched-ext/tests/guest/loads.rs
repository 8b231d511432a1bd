//! Loads on the kernel's own locks (papers/workloads/tasks) under the default scheduler and under
//! `unconvoy sched`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::PROCESSORS;
use crate::machine::{Machine, Output};

const SCHEDULERS: [&str; 2] = ["default", "unconvoy"];

/// The loads' names in loads.sh.
const LOADS: [&str; 7] =
    ["mmapbench", "sockbench", "postmark-few", "postmark-many", "find", "grep", "compile"];

/// The loads that the guest can run: `compile` requires a compiler in the guest.
fn loads(output: &Output) -> &'static [&'static str] {
    let [others @ .., _] = &LOADS;
    if output.words("compiler") == ["yes"] {
        return &LOADS;
    }
    println!("left out: compile, since the guest has no compiler\n");
    others
}

/// Compiles the loads into one static program.
fn tasks(directory: &Path) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/workloads");
    let program = directory.join("tasks");
    let mut make = Command::new("make");
    make.arg("--silent").arg("-C").arg(sources).arg("LDFLAGS=-static");
    make.arg(format!("OUT={}", directory.display())).arg(&program);
    assert!(make.status().expect("make runs").success(), "the loads cannot be compiled");
    program
}

fn boot(settings: &[(&str, u32)], timeout: Duration) -> Option<Output> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let programs = [tasks(directory.path())];
    Machine { settings, programs: &programs, timeout, ..Machine::new("loads.sh", PROCESSORS) }
        .boot()
}

/// The output of a load, and of its scheduler, in one round.
struct Work<'a> {
    output: &'a Output,
    name: String,
}

impl<'a> Work<'a> {
    fn of(output: &'a Output, scheduler: &str, round: u32, load: &str) -> Self {
        Work { output, name: format!("{scheduler}.{round}.{load}") }
    }

    fn figure(&self, name: &str) -> f64 {
        let line = self
            .output
            .file(&self.name)
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("{}: no {name} in:\n{}", self.name, self.output.console))
    }

    /// The observation when the measurement window opened (`open`), when it closed (`closed`), or
    /// after the load (`after`).
    fn words(&self, when: &str) -> &[String] {
        self.output.words(&format!("{}.{when}", self.name))
    }

    /// Asserts that the load succeeded, and that the same scheduler ran from start to end.
    fn assert_success(&self, state: &str) {
        assert_eq!(self.figure("status"), 0.0, "{}:\n{}", self.name, self.output.console);
        assert!(
            self.figure("ops") >= f64::from(PROCESSORS),
            "{}: some task did no operation",
            self.name
        );
        for when in ["open", "closed", "after"] {
            assert_eq!(
                self.words(when)[0],
                state,
                "{} {when}:\n{}",
                self.name,
                self.output.console
            );
        }
        assert_eq!(self.words("open.loaded").len(), 1);
        assert_eq!(
            self.words("open.loaded"),
            self.words("closed.loaded"),
            "{}: the scheduler was reloaded",
            self.name
        );
    }

    /// Lines of `--monitor` during the measurement window.
    fn monitor(&self, round: u32) -> Vec<&'a str> {
        let line = |when: &str| self.words(when)[0].parse::<usize>().expect("a number");
        let lines = self.output.file(&format!("unconvoy.{round}.output")).lines();
        lines.take(line("closed.lines")).skip(line("open.lines")).collect()
    }
}

#[test]
fn loads_run_under_both_schedulers() {
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
    let Some(output) = boot(&settings, Duration::from_secs(300)) else { return };
    let loads = loads(&output);
    for &load in loads {
        for (scheduler, state) in SCHEDULERS.into_iter().zip(["disabled", "enabled"]) {
            Work::of(&output, scheduler, 1, load).assert_success(state);
        }
    }
    let slices = |load, when| output.numbers(&format!("unconvoy.1.{load}.{when}.slices"))[0];
    assert!(
        slices("grep", "closed") > slices("mmapbench", "open"),
        "the scheduler did not schedule the loads:\n{}",
        output.console
    );
    assert_eq!(output.words("unconvoy.1.status"), ["0"], "Ctrl-C counts as success");
    assert_eq!(output.words("unconvoy.1.ended"), ["disabled"]);
}

const ROUNDS: u32 = 3;

/// Prints throughput and cost of each load, and the scheduler's reports. Asserts no limit: the
/// guest's processors share the host's.
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
    let output = boot(&settings, Duration::from_secs(3600)).expect("a guest (make kernel)");
    let loads = loads(&output);
    println!("{PROCESSORS} virtual processors, one task each; median (min to max); {settings:?}\n");
    println!(
        "| load | scheduler | operations/s | relative to default | CPU time per operation, us |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for &load in loads {
        for (scheduler, state) in SCHEDULERS.into_iter().zip(["disabled", "enabled"]) {
            let spread = |value: &dyn Fn(u32, &Work) -> f64| {
                let of = |round| value(round, &Work::of(&output, scheduler, round, load));
                Spread::of((1..=ROUNDS).map(of).collect())
            };
            let rate = spread(&|_, work| {
                work.assert_success(state);
                work.figure("ops_per_sec")
            });
            let to_default = spread(&|round, work| {
                work.figure("ops_per_sec")
                    / Work::of(&output, "default", round, load).figure("ops_per_sec")
            });
            let cost = spread(&|_, work| work.figure("cpu_ns_per_op") / 1e3);
            println!(
                "| {load} | {scheduler} | {} | {} | {} |",
                rate.text(),
                to_default.text(),
                cost.text()
            );
        }
    }
    println!(
        "\n| load, under unconvoy sched | processors waiting | lock-intensive tasks | bound | \
         votes: waiting, % |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for &load in loads {
        let reports: Vec<_> = (1..=ROUNDS)
            .flat_map(|round| Work::of(&output, "unconvoy", round, load).monitor(round))
            .collect();
        // The report has a line of state, a line of rates, and a line per named task.
        let field = |before: &str, after: &str| -> Vec<f64> {
            let value =
                |line: &str| line.split_once(after)?.0.rsplit_once(before)?.1.trim().parse().ok();
            reports.iter().filter_map(|line| value(line)).collect()
        };
        let shown = [
            ("  ", " processors waited"),
            ("), ", " lock-intensive"),
            ("bound ", " of "),
            ("votes: ", " % waited"),
        ]
        .map(|(before, after)| Spread::of(field(before, after)).text());
        println!("| {load} | {} |", shown.join(" | "));
    }
}

/// Values in ascending order.
struct Spread(Vec<f64>);

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        Spread(values)
    }

    /// Median (min to max), to three digits.
    fn text(&self) -> String {
        let show = |value: f64| {
            let digits = if value.abs() < 1.0 {
                3
            } else {
                2_usize.saturating_sub(value.abs().log10() as usize)
            };
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
