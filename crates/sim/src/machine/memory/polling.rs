//! Waiters that poll unchanged lines: they spend simulated time, but cost the simulator no work.
//!
//! A pause begins a turn of a waiting loop. A turn has no lasting effect if it only loaded lines
//! that have not changed since, stored to lines that no other thread polls, and read the clock. The
//! following turns will do the same until one of the lines changes or the clock reaches a
//! threshold. The thread is therefore suspended until another context changes one of the lines, or
//! for a span that grows from one suspension to the next. After a change, the thread's next poll
//! misses its cache and pays for the transfer.
//!
//! *Not* noticed before the end of the span: a change by another context of the same core between
//! the thread's load and its suspension. The contexts share a cache, so a write to a line that no
//! other core has read is a hit, and the line keeps its version.
//!
//! Two rules bound the error. First, a loop that counts its polls instead of reading the clock is
//! not suspended. Such a loop calls
//! [`Spin::pause_counted`](unconvoy::primitive::Spin::pause_counted). In any case, a thread is
//! suspended only if it has read the clock since its last suspension. Second, the span limits how
//! late a waiter notices that a time limit has passed. A span is an eighth of the time polled so
//! far ([`LATENESS`]), at least [`FIRST_SPAN_NS`] and at most [`LONGEST_SPAN_NS`]. Times measured
//! from the beginning of the wait are therefore at most an eighth too long. Load managers'
//! thresholds are 5 us and longer. For shorter times the algorithms call
//! [`Spin::delay`](unconvoy::primitive::Spin::delay), which is exact.

use super::arena::LINES;
use crate::machine::zeroes::Zeroes;

/// A third of the longest time between two time stamps of a time-published waiter (25 us,
/// `contention/tpmcs.rs`), the only threshold not measured from the beginning of a wait.
const LONGEST_SPAN_NS: u64 = 8_000;
/// A quarter of the shortest threshold (1 us, `load/yield.rs`).
const FIRST_SPAN_NS: u64 = 250;
/// A waiter may be late by one part in `LATENESS` of the time it has polled.
const LATENESS: u64 = 8;

/// Most lines that a suspended turn may load. Turns with more lines are simulated one by one.
const TURN_LINES: usize = 8;

/// A thread's activity since its last pause, and the lines it watches.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// Whether loads are recorded.
    recording: bool,
    /// Whether the turn did more than poll.
    dirty: bool,
    clock_seen: bool,
    loaded: [(u32, u32); TURN_LINES],
    count: usize,
    /// Time the thread has been suspended since it last saw or made a change.
    suspended: u64,
    /// Lines whose watcher lists contain the thread.
    watched: [u32; TURN_LINES],
    watches: usize,
}

impl Polling {
    /// Records a load of a line at this version.
    #[inline(always)]
    pub(crate) fn record_load(&mut self, line: usize, version: u32) {
        if self.recording {
            self.add(line as u32, version);
        }
    }

    fn add(&mut self, line: u32, version: u32) {
        if let Some(known) = self.loaded[..self.count].iter().find(|known| known.0 == line) {
            self.dirty |= known.1 != version;
        } else if self.count < TURN_LINES {
            self.loaded[self.count] = (line, version);
            self.count += 1;
        } else {
            self.dirty = true;
        }
    }

    /// Records an action that other threads may see.
    #[inline(always)]
    pub(crate) fn record_change(&mut self) {
        self.dirty = true;
    }

    #[inline(always)]
    pub(crate) fn record_clock_read(&mut self) {
        self.clock_seen = true;
    }

    pub(crate) fn start(&mut self) {
        self.recording = true;
        self.dirty = false;
        self.count = 0;
        self.clock_seen = false;
    }

    fn watches(&self, line: u32) -> bool {
        self.watched[..self.watches].contains(&line)
    }

    /// Ends a turn at a pause. Returns whether the turn only polled.
    pub(crate) fn end_turn(&mut self) -> bool {
        let only_looked = self.recording && !self.dirty && self.clock_seen;
        if !self.recording || self.dirty {
            self.suspended = 0;
            self.start();
        }
        only_looked
    }

    /// Whether the lines that the turn loaded still have the same versions.
    pub(crate) fn is_current(&self, mut version: impl FnMut(usize) -> u32) -> bool {
        self.loaded[..self.count].iter().all(|&(line, known)| version(line as usize) == known)
    }

