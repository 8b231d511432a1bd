//! Waiters that poll lines which do not change: simulated time, but no work.
//!
//! A thread that pauses has begun a turn of a waiting loop. If all that it did since the pause before was to load lines
//! that still are as it found them, to store to lines that nobody else looks at, and to look at the clock, then its next
//! turns will do the same until one of these lines changes, or the clock shows something of interest. So it is
//! suspended, until another context changes one of the lines (then it finds its copy gone with its next poll, and pays
//! for the transfer), or for a span that grows from one suspension to the next.
//!
//! Two things bound the error. A loop that counts its polls instead of looking at the clock is not suspended: it says
//! so ([`Platform::pause_counted`](unconvoy::platform::Platform::pause_counted)), and else there has to be a look at the
//! clock between two suspensions. And the longest span is how late a waiter may see that a time has come: a part of the
//! time that it has polled ([`LATENESS`], and [`FIRST_SPAN_NS`]), so that what it measures from the beginning of its wait is an eighth wrong at most, and never more
//! than [`LONGEST_SPAN_NS`]. Load managers' thresholds are 5 us and more, what is shorter the algorithms pass in
//! [`Platform::delay`](unconvoy::platform::Platform::delay), which is exact.

use super::event::Event;
use super::thread::{Flight, State};
use super::{Machine, NOBODY};

/// A third of what a time-published waiter may leave between two time stamps (25 us, `contention/tpmcs.rs`): the one
/// threshold that is not measured from the beginning of a wait.
const LONGEST_SPAN_NS: u64 = 8_000;
/// A fourth of the shortest threshold (1 us, `load/yield.rs`).
const FIRST_SPAN_NS: u64 = 250;
/// Of the time that it has polled, the part by which a waiter may be late.
const LATENESS: u64 = 8;

/// Lines that one turn may load. With more, the waiter is simulated turn by turn.
const LINES: usize = 8;

/// What a thread has done since it paused, and the lines that it watches.
#[derive(Debug, Default)]
pub(super) struct Polling {
    /// Whether loads are being noted.
    noting: bool,
    /// Whether the turn did more than load.
    dirty: bool,
    clock_seen: bool,
    loaded: [(u32, u32); LINES],
    count: usize,
    /// How long the thread has been suspended since it last saw or made a change.
    suspended: u64,
    /// Lines in whose lists the thread is.
    watched: [u32; LINES],
    watches: usize,
}

impl Polling {
    /// A line, of this version, was loaded.
    #[inline(always)]
    pub(super) fn note_load(&mut self, line: usize, version: u32) {
        if self.noting {
            self.add(line as u32, version);
        }
    }

    fn add(&mut self, line: u32, version: u32) {
        if let Some(known) = self.loaded[..self.count].iter().find(|known| known.0 == line) {
            self.dirty |= known.1 != version;
        } else if self.count < LINES {
            self.loaded[self.count] = (line, version);
            self.count += 1;
        } else {
            self.dirty = true;
        }
    }

    /// The thread did what another may see.
    #[inline(always)]
    pub(super) fn note_change(&mut self) {
        self.dirty = true;
    }

    #[inline(always)]
    pub(super) fn note_clock(&mut self) {
        self.clock_seen = true;
    }

    fn start(&mut self) {
        self.noting = true;
        self.dirty = false;
        self.count = 0;
        self.clock_seen = false;
    }

    fn watches(&self, line: u32) -> bool {
        self.watched[..self.watches].contains(&line)
    }

    /// The line's list is about to lose the thread.
    fn forget(&mut self, line: u32) {
        if let Some(place) = self.watched[..self.watches].iter().position(|&watched| watched == line) {
            self.watches -= 1;
            self.watched[place] = self.watched[self.watches];
        }
    }
}

