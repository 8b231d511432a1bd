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
    /// Of its children, so many more are lock-intensive from their start.
    pub(crate) heirs: u8,
    /// Of how many slices up to the last one it waited more than the threshold, without one between them.
    pub(crate) in_a_row: u32,
    /// Whether it was lock-intensive from its start.
    pub(crate) is_heir: bool,
    /// It is an heir, and its first slice decides.
    pub(crate) is_on_trial: bool,
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
    pub fn has_heirs(&self) -> bool {
        self.heirs != 0
    }

    /// Whether it was lock-intensive from its start.
    pub fn is_heir(&self) -> bool {
        self.is_heir
    }

    /// Whether it has been found to be lock-intensive.
    pub fn is_lock_intensive(&self) -> bool {
        self.state != State::Ordinary
    }
}

/// A time slice that has ended: what the task did between two context switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The core that it ran on.
    pub core: u32,
    /// How long, in nanoseconds.
    pub ran_ns: u64,
    /// How long of that it waited for locks: the sum over its acquisitions (Algorithm 1), in nanoseconds.
    pub waited_ns: u64,
}

impl Slice {
    /// Whether more than the part `threshold` of it was spent waiting.
    pub fn exceeds(&self, threshold: f64) -> bool {
        self.waited_ns as f64 > threshold * self.ran_ns as f64
    }
}
