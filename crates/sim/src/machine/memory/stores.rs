//! A core's store buffer, and lines that have just come.
//!
//! A store that misses is put into the buffer, and the thread goes on; its later loads of the line
//! find what it has stored. Lines come in the order of the stores (total store order). An atomic
//! access waits until all have come.
//!
//! A line that has come to be written stays for half of what its transfer took: the request of
//! another core that waits for it has yet to be passed on to this one. Until then this core writes
//! to it as often as it likes. That is why a thread that releases a lock and wants it again at once
//! gets it again, past waiters that poll it: its release takes effect when the line is there, and
//! so does its acquire, a moment later.
//!
//! Values are in the simulated memory when the store is made, but nobody can have them until the
//! line has come, since it is busy; so the machine stays sequentially consistent.

/// Lines that are remembered. A store to one more is waited for all the same, but its line is not
/// held.
const MOST: usize = 4;

/// Of one thread.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// Line and 1, and until when it stays.
    recent: [(usize, u64); MOST],
    next: usize,
    drained_at: u64,
}

impl Stores {
    /// A store whose line comes at the time `done`, by a transfer that takes `takes`.
    pub(crate) fn push(&mut self, line: usize, takes: u64, done: u64) {
        self.drained_at = self.drained_at.max(done);
        self.note_arrival(line, takes, self.drained_at);
    }

    /// A line to be written comes at the time `done`, by a transfer that takes `takes`.
    pub(crate) fn note_arrival(&mut self, line: usize, takes: u64, done: u64) {
        self.recent[self.next] = (line + 1, done + takes / 2);
        self.next = (self.next + 1) % MOST;
    }

    /// When the lines of all stores have come.
    pub(crate) fn drained_at(&self) -> u64 {
        self.drained_at
    }

    /// Whether an access at the time `now` that writes to `line` has it before anybody else.
    pub(crate) fn has_at_hand(&self, line: usize, now: u64) -> bool {
        self.recent.iter().any(|&(known, until)| known == line + 1 && now <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_order_and_stay_for_half_a_transfer() {
        let mut stores = Stores::default();
        stores.push(7, 60, 160);
        stores.push(8, 20, 130);
        assert_eq!(stores.drained_at(), 160);
        assert!(stores.has_at_hand(7, 190) && !stores.has_at_hand(7, 191));
        // In order, so that it comes no earlier than the one before.
        assert!(stores.has_at_hand(8, 170) && !stores.has_at_hand(8, 171) && !stores.has_at_hand(9, 120));
        stores.note_arrival(9, 40, 240);
        assert!(stores.has_at_hand(9, 260) && stores.drained_at() == 160);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut stores = Stores::default();
        (0..5).for_each(|line| stores.push(line, 10, 10));
        assert!(!stores.has_at_hand(0, 5) && stores.has_at_hand(4, 5));
    }
}
