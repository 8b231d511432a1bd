//! The locks that the program has used, and which bytes of its memory are theirs.

use crate::shadow::{GRANULES, Shadow, granule};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use unconvoy_trace_stream::{Counts, Held, Record, Region};

/// What is counted of a lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals<N = u64> {
    /// Times it was acquired.
    pub acquisitions: N,
    /// Sections of it that were sampled.
    pub sampled: N,
    /// Acquisitions that had to wait.
    pub contended: N,
    /// Instructions executed while it was held, where they are counted.
    pub held: N,
    /// Instructions executed by those who waited for it.
    pub waited: N,
}

/// A lock in one of its lives: from its first acquisition until it is destroyed, initialised anew,
/// or its memory is freed (section 4.1 of the paper). Never freed.
pub struct Lock {
    /// In the order of first acquisitions.
    pub number: u32,
    /// Its bytes.
    pub region: Region,
    /// How many locks were there before.
    pub incarnation: u32,
    /// Where the caller of the first acquisition goes on.
    pub pc: u64,
    retired: AtomicBool,
    /// Of the threads that have added theirs.
    totals: Totals<AtomicU64>,
    /// Acquisitions when the totals were last written.
    written: AtomicU64,
}

impl Lock {
    /// Its record, before its first section.
    pub fn record(&self) -> Record<'static> {
        let Lock { number, region, incarnation, pc, .. } = *self;
        Record::Lock(unconvoy_trace_stream::Lock { number, region, incarnation, pc, name: &[] })
    }

    /// Adds what a thread has counted.
    pub fn add(&self, more: &Totals) {
        let Totals { acquisitions, sampled, contended, held, waited } = &self.totals;
        for (total, more) in [
            (acquisitions, more.acquisitions),
            (sampled, more.sampled),
            (contended, more.contended),
            (held, more.held),
            (waited, more.waited),
        ] {
            if more > 0 {
                total.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// The record of its totals, as they stand now.
    pub fn counts(&self) -> Counts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let acquisitions = load(&self.totals.acquisitions);
        self.written.store(acquisitions, Ordering::Relaxed);
        let (sampled, contended) = (load(&self.totals.sampled), load(&self.totals.contended));
        Counts { lock: self.number, acquisitions, sampled, contended }
    }

    /// The record of its times.
    pub fn held(&self) -> Held {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Held { lock: self.number, held: load(&self.totals.held), waited: load(&self.totals.waited) }
    }

    /// Whether it was acquired since its totals were last written.
    pub fn has_news(&self) -> bool {
        self.written.load(Ordering::Relaxed) != self.totals.acquisitions.load(Ordering::Relaxed)
    }

    /// Whether this life of it is over: the next acquisition is of another lock.
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }
}

const SHARDS: usize = 64;

/// All locks. A thread asks it once for each lock that it uses, and then again when that lock has
/// [retired](Lock::is_retired).
pub struct Locks {
    by_address: [Mutex<Option<HashMap<u64, &'static Lock>>>; SHARDS],
    /// The next lock's number. Held until that was announced: locks are announced in the order of
    /// their numbers.
    next: Mutex<u32>,
    /// For each word of memory, the bytes that are a lock's.
    bytes: Shadow<AtomicU8>,
}

impl Default for Locks {
    fn default() -> Self {
        Self::new()
    }
}

impl Locks {
    /// None yet.
    pub const fn new() -> Self {
        Locks { by_address: [const { Mutex::new(None) }; SHARDS], next: Mutex::new(0), bytes: Shadow::new() }
    }

    /// The lock of a region, made if there is none or it has retired: then `announce` is called
    /// before anybody else can have it.
    pub fn find_or_make(&self, region: Region, pc: u64, announce: impl FnOnce(&Lock)) -> &'static Lock {
        let address = region.address;
        let mut shard = self.shard(address);
        let shard = shard.get_or_insert_default();
        let incarnation = match shard.get(&address) {
            Some(lock) if !lock.is_retired() && lock.region.size == region.size => return lock,
            Some(lock) => lock.incarnation + 1,
            None => 0,
        };
        let mut next = self.next.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let lock: &'static Lock = Box::leak(Box::new(Lock {
            number: *next,
            region,
            incarnation,
            pc,
            retired: AtomicBool::new(false),
            totals: Totals::default(),
            written: AtomicU64::new(0),
        }));
        self.mark(region);
        announce(lock);
        *next += 1;
        drop(next);
        // The earlier life's totals are still to be written, at the end: it is kept, under a key
        // that no lock has.
        if let Some(earlier) = shard.insert(address, lock) {
            shard.insert(u64::MAX - u64::from(earlier.number), earlier);
        }
        lock
    }

    /// The lock at `address`, if it was ever acquired.
    pub fn find(&self, address: u64) -> Option<&'static Lock> {
        self.shard(address).as_ref()?.get(&address).copied()
    }

    /// All locks that were ever made, in no order.
    pub fn all(&self) -> Vec<&'static Lock> {
        let shards = (0..SHARDS as u64).map(|shard| self.shard(shard << 3));
        shards.flat_map(|shard| shard.iter().flat_map(|locks| locks.values().copied()).collect::<Vec<_>>()).collect()
    }

    /// The region is from now on a lock's or a condition's.
    pub fn mark(&self, region: Region) {
        for (word, mask) in region.words() {
            if let Some(bytes) = self.bytes.make(word) {
                bytes.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// The lock or condition of the region is no more.
    pub fn retire(&self, region: Region) {
        for (word, mask) in region.words() {
            if let Some(bytes) = self.bytes.get(word) {
                bytes.fetch_and(!mask, Ordering::Relaxed);
            }
        }
        self.retire_at(region.address);
    }

    /// Memory is given back: whatever locks were in it are no more.
    pub fn retire_within(&self, memory: Region) {
        let end = memory.end();
        let mut at = memory.address & !7;
        while at < end {
            let next_page = (at | (GRANULES as u64 * 8 - 1)) + 1;
            if let Some(page) = self.bytes.page(at) {
                let words = (at..next_page.min(end)).step_by(8);
                for (word, bytes) in words.zip(&page[granule(at)..]) {
                    if bytes.load(Ordering::Relaxed) != 0 {
                        bytes.store(0, Ordering::Relaxed);
                        self.retire_at(word);
                        // A spin lock has 4 bytes.
                        self.retire_at(word + 4);
                    }
                }
            }
            at = next_page;
        }
    }

    /// Whether there ever was a lock near `address`: on its page, which a piece of memory that
    /// begins there may leave.
    pub fn may_be_within(&self, address: u64) -> bool {
        self.bytes.page(address).is_some()
            || self.bytes.page((address | (GRANULES as u64 * 8 - 1)).wrapping_add(1)).is_some()
    }

    /// Which bytes of the word at `address` belong to locks.
    pub fn bytes_of_word(&self, address: u64) -> u8 {
        self.bytes.get(address).map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }

    fn retire_at(&self, address: u64) {
        if let Some(lock) = self.shard(address).as_ref().and_then(|locks| locks.get(&address)) {
            lock.retired.store(true, Ordering::Relaxed);
        }
    }

    fn shard(&self, address: u64) -> std::sync::MutexGuard<'_, Option<HashMap<u64, &'static Lock>>> {
        self.by_address[(address >> 3) as usize % SHARDS].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
