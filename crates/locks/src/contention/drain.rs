//! A writer's wait for a [biased reader-writer lock](super::biased_rw).

use core::cell::Cell;

use super::give_way::LateWriter;

/// State of a writer's wait: its progress in the revocation of a bias, and the time of its next
/// request to give way.
#[derive(Debug, Default)]
pub struct Drain {
    /// The state that the drain is for.
    pub(super) state: Cell<u32>,
    /// The rows before this one have no hold.
    pub(super) row: Cell<usize>,
    pub(super) late: LateWriter,
    /// When the writer gives up.
    pub(super) deadline: Option<u64>,
}

impl Drain {
    /// A drain that has not begun, of a writer that waits until it holds the lock.
    pub fn new() -> Self {
        Drain::default()
    }

    /// A drain that has not begun, of a writer that gives up at `deadline`.
    pub fn until(deadline: Option<u64>) -> Self {
        Drain { deadline, ..Drain::default() }
    }

    /// When a writer that sleeps tries again.
    pub fn retry_at(&self) -> u64 {
        self.late.late_at()
    }
}
