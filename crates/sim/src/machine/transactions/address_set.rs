//! The address set of a critical section: what it reads and writes (Syncchar, section 4.1).

use std::collections::BTreeSet;

use crate::machine::memory::Access;

/// The machine's memory that a section accessed. Stacks are private to their threads and excluded.
///
/// Lines are cache line numbers. Words are offsets of [cells](crate::machine::SimulatedCell), in
/// bytes from the beginning of the machine's memory. Both are the same in every run of a program. A
/// read-modify-write counts as a read and a write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// Lines read.
    pub read_lines: BTreeSet<u32>,
    /// Lines written.
    pub written_lines: BTreeSet<u32>,
    /// Words read.
    pub read_words: BTreeSet<u64>,
    /// Words written.
    pub written_words: BTreeSet<u64>,
}

impl AddressSet {
    pub(crate) fn add(&mut self, word: u64, line: u32, access: Access) {
        if access != Access::Store {
            self.read_lines.insert(line);
            self.read_words.insert(word);
        }
        if access != Access::Load {
            self.written_lines.insert(line);
            self.written_words.insert(word);
        }
    }
}
