//! The report on a profile: locks with their waits, holds and places.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use unconvoy_profile::{Kind, Recorded, histogram};

use super::names::Names;
use super::options::Sort;
use super::rows::{Place, Row, StackSum};
use super::samples::{HOLDER, Samples, WAITER, Which, all_places, callers};
use crate::advice::finding::Advice;

/// The schema of the JSON report.
const SCHEMA: &str = "unconvoy-profile-1";

/// A whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    schema: &'static str,
    pub program: String,
    pub pid: u32,
    /// Contention manager, or `libc`.
    pub lock: String,
    /// Load manager; empty with libc.
    pub load: String,
    /// Length of the recording.
    pub seconds: f64,
    /// Start of the recording, since 1970.
    pub begin_unix_ns: u64,
    /// Whether the process exited; false if it was killed or still ran.
    pub complete: bool,
    /// See [`Recorded::period_ns`].
    pub period_ns: u64,
    /// Greatest relative error of a quantile.
    pub quantile_error: f64,
    /// Locks grouped by name, in the order of `--sort`.
    pub classes: Vec<Row>,
    /// Single locks, likewise.
    pub locks: Vec<Row>,
    /// Places that waited, those with the most waiting first.
    pub waiters: Vec<Place>,
    /// Places that held a lock while others waited for it, those that caused the most waiting
    /// first.
    pub holders: Vec<Place>,
    /// System calls and tasks that waited for the kernel's locks, those with the most waiting
    /// first; empty if the locks are a program's.
    pub callers: Vec<Place>,
    pub longest: Vec<Long>,
    /// The share of the sampled futex waits that were at locks and condition variables of this
    /// report; null if none was sampled.
    pub coverage: Option<f64>,
    /// What to change, in order of worth.
    pub advice: Vec<Advice>,
    /// What the report does not cover.
    pub remarks: Vec<String>,
    #[serde(skip)]
    pub waiter_stacks: Vec<StackSum>,
    #[serde(skip)]
    pub holder_stacks: Vec<StackSum>,
}

/// One of the longest waits.
#[derive(Debug, Clone, Serialize)]
pub struct Long {
    pub ns: u64,
    /// End of the wait, since the start of the recording.
    pub at_seconds: f64,
    pub lock: String,
    pub place: String,
    pub thread: u32,
    /// Functions of the waiter's stack, outermost first.
    #[serde(skip)]
    pub frames: Vec<String>,
}

impl Report {
    /// The program's name, or the machine.
    pub fn subject(&self) -> &str {
        match self.pid {
            0 => "this machine",
            _ => self.program.rsplit('/').next().unwrap_or_default(),
        }
    }

    /// Evaluates a profile, without remarks and advice.
    pub fn new(recorded: &Recorded, sort: Sort) -> Self {
        Self::named(recorded, sort, &Names::new(recorded))
    }

    /// As [`Self::new`], with names from files that were read before.
    pub fn named(recorded: &Recorded, sort: Sort, names: &Names<'_>) -> Self {
        let named: Vec<String> = recorded.locks.iter().map(|lock| names.lock(lock)).collect();
        let samples = Samples::new(recorded, &named, names);
        let mut locks: Vec<Row> = Vec::new();
        let mut classes: Vec<Row> = Vec::new();
        let mut by_name: BTreeMap<(&str, Kind), Vec<usize>> = BTreeMap::new();
        for (index, lock) in recorded.locks.iter().enumerate() {
            locks.push(samples.row(&named[index], &[index]));
            by_name.entry((&named[index], lock.kind)).or_default().push(index);
        }
        classes.extend(by_name.iter().map(|((name, _), locks)| samples.row(name, locks)));
        for rows in [&mut locks, &mut classes] {
            let total: u64 =
                rows.iter().filter(|row| !row.is_cond()).map(|row| row.waited_ns).sum();
            rows.iter_mut().for_each(|row| row.share = share(row.waited_ns, total));
            rows.sort_by_key(|row| (Reverse(row.order(sort)), row.name.clone()));
        }
        let for_locks = |which: Which| {
            let scaled: Vec<_> = samples.of_locks().collect();
            all_places(&scaled, which, names)
        };
        Report {
            schema: SCHEMA,
            program: recorded.program.display().to_string(),
            pid: recorded.pid,
            lock: recorded.lock.clone(),
            load: recorded.load.clone(),
            seconds: recorded.wall_ns as f64 * 1e-9,
            begin_unix_ns: recorded.begin_unix_ns,
            complete: recorded.has_ended,
            period_ns: recorded.period_ns,
            quantile_error: histogram::ERROR,
            waiters: for_locks(WAITER),
            holders: for_locks(HOLDER),
            callers: callers(&samples.of_locks().collect::<Vec<_>>(), names),
            longest: longest(recorded, &named, names),
            waiter_stacks: samples.stacks(&named, WAITER),
            holder_stacks: samples.stacks(&named, HOLDER),
            advice: Vec::new(),
            remarks: Vec::new(),
            coverage: coverage(recorded),
            classes,
            locks,
        }
    }
}

fn coverage(recorded: &Recorded) -> Option<f64> {
    let [here, elsewhere] = recorded.observed.futex_samples;
    (here + elsewhere > 0).then(|| share(here, here + elsewhere))
}

fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

fn longest(recorded: &Recorded, named: &[String], names: &Names<'_>) -> Vec<Long> {
    let longest = recorded.longest.iter();
    let longest = longest.filter(|wait| recorded.locks[wait.lock].kind.is_lock());
    longest
        .map(|wait| Long {
            ns: wait.ns,
            at_seconds: wait.at_ns as f64 * 1e-9,
            lock: named[wait.lock].clone(),
            place: names.place(wait.stack),
            thread: wait.thread,
            frames: names.frames(wait.stack),
        })
        .collect()
}
