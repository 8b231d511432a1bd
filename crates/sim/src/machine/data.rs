//! Shared data of simulated programs, in the machine's memory.

use std::sync::atomic::Ordering::Relaxed;

use unconvoy::primitive::Atomic as _;

use super::calls::{park, unpark};
use super::cell::SimulatedCell;
use super::interplay::Machine;
use super::memory::LINE;

/// A word of shared data, on a cache line of its own.
#[derive(Clone, Copy)]
pub struct Word(&'static SimulatedCell<u32>);

impl Word {
    pub(crate) fn new(machine: &mut Machine) -> Self {
        // SAFETY: the machine's memory, which stays as long as its threads, and is shared as cells
        // are.
        Word(unsafe { &*machine.place(SimulatedCell::new(0)) })
    }

    /// The calling thread reads the word and writes it, in two accesses.
    pub fn increment(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The calling thread reads the word; outside of simulated threads, what it holds.
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// The calling thread writes the word.
    pub fn set(&self, value: u32) {
        self.0.store(value, Relaxed);
    }

    /// Wakes a thread that [waits](wait_for_word).
    pub fn wake_one(&self) {
        unpark(core::ptr::from_ref(self.0).addr(), 1);
    }
}

/// The calling thread sleeps at `word` until it is woken there and `is_waiting` is false.
pub fn wait_for_word(word: &Word, is_waiting: impl Fn() -> bool) {
    while is_waiting() {
        park(core::ptr::from_ref(word.0).addr(), || !is_waiting(), None);
    }
}

/// Some memory of the machine, by cache lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    base: usize,
    count: usize,
}

impl Lines {
    pub(crate) fn new(machine: &mut Machine, bytes: usize) -> Self {
        let count = bytes.div_ceil(LINE);
        let place = (0..count).map(|_| machine.place([0_u8; LINE]).addr());
        Lines { base: place.min().unwrap_or(0), count }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Of the line of this number.
    pub(crate) fn address(&self, line: usize) -> usize {
        self.base + line * LINE
    }
}
