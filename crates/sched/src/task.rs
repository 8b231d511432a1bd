//! The policy's state of a task (section 3.2, Algorithms 1 and 2).
//!
//! | state | from | when |
//! | --- | --- | --- |
//! | `Ordinary` | | the task begins |
//! | `Qualified` | `Ordinary` | a slice (or [several](crate::Parameters::slices_in_a_row)) ends above the threshold |
//! | `Migrated` | `Qualified` | the task is about to acquire a lock: it moves to the special set |
//! | `Qualified` | | the task begins, and [`inherits`](crate::Parameters::inherits) applies to it |
//! | `Ordinary` | an inherited state | the task's first slice ends below the threshold |
//!
//! As in the paper, no other transition leads back to `Ordinary`. If the tasks of a set stop
//! waiting, the set grows until each of them has a core.

/// Value of `placed_for` while a task has no core in the set.
pub(crate) const NOWHERE: u32 = 0;

/// State of a task (`is_mig` in the paper's listings).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum State {
    /// Not known to be lock-intensive.
    #[default]
    Ordinary,
    /// Lock-intensive; moves to the special set before its next lock.
    Qualified,
    /// Lock-intensive and confined to the special set.
    Migrated,
}

/// One task. The back end stores it with its own data about the task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Task {
    pub(crate) state: State,
    /// The bound at the task's last move (`special_core_bound` of the task).
    pub(crate) placed_for: u32,
    /// The bound at the start of the time slice (`record_bound`).
    pub(crate) slice_bound: u32,
    /// The task's totals at the start of the time slice.
    pub(crate) slice_began: Totals,
    /// Number of further children that start lock-intensive, whatever the task itself does.
    pub(crate) inheritors: u8,
    /// Number of consecutive time slices above the threshold, up to the last one.
    pub(crate) in_a_row: u32,
    /// Whether the task started lock-intensive.
    pub(crate) is_inherited: bool,
    /// Whether the task inherited its state and has not ended its first slice, which decides
    /// whether the task keeps the state.
    pub(crate) is_provisional: bool,
    /// Whether [`Policy::tasks`](crate::Policy::tasks) includes the task.
    pub(crate) is_counted: bool,
}

impl Task {
    /// The task's state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the task's last slice was above the threshold.
    pub fn waits(&self) -> bool {
        self.in_a_row != 0
    }

    /// Whether the task's children start lock-intensive even while the task itself does not wait,
    /// because its last child with a known state was lock-intensive.
    pub fn passes_on(&self) -> bool {
        self.inheritors != 0
    }

    /// Whether the task started lock-intensive.
    pub fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// Whether the task has a core in the set.
    pub fn is_placed(&self) -> bool {
        self.state == State::Migrated && self.placed_for != NOWHERE
    }

    /// Takes the task's core in the set away. The policy assigns a core again before the task's
    /// next lock.
    pub fn displace(&mut self) {
        self.placed_for = NOWHERE;
    }

    /// Length of the present time slice, for a task that has run for `ran_ns` in total.
    pub fn slice_ran_ns(&self, ran_ns: u64) -> u64 {
        ran_ns.saturating_sub(self.slice_began.ran_ns)
    }

    /// The time slice up to now, on `core`.
    pub fn slice(&self, core: u32, now: Totals) -> Slice {
        let waited_ns = now.waited_ns.saturating_sub(self.slice_began.waited_ns);
        Slice { core, ran_ns: self.slice_ran_ns(now.ran_ns), waited_ns }
    }

    /// Whether the task is lock-intensive.
    pub fn is_lock_intensive(&self) -> bool {
        self.state != State::Ordinary
    }
}

/// A task's totals since an arbitrary start, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Time that the task ran, on a clock that advances at least while the task runs.
    pub ran_ns: u64,
    /// Part of `ran_ns` that the task waited for locks.
    pub waited_ns: u64,
}

/// A finished time slice: what a task did between two context switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The core that the task ran on, or [`ELSEWHERE`](Self::ELSEWHERE) if the core was not in the
    /// present set.
    pub core: u32,
    /// Length in nanoseconds.
    pub ran_ns: u64,
    /// Time in the slice that the task waited for locks, in nanoseconds: the sum over its
    /// acquisitions (Algorithm 1).
    pub waited_ns: u64,
}

impl Slice {
    /// No core of the set: the slice does not vote.
    pub const ELSEWHERE: u32 = u32::MAX;

    /// Whether the task waited for more than the fraction `threshold` of the slice.
    pub fn exceeds(&self, threshold: f64) -> bool {
        self.waited_ns as f64 > threshold * self.ran_ns as f64
    }
}
