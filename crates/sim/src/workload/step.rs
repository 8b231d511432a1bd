//! The parts of a program.

use serde::{Deserialize, Serialize};

use super::validation::Program;

/// A program. Every thread repeats its steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Name in results.
    pub name: String,
    /// Groups of locks, by number of locks; a step takes a random lock of its group.
    pub locks: Vec<u32>,
    /// The steps of one transaction.
    pub steps: Vec<Step>,
    /// Threads beside those, whose transactions do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Others>,
    /// Whether the locks are kernel locks: without owners and statistics; waiters and holder of a
    /// spin lock are not preempted.
    #[serde(default)]
    pub in_kernel: bool,
    /// Whether threads pass a checkpoint at the end of each transaction, where they may sleep for
    /// load.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub checkpoints: bool,
}

/// Threads that repeat other steps than the rest of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// Number of threads.
    pub threads: u32,
    /// What each repeats.
    pub steps: Vec<Step>,
}

impl Workload {
    /// The steps of all threads.
    pub(super) fn all_steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().chain(self.others.iter().flat_map(|others| &others.steps))
    }

    /// The same program, with checkpoints.
    #[must_use]
    pub fn with_checkpoints(self) -> Self {
        Workload { checkpoints: true, ..self }
    }

    /// Whether the program has a reader-writer lock.
    pub(crate) fn has_shared_lock(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Lookup { .. }))
    }

    /// Whether its sections can run as transactions: they change only the machine's memory, and end
    /// by themselves.
    pub(crate) fn can_be_transactional(&self) -> bool {
        let is_excluded = |step: &Step| {
            matches!(step, Step::Clocked { .. } | Step::Nested { .. } | Step::Table { .. })
        };
        !self.all_steps().any(is_excluded)
    }
}

/// A step of a transaction. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Computation outside critical sections, of fixed length.
    Work {
        /// Length.
        ns: u64,
    },
    /// Computation outside critical sections, of exponentially distributed length.
    Varying {
        /// Mean length.
        ns: u64,
    },
    /// A critical section.
    Section {
        /// Group of the lock.
        group: usize,
        /// Computation in the section.
        ns: u64,
        /// Shared cache lines that the section writes.
        lines: u32,
    },
    /// A lock on a database row for the rest of the transaction. Waiters sleep.
    Hold {
        /// Number of rows, of which a random one is locked.
        rows: u32,
    },
    /// A critical section that occurs at random, of exponentially distributed length.
    Perhaps {
        /// Group of the lock.
        group: usize,
        /// Probability in millionths.
        per_million: u32,
        /// Mean computation in the section.
        ns: u64,
        /// Shared cache lines that the section writes.
        lines: u32,
    },
    /// Computation outside critical sections, of measured length.
    Measured {
        /// Length in picoseconds.
        ps: u64,
    },
    /// A critical section that reads the clock until its time is over. The time passes whether or
    /// not the thread has a processor.
    Clocked {
        /// Group of the lock.
        group: usize,
        /// Length on the clock.
        ns: u64,
        /// Shared cache lines that the section writes.
        lines: u32,
        /// Extra cost of the calls that lock and unlock for a lock other than the default, in
        /// picoseconds.
        dispatch_ps: u64,
    },
    /// A critical section that contains another one, each for a time on the clock and with one
    /// shared cache line.
    Nested {
        /// Group of the outer lock.
        outer: usize,
        /// Group of the inner lock.
        inner: usize,
        /// Length of the outer section, without the inner one.
        outer_ns: u64,
        /// Length of the inner section.
        inner_ns: u64,
        /// As in [`Step::Clocked`].
        dispatch_ps: u64,
    },
    /// A loop outside critical sections that reads the clock until its time is over.
    Clock {
        /// Length on the clock.
        ns: u64,
    },
    /// An operation on the hash table of `unconvoy bench hashtable`. The first group has the locks
    /// of the buckets. Times are in picoseconds.
    Table {
        /// Choice of a key and an operation.
        outside_ps: u64,
        /// Work under the lock, without the walk along the list.
        section_ps: u64,
        /// One node of the walk.
        visit_ps: u64,
        /// The calls that lock and unlock, without their accesses.
        call_ps: u64,
        /// Extra cost of the calls for a lock other than the default.
        dispatch_ps: u64,
    },
    /// A lookup in the table of `unconvoy bench rwlock`, or a change, under one reader-writer lock.
    /// At most one such step per workload.
    Lookup {
        /// Changes per million operations.
        changes_per_million: u32,
        /// Choice of an entry and of the operation, in picoseconds.
        outside_ps: u64,
    },
    /// End of the task at random; another one starts in its place.
    Renew {
        /// Mean number of transactions per task; at least 1.
        one_in: u32,
        /// Time of the end and the start together.
        ns: u64,
    },
    /// Input or output.
    Away {
        /// Length.
        ns: u64,
    },
    /// A critical section of a validation program under the first lock, preceded by computation. At
    /// most one such step per workload.
    Validation {
        /// The validation program.
        program: Program,
    },
}

/// `count` critical sections, each followed by work with a mean of `work_ns`.
pub(super) fn sections(
    group: usize,
    ns: u64,
    work_ns: u64,
    count: usize,
) -> impl Iterator<Item = Step> {
    let section = Step::Section { group, ns, lines: 1 };
    std::iter::repeat_n([section, Step::Varying { ns: work_ns }], count).flatten()
}
