//! The paper's programs (`workload/kernel.rs` of the simulator) as points of the figures. There is
//! one task per core on the paper's machine, under its default or its lock-contention-aware
//! scheduler.

use unconvoy_sched::{Parameters as Policy, Search};
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::Cell;
use unconvoy_sim::outcome::{Scheduling, SpecialSet};

use crate::claim::{ANY, Claim, Results, claims};
use crate::plan::{self, Size, machine, mix, point};
use crate::view::waiting;

/// The lock of the paper's kernel.
pub const TICKET: &str = "ticket+none";
/// The requester-based lock, whose waiters save power.
pub const REQUESTER: &str = "requester+none";
/// A queue lock.
pub const MCS: &str = "mcs+none";

/// The series of the default scheduler.
pub const DEFAULT: &str = "default";
/// The series of the paper's scheduler.
pub const SPECIAL: &str = "lock-contention-aware";
/// The series of the scheduler with the refined search.
pub const REFINED: &str = "refined";

/// Names of the programs that collapse under the default scheduler and, according to the paper,
/// sustain their peak under its own.
pub const COLLAPSING: [&str; 5] = ["mmapbench", "sockbench", "postmark", "postmark-10000", "grep"];

/// The programs that collapse, including find, which does not sustain its peak.
pub const PROGRAMS: [&str; 6] =
    ["mmapbench", "sockbench", "postmark", "postmark-10000", "find", "grep"];
/// The program that does not collapse.
pub const KERNBENCH: &str = "kernbench";

/// Time before measuring. The published search takes some 100 ms, which is two or three rounds of
/// 6 ms slices for each bound up to 32. The refined search takes some 300 ms.
const WARM_UP_S: f64 = 0.25;
const REFINED_WARM_UP_S: f64 = 0.5;

/// A point of a program. Without `policy` the program runs under the default scheduler. With a
/// policy, the search has `warm_up_s` seconds before the measurement.
pub fn cell(
    program: &str,
    series: &str,
    lock: &str,
    policy: Option<Policy>,
    warm_up_s: f64,
    tasks: u32,
    size: Size,
) -> Cell {
    // kernbench has few, long transactions and is cheap to simulate.
    let seconds = if program == KERNBENCH { size.of(2.0, 1.0) } else { size.of(0.1, 0.03) };
    let point = point(&machine("opteron-32"), &mix(program), lock, tasks, seconds);
    let task = match policy {
        None => Task::Point(point),
        Some(policy) => Task::Scheduled(point, Scheduling { policy, warm_up_s, stagger_ns: 0 }),
    };
    plan::cell(program, series, f64::from(tasks), task)
}

/// A program at several task counts.
pub fn line(
    program: &str,
    series: &str,
    lock: &str,
    policy: Option<Policy>,
    tasks: &[u32],
    size: Size,
) -> Vec<Cell> {
    let is_refined = policy.is_some_and(|policy| policy.search == Search::Refined);
    let warm_up_s = if is_refined { REFINED_WARM_UP_S } else { WARM_UP_S };
    tasks.iter().map(|&tasks| cell(program, series, lock, policy, warm_up_s, tasks, size)).collect()
}

/// A program under the default scheduler.
pub fn default(program: &str, tasks: &[u32], size: Size) -> Vec<Cell> {
    line(program, DEFAULT, TICKET, None, tasks, size)
}

/// A program under the paper's scheduler.
pub fn special(program: &str, tasks: &[u32], size: Size) -> Vec<Cell> {
    line(program, SPECIAL, TICKET, Some(Policy::published(32)), tasks, size)
}

/// All programs.
pub fn all() -> impl Iterator<Item = &'static str> {
    PROGRAMS.into_iter().chain([KERNBENCH])
}

/// Task counts at full size.
pub const FULL: &[u32] = &[1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32];

/// The program's waiting share.
pub fn share(results: &Results, program: &str, series: &str, tasks: f64) -> Option<f64> {
    results.at(program, series, tasks).map(waiting)
}

/// One number of the special set.
pub fn of_set(
    results: &Results,
    program: &str,
    series: &str,
    tasks: f64,
    of: impl Fn(&SpecialSet) -> f64,
) -> Option<f64> {
    results.at(program, series, tasks)?.set.as_ref().map(of)
}

/// The scheduler's throughput at 32 tasks, relative to the default's peak.
pub fn sustained(results: &Results, program: &str) -> Option<f64> {
    Some(results.per_s(program, SPECIAL, 32.0)? / results.peak(program, DEFAULT)?)
}

/// The claims of a program that collapses under the default scheduler and not under the paper's.
pub fn collapse(results: &Results, program: &str) -> Vec<Claim> {
    claims! {
        format!("{program}: at 32 cores the default keeps at most .7 of its peak"),
            results.kept(program, DEFAULT, 32.0), 0.0..=0.7;
        format!("{program}: at 32 cores the scheduler sustains at least .9 of the default's peak"),
            sustained(results, program), 0.9..=ANY;
    }
}
