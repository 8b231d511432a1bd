//! Stores whose lines are on their way: a store buffer.
//!
//! A store that misses is put here, and the thread goes on; its later loads of the line find what it has stored. Lines
//! come in the order of the stores (total store order). An atomic access waits until all have come. If it is to a line
//! that has just come, it has it before anybody else: the request of another core that waits for the line has yet to
//! be passed on to this one, which takes as long as half of a transfer. That is why a thread that releases a lock and wants it
//! again at once gets it again, past waiters that poll it: its release takes effect when the line is there, and so does
//! its acquire, a moment later.
//!
//! Values are in the simulated memory when the store is made, but nobody can have them until the line has come, since it
//! is busy; so the machine stays sequentially consistent.

/// Stores that are remembered. One of more is waited for all the same, but its line is not held.
const MOST: usize = 4;

/// Of one thread.
#[derive(Debug, Default)]
pub(super) struct Stores {
    /// Line and 1, and until when it stays.
    recent: [(usize, u64); MOST],
    next: usize,
    drained_at: u64,
}

impl Stores {
    /// A store at the time `now`, whose line comes at the time `done`.
    pub(super) fn push(&mut self, line: usize, now: u64, done: u64) {
        self.drained_at = self.drained_at.max(done);
        let request = done.saturating_sub(now) / 2;
        self.recent[self.next] = (line + 1, self.drained_at + request);
        self.next = (self.next + 1) % MOST;
    }

    /// When all lines have come.
    pub(super) fn drained_at(&self) -> u64 {
        self.drained_at
    }

    /// Whether an atomic access at the time `now` has `line` before anybody else.
    pub(super) fn has_at_hand(&self, line: usize, now: u64) -> bool {
        self.recent.iter().any(|&(known, until)| known == line + 1 && now <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_order_and_stay_for_half_a_transfer() {
        let mut stores = Stores::default();
        stores.push(7, 100, 160);
        stores.push(8, 110, 130);
        assert_eq!(stores.drained_at(), 160);
        assert!(stores.has_at_hand(7, 190) && !stores.has_at_hand(7, 191));
        assert!(stores.has_at_hand(8, 170) && !stores.has_at_hand(8, 171) && !stores.has_at_hand(9, 120));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut stores = Stores::default();
        (0..5).for_each(|line| stores.push(line, 0, 10));
        assert!(!stores.has_at_hand(0, 5) && stores.has_at_hand(4, 5));
    }
}
