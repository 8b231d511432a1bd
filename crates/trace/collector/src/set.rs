//! The address set of one section. For each 8-byte word it has the bytes read and written, the
//! first place that read the word, and the first place that wrote it.

use crate::locks::Locks;
use unconvoy_trace_stream::{Access, flag};

/// A hash set of words. Clearing takes constant time, because sections are many and small.
pub struct Set {
    entries: Vec<Access>,
    /// Open addressing with linear probing. The low half of a slot is an index into `entries`,
    /// valid if the high half equals `epoch`.
    index: Vec<u64>,
    epoch: u32,
    /// Greatest number of words.
    limit: usize,
    /// The entry accessed last: consecutive accesses often touch the same word.
    last: usize,
    cut_short: bool,
}

impl Set {
    /// An empty set of at most `limit` words.
    pub fn new(limit: usize) -> Self {
        Set { entries: Vec::new(), index: vec![0; 128], epoch: 1, limit, last: 0, cut_short: false }
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.cut_short = false;
        self.last = 0;
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.index.fill(0);
            self.epoch = 1;
        }
    }

    /// Ends the section. Returns its words, without bytes of locks, in the order of first access,
    /// and [`flag::CUT_SHORT`] if words were dropped.
    pub fn finish(&mut self, locks: &Locks) -> (&[Access], u32) {
        self.entries.retain_mut(|entry| {
            let others = !locks.bytes_of_word(entry.address);
            entry.read &= others;
            entry.written &= others;
            entry.touched() != 0
        });
        (&self.entries, if self.cut_short { flag::CUT_SHORT } else { 0 })
    }

    /// Adds an access.
    #[inline]
    pub fn add(&mut self, access: &Access) {
        let is_last =
            self.entries.get(self.last).is_some_and(|entry| entry.address == access.address);
        if !is_last {
            match self.find(access.address) {
                Some(at) => self.last = at,
                None => return self.cut_short = true,
            }
        }
        self.entries[self.last].merge(access);
    }

    /// The index of the word's entry, which is created if needed. `None` if the set is full.
    fn find(&mut self, word: u64) -> Option<usize> {
        let slots = self.index.len() - 1;
        let mut slot = hash(word) & slots;
        loop {
            let held = self.index[slot];
            if (held >> 32) as u32 != self.epoch {
                break;
            }
            let at = held as u32 as usize;
            if self.entries[at].address == word {
                return Some(at);
            }
            slot = (slot + 1) & slots;
        }
        if self.entries.len() >= self.limit {
            return None;
        }
        let at = self.entries.len();
        self.entries.push(Access { address: word, ..Access::default() });
        self.index[slot] = u64::from(self.epoch) << 32 | at as u64;
        // Keeps the table at most half full.
        if self.entries.len() * 2 > self.index.len() {
            self.grow();
        }
        Some(at)
    }

    #[cold]
    fn grow(&mut self) {
        let slots = self.index.len() * 2 - 1;
        self.index = vec![0; slots + 1];
        self.epoch = 1;
        for (at, entry) in self.entries.iter().enumerate() {
            let mut slot = hash(entry.address) & slots;
            while self.index[slot] != 0 {
                slot = (slot + 1) & slots;
            }
            self.index[slot] = 1 << 32 | at as u64;
        }
    }
}

fn hash(word: u64) -> usize {
    ((word >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}
