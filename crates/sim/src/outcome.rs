//! One point of a grid: a workload on a machine with a lock and a number of threads, and its
//! outcome.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::machine::Split;
use crate::messages;
use crate::pair;
use crate::parameters::Parameters;
use crate::simulation::Simulation;
use crate::workload::{self, Workload};

/// A point to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The machine.
    pub machine: Parameters,
    /// The program.
    pub workload: Workload,
    /// `CONTENTION+LOAD`.
    pub lock: String,
    /// Number of threads of the program.
    pub threads: u32,
    /// Length of the measurement, in simulated seconds.
    pub seconds: f64,
    /// Warm-up in simulated seconds, if not the [default](WARM_UP).
    pub warm_up: Option<f64>,
    /// Random seed.
    pub seed: u64,
    /// Interval of the controller, if not the load manager's own.
    pub interval_ns: Option<u64>,
}

/// The outcome of a point over the measured time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Transactions per simulated second.
    pub per_s: f64,
    /// Jain's fairness index of the threads' transactions: 1 if all did the same number, 1/n if one
    /// thread did all.
    pub fairness: f64,
    /// Context switches per second.
    pub switches_per_s: f64,
    /// Preemptions per second.
    pub preemptions_per_s: f64,
    /// Shares of the threads' time.
    pub split: Parts,
    /// The same shares as mean numbers of contexts.
    pub contexts: Parts,
    /// Mean number of idle contexts, of those that had a thread at any time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle: Option<f64>,
    /// The special set, under the lock-contention-aware scheduler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub set: Option<SpecialSet>,
    /// Aborts per commit, if any transaction committed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub aborts_per_commit: Option<f64>,
    /// Accesses to simulated memory per second of host time, in millions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_accesses: Option<f64>,
    /// Accesses to simulated memory.
    pub accesses: u64,
}

/// The special set of the lock-contention-aware scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpecialSet {
    /// Number of cores in the set at the end.
    pub bound: u32,
    /// Mean number of cores over the measured time.
    pub mean_bound: f64,
    /// Number of lock-intensive tasks at the end.
    pub tasks: u32,
    /// Number of searches started.
    pub searches: u32,
}

impl SpecialSet {
    /// The set between `begin` and `end`, in nanoseconds.
    fn of(simulation: &Simulation, begin: u64, end: u64) -> Option<Self> {
        let policy = simulation.policy()?;
        let changes = simulation.set_changes();
        let (mut since, mut sum) = (begin, 0);
        let mut bound = changes.first().map_or(policy.bound(), |(_, change)| change.from);
        for &(at, change) in changes {
            sum += u64::from(bound) * at.saturating_sub(since);
            (since, bound) = (since.max(at), change.to);
        }
        sum += u64::from(bound) * end.saturating_sub(since);
        let searches = changes.iter().filter(|(_, change)| change.restarts).count() as u32;
        let mean_bound = sum as f64 / end.saturating_sub(begin).max(1) as f64;
        Some(SpecialSet { bound: policy.bound(), mean_bound, tasks: policy.tasks(), searches })
    }
}

/// A [`Split`] as fractions of a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// On a processor, not waiting; see [`Split`] for all fields.
    pub working: f64,
    /// The part of `working` outside critical sections.
    #[serde(default)]
    pub outside: f64,
    /// Waiting for a lock that a running thread holds.
    pub spinning: f64,
    /// Waiting for a lock that no running thread holds.
    pub inverted: f64,
    /// On a processor, in `mwait`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mwait: f64,
    /// Off the processor for a lock or for load.
    pub blocked: f64,
    /// Off the processor for another reason.
    pub away: f64,
    /// In a run queue.
    pub ready: f64,
    /// In a run queue while holding a lock.
    pub holder_preempted: f64,
}

impl Parts {
    fn of(split: &Split, whole: f64) -> Self {
        let part = |ns: u64| ns as f64 / whole;
        Parts {
            working: part(split.working_ns),
            outside: part(split.outside_ns),
            spinning: part(split.spinning_ns),
            inverted: part(split.inverted_ns),
            mwait: part(split.mwait_ns),
            blocked: part(split.blocked_ns),
            away: part(split.away_ns),
            ready: part(split.ready_ns),
            holder_preempted: part(split.holder_preempted_ns),
        }
    }
}

/// Whether a record can leave out `part`.
fn is_zero(part: &f64) -> bool {
    *part == 0.0
}

fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

/// Idle time within `span` nanoseconds of the contexts that had a thread in them, from the times
/// that each had a thread up to the begin and the end.
fn idle_ns(before: &[u64], after: &[u64], span: u64) -> f64 {
    let busy = before.iter().zip(after).map(|(before, after)| after - before);
    busy.filter(|&busy| busy != 0).map(|busy| span.saturating_sub(busy) as f64).sum()
}

/// Warm-up as a fraction of the measured time, for queues and load control to stabilise.
pub const WARM_UP: f64 = 0.2;
/// Simulated time between two checks for a request to stop.
const STOP_CHECK_NS: u64 = 1_000_000;

/// A request to stop the simulation.
pub type Stop = AtomicBool;

/// The error of a stopped simulation.
#[derive(Debug)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(messages::stopped())
    }
}

impl std::error::Error for Stopped {}

