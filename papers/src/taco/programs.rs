//! The paper's programs (`workload/kernel.rs` of the simulator), of whose points all figures are
//! made: with one task per core, on the paper's machine, under its default scheduler and under the
//! lock-contention-aware one.

use unconvoy_sched::{Parameters as Policy, Search};
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::Cell;
use unconvoy_sim::outcome::{Scheduling, SpecialSet};

use crate::claim::Results;
use crate::plan::{self, Size, machine, mix, point};
use crate::view::waiting;

/// The lock of the paper's kernel.
pub const TICKET: &str = "ticket+none";
/// A lock whose waiters save power.
pub const REQUESTER: &str = "requester+none";
/// A queue lock.
pub const MCS: &str = "mcs+none";

/// The series of the default scheduler.
pub const DEFAULT: &str = "default";
/// That of the paper's scheduler.
pub const SPECIAL: &str = "lock-contention-aware";
/// That of the same with the refined search.
pub const REFINED: &str = "refined";

/// Those of the paper's programs that collapse, by their workloads' names.
pub const COLLAPSING: [&str; 5] = ["mmapbench", "sockbench", "postmark", "postmark-10000", "grep"];

/// All that do, find among them, which does not sustain the peak.
pub const PROGRAMS: [&str; 6] = ["mmapbench", "sockbench", "postmark", "postmark-10000", "find", "grep"];
/// The one that does not collapse.
pub const KERNBENCH: &str = "kernbench";

/// The scheduler as published finds its bound within some 100 ms: for each bound up to 32, two or three rounds of slices of
/// 6 ms. The refined search takes some 300 ms.
const SETTLE_S: f64 = 0.25;
const REFINED_SETTLE_S: f64 = 0.5;

/// A point of a program: under the default scheduler, or under the lock-contention-aware one, which
/// has some time to settle.
pub fn cell(
    program: &str,
    series: &str,
    lock: &str,
    policy: Option<Policy>,
    settle_s: f64,
    tasks: u32,
    size: Size,
) -> Cell {
    // Transactions of kernbench are few and long, and it is cheap to simulate.
    let seconds = if program == KERNBENCH { size.of(2.0, 1.0) } else { size.of(0.1, 0.03) };
    let point = point(&machine("opteron-32"), &mix(program), lock, tasks, seconds);
    let task = match policy {
        None => Task::Point(point),
        Some(policy) => Task::Scheduled(point, Scheduling { policy, settle_s, apart_ns: 0 }),
    };
    plan::cell(program, series, f64::from(tasks), task)
}

/// A program at some numbers of tasks.
pub fn line(program: &str, series: &str, lock: &str, policy: Option<Policy>, tasks: &[u32], size: Size) -> Vec<Cell> {
    let is_refined = policy.is_some_and(|policy| policy.search == Search::Refined);
    let settle_s = if is_refined { REFINED_SETTLE_S } else { SETTLE_S };
    tasks.iter().map(|&tasks| cell(program, series, lock, policy, settle_s, tasks, size)).collect()
}

/// Under the default scheduler.
pub fn default(program: &str, tasks: &[u32], size: Size) -> Vec<Cell> {
    line(program, DEFAULT, TICKET, None, tasks, size)
}

/// Under the paper's.
pub fn special(program: &str, tasks: &[u32], size: Size) -> Vec<Cell> {
    line(program, SPECIAL, TICKET, Some(Policy::published(32)), tasks, size)
}

/// All programs.
pub fn all() -> impl Iterator<Item = &'static str> {
    PROGRAMS.into_iter().chain([KERNBENCH])
}

/// Numbers of tasks at full size.
pub const FULL: &[u32] = &[1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32];

/// Its waiting share.
pub fn share(results: &Results, program: &str, series: &str, tasks: f64) -> Option<f64> {
    results.at(program, series, tasks).map(waiting)
}

/// A number of the special set.
pub fn of_set(
    results: &Results,
    program: &str,
    series: &str,
    tasks: f64,
    of: impl Fn(&SpecialSet) -> f64,
) -> Option<f64> {
    results.at(program, series, tasks)?.set.as_ref().map(of)
}
