//! Which transactions have accessed which lines.

use crate::machine::memory::LINES;
use crate::machine::thread::NO_THREAD;
use crate::machine::zeroes::Zeroes;

/// The transactions that have accessed one line.
struct Users {
    writer: u32,
    readers: Vec<u32>,
}

/// The transactions that have accessed each line.
pub(super) struct LineTable {
    /// Index into `entries` plus 1 for each line; 0 if no transaction has accessed it.
    places: Zeroes<u32>,
    entries: Vec<Users>,
    free: Vec<u32>,
}

impl LineTable {
    pub(super) fn new() -> Self {
        LineTable { places: Zeroes::new(LINES), entries: Vec::new(), free: Vec::new() }
    }

    fn entry(&mut self, line: u32) -> &mut Users {
        let place = self.places.at(line as usize);
        if *place == 0 {
            let free = self.free.pop().unwrap_or_else(|| {
                self.entries.push(Users { writer: NO_THREAD, readers: Vec::new() });
                self.entries.len() as u32 - 1
            });
            *place = free + 1;
        }
        &mut self.entries[*place as usize - 1]
    }

    /// Threads with transactions that conflict with an access of `thread`.
    pub(super) fn opponents(&mut self, line: u32, thread: u32, writes: bool) -> Vec<u32> {
        let place = *self.places.at(line as usize);
        if place == 0 {
            return Vec::new();
        }
        let Users { writer, readers } = &self.entries[place as usize - 1];
        let writer = Some(*writer).filter(|&writer| writer != NO_THREAD && writer != thread);
        let readers = readers
            .iter()
            .copied()
            .filter(|&reader| writes && reader != thread && Some(reader) != writer);
        writer.into_iter().chain(readers).collect()
    }

    /// Adds `line` to the write set of `thread`. Returns whether it is new there.
    pub(super) fn write(&mut self, line: u32, thread: u32) -> bool {
        core::mem::replace(&mut self.entry(line).writer, thread) != thread
    }

    /// Adds `line` to the read set of `thread`. Returns whether it is new there.
    pub(super) fn read(&mut self, line: u32, thread: u32) -> bool {
        let Users { readers, .. } = self.entry(line);
        let is_new = !readers.contains(&thread);
        if is_new {
            readers.push(thread);
        }
        is_new
    }

    pub(super) fn remove(&mut self, line: u32, thread: u32) {
        let place = *self.places.at(line as usize);
        if place == 0 {
            return; // The line was in both sets, and has been removed already.
        }
        let users = &mut self.entries[place as usize - 1];
        if users.writer == thread {
            users.writer = NO_THREAD;
        }
        users.readers.retain(|&reader| reader != thread);
        if users.writer == NO_THREAD && users.readers.is_empty() {
            *self.places.at(line as usize) = 0;
            self.free.push(place - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_conflict_with_writer_and_writes_with_all() {
        let mut lines = LineTable::new();
        assert!(lines.write(5, 0) && lines.read(5, 1) && lines.read(5, 2) && lines.read(5, 0));
        assert!(!lines.write(5, 0) && !lines.read(5, 2), "known already");
        assert_eq!(lines.opponents(5, 3, false), [0]);
        assert_eq!(lines.opponents(5, 3, true), [0, 1, 2]);
        assert_eq!(lines.opponents(5, 0, true), [1, 2], "not with itself");
        assert!(lines.opponents(6, 3, true).is_empty(), "another line");
    }

    #[test]
    fn entry_of_unused_line_is_reused() {
        let mut lines = LineTable::new();
        assert!(lines.write(5, 0) && lines.read(5, 0));
        (0..2).for_each(|_| lines.remove(5, 0));
        assert!(lines.opponents(5, 1, true).is_empty());
        lines.read(9, 1);
        assert_eq!((lines.entries.len(), lines.free.len()), (1, 0));
        assert!(lines.opponents(5, 0, true).is_empty());
    }
}
