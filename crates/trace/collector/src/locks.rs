//! The locks that the program has used, and which bytes of its memory are theirs.

use crate::shadow::{GRANULES, Shadow, granule};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use unconvoy_trace_stream::{Counts, Record};

/// A lock in one of its lives: from its first acquisition until it is destroyed, initialised anew, or its memory is freed (section 4.1 of the paper). Never freed.
pub struct Lock {
    /// In the order of first acquisitions.
    pub number: u32,
    /// Where it is.
    pub address: u64,
    /// Its bytes.
    pub size: u32,
    /// How many locks were there before.
    pub incarnation: u32,
    /// Where the caller of the first acquisition goes on.
    pub pc: u64,
    retired: AtomicBool,
    /// Times it was acquired: like the others, the total of the threads that have told theirs.
    pub acquisitions: AtomicU64,
    /// Sections of it that were sampled.
    pub sampled: AtomicU64,
    /// Acquisitions that had to wait.
    pub contended: AtomicU64,
    /// Instructions executed while it was held, where they are counted.
    pub held: AtomicU64,
    /// Instructions executed by those who waited for it.
    pub waited: AtomicU64,
    /// Acquisitions when the totals were last told.
    told: AtomicU64,
}

impl Lock {
    /// Its record, before its first section.
    pub fn record(&self) -> Record<'static> {
        let Lock { number, address, size, incarnation, pc, .. } = *self;
        Record::Lock(unconvoy_trace_stream::Lock { number, address, size, incarnation, pc, name: &[] })
    }

    /// Its totals' record, as they stand now.
    pub fn counts(&self) -> Counts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let acquisitions = load(&self.acquisitions);
        self.told.store(acquisitions, Ordering::Relaxed);
        Counts { lock: self.number, acquisitions, sampled: load(&self.sampled), contended: load(&self.contended) }
    }

    /// Whether it was acquired since its totals were last told.
    pub fn has_news(&self) -> bool {
        self.told.load(Ordering::Relaxed) != self.acquisitions.load(Ordering::Relaxed)
    }

    /// Whether this life of it is over: the next acquisition is of another lock.
    pub fn retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }
}

const SHARDS: usize = 64;

/// All locks. A thread asks it once for each lock that it uses, and then again when that lock has [retired](Lock::retired).
pub struct Locks {
    by_address: [Mutex<Option<HashMap<u64, &'static Lock>>>; SHARDS],
    /// The next lock's number. Held until that was told: locks are told in the order of their numbers.
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

    /// The lock at `address`, made if there is none or it has retired: then `tell` is called before anybody else can have it.
    pub fn of(&self, address: u64, size: u32, pc: u64, tell: impl FnOnce(&Lock)) -> &'static Lock {
        let mut shard = self.shard(address);
        let shard = shard.get_or_insert_default();
        let incarnation = match shard.get(&address) {
            Some(lock) if !lock.retired() && lock.size == size => return lock,
            Some(lock) => lock.incarnation + 1,
            None => 0,
        };
        let mut next = self.next.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let lock: &'static Lock = Box::leak(Box::new(Lock {
            number: *next,
            address,
            size,
            incarnation,
            pc,
            retired: AtomicBool::new(false),
            acquisitions: AtomicU64::new(0),
            sampled: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            held: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            told: AtomicU64::new(0),
        }));
        self.mark(address, size);
        tell(lock);
        *next += 1;
        drop(next);
        // The earlier life's totals are still to be told, at the end: it is kept, under a key that no lock has.
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

    /// The memory at `address`, of so many bytes, is from now on a lock's or a condition's.
    pub fn mark(&self, address: u64, size: u32) {
        each_word(address, size.into(), |word, mask| {
            if let Some(bytes) = self.bytes.make(word) {
                bytes.fetch_or(mask, Ordering::Relaxed);
            }
        });
    }

    /// A lock or a condition at `address`, of so many bytes, is no more.
    pub fn retire(&self, address: u64, size: u32) {
        each_word(address, size.into(), |word, mask| {
            if let Some(bytes) = self.bytes.get(word) {
                bytes.fetch_and(!mask, Ordering::Relaxed);
            }
        });
        self.retire_at(address);
    }

    /// Memory is given back: whatever locks were in it are no more.
    pub fn retire_within(&self, address: u64, size: u64) {
        let end = address.saturating_add(size);
        let mut at = address & !7;
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

    /// Whether there ever was a lock near `address`: on its page, which a piece of memory that begins there may leave.
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

/// Each aligned word of the piece of memory, with the mask of its bytes that are in it.
fn each_word(address: u64, size: u64, mut with: impl FnMut(u64, u8)) {
    let end = address.saturating_add(size);
    let mut word = address & !7;
    while word < end {
        let from = address.saturating_sub(word);
        let to = (end - word).min(8);
        with(word, (0xff << from) as u8 & (0xff_u8 >> (8 - to)));
        word += 8;
    }
}
