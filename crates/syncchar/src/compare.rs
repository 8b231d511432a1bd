//! Compares all pairs of a sample's sections (section 4.3 of the paper, Figure 4), by byte and by
//! line at once.
//!
//! Pairs are not intersected one by one. Instead, the accesses of all sections are sorted by
//! address, so that the accesses to one line, and to one word, are adjacent. Lines that no section
//! writes or that only one section touches are skipped; most lines are. In each remaining line, two
//! sections are related if one writes what the other touches: the line, or bytes of the same word.

use crate::conflicts::{Conflicts, pattern};
use crate::estimate::Outcome;
use crate::relation::Relation;
use crate::set::{AddressSet, LINE};
use std::ops::Range;
use unconvoy_trace_stream::Access;

/// Compares the sections of a sample. Returns the outcome by byte and by line.
pub fn compare(sample: &[AddressSet]) -> (Outcome, Outcome) {
    let sets: Vec<&AddressSet> = sample.iter().collect();
    Comparison::default().compare(&sets, &mut Conflicts::default())
}

/// Reusable buffers of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    touches: Vec<Touch>,
    bytes: Relation,
    lines: Relation,
    /// Byte conflicts within the current line.
    near: Relation,
    cells: Vec<Cell>,
    /// The sections that touch the current line, and whether they write it.
    here: Vec<(usize, bool)>,
    /// For each section, its index in `here` plus 1; 0 if absent.
    place_here: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Touch {
    section: usize,
    access: Access,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    patterns: u8,
    /// Number of conflicting words, counted up to 2.
    words: u8,
    /// The first conflicting word.
    address: u64,
}

impl Comparison {
    /// Compares the sections of a sample, by byte and by line, and counts what they conflict on.
    pub fn compare(
        &mut self,
        sample: &[&AddressSet],
        conflicts: &mut Conflicts,
    ) -> (Outcome, Outcome) {
        let threads = sample.len();
        self.bytes.reset(threads);
        self.lines.reset(threads);
        self.cells.clear();
        self.cells.resize(threads * threads, Cell::default());
        self.touches.clear();
        for (section, set) in sample.iter().enumerate() {
            self.touches
                .extend(set.accesses().iter().map(|access| Touch { section, access: *access }));
        }
        // The stable sort detects the sets' sorted runs and merges them.
        self.touches.sort_by_key(|touch| touch.access.address);
        let mut words = 0;
        let mut start = 0;
        while start < self.touches.len() {
            let line = self.touches[start].access.address / LINE;
            let mut end = start;
            let (mut written, mut shared) = (0, false);
            let mut address = u64::MAX;
            while let Some(touch) =
                self.touches.get(end).filter(|touch| touch.access.address / LINE == line)
            {
                written |= touch.access.written;
                shared |= touch.section != self.touches[start].section;
                words += usize::from(touch.access.address != address);
                address = touch.access.address;
                end += 1;
            }
            if written != 0 && shared {
                self.line(start..end, conflicts);
            }
            start = end;
        }
        for io in sample.iter().enumerate().filter(|(_, set)| set.io()).map(|(section, _)| section)
        {
            for other in (0..threads).filter(|other| *other != io) {
                self.bytes.relate(io, other);
                self.lines.relate(io, other);
                self.cells[io.min(other) * threads + io.max(other)].patterns |= pattern::IO;
            }
        }
        conflicts.workset(words);
        self.pairs(threads, conflicts);
        let outcome =
            |(conflicting, pairs)| Outcome { threads: threads as u32, conflicting, pairs };
        (outcome(self.bytes.count()), outcome(self.lines.count()))
    }

    /// Relates the sections that conflict in one line.
    fn line(&mut self, run: Range<usize>, conflicts: &mut Conflicts) {
        let threads = self.cells.len().isqrt();
        self.near.reset(threads);
        let mut start = run.start;
        while start < run.end {
            let address = self.touches[start].access.address;
            let word = self.touches[start..run.end]
                .iter()
                .take_while(|touch| touch.access.address == address)
                .count();
            if word > 1 {
                self.word(start..start + word, threads, conflicts);
            }
            start += word;
        }
        self.here.clear();
        self.place_here.clear();
        self.place_here.resize(threads, 0);
        for touch in &self.touches[run.clone()] {
            let writes = touch.access.written != 0;
            match self.place_here[touch.section] {
                0 => {
                    self.here.push((touch.section, writes));
                    self.place_here[touch.section] = self.here.len();
                }
                place => self.here[place - 1].1 |= writes,
            }
        }
        let mut falsely = 0;
        for (index, (section, writes)) in self.here.iter().enumerate() {
            for (other, other_writes) in &self.here[index + 1..] {
                if writes | other_writes {
                    self.lines.relate(*section, *other);
                    falsely += u32::from(!self.near.has(*section, *other));
                }
            }
        }
        if falsely > 0 {
            let written = self.touches[run.clone()].iter().find(|touch| touch.access.written != 0);
            conflicts.line(
                written
                    .map_or(self.touches[run.start].access.address, |touch| touch.access.address),
                falsely,
            );
        }
    }

    /// Relates the sections that conflict in one word. Each section touches it once.
    fn word(&mut self, run: Range<usize>, threads: usize, conflicts: &mut Conflicts) {
        let touches = &self.touches[run];
        let mut pairs = 0;
        for (index, a) in touches.iter().enumerate() {
            for b in &touches[index + 1..] {
                let meet =
                    a.access.written & b.access.touched() | b.access.written & a.access.touched();
                if meet == 0 {
                    continue;
                }
                pairs += 1;
                self.bytes.relate(a.section, b.section);
                self.near.relate(a.section, b.section);
                let cell =
                    &mut self.cells[a.section.min(b.section) * threads + a.section.max(b.section)];
                cell.patterns |= pattern::of(&a.access, &b.access);
                if cell.words == 0 {
                    cell.address = a.access.address;
                }
                cell.words = (cell.words + 1).min(2);
            }
        }
        if pairs > 0 {
            conflicts.word(
                touches[0].access.address,
                pairs,
                touches.iter().map(|touch| touch.access),
            );
        }
    }

    /// Counts the pairs, and those that conflict on a single word.
    fn pairs(&self, threads: usize, conflicts: &mut Conflicts) {
        for a in 0..threads {
            for b in a + 1..threads {
                let cell = self.cells[a * threads + b];
                conflicts.compared += 1;
                conflicts.on_bytes += u64::from(cell.words > 0);
                conflicts.on_lines_only += u64::from(cell.patterns == 0 && self.lines.has(a, b));
                if cell.patterns != 0 {
                    conflicts.patterns[usize::from(cell.patterns)] += 1;
                }
                if cell.words == 1 && cell.patterns & pattern::IO == 0 {
                    conflicts.alone(cell.address);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
