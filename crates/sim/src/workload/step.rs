//! What a program is made of.

use serde::{Deserialize, Serialize};

use super::validation::Program;

/// A program: every thread goes through these steps again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What results call it.
    pub name: String,
    /// Groups of locks, by the number of locks in each; a step takes one of its group by chance.
    pub locks: Vec<u32>,
    /// One transaction.
    pub steps: Vec<Step>,
    /// Whether the locks are the operating system's: without owners and statistics, and who waits for a spin lock or
    /// holds one is not preempted.
    #[serde(default)]
    pub in_kernel: bool,
}

/// A part of a transaction. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Computation outside of critical sections, for exactly so long.
    Work {
        /// How long.
        ns: u64,
    },
    /// The same, exponentially distributed about a mean.
    Varying {
        /// The mean.
        ns: u64,
    },
    /// A critical section.
    Section {
        /// Which group's lock.
        group: usize,
        /// Computation in it.
        ns: u64,
        /// Cache lines of shared data that it writes.
        lines: u32,
    },
    /// A row or table of a database is locked for the rest of the transaction: who has to wait sleeps.
    Hold {
        /// Among so many rows, one by chance.
        rows: u32,
    },
    /// A critical section that comes by chance, of exponentially distributed length.
    Perhaps {
        /// Which group's lock.
        group: usize,
        /// How often of a million times.
        per_million: u32,
        /// Mean of the computation in it.
        ns: u64,
        /// Cache lines of shared data that it writes.
        lines: u32,
    },
    /// Computation outside of critical sections whose time was measured: picoseconds.
    Measured {
        /// How long.
        ps: u64,
    },
    /// A critical section that looks at the clock until its time is over, whether or not it had a processor.
    Clocked {
        /// Which group's lock.
        group: usize,
        /// Until when.
        ns: u64,
        /// Cache lines of shared data that it writes.
        lines: u32,
        /// What the calls that lock and unlock take more with another lock than the default, picoseconds.
        dispatch_ps: u64,
    },
    /// The same outside of critical sections.
    Clock {
        /// Until when.
        ns: u64,
    },
    /// An operation on the hash table of `unconvoy bench hashtable`, whose buckets have the locks of the first group.
    /// Picoseconds.
    Table {
        /// To choose a key and an operation.
        outside_ps: u64,
        /// Under the lock, whatever the list.
        section_ps: u64,
        /// For each node on the way to the key.
        visit_ps: u64,
        /// What the calls that lock and unlock take beyond their accesses.
        call_ps: u64,
        /// What they take more with another lock than the default.
        dispatch_ps: u64,
    },
    /// The task ends, by chance, and another one is started in its place.
    Renew {
        /// In one of so many transactions; at least 1.
        one_in: u32,
        /// What both take.
        ns: u64,
    },
    /// Input or output.
    Away {
        /// How long.
        ns: u64,
    },
    /// A critical section of a validation program, under the first lock, and what is before it. A workload has one
    /// such step.
    Validation {
        /// Which.
        program: Program,
    },
}

/// `count` critical sections, and work of `work_ns` on average after each.
pub(super) fn sections(group: usize, ns: u64, work_ns: u64, count: usize) -> impl Iterator<Item = Step> {
    let section = Step::Section { group, ns, lines: 1 };
    std::iter::repeat_n([section, Step::Varying { ns: work_ns }], count).flatten()
}
