//! How often a section waits for a cache line of another processor, if the sections of a lock run
//! as hardware transactions. The paper's model leaves this out: its section 5 assumes that caches
//! cost the same with and without transactions.
//!
//! A lock that one processor takes many times in a row keeps its data in the cache of that
//! processor. Transactions run on all processors at once, so the lines that sections write move
//! between them. Sections of 30 ns then lose more time to transfers than they gain.
//!
//! The model takes the accesses of n processors to a line as randomly ordered. Let a section touch
//! the line with probability a, and write it with probability w. Before a processor touches the
//! line again, another one has written it with probability (n-1)w / ((n-1)w + a); the line is then
//! transferred. Another one has touched it with probability (n-1) / n; a write then invalidates the
//! other copies, which takes as long as a transfer. Lines of a single thread never move.

use crate::hash::Deterministic;
use crate::set::{AddressSet, LINE};
use std::collections::HashMap;

/// The most lines to remember of a lock: 2 MB of memory. Sections that spread over more lines wait
/// for memory anyway.
const MOST_LINES: usize = 1 << 16;

/// The most lines that a transaction may write: those of a first-level cache of 32 KiB.
const CAPACITY: u64 = (32 << 10) / LINE;

/// How the drawn sections of a lock use its data's lines.
#[derive(Debug, Default)]
pub(crate) struct LineUses {
    sections: u64,
    oversized: u64,
    lines: HashMap<u64, LineUse, Deterministic>,
}

#[derive(Debug)]
struct LineUse {
    /// Sections that touch the line, and those that write it.
    touches: u64,
    writes: u64,
    /// The first thread that touched it.
    thread: u32,
    is_shared: bool,
}

impl LineUses {
    /// Adds a drawn section.
    pub fn add(&mut self, thread: u32, set: &AddressSet) {
        self.sections += 1;
        let mut written = 0;
        for accesses in set.accesses().chunk_by(|a, b| a.address / LINE == b.address / LINE) {
            let line = accesses[0].address / LINE;
            let writes = u64::from(accesses.iter().any(|access| access.written != 0));
            written += writes;
            if self.lines.len() == MOST_LINES && !self.lines.contains_key(&line) {
                continue;
            }
            let uses = self.lines.entry(line).or_insert(LineUse {
                touches: 0,
                writes: 0,
                thread,
                is_shared: false,
            });
            uses.touches += 1;
            uses.writes += writes;
            uses.is_shared |= uses.thread != thread;
        }
        self.oversized += u64::from(written > CAPACITY);
    }

    /// Share of the sections that write more than a transaction may, from 0 to 1.
    pub fn oversized(&self) -> f64 {
        self.oversized as f64 / self.sections.max(1) as f64
    }

    /// Mean number of transfers and invalidations that a section waits for on `processors`
    /// processors.
    pub fn transfers(&self, processors: u32) -> f64 {
        let others = f64::from(processors - 1);
        // Ordered, so that the sum is reproducible.
        let mut shared: Vec<_> = self.lines.iter().filter(|(_, uses)| uses.is_shared).collect();
        shared.sort_unstable_by_key(|(line, _)| **line);
        let waits = shared.iter().map(|(_, uses)| {
            let (touches, writes) = (uses.touches as f64, uses.writes as f64);
            let moved = others * writes / (others * writes + touches);
            touches * moved + writes * others / f64::from(processors)
        });
        waits.sum::<f64>() / self.sections.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::tests::byte;

    /// Sections of two threads, each touching these bytes.
    fn uses(sections: &[(u32, &[(u64, bool)])]) -> LineUses {
        let mut uses = LineUses::default();
        for (thread, bytes) in sections {
            let bytes = bytes.iter().map(|(address, written)| byte(*address, *written));
            uses.add(*thread, &AddressSet::new(bytes));
        }
        uses
    }

    #[test]
    fn lines_that_nobody_writes_or_shares_never_move() {
        let read = uses(&[(1, &[(0x1000, false)]), (2, &[(0x1000, false)])]);
        assert_eq!(read.transfers(8), 0.0);
        let own = uses(&[(1, &[(0x1000, true)]), (2, &[(0x2000, true)])]);
        assert_eq!(own.transfers(8), 0.0);
    }

    #[test]
    fn written_line_moves_unless_its_last_user_returns() {
        let both = uses(&[(1, &[(0x1000, true)]), (2, &[(0x1008, true)])]);
        assert_eq!(both.transfers(1), 0.0);
        assert_eq!(both.transfers(2), 0.5 + 0.5);
        assert_eq!(both.transfers(8), 0.875 + 0.875);
        // One section of two writes: the line is transferred in a third of the cases.
        let one = uses(&[(1, &[(0x1000, true)]), (2, &[(0x1008, false)])]);
        assert!((one.transfers(2) - (1.0 / 3.0 + 0.5 * 0.5)).abs() < 1e-12);
    }

    #[test]
    fn oversized_section_writes_more_than_a_cache() {
        let lines = |count: u64| -> Vec<_> { (0..count).map(|line| (line * LINE, true)).collect() };
        let (fits, too_large) = (lines(CAPACITY), lines(CAPACITY + 1));
        assert_eq!(uses(&[(1, &fits), (2, &too_large)]).oversized(), 0.5);
    }

    #[test]
    fn lines_beyond_the_limit_are_left_out() {
        let mut uses = LineUses::default();
        for line in 0..MOST_LINES as u64 + 10 {
            uses.add(1, &AddressSet::new([byte(line * LINE, true)]));
        }
        assert_eq!(uses.lines.len(), MOST_LINES);
    }
}
