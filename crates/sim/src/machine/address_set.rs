//! What a critical section reads and writes: its address set (Syncchar, section 4.1).

use std::collections::BTreeSet;

use super::coherence::Access;
use super::with;

/// The machine's memory that a section accessed. What is on stacks is its thread's own, and not in it.
///
/// Lines are numbers of cache lines, words the places of [cells](crate::platform::SimulatedCell) in bytes from the
/// beginning of the machine's memory: the same in every run of one program. A read-modify-write reads and writes.
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
    pub(super) fn add(&mut self, word: u64, line: u32, access: Access) {
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

/// Runs `section`, and tells what it read and wrote: alone, and not what an attempt did that was undone. Sections in it
/// that are recorded too are not in it.
pub fn recorded<R>(section: impl FnOnce() -> R) -> (R, AddressSet) {
    let recording = Recording::begin();
    let result = section();
    (result, recording.end())
}

/// While it lives, accesses of the calling thread are recorded.
struct Recording {
    before: Option<Box<AddressSet>>,
}

fn exchange(set: Option<Box<AddressSet>>) -> Option<Box<AddressSet>> {
    with(|machine| {
        let recorded = &mut machine.threads[machine.current as usize].recorded;
        machine.attention += u32::from(set.is_some());
        let before = core::mem::replace(recorded, set);
        machine.attention -= u32::from(before.is_some());
        before
    })
}

impl Recording {
    fn begin() -> Self {
        Recording { before: exchange(Some(Box::default())) }
    }

    fn end(mut self) -> AddressSet {
        let set = exchange(self.before.take());
        core::mem::forget(self);
        set.map_or_else(AddressSet::default, |set| *set)
    }
}

impl Drop for Recording {
    /// The section was undone.
    fn drop(&mut self) {
        exchange(self.before.take());
    }
}
