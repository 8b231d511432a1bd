//! The table of `unconvoy bench rwlock`: entries under one reader-writer lock, which threads look
//! up and occasionally change.

use unconvoy::contention::rw::Share;

use crate::machine::{self, Word};
use crate::pair::{Pair, SharedLock};
use crate::simulation::Simulation;

const ENTRIES: usize = 256;

/// The two copies of an entry, on two lines.
struct Entry {
    first: Word,
    second: Word,
}

/// The table and its lock.
pub(super) struct Lookups {
    lock: SharedLock,
    entries: Vec<Entry>,
}

impl Lookups {
    pub(super) fn new(simulation: &mut Simulation, process: usize, pair: &Pair) -> Self {
        let lock = simulation.shared_lock(process, pair);
        let entry = |_| Entry { first: simulation.word(), second: simulation.word() };
        Lookups { lock, entries: (0..ENTRIES).map(entry).collect() }
    }

    /// Looks an entry up, or changes it.
    ///
    /// # Panics
    ///
    /// Panics if the two copies of an entry differ, because a writer was in the lock together with
    /// the calling reader.
    pub(super) fn operation(&self, random: &mut fastrand::Rng, changes: u32, outside_ps: u64) {
        let entry = &self.entries[random.usize(0..ENTRIES)];
        let is_change = random.u32(0..1_000_000) < changes;
        machine::work_ps(outside_ps);
        if is_change {
            self.lock.section(Share::Write, || {
                entry.first.increment();
                entry.second.increment();
            });
        } else {
            let copies = self.lock.section(Share::Read, || (entry.first.get(), entry.second.get()));
            assert_eq!(copies.0, copies.1, "a writer was in the lock together with a reader");
        }
    }
}