impl Machine {
    /// The running thread has paused: whether it may be suspended, having done nothing but look.
    pub(super) fn pauses(&mut self) -> bool {
        let current = self.current as usize;
        let polling = &mut self.threads[current].polling;
        let is_idle = polling.noting && !polling.dirty && polling.clock_seen;
        if !polling.noting || polling.dirty {
            polling.suspended = 0;
            polling.start();
        }
        is_idle && self.watch_loaded()
    }

    /// Registers the running thread at the lines that it has loaded; false if one has changed since.
    fn watch_loaded(&mut self) -> bool {
        let current = self.current as usize;
        let (loaded, count) = (self.threads[current].polling.loaded, self.threads[current].polling.count);
        let unchanged = loaded[..count].iter().all(|&(line, version)| self.caches.version(line as usize) == version);
        if unchanged {
            for &(line, _) in &loaded[..count] {
                self.watch(line);
            }
        }
        self.threads[current].polling.start();
        unchanged
    }

    fn watch(&mut self, line: u32) {
        let current = self.current;
        let polling = &mut self.threads[current as usize].polling;
        if polling.watches(line) {
            return;
        }
        if polling.watches == LINES {
            let oldest = polling.watched[0];
            polling.forget(oldest);
            let list = *self.watch_list.at(oldest as usize) as usize;
            self.watchers[list].retain(|&watcher| watcher != current);
        }
        let polling = &mut self.threads[current as usize].polling;
        polling.watched[polling.watches] = line;
        polling.watches += 1;
        let list = self.watch_list.at(line as usize);
        if *list == 0 {
            // The first one is nobody's: 0 stands for no list.
            *list = self.watchers.len().max(1) as u32;
            self.watchers.resize_with(*list as usize + 1, Vec::new);
        }
        self.watchers[*list as usize].push(current);
    }

    /// Registers the running thread at one line.
    pub(super) fn watches_alone(&mut self, line: usize) {
        self.threads[self.current as usize].polling.start();
        self.watch(line as u32);
    }

    /// How long the running thread is suspended this time.
    pub(super) fn next_span(&mut self) -> u64 {
        let polling = &mut self.threads[self.current as usize].polling;
        let span = (polling.suspended / LATENESS).clamp(FIRST_SPAN_NS, LONGEST_SPAN_NS);
        polling.suspended += span;
        span
    }

    /// The running thread has changed what is in `line`: who polls it sees that with its next turn.
    #[inline(always)]
    pub(super) fn wake_watchers(&mut self, line: usize) {
        let list = *self.watch_list.at(line) as usize;
        if list != 0 && !self.watchers[list].is_empty() {
            self.wake_list(list, line as u32);
        }
    }

    #[cold]
    fn wake_list(&mut self, list: usize, line: u32) {
        let mut watchers = core::mem::take(&mut self.watchers[list]);
        watchers.retain(|&watcher| {
            if watcher == self.current {
                return true; // its own
            }
            self.threads[watcher as usize].polling.forget(line);
            self.sees_change(watcher);
            false
        });
        self.watchers[list] = watchers;
    }

    fn sees_change(&mut self, watcher: u32) {
        let thread = &self.threads[watcher as usize];
        let polls = matches!(thread.flight, Flight::Poll | Flight::YieldingPoll);
        if thread.state != State::Running || !polls || self.contexts[thread.context].current != watcher {
            return;
        }
        // Somewhere in the turn that it is in.
        let turn = self.parameters.memory.pause_ns + self.parameters.memory.hit_ns;
        let at = self.now + self.random.u64(0..=turn);
        self.threads[watcher as usize].polling.suspended = 0;
        if at < self.threads[watcher as usize].resumes_at {
            self.announce(watcher, at);
        }
    }

    /// Announces that `thread`, on a context, goes on at the time `at` and at no other.
    pub(super) fn announce(&mut self, thread: u32, at: u64) {
        debug_assert_ne!(thread, NOBODY);
        let known = &mut self.threads[thread as usize];
        known.token = known.token.wrapping_add(1);
        known.resumes_at = at;
        let token = known.token;
        self.push(at, Event::Resume { thread, token });
    }
}
