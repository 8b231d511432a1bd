//! What the policy remembers of a task (section 3.2, Algorithms 1 and 2).
//!
//! | state | from | when |
//! | --- | --- | --- |
//! | `Ordinary` | | it begins |
//! | `Qualified` | `Ordinary` | a time slice ends, of which it waited more than the threshold for locks |
//! | `Migrated` | `Qualified` | it is about to acquire a lock: it goes to the special set |
//!
//! There is no way back (the paper has none): a set whose tasks do not wait any more grows until it holds them all.

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
}

impl Task {
    /// How it stands.
    pub fn state(&self) -> State {
        self.state
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
