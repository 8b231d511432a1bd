//! What a critical section reads and writes: its address set (Syncchar, section 4.1).

use std::collections::BTreeSet;

use crate::machine::memory::Access;

/// The machine's memory that a section accessed. What is on stacks is its thread's own, and not in
/// it.
///
/// Lines are numbers of cache lines, words the places of [cells](crate::machine::SimulatedCell) in
/// bytes from the beginning of the machine's memory: the same in every run of one program. A
/// read-modify-write reads and writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// Lines that it read.
    pub read_lines: BTreeSet<u32>,
    /// Lines that it wrote.
    pub written_lines: BTreeSet<u32>,
    /// Words that it read.
    pub read_words: BTreeSet<u64>,
    /// Words that it wrote.
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
