//! A core's store buffer, and its recently received lines.
//!
//! A store that misses goes to the buffer while the thread continues. Later loads of that line by
//! the thread read the stored value. Lines arrive in the order of the stores (total store order).
//! An atomic access waits for all of them.
//!
//! A line received for writing stays with its core for half the latency of its transfer, because
//! the request of a waiting core takes that long to arrive. Meanwhile the core may write the line
//! any number of times. A thread that releases a lock and acquires it again at once therefore
//! succeeds ahead of polling waiters: the release takes effect when the line arrives, and the
//! acquire a moment later.
//!
//! A buffered store writes its value to simulated memory at once. No other core can read the value
//! before the line arrives, because the line is busy. The machine therefore stays sequentially
//! consistent.

/// Number of lines remembered. With more stores under way, a fence waits for all of them, but the
/// core holds only the last `MOST` lines.
const MOST: usize = 4;

/// The buffer of one thread.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// Line number plus 1, and the end of its hold.
    recent: [(usize, u64); MOST],
    next: usize,
    drained_at: u64,
}

impl Stores {
    /// Adds a store whose line arrives at `done`, after a transfer of `takes` nanoseconds.
    pub(crate) fn push(&mut self, line: usize, takes: u64, done: u64) {
        self.drained_at = self.drained_at.max(done);
        self.record_arrival(line, takes, self.drained_at);
    }

    /// Records that a line for writing arrives at `done`, after a transfer of `takes` nanoseconds.
    pub(crate) fn record_arrival(&mut self, line: usize, takes: u64, done: u64) {
        self.recent[self.next] = (line + 1, done + takes / 2);
        self.next = (self.next + 1) % MOST;
    }

    /// When the lines of all stores have arrived.
    pub(crate) fn drained_at(&self) -> u64 {
        self.drained_at
    }

    /// Whether a write to `line` at `now` precedes the waiting cores.
    pub(crate) fn is_held(&self, line: usize, now: u64) -> bool {
        self.recent.iter().any(|&(known, until)| known == line + 1 && now <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_in_order_and_are_held_half_a_transfer() {
        let mut stores = Stores::default();
        stores.push(7, 60, 160);
        stores.push(8, 20, 130);
        assert_eq!(stores.drained_at(), 160);
        assert!(stores.is_held(7, 190) && !stores.is_held(7, 191));
        // Lines arrive in order: 8 arrives no earlier than 7.
        assert!(stores.is_held(8, 170) && !stores.is_held(8, 171) && !stores.is_held(9, 120));
        stores.record_arrival(9, 40, 240);
        assert!(stores.is_held(9, 260) && stores.drained_at() == 160);
    }

    #[test]
    fn oldest_store_is_forgotten() {
        let mut stores = Stores::default();
        (0..5).for_each(|line| stores.push(line, 10, 10));
        assert!(!stores.is_held(0, 5) && stores.is_held(4, 5));
    }
}