/// Simulates until `end`, or until `stop` is set.
pub(crate) fn advance(
    simulation: &mut Simulation,
    from: u64,
    end: u64,
    stop: &Stop,
) -> anyhow::Result<()> {
    let mut time = from;
    while time < end {
        if stop.load(Ordering::Relaxed) {
            bail!(Stopped);
        }
        time = (time + STOP_CHECK_NS).min(end);
        simulation.run(time)?;
    }
    Ok(())
}

/// The lock-contention-aware scheduler, which replaces the machine's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduling {
    /// Its policy.
    pub policy: unconvoy_sched::Parameters,
    /// Warm-up in simulated seconds, for the search to end.
    pub warm_up_s: f64,
    /// Simulated time between the starts of two tasks, in nanoseconds.
    pub stagger_ns: u64,
}

/// Simulates a point.
///
/// # Errors
///
/// The lock is unknown, the program hangs, the host has no memory, or `stop` is set.
pub fn simulate(point: &Point, stop: &Stop) -> anyhow::Result<Outcome> {
    simulate_under(point, None, stop)
}

/// Simulates a point, optionally with the lock-contention-aware scheduler.
///
/// # Errors
///
/// See [`simulate`].
pub fn simulate_under(
    point: &Point,
    scheduling: Option<&Scheduling>,
    stop: &Stop,
) -> anyhow::Result<Outcome> {
    let begin = std::time::Instant::now();
    let pair = pair::named(&point.lock).map_err(anyhow::Error::msg)?;
    if point.lock == pair::TRANSACTIONAL && point.machine.transactions.is_none() {
        bail!(messages::no_transactions(&point.machine.name));
    }
    if point.lock == pair::TRANSACTIONAL && !point.workload.can_be_transactional() {
        bail!(messages::not_transactional(&point.workload.name));
    }
    if point.workload.has_shared_lock() && !pair.has_shared() {
        bail!(messages::no_shared_lock(&point.lock));
    }
    let mut simulation =
        Simulation::new(&point.machine, point.seed).context(messages::no_memory())?;
    let process = simulation.process();
    if let Some(scheduling) = scheduling {
        simulation.enable_special_set(scheduling.policy);
    }
    let stagger_ns = scheduling.map_or(0, |scheduling| scheduling.stagger_ns);
    let running = workload::start_staggered(
        &mut simulation,
        process,
        &point.workload,
        pair,
        point.threads,
        stagger_ns,
    );
    if let Some(interval) = point.interval_ns {
        simulation.set_interval(process, interval);
    }
    let usual = point.warm_up.unwrap_or(point.seconds * WARM_UP);
    let warm = (scheduling.map_or(usual, |scheduling| scheduling.warm_up_s) * 1e9) as u64;
    let end = warm + (point.seconds * 1e9) as u64;
    advance(&mut simulation, 0, warm, stop)?;
    let (finished, counts) = (running.finished(), simulation.counts());
    let transactions = simulation.transactions();
    let busy = simulation.busy_times();
    let before: Vec<Split> =
        running.threads.iter().map(|&thread| simulation.split(thread)).collect();
    advance(&mut simulation, warm, end, stop)?;
    let mut split = Split::default();
    for (&thread, before) in running.threads.iter().zip(&before) {
        split.add(&simulation.split(thread).since(before));
    }
    let done: Vec<u64> =
        running.finished().iter().zip(&finished).map(|(now, before)| now - before).collect();
    let after = simulation.counts();
    let transactions = simulation.transactions().since(&transactions);
    let per_s = |count: u64| count as f64 / point.seconds;
    Ok(Outcome {
        per_s: per_s(done.iter().sum()),
        fairness: jain(&done),
        switches_per_s: per_s(after.switches - counts.switches),
        preemptions_per_s: per_s(after.preemptions - counts.preemptions),
        split: Parts::of(&split, point.seconds * 1e9 * f64::from(point.threads)),
        contexts: Parts::of(&split, point.seconds * 1e9),
        idle: Some(idle_ns(&busy, &simulation.busy_times(), end - warm) / (point.seconds * 1e9)),
        set: SpecialSet::of(&simulation, warm, end),
        aborts_per_commit: (transactions.commits != 0)
            .then(|| transactions.aborts() as f64 / transactions.commits as f64),
        host_accesses: Some(after.accesses as f64 / 1e6 / begin.elapsed().as_secs_f64()),
        accesses: after.accesses - counts.accesses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;
    use crate::workload::Step;

    #[test]
    fn idle_time_is_that_of_contexts_with_a_thread() {
        let steps = vec![Step::Work { ns: 1_000_000 }, Step::Away { ns: 3_000_000 }];
        let workload = Workload {
            name: "sleeper".to_string(),
            locks: Vec::new(),
            steps,
            others: Vec::new(),
            in_kernel: false,
            checkpoints: false,
        };
        let point = Point {
            machine: presets::named("opteron-32").expect("a preset"),
            workload,
            lock: "ticket+none".to_string(),
            threads: 2,
            seconds: 0.1,
            warm_up: None,
            seed: 1,
            interval_ns: None,
        };
        let outcome = simulate(&point, &Stop::new(false)).expect("runs");
        let (idle, used) = (outcome.idle.expect("recorded"), outcome.contexts.working);
        assert!((used - 0.5).abs() < 0.05, "two threads work for a quarter of their time: {used}");
        assert!((idle + used - 2.0).abs() < 1e-6, "of 32 contexts, two have threads: {idle}");
        let outside = outcome.contexts.outside;
        assert!(outside <= used && outside > used - 0.01, "no critical sections: {outside}");
    }
}
