//! What the policy remembers of a task (section 3.2, Algorithms 1 and 2).
//!
//! | state | from | when |
//! | --- | --- | --- |
//! | `Ordinary` | | it begins |
//! | `Qualified` | `Ordinary` | a time slice ends, of which it waited more than the threshold for locks (or [several](crate::Parameters::slices_in_a_row)) |
//! | `Migrated` | `Qualified` | it is about to acquire a lock: it goes to the special set |
//! | `Qualified` | | it begins, its parent waited more than that in its last slice or had children that did, and [`inherits`](crate::Parameters::inherits) is so |
//! | `Ordinary` | inherited | its first slice ends, of which it waited less |
//!
//! There is no other way back (the paper has none): a set whose tasks do not wait any more grows until it holds them all.

/// The bound for which a task is placed while it has no place in the set.
pub(crate) const NOWHERE: u32 = 0;

/// How a task stands (`is_mig` in the paper's listings).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum State {
    /// Not found to be lock-intensive.
    #[default]
    Ordinary,
    /// Found to be; it goes to the special set when it acquires a lock next.
    Qualified,
    /// It runs in the special set.
    Migrated,
}

/// One task. The back end keeps it with the task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Task {
    pub(crate) state: State,
    /// The bound for which it was moved last (`special_core_bound` of the task).
    pub(crate) placed_for: u32,
    /// The bound when its time slice began (`record_bound`).
    pub(crate) slice_bound: u32,
    /// What it had run and waited then.
    pub(crate) slice_began: Totals,
    /// Children that are yet to inherit, whatever it does itself.
    pub(crate) inheritors: u8,
    /// Number of consecutive time slices above the threshold, up to the last one.
    pub(crate) in_a_row: u32,
    /// Whether it was lock-intensive from its start.
    pub(crate) is_inherited: bool,
    /// It has inherited that, and its first slice decides.
    pub(crate) is_provisional: bool,
    /// Whether it is among the policy's tasks.
    pub(crate) is_counted: bool,
}

impl Task {
    /// How it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it waited more than the threshold in its last slice.
    pub fn waits(&self) -> bool {
        self.in_a_row != 0
    }

    /// Whether its children are lock-intensive from their start though it does not wait itself: the last of them that it could be told of was.
    pub fn passes_on(&self) -> bool {
        self.inheritors != 0
    }

    /// Whether it was lock-intensive from its start.
    pub fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// Whether it has a place in the set.
    pub fn is_placed(&self) -> bool {
        self.state == State::Migrated && self.placed_for != NOWHERE
    }

    /// It has lost its place in the set, and gets another one before its next lock.
    pub fn displace(&mut self) {
        self.placed_for = NOWHERE;
    }

    /// How long its time slice has lasted, where it ran for `ran_ns` in all.
    pub fn slice_ran_ns(&self, ran_ns: u64) -> u64 {
        ran_ns.saturating_sub(self.slice_began.ran_ns)
    }

    /// Its time slice up to now, on `core`.
    pub fn slice(&self, core: u32, now: Totals) -> Slice {
        let waited_ns = now.waited_ns.saturating_sub(self.slice_began.waited_ns);
        Slice { core, ran_ns: self.slice_ran_ns(now.ran_ns), waited_ns }
    }

    /// Whether it has been found to be lock-intensive.
    pub fn is_lock_intensive(&self) -> bool {
        self.state != State::Ordinary
    }
}

/// What a task did so far, in nanoseconds, from any beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// How long it ran, on a clock that goes on at least while it does.
    pub ran_ns: u64,
    /// How long of that it waited for locks.
    pub waited_ns: u64,
}

/// A time slice that has ended: what the task did between two context switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The core that it ran on; [`ELSEWHERE`](Self::ELSEWHERE) if that was not in the set as it is now.
    pub core: u32,
    /// How long, in nanoseconds.
    pub ran_ns: u64,
    /// How long of that it waited for locks: the sum over its acquisitions (Algorithm 1), in nanoseconds.
    pub waited_ns: u64,
}

impl Slice {
    /// None of the cores: a slice that says nothing of the set.
    pub const ELSEWHERE: u32 = u32::MAX;

    /// Whether more than the part `threshold` of it was spent waiting.
    pub fn exceeds(&self, threshold: f64) -> bool {
        self.waited_ns as f64 > threshold * self.ran_ns as f64
    }
}
