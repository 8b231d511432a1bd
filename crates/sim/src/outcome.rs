//! One point of a grid: a workload on a machine, with a pair of managers and a number of threads; and what comes of it.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::machine::Split;
use crate::pair;
use crate::parameters::Parameters;
use crate::simulation::Simulation;
use crate::workload::{self, Workload};

/// What is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// On what.
    pub machine: Parameters,
    /// The program.
    pub workload: Workload,
    /// `CONTENTION+LOAD`.
    pub lock: String,
    /// Threads of the program.
    pub threads: u32,
    /// Simulated seconds that are measured.
    pub seconds: f64,
    /// Those that pass before, if not the usual [part](WARM_UP).
    pub warm_up: Option<f64>,
    /// Of all that is left to chance.
    pub seed: u64,
    /// The controller's interval, if it is not the load manager's own.
    pub interval_ns: Option<u64>,
}

/// What came of it, over the time that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Transactions per simulated second.
    pub per_s: f64,
    /// Jain's index of the threads' transactions: 1 if all did as many, 1/n if one did all.
    pub fairness: f64,
    /// Context switches per second.
    pub switches_per_s: f64,
    /// Preemptions per second.
    pub preemptions_per_s: f64,
    /// Of the threads' time.
    pub split: Parts,
    /// The same in contexts of the machine that are busy so, on average.
    pub contexts: Parts,
    /// The special set, under the lock-contention-aware scheduler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub set: Option<SpecialSet>,
    /// Transactions that were undone for each that took effect, where any did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub aborts_per_commit: Option<f64>,
    /// Accesses to simulated memory, per second of the host, in millions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_accesses: Option<f64>,
    /// Accesses to simulated memory.
    pub accesses: u64,
}

/// What the lock-contention-aware scheduler came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpecialSet {
    /// Cores in the set at the end.
    pub bound: u32,
    /// The same on average over the measured time.
    pub mean_bound: f64,
    /// Lock-intensive tasks at the end.
    pub tasks: u32,
    /// Searches that were begun anew.
    pub searches: u32,
}

impl SpecialSet {
    /// Of the time from `begin` to `end`, in nanoseconds.
    fn of(simulation: &Simulation, begin: u64, end: u64) -> Option<Self> {
        let policy = simulation.policy()?;
        let changes = simulation.changes_of_the_set();
        let (mut since, mut sum) = (begin, 0);
        let mut bound = changes.first().map_or(policy.bound(), |(_, change)| change.from);
        for &(at, change) in changes {
            sum += u64::from(bound) * at.saturating_sub(since);
            (since, bound) = (since.max(at), change.to);
        }
        sum += u64::from(bound) * end.saturating_sub(since);
        let searches = changes.iter().filter(|(_, change)| change.anew).count() as u32;
        let mean_bound = sum as f64 / end.saturating_sub(begin).max(1) as f64;
        Some(SpecialSet { bound: policy.bound(), mean_bound, tasks: policy.tasks(), searches })
    }
}

/// A [`Split`] in parts of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// See [`Split`] for all of them.
    pub working: f64,
    /// Waiting for a lock that a running thread holds.
    pub spinning: f64,
    /// Waiting for one that no running thread holds.
    pub inverted: f64,
    /// Off the processor, for a lock or for load.
    pub blocked: f64,
    /// Off it for another reason.
    pub away: f64,
    /// In a run queue.
    pub ready: f64,
    /// In a run queue with a lock held.
    pub holder_preempted: f64,
}

impl Parts {
    fn of(split: &Split, whole: f64) -> Self {
        let part = |ns: u64| ns as f64 / whole;
        Parts {
            working: part(split.working_ns),
            spinning: part(split.spinning_ns),
            inverted: part(split.inverted_ns),
            blocked: part(split.blocked_ns),
            away: part(split.away_ns),
            ready: part(split.ready_ns),
            holder_preempted: part(split.holder_preempted_ns),
        }
    }
}

/// Jain's fairness index.
fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

/// Part of the measured time that passes before it, so that queues and load control have settled.
pub const WARM_UP: f64 = 0.2;
/// Simulated time between two looks at whether somebody wants to stop.
const LOOK_NS: u64 = 1_000_000;

/// Asks for the end of what is being simulated.
pub type Stop = AtomicBool;

/// That somebody did.
#[derive(Debug)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

/// Simulates until `end`, unless somebody wants to stop.
pub(crate) fn advance(simulation: &mut Simulation, from: u64, end: u64, stop: &Stop) -> anyhow::Result<()> {
    let mut time = from;
    while time < end {
        if stop.load(Ordering::Relaxed) {
            bail!(Stopped);
        }
        time = (time + LOOK_NS).min(end);
        simulation.run(time)?;
    }
    Ok(())
}

/// The lock-contention-aware scheduler in place of the machine's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduling {
    /// Its policy.
    pub policy: unconvoy_sched::Parameters,
    /// Simulated seconds before those that are measured: for the search to end.
    pub settle_s: f64,
    /// Simulated nanoseconds between the starts of two tasks.
    pub apart_ns: u64,
}

/// Simulates a point.
///
/// # Errors
///
/// There is no such lock, the program hangs, there is no memory, or somebody wants to [stop](Stop).
pub fn simulate(point: &Point, stop: &Stop) -> anyhow::Result<Outcome> {
    simulate_under(point, None, stop)
}

/// Simulates a point under another scheduler than the machine's own, if one is given.
///
/// # Errors
///
/// As [`simulate`].
pub fn simulate_under(point: &Point, scheduling: Option<&Scheduling>, stop: &Stop) -> anyhow::Result<Outcome> {
    let begin = std::time::Instant::now();
    let pair = pair::named(&point.lock).map_err(anyhow::Error::msg)?;
    if point.lock == pair::TRANSACTIONAL && point.machine.transactions.is_none() {
        bail!("{} has no transactions: its machine file needs a table [transactions]", point.machine.name);
    }
    let mut simulation = Simulation::new(&point.machine, point.seed).context("no memory for the machine")?;
    let process = simulation.process();
    if let Some(scheduling) = scheduling {
        simulation.schedule_specially(scheduling.policy);
    }
    let apart_ns = scheduling.map_or(0, |scheduling| scheduling.apart_ns);
    let running = workload::start_apart(&mut simulation, process, &point.workload, pair, point.threads, apart_ns);
    if let Some(interval) = point.interval_ns {
        simulation.set_interval(process, interval);
    }
    let usual = point.warm_up.unwrap_or(point.seconds * WARM_UP);
    let warm = (scheduling.map_or(usual, |scheduling| scheduling.settle_s) * 1e9) as u64;
    let end = warm + (point.seconds * 1e9) as u64;
    advance(&mut simulation, 0, warm, stop)?;
    let (finished, counts) = (running.finished(), simulation.counts());
    let transactions = simulation.transactions();
    let before: Vec<Split> = running.threads.iter().map(|&thread| simulation.split(thread)).collect();
    advance(&mut simulation, warm, end, stop)?;
    let mut split = Split::default();
    for (&thread, before) in running.threads.iter().zip(&before) {
        split.add(&simulation.split(thread).since(before));
    }
    let done: Vec<u64> = running.finished().iter().zip(&finished).map(|(now, before)| now - before).collect();
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
        set: SpecialSet::of(&simulation, warm, end),
        aborts_per_commit: (transactions.commits != 0)
            .then(|| transactions.aborts() as f64 / transactions.commits as f64),
        host_accesses: Some(after.accesses as f64 / 1e6 / begin.elapsed().as_secs_f64()),
        accesses: after.accesses,
    })
}
