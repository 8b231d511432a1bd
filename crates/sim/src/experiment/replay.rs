//! Recorded critical sections of one lock on n processors, and Syncchar's estimate for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use unconvoy_syncchar::{Analysis, LockAnalysis, Options};

use crate::messages;
use crate::outcome::{Stop, Stopped};
use crate::pair::{self, TRANSACTIONAL};
use crate::parameters::{Count, Parameters, Topology};
use crate::workload::replay::{Execution, Recording, Times};

/// Most cache lines of a recording: half of the simulated memory. Locks take the rest.
const MOST_LINES: usize = 1 << 19;

/// Recorded sections under one lock.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The machine, as [`on_processors`] returns it.
    pub machine: Parameters,
    /// The recorded sections.
    pub recording: Arc<Recording>,
    /// How long they take.
    pub times: Times,
    /// The lock's name.
    pub lock: String,
    /// Sections to execute per processor.
    pub sections: u32,
    /// Random seed.
    pub seed: u64,
}

/// The result of a [`Replay`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// Sections per simulated second.
    pub per_s: f64,
    /// Mean number of threads in a section. Under a lock, the share of the time that it is held.
    pub within: f64,
    /// Share of the time with a thread in a section or waiting for one.
    pub busy: f64,
    /// Number of threads: one per processor, if so many were recorded.
    pub threads: u32,
    /// Aborts per commit, if any transaction committed.
    pub aborts_per_commit: Option<f64>,
}

impl Replay {
    pub(super) fn run(&self, stop: &Stop) -> anyhow::Result<Replayed> {
        if stop.load(Ordering::Relaxed) {
            anyhow::bail!(Stopped);
        }
        ensure!(!self.recording.is_empty(), messages::no_section_recorded());
        let lines = self.recording.lines();
        ensure!(lines <= MOST_LINES, messages::too_many_lines(lines, MOST_LINES));
        ensure!(
            self.lock != TRANSACTIONAL || self.machine.transactions.is_some(),
            messages::no_transactions(&self.machine.name)
        );
        let threads = self.machine.topology.contexts() as u32;
        let sections = u64::from(self.sections) * u64::from(threads);
        let execution = Execution {
            machine: &self.machine,
            recording: &self.recording,
            times: self.times,
            pair: pair::named(&self.lock).map_err(anyhow::Error::msg)?,
            threads,
            sections,
            seed: self.seed,
        };
        let completion = execution.complete()?;
        let (ns, transactions) = (completion.ns as f64, completion.transactions);
        Ok(Replayed {
            per_s: sections as f64 * 1e9 / ns,
            within: completion.within_ns as f64 / ns,
            busy: completion.busy_ns as f64 / ns,
            threads: completion.threads,
            aborts_per_commit: (transactions.commits != 0)
                .then(|| transactions.aborts() as f64 / transactions.commits as f64),
        })
    }
}

/// A machine with `processors` processors: one socket of cores with one context each, which have
/// caches of their own if those of `machine` have.
///
/// A line that no processor has touched yet is a cache hit, because the recorded times contain the
/// accesses to memory.
///
/// # Panics
///
/// Panics if `processors` is 0 or above 4096.
pub fn on_processors(machine: &Parameters, processors: u32) -> Parameters {
    let (many, one) = (Count::new(processors), Count::new(1));
    let (caches_per_socket, cores_per_cache) = match *machine.topology.cores_per_cache {
        1 => (many, one),
        _ => (one, many),
    };
    let mut changed = machine.clone();
    changed.name = format!("{} with {processors} processors", machine.name);
    changed.topology =
        Topology { sockets: one, caches_per_socket, cores_per_cache, contexts_per_core: one };
    changed.memory.memory_ns = machine.memory.hit_ns;
    changed
}

/// What Syncchar finds in the recorded sections.
///
/// # Errors
///
/// `options` are invalid, or nothing was recorded.
pub fn estimates(recording: &Recording, options: Options) -> anyhow::Result<LockAnalysis> {
    let mut analysis = Analysis::new(options)?;
    for (section, accesses) in recording.sections() {
        analysis.section(section, accesses);
    }
    analysis.finish().into_iter().next().context(messages::no_section_recorded())
}
