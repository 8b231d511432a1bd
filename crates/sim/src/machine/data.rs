//! Shared data of simulated programs, stored in the machine's memory.

use std::sync::atomic::Ordering::Relaxed;

use unconvoy::primitive::Atomic as _;

use super::calls::{park, unpark};
use super::cell::SimulatedCell;
use super::interplay::Machine;
use super::memory::LINE;
use super::mwait::mwait;

/// A shared word on its own cache line.
#[derive(Clone, Copy)]
pub struct Word(&'static SimulatedCell<u32>);

impl Word {
    pub(crate) fn new(machine: &mut Machine) -> Self {
        // SAFETY: `allocate` returned a valid pointer into the machine's memory, which
        // outlives its threads. Cells may be shared.
        Word(unsafe { &*machine.allocate(SimulatedCell::new(0)) })
    }

    /// Reads the word and writes it back incremented, in two accesses.
    pub fn increment(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Reads the word. Outside simulated threads the read costs no simulated time.
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Writes the word.
    pub fn set(&self, value: u32) {
        self.0.store(value, Relaxed);
    }

    /// Waits in `mwait` for another thread to write the word, for at most `limit_ns` nanoseconds.
    /// Does not wait if the word no longer holds `seen` or the machine has no `mwait`.
    pub fn mwait(&self, seen: u32, limit_ns: u64) {
        mwait(core::ptr::from_ref(self.0).addr(), || self.0.get() != seen, limit_ns);
    }

    /// Wakes one thread that [waits](wait_for_word) on this word.
    pub fn wake_one(&self) {
        unpark(core::ptr::from_ref(self.0).addr(), None, 1);
    }
}

/// Parks the calling thread on `word` until a wake-up finds `is_waiting` false.
pub fn wait_for_word(word: &Word, is_waiting: impl Fn() -> bool) {
    while is_waiting() {
        park(core::ptr::from_ref(word.0).addr(), None, || !is_waiting(), None);
    }
}

/// A range of the machine's memory, in cache lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    base: usize,
    count: usize,
}

impl Lines {
    pub(crate) fn new(machine: &mut Machine, bytes: usize) -> Self {
        let count = bytes.div_ceil(LINE);
        let place = (0..count).map(|_| machine.allocate([0_u8; LINE]).addr());
        Lines { base: place.min().unwrap_or(0), count }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn address(&self, line: usize) -> usize {
        self.base + line * LINE
    }
}
