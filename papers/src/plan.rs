//! Building blocks of the simulated figures' plans.

use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::Cell;
use unconvoy_sim::outcome::Point;
use unconvoy_sim::parameters::Parameters;
use unconvoy_sim::presets;
use unconvoy_sim::workload::{self, Workload};

/// The papers' spin-then-block mutex.
pub const BLOCKING: &str = "solaris";
/// [`BLOCKING`] with pipelined wake-ups.
pub const PIPELINED: &str = "pipelined";
/// The papers' spin lock.
pub const SPINNING: &str = "tpmcs+none";
/// The spin lock under load control.
pub const CONTROLLED: &str = "tpmcs+control";
/// The spin lock under load-triggered backoff.
pub const BACKOFF: &str = "tpmcs+backoff";

/// How much to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// The size for the documentation.
    Full,
    /// The size for tests: fewer points, less simulated time.
    Reduced,
}

impl Size {
    /// Selects `full` or `reduced` by size.
    pub fn of<T>(self, full: T, reduced: T) -> T {
        if self == Size::Full { full } else { reduced }
    }
}

/// The machine preset `name`; panics if there is none.
pub fn machine(name: &str) -> Parameters {
    presets::named(name).expect("one of the presets")
}

/// The workload `name`; panics if there is none.
pub fn mix(name: &str) -> Workload {
    workload::named(name).expect("one of the workloads")
}

/// An experiment at its position in the figure.
pub fn cell(panel: &str, series: &str, x: f64, task: Task) -> Cell {
    Cell { panel: panel.to_string(), series: series.to_string(), x, task }
}

/// A point of one lock. [`crate::figure::Simulated::cells`] sets the seed later.
pub fn point(
    machine: &Parameters,
    workload: &Workload,
    lock: &str,
    threads: u32,
    seconds: f64,
) -> Point {
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

/// The lines of a panel: each series' lock at each thread count. Under load-triggered backoff the
/// threads pass a checkpoint at the end of each transaction, where the papers' threads back off.
pub fn lines(
    panel: &str,
    machine: &Parameters,
    workload: &Workload,
    locks: &[(&str, &str)],
    threads: &[u32],
    seconds: f64,
) -> Vec<Cell> {
    let with_checkpoints = workload.clone().with_checkpoints();
    let at = |(&(series, lock), threads): (&(&str, &str), u32)| {
        let workload = if lock == BACKOFF { &with_checkpoints } else { workload };
        cell(
            panel,
            series,
            f64::from(threads),
            Task::Point(point(machine, workload, lock, threads, seconds)),
        )
    };
    locks.iter().flat_map(|lock| threads.iter().map(move |&threads| at((lock, threads)))).collect()
}

/// The lines of TM-1 on the paper's machine.
pub fn tm1_lines(locks: &[(&str, &str)], threads: &[u32], size: Size) -> Vec<Cell> {
    lines("TM-1", &machine("niagara2-64"), &mix("tm1"), locks, threads, size.of(3.0, 2.0))
}
