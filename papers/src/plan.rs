//! What the plans of simulated figures are made of.

use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::Cell;
use unconvoy_sim::outcome::Point;
use unconvoy_sim::parameters::Parameters;
use unconvoy_sim::presets;
use unconvoy_sim::workload::{self, Workload};

/// The papers' spin-then-block mutex.
pub const BLOCKING: &str = "solaris";
/// Their spin lock.
pub const SPINNING: &str = "tpmcs+none";
/// Load control over it.
pub const CONTROLLED: &str = "tpmcs+control";
/// Load-triggered backoff over it.
pub const BACKOFF: &str = "tpmcs+backoff";

/// How much is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For the documentation.
    Full,
    /// For tests: fewer places, less time.
    Reduced,
}

impl Size {
    /// One thing at full size, another one at reduced size.
    pub fn of<T>(self, full: T, reduced: T) -> T {
        if self == Size::Full { full } else { reduced }
    }
}

/// The preset of this name.
pub fn machine(name: &str) -> Parameters {
    presets::named(name).expect("one of the presets")
}

/// The workload of this name.
pub fn mix(name: &str) -> Workload {
    workload::named(name).expect("one of the workloads")
}

/// An experiment at its place.
pub fn cell(panel: &str, series: &str, x: f64, task: Task) -> Cell {
    Cell { panel: panel.to_string(), series: series.to_string(), x, task }
}

/// The seed is set when the plan is used.
pub fn point(machine: &Parameters, workload: &Workload, lock: &str, threads: u32, seconds: f64) -> Point {
    Point {
        machine: machine.clone(),
        workload: workload.clone(),
        lock: lock.to_string(),
        threads,
        seconds,
        seed: 0,
        warm_up: None,
        interval_ns: None,
    }
}

/// TM-1 on the paper's machine.
pub fn tm1(lock: &str, threads: u32, seconds: f64) -> Point {
    point(&machine("niagara2-64"), &mix("tm1"), lock, threads, seconds)
}

/// Lines of a panel: each series' lock at each number of threads.
pub fn lines(
    panel: &str,
    machine: &Parameters,
    workload: &Workload,
    locks: &[(&str, &str)],
    threads: &[u32],
    seconds: f64,
) -> Vec<Cell> {
    let at = |(&(series, lock), threads): (&(&str, &str), u32)| {
        cell(panel, series, f64::from(threads), Task::Point(point(machine, workload, lock, threads, seconds)))
    };
    locks.iter().flat_map(|lock| threads.iter().map(move |&threads| at((lock, threads)))).collect()
}

/// Lines of TM-1 on the paper's machine.
pub fn tm1_lines(locks: &[(&str, &str)], threads: &[u32], size: Size) -> Vec<Cell> {
    lines("TM-1", &machine("niagara2-64"), &mix("tm1"), locks, threads, size.of(3.0, 2.0))
}
