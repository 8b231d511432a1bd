//! A writer's wait for a [biased reader-writer lock](super::biased_rw).

use core::cell::Cell;

use super::bias::Bias;
use super::give_way::LateWriter;
use super::visible::{Hold, Row, VisibleReaders};

/// State of a writer's wait: its progress in the revocation of a bias, and the time of its next
/// request to give way.
#[derive(Debug, Default)]
pub struct Drain {
    /// The state that the drain is for.
    state: Cell<u32>,
    /// The rows before this one have no hold.
    row: Cell<usize>,
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

    /// Ends the bias if no published hold is left. Returns whether the lock is unbiased.
    #[cold]
    pub(super) fn revoke<P: VisibleReaders>(&self, bias: Bias<'_, P>, hold: Hold) -> bool {
        loop {
            let (set_at, begin) = (bias.set_at(), P::now());
            let Some((state, is_begun_here)) = bias.begin_drain() else { return true };
            P::order_seq_cst(); // pairs with `BiasedRw::publish`
            if self.state.replace(state) != state {
                self.row.set(0);
            }
            let is_held = self.holder::<P>(hold).is_some();
            if is_begun_here {
                // Before any wait for readers inside, who delay an unbiased lock's writer, too.
                bias.inhibit(set_at, begin, P::rows().len());
            }
            if is_held {
                return false;
            }
            if bias.end_drain(state) {
                return true;
            }
        }
    }

    /// The first row in which the drain finds a hold of the lock. Under one state, a row without a
    /// hold stays so (Invariant 3 of [`biased_rw`](super::biased_rw)).
    pub(super) fn holder<P: VisibleReaders>(&self, hold: Hold) -> Option<&'static Row<P>> {
        let (rows, first) = (P::rows(), self.row.get());
        let found = rows.iter().skip(first).position(|row| row.has(hold));
        let row = found.map_or(rows.len(), |distance| first + distance);
        self.row.set(row);
        rows.get(row)
    }

    /// When a writer that sleeps tries again.
    pub fn retry_at(&self) -> u64 {
        self.late.late_at()
    }
}
