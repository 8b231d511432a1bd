//! Which transactions have accessed which lines.

use crate::machine::memory::LINES;
use crate::machine::thread::NOBODY;
use crate::machine::zeroes::Zeroes;

/// The transactions that have accessed a line.
struct Mark {
    writer: u32,
    readers: Vec<u32>,
}

/// The marks of all lines.
pub(super) struct Marks {
    /// By line, the place of its mark and 1; 0 if it has none.
    places: Zeroes<u32>,
    marks: Vec<Mark>,
    free: Vec<u32>,
}

impl Marks {
    pub(super) fn new() -> Self {
        Marks { places: Zeroes::new(LINES), marks: Vec::new(), free: Vec::new() }
    }

    fn mark(&mut self, line: u32) -> &mut Mark {
        let place = self.places.at(line as usize);
        if *place == 0 {
            let free = self.free.pop().unwrap_or_else(|| {
                self.marks.push(Mark { writer: NOBODY, readers: Vec::new() });
                self.marks.len() as u32 - 1
            });
            *place = free + 1;
        }
        &mut self.marks[*place as usize - 1]
    }

    /// Whose transactions an access of `thread` conflicts with.
    pub(super) fn opponents(&mut self, line: u32, thread: u32, writes: bool) -> Vec<u32> {
        let place = *self.places.at(line as usize);
        if place == 0 {
            return Vec::new();
        }
        let Mark { writer, readers } = &self.marks[place as usize - 1];
        let writer = Some(*writer).filter(|&writer| writer != NOBODY && writer != thread);
        let readers = readers.iter().copied().filter(|&reader| writes && reader != thread && Some(reader) != writer);
        writer.into_iter().chain(readers).collect()
    }

    /// The transaction of `thread` writes to `line`. Whether that is new.
    pub(super) fn write(&mut self, line: u32, thread: u32) -> bool {
        core::mem::replace(&mut self.mark(line).writer, thread) != thread
    }

    /// The transaction of `thread` reads `line`. Whether that is new.
    pub(super) fn read(&mut self, line: u32, thread: u32) -> bool {
        let Mark { readers, .. } = self.mark(line);
        let is_new = !readers.contains(&thread);
        if is_new {
            readers.push(thread);
        }
        is_new
    }

    /// `thread` has neither read nor written `line`.
    pub(super) fn unmark(&mut self, line: u32, thread: u32) {
        let place = *self.places.at(line as usize);
        if place == 0 {
            return; // it was read and written
        }
        let mark = &mut self.marks[place as usize - 1];
        if mark.writer == thread {
            mark.writer = NOBODY;
        }
        mark.readers.retain(|&reader| reader != thread);
        if mark.writer == NOBODY && mark.readers.is_empty() {
            *self.places.at(line as usize) = 0;
            self.free.push(place - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_conflict_with_the_writer_and_writes_with_all() {
        let mut marks = Marks::new();
        assert!(marks.write(5, 0) && marks.read(5, 1) && marks.read(5, 2) && marks.read(5, 0));
        assert!(!marks.write(5, 0) && !marks.read(5, 2), "known already");
        assert_eq!(marks.opponents(5, 3, false), [0]);
        assert_eq!(marks.opponents(5, 3, true), [0, 1, 2]);
        assert_eq!(marks.opponents(5, 0, true), [1, 2], "not with itself");
        assert!(marks.opponents(6, 3, true).is_empty(), "another line");
    }

    #[test]
    fn mark_of_a_line_that_nobody_uses_serves_another() {
        let mut marks = Marks::new();
        assert!(marks.write(5, 0) && marks.read(5, 0));
        (0..2).for_each(|_| marks.unmark(5, 0));
        assert!(marks.opponents(5, 1, true).is_empty());
        marks.read(9, 1);
        assert_eq!((marks.marks.len(), marks.free.len()), (1, 0));
        assert!(marks.opponents(5, 0, true).is_empty());
    }
}
