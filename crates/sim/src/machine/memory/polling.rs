//! Waiters that poll lines which do not change: simulated time, but no work.
//!
//! A thread that pauses has begun a turn of a waiting loop. If all that it did since the pause
//! before was to load lines that still are as it found them, to store to lines that nobody else
//! looks at, and to look at the clock, then its next turns will do the same until one of these
//! lines changes, or the clock shows something of interest. So it is suspended, until another
//! context changes one of the lines (then it finds its copy gone with its next poll, and pays for
//! the transfer), or for a span that grows from one suspension to the next.
//!
//! Two things bound the error. A loop that counts its polls instead of looking at the clock is not
//! suspended: it says so
//! ([`Spin::pause_counted`](unconvoy::primitive::Spin::pause_counted)), and else there has
//! to be a look at the clock between two suspensions. And the longest span is how late a waiter may
//! see that a time has come: a part of the time that it has polled ([`LATENESS`], and
//! [`FIRST_SPAN_NS`]), so that what it measures from the beginning of its wait is an eighth wrong
//! at most, and never more than [`LONGEST_SPAN_NS`]. Load managers' thresholds are 5 us and more,
//! what is shorter the algorithms pass in [`Spin::delay`](unconvoy::primitive::Spin::delay),
//! which is exact.

use super::arena::LINES;
use crate::machine::zeroes::Zeroes;

/// A third of what a time-published waiter may leave between two time stamps (25 us,
/// `contention/tpmcs.rs`): the one threshold that is not measured from the beginning of a wait.
const LONGEST_SPAN_NS: u64 = 8_000;
/// A fourth of the shortest threshold (1 us, `load/yield.rs`).
const FIRST_SPAN_NS: u64 = 250;
/// Of the time that it has polled, the part by which a waiter may be late.
const LATENESS: u64 = 8;

/// Lines that one turn may load. With more, the waiter is simulated turn by turn.
const TURN_LINES: usize = 8;

/// What a thread has done since it paused, and the lines that it watches.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// Whether loads are being noted.
    noting: bool,
    /// Whether the turn did more than load.
    dirty: bool,
    clock_seen: bool,
    loaded: [(u32, u32); TURN_LINES],
    count: usize,
    /// How long the thread has been suspended since it last saw or made a change.
    suspended: u64,
    /// Lines in whose lists the thread is.
    watched: [u32; TURN_LINES],
    watches: usize,
}

impl Polling {
    /// A line, of this version, was loaded.
    #[inline(always)]
    pub(crate) fn note_load(&mut self, line: usize, version: u32) {
        if self.noting {
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

    /// The thread did what another may see.
    #[inline(always)]
    pub(crate) fn note_change(&mut self) {
        self.dirty = true;
    }

    #[inline(always)]
    pub(crate) fn note_clock(&mut self) {
        self.clock_seen = true;
    }

    /// A turn begins.
    pub(crate) fn start(&mut self) {
        self.noting = true;
        self.dirty = false;
        self.count = 0;
        self.clock_seen = false;
    }

    fn watches(&self, line: u32) -> bool {
        self.watched[..self.watches].contains(&line)
    }

    /// The thread has paused: whether all that it did in this turn was to look.
    pub(crate) fn end_turn(&mut self) -> bool {
        let only_looked = self.noting && !self.dirty && self.clock_seen;
        if !self.noting || self.dirty {
            self.suspended = 0;
            self.start();
        }
        only_looked
    }

    /// Whether the lines that the turn loaded still have the versions that it found.
    pub(crate) fn is_current(&self, mut version: impl FnMut(usize) -> u32) -> bool {
        self.loaded[..self.count].iter().all(|&(line, known)| version(line as usize) == known)
    }

    /// How long the thread is suspended this time.
    pub(crate) fn next_span(&mut self) -> u64 {
        let span = (self.suspended / LATENESS).clamp(FIRST_SPAN_NS, LONGEST_SPAN_NS);
        self.suspended += span;
        span
    }

    /// A line that the thread watches has changed while it was suspended.
    pub(crate) fn note_wake_up(&mut self) {
        self.suspended = 0;
    }

    /// The line's list loses the thread.
    pub(crate) fn forget(&mut self, line: u32) {
        if let Some(place) = self.watched[..self.watches].iter().position(|&watched| watched == line) {
            self.watches -= 1;
            self.watched[place] = self.watched[self.watches];
        }
    }
}

/// For each line, the suspended threads that watch it.
pub(crate) struct Watchers {
    /// For lines that were watched once, the place of their list in `lists`; 0 for others.
    places: Zeroes<u32>,
    lists: Vec<Vec<u32>>,
}

impl Watchers {
    pub(crate) fn new() -> Self {
        // The first list is nobody's: 0 stands for no list.
        Watchers { places: Zeroes::new(LINES), lists: vec![Vec::new()] }
    }

    /// Registers `thread` at the lines that its turn loaded. The next turn begins.
    pub(crate) fn watch_loaded(&mut self, thread: u32, polling: &mut Polling) {
        for place in 0..polling.count {
            self.watch(polling.loaded[place].0, thread, polling);
        }
        polling.start();
    }

    /// Registers `thread` at one line.
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

    /// The list of `line`, if somebody watches it.
    #[inline(always)]
    pub(crate) fn list(&mut self, line: usize) -> Option<&mut Vec<u32>> {
        let place = *self.places.at(line) as usize;
        if place == 0 || self.lists[place].is_empty() { None } else { Some(&mut self.lists[place]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread's polling, after a pause.
    fn begun() -> Polling {
        let mut polling = Polling::default();
        assert!(!polling.end_turn(), "before the first pause nothing is noted");
        polling
    }

    #[test]
    fn turn_that_only_looks_lets_the_thread_rest() {
        let mut polling = begun();
        polling.note_load(3, 1);
        assert!(!polling.end_turn(), "the clock was not looked at");
        polling.note_clock();
        assert!(polling.end_turn());
        assert!(polling.is_current(|_| 1) && !polling.is_current(|_| 2));
        polling.note_change();
        assert!(!polling.end_turn());
    }

    #[test]
    fn turn_that_sees_two_versions_or_too_many_lines_is_simulated() {
        let mut polling = begun();
        polling.note_clock();
        (1..=2).for_each(|version| polling.note_load(3, version));
        assert!(!polling.end_turn());
        polling.note_clock();
        (0..=TURN_LINES).for_each(|line| polling.note_load(line, 1));
        assert!(!polling.end_turn());
    }

    #[test]
    fn spans_grow_to_the_longest_and_start_again_after_a_wake_up() {
        let mut polling = Polling::default();
        let spans: Vec<u64> = (0..100).map(|_| polling.next_span()).collect();
        assert!(spans[0] == FIRST_SPAN_NS && spans.is_sorted() && spans[99] == LONGEST_SPAN_NS);
        polling.note_wake_up();
        assert_eq!(polling.next_span(), FIRST_SPAN_NS);
    }

    #[test]
    fn lines_list_their_watchers_and_the_oldest_is_forgotten() {
        let (mut watchers, mut polling) = (Watchers::new(), begun());
        (0..=TURN_LINES as u32).for_each(|line| watchers.watch(line, 7, &mut polling));
        assert_eq!(watchers.list(0), None, "one line too many");
        assert_eq!(watchers.list(1), Some(&mut vec![7]));
        watchers.watch(1, 7, &mut polling);
        watchers.watch(1, 8, &mut begun());
        assert_eq!(watchers.list(1), Some(&mut vec![7, 8]), "each once, in their order");
    }
}
