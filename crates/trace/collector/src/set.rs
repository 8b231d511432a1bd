//! The address set of one section: words of 8 bytes, with the bytes read and written, and the places that did so first.

use crate::locks::Locks;
use unconvoy_trace_stream::{Entry, flag};

/// A hash set of words, emptied in constant time, since sections are many and small.
pub struct Set {
    entries: Vec<Entry>,
    /// Open addressing, linear probing. An index into `entries` in the low half, valid if the high half is `epoch`.
    index: Vec<u64>,
    epoch: u32,
    /// Most words.
    limit: usize,
    /// The entry that was accessed last: most accesses are next to each other.
    last: usize,
    cut_short: bool,
}

/// An access of the program.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Of its first byte.
    pub address: u64,
    /// In bytes.
    pub size: u64,
    /// It loads.
    pub read: bool,
    /// It stores.
    pub written: bool,
    /// The number of its place.
    pub place: u32,
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

    /// The section ends: its words without those bytes that are locks', each once, in the order of their first accesses; and its flag if there were too many.
    pub fn ends(&mut self, locks: &Locks) -> (&[Entry], u32) {
        self.entries.retain_mut(|entry| {
            let others = !locks.bytes_of_word(entry.address);
            entry.read &= others;
            entry.written &= others;
            entry.read | entry.written != 0
        });
        (&self.entries, if self.cut_short { flag::CUT_SHORT } else { 0 })
    }

    /// Adds an access; it may span words.
    #[inline]
    pub fn add(&mut self, access: Access) {
        let from = access.address & 7;
        if from + access.size <= 8 {
            self.add_word(access.address - from, (((1_u32 << access.size) - 1) << from) as u8, &access);
        } else {
            self.add_words(access);
        }
    }

    fn add_words(&mut self, access: Access) {
        let mut address = access.address;
        let end = access.address.saturating_add(access.size);
        while address < end {
            let word = address & !7;
            let (from, to) = (address - word, (end - word).min(8));
            let mask = (0xff_u8 << from) & (0xff >> (8 - to));
            self.add_word(word, mask, &access);
            address = word + 8;
        }
    }

    fn add_word(&mut self, word: u64, mask: u8, access: &Access) {
        let at = match self.entries.get(self.last) {
            Some(entry) if entry.address == word => self.last,
            _ => match self.find(word) {
                Some(at) => at,
                None => {
                    self.cut_short = true;
                    return;
                }
            },
        };
        self.last = at;
        let entry = &mut self.entries[at];
        if access.read {
            entry.read |= mask;
            if entry.read_place == 0 {
                entry.read_place = access.place;
            }
        }
        if access.written {
            entry.written |= mask;
            if entry.written_place == 0 {
                entry.written_place = access.place;
            }
        }
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
        self.entries.push(Entry { address: word, ..Entry::default() });
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