    /// Length of the thread's next suspension.
    pub(crate) fn next_span(&mut self) -> u64 {
        let span = (self.suspended / LATENESS).clamp(FIRST_SPAN_NS, LONGEST_SPAN_NS);
        self.suspended += span;
        span
    }

    /// Records that a watched line changed during the suspension.
    pub(crate) fn record_wake_up(&mut self) {
        self.suspended = 0;
    }

    /// Removes `line` from the watched lines.
    pub(crate) fn forget(&mut self, line: u32) {
        if let Some(place) =
            self.watched[..self.watches].iter().position(|&watched| watched == line)
        {
            self.watches -= 1;
            self.watched[place] = self.watched[self.watches];
        }
    }
}

/// The suspended threads that watch each line.
pub(crate) struct Watchers {
    /// Index into `lists` for each line that was ever watched; 0 for others.
    places: Zeroes<u32>,
    lists: Vec<Vec<u32>>,
}

impl Watchers {
    pub(crate) fn new() -> Self {
        // Index 0 means "no list", so the first list stays unused.
        Watchers { places: Zeroes::new(LINES), lists: vec![Vec::new()] }
    }

    /// Registers `thread` with the lines that its turn loaded, and begins the next turn.
    pub(crate) fn watch_loaded(&mut self, thread: u32, polling: &mut Polling) {
        for place in 0..polling.count {
            self.watch(polling.loaded[place].0, thread, polling);
        }
        polling.start();
    }

    pub(crate) fn watch(&mut self, line: u32, thread: u32, polling: &mut Polling) {
        if polling.watches(line) {
            return;
        }
        if polling.watches == TURN_LINES {
            let oldest = polling.watched[0];
            polling.forget(oldest);
            let list = *self.places.at(oldest as usize) as usize;
            self.lists[list].retain(|&watcher| watcher != thread);
        }
        polling.watched[polling.watches] = line;
        polling.watches += 1;
        let place = self.places.at(line as usize);
        if *place == 0 {
            *place = self.lists.len() as u32;
            self.lists.push(Vec::new());
        }
        self.lists[*place as usize].push(thread);
    }

    /// The watchers of `line`, if any.
    #[inline(always)]
    pub(crate) fn list(&mut self, line: usize) -> Option<&mut Vec<u32>> {
        let place = *self.places.at(line) as usize;
        if place == 0 || self.lists[place].is_empty() { None } else { Some(&mut self.lists[place]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polling state after a first pause.
    fn begun() -> Polling {
        let mut polling = Polling::default();
        assert!(!polling.end_turn(), "nothing is recorded before the first pause");
        polling
    }

    #[test]
    fn turn_that_only_polls_allows_suspension() {
        let mut polling = begun();
        polling.record_load(3, 1);
        assert!(!polling.end_turn(), "the turn did not read the clock");
        polling.record_clock_read();
        assert!(polling.end_turn());
        assert!(polling.is_current(|_| 1) && !polling.is_current(|_| 2));
        polling.record_change();
        assert!(!polling.end_turn());
    }

    #[test]
    fn turn_with_two_versions_or_too_many_lines_is_simulated() {
        let mut polling = begun();
        polling.record_clock_read();
        (1..=2).for_each(|version| polling.record_load(3, version));
        assert!(!polling.end_turn());
        polling.record_clock_read();
        (0..=TURN_LINES).for_each(|line| polling.record_load(line, 1));
        assert!(!polling.end_turn());
    }

    #[test]
    fn spans_grow_and_restart_after_wake_up() {
        let mut polling = Polling::default();
        let spans: Vec<u64> = (0..100).map(|_| polling.next_span()).collect();
        assert!(spans[0] == FIRST_SPAN_NS && spans.is_sorted() && spans[99] == LONGEST_SPAN_NS);
        polling.record_wake_up();
        assert_eq!(polling.next_span(), FIRST_SPAN_NS);
    }

    #[test]
    fn watching_too_many_lines_drops_the_oldest() {
        let (mut watchers, mut polling) = (Watchers::new(), begun());
        (0..=TURN_LINES as u32).for_each(|line| watchers.watch(line, 7, &mut polling));
        assert_eq!(watchers.list(0), None, "the oldest line was dropped");
        assert_eq!(watchers.list(1), Some(&mut vec![7]));
        watchers.watch(1, 7, &mut polling);
        watchers.watch(1, 8, &mut begun());
        assert_eq!(watchers.list(1), Some(&mut vec![7, 8]), "each thread once, in order");
    }
}
