//! The address set of one section: words of 8 bytes, with the bytes read and written, and the
//! places that did so first.

use crate::locks::Locks;
use unconvoy_trace_stream::{Access, flag};

/// A hash set of words, emptied in constant time, since sections are many and small.
pub struct Set {
    entries: Vec<Access>,
    /// Open addressing, linear probing. An index into `entries` in the low half, valid if the high
    /// half is `epoch`.
    index: Vec<u64>,
    epoch: u32,
    /// Most words.
    limit: usize,
    /// The entry that was accessed last: most accesses are next to each other.
    last: usize,
    cut_short: bool,
}

impl Set {
    /// An empty set of at most `limit` words.
    pub fn new(limit: usize) -> Self {
        Set { entries: Vec::new(), index: vec![0; 128], epoch: 1, limit, last: 0, cut_short: false }
    }

    /// Empties it.
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

    /// The section ends: its words without those bytes that are locks', each once, in the order of
    /// their first accesses; and its flag if there were too many.
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
        let is_last = self.entries.get(self.last).is_some_and(|entry| entry.address == access.address);
        if !is_last {
            match self.find(access.address) {
                Some(at) => self.last = at,
                None => return self.cut_short = true,
            }
        }
        self.entries[self.last].merge(access);
    }

    /// Where the word's entry is, made if there is none; nothing if the set is full.
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
        // At most half full.
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
