//! The locks that the program has used, and which bytes of its memory belong to them.

use crate::shadow::{GRANULES, Shadow, granule};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use unconvoy_trace_stream::{Counts, Held, Record, Region};

/// The counts of a lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals<N = u64> {
    /// Number of acquisitions.
    pub acquisitions: N,
    /// Number of sampled sections.
    pub sampled: N,
    /// Acquisitions that had to wait.
    pub contended: N,
    /// Instructions executed while the lock was held, if the collector counts them.
    pub held: N,
    /// Instructions executed while waiting for the lock, if the collector counts them.
    pub waited: N,
}

/// One incarnation of a lock: from its first acquisition until it is destroyed or initialised
/// again, or its memory is freed (section 4.1 of the paper). The value itself is never freed.
pub struct Lock {
    /// The lock's number, from 0, in order of first acquisition.
    pub number: u32,
    /// Its bytes.
    pub region: Region,
    /// Number of earlier locks at this address.
    pub incarnation: u32,
    /// Return address of the first acquisition.
    pub pc: u64,
    retired: AtomicBool,
    /// Sums of the counts that threads have published.
    totals: Totals<AtomicU64>,
    /// The number of acquisitions in the last written record.
    written: AtomicU64,
    requests: Requests,
}

/// The number of requests so far, on its own cache line: each request changes it, and each thread
/// that uses the lock reads the lock's other fields.
#[derive(Default)]
#[repr(align(64))]
struct Requests(AtomicU64);

impl Lock {
    /// Numbers a request of the lock, from 0.
    #[inline]
    pub fn next_request(&self) -> u64 {
        self.requests.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The lock's record, to be written before its first section.
    pub fn record(&self) -> Record<'static> {
        let Lock { number, region, incarnation, pc, .. } = *self;
        Record::Lock(unconvoy_trace_stream::Lock { number, region, incarnation, pc, name: &[] })
    }

    /// Adds a thread's counts.
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

    /// The record of its current totals.
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
    pub fn has_unwritten_counts(&self) -> bool {
        self.written.load(Ordering::Relaxed) != self.totals.acquisitions.load(Ordering::Relaxed)
    }

    /// Whether this incarnation has ended: the next acquisition is of another lock.
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }
}

const SHARDS: usize = 64;

/// All locks. A thread looks up each lock that it uses once, and again after the lock has
/// [retired](Lock::is_retired).
pub struct Locks {
    by_address: [Mutex<Option<HashMap<u64, &'static Lock>>>; SHARDS],
    /// The next lock's number. The mutex is held until the lock's record is written, so that locks
    /// are written in the order of their numbers.
    next: Mutex<u32>,
    /// For each word of memory, the bytes that belong to a lock.
    bytes: Shadow<AtomicU8>,
}

impl Default for Locks {
    fn default() -> Self {
        Self::new()
    }
}

impl Locks {
    /// An empty table.
    pub const fn new() -> Self {
        Locks {
            by_address: [const { Mutex::new(None) }; SHARDS],
            next: Mutex::new(0),
            bytes: Shadow::new(),
        }
    }

    /// The lock of a region. Makes a new lock if there is none or the last one has retired;
    /// `announce` then runs before any other thread can see the new lock.
    pub fn find_or_make(
        &self,
        region: Region,
        pc: u64,
        announce: impl FnOnce(&Lock),
    ) -> &'static Lock {
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
            requests: Requests::default(),
        }));
        self.mark(region);
        announce(lock);
        *next += 1;
        drop(next);
        // Keep the earlier incarnation under a key that is no lock's address, because its totals
        // are written at the end.
        if let Some(earlier) = shard.insert(address, lock) {
            shard.insert(u64::MAX - u64::from(earlier.number), earlier);
        }
        lock
    }

    /// The lock at `address`, if it was ever acquired.
    pub fn find(&self, address: u64) -> Option<&'static Lock> {
        self.shard(address).as_ref()?.get(&address).copied()
    }

    /// All locks ever made, in no particular order.
    pub fn all(&self) -> Vec<&'static Lock> {
        let shards = (0..SHARDS as u64).map(|shard| self.shard(shard << 3));
        shards
            .flat_map(|shard| {
                shard.iter().flat_map(|locks| locks.values().copied()).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Marks the region as belonging to a lock or a condition variable.
    pub fn mark(&self, region: Region) {
        for (word, mask) in region.words() {
            if let Some(bytes) = self.bytes.make(word) {
                bytes.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// Ends the lock or condition variable of the region.
    pub fn retire(&self, region: Region) {
        for (word, mask) in region.words() {
            if let Some(bytes) = self.bytes.get(word) {
                bytes.fetch_and(!mask, Ordering::Relaxed);
            }
        }
        self.retire_at(region.address);
    }

    /// Ends all locks in memory that is freed.
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
                        // A spin lock has 4 bytes, so the word may hold two.
                        self.retire_at(word + 4);
                    }
                }
            }
            at = next_page;
        }
    }

    /// Whether a lock ever was on the page of `address` or on the next one. A conservative check
    /// for small allocations that start at `address`.
    pub fn may_be_within(&self, address: u64) -> bool {
        self.bytes.page(address).is_some()
            || self.bytes.page((address | (GRANULES as u64 * 8 - 1)).wrapping_add(1)).is_some()
    }

    /// The bytes of the word at `address` that belong to locks.
    pub fn bytes_of_word(&self, address: u64) -> u8 {
        self.bytes.get(address).map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }

    fn retire_at(&self, address: u64) {
        if let Some(lock) = self.shard(address).as_ref().and_then(|locks| locks.get(&address)) {
            lock.retired.store(true, Ordering::Relaxed);
        }
    }

    fn shard(
        &self,
        address: u64,
    ) -> std::sync::MutexGuard<'_, Option<HashMap<u64, &'static Lock>>> {
        self.by_address[(address >> 3) as usize % SHARDS]
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
