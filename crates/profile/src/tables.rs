//! Insertion into the tables: lock-free, without allocation.
//!
//! **Memory orderings.** A thread claims an entry by a compare-and-swap of its key. The entry's
//! values are counters, for which zero is valid, so their accesses are relaxed. A stack's depth is
//! stored with release after its frames; only the command reads frames.
//!
//! Memory that a program reuses may have several locks at one address, so an address may have
//! several entries: one for each kind and initialisation. A thread claims such an entry by the
//! address and then by the identity. If another thread was first with another identity, the later
//! thread goes on to the next entry.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::histogram::bucket;
use crate::layout::{
    COUNT_UNIT, DEPTH, FRAMES, HISTOGRAMS, Header, Histograms, Kind, LOCKS, Lock, Origin, Profile,
    SAMPLES, STACKS, Sample, TIME_SHIFT,
};

/// Number of entries probed before a table counts as full.
const PROBES: usize = 64;

/// Spreads the bits of a key (the finaliser of SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
pub fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    key ^ (key >> 31)
}

/// The index of the entry with `key`, and whether this call claimed it. `None` if the table is
/// full, or if `claims` is false and the table has no such entry.
fn entry(
    keys: impl Fn(usize) -> *const AtomicU64,
    capacity: usize,
    key: u64,
    claims: bool,
) -> Option<(usize, bool)> {
    matching_entry(keys, capacity, (key, mix(key)), claims, |_| true)
}

/// As [`entry`], for a key and its hash, if entries may have the same key: the entry is one of
/// those that `is_own` accepts.
fn matching_entry(
    keys: impl Fn(usize) -> *const AtomicU64,
    capacity: usize,
    (key, hash): (u64, u64),
    claims: bool,
    is_own: impl Fn(usize) -> bool,
) -> Option<(usize, bool)> {
    let start = hash as usize;
    for probe in 0..PROBES {
        let index = start.wrapping_add(probe) % capacity;
        // SAFETY: `keys` returns the address of a key in a table that the caller borrows.
        let word = unsafe { &*keys(index) };
        let mut found = word.load(Acquire);
        if found == 0 {
            if !claims {
                return None;
            }
            match word.compare_exchange(0, key, Acquire, Acquire) {
                Ok(_) if is_own(index) => return Some((index, true)),
                Ok(_) => continue,
                Err(other) => found = other,
            }
        }
        if found == key && is_own(index) {
            return Some((index, false));
        }
    }
    None
}

impl Sample {
    /// The key of a lock's index and two stacks.
    pub fn key(lock: u32, waiter: u32, holder: u32) -> u64 {
        1 << 63 | u64::from(lock) << 40 | u64::from(waiter) << 20 | u64::from(holder)
    }

    /// The parts of a [key](Self::key).
    pub fn parts(key: u64) -> (u32, u32, u32) {
        let part = |shift: u32, bits: u32| (key >> shift) as u32 & ((1 << bits) - 1);
        (part(40, 23), part(20, 20), part(0, 20))
    }
}

impl Lock {
    /// The number of the kind and the stack of the initialisation in an
    /// [identity](Self::identity).
    pub(crate) fn parts(identity: u64) -> (u32, u32) {
        (identity as u32 & ((1 << TIME_SHIFT) - 1), (identity >> 32) as u32)
    }

    /// The lock's kind; `None` if the entry is unused.
    pub fn kind(&self) -> Option<Kind> {
        Kind::of(Self::parts(self.identity.load(Relaxed)).0)
    }
}

impl Profile {
    /// The lock of this kind at `address` since the last recorded initialisation there, if it is
    /// in the table.
    pub fn find_lock(&self, kind: Kind, address: usize) -> Option<(u32, &Lock)> {
        let [origin, _] = self.origins(address as u64);
        self.lock_entry(kind, address, origin, false)
    }

    /// The lock of this kind at `address` since the last recorded initialisation there, inserted if
    /// it is new; `None` if the table is full.
    pub fn lock(&self, kind: Kind, address: usize) -> Option<(u32, &Lock)> {
        let [origin, _] = self.origins(address as u64);
        self.lock_entry(kind, address, origin, true)
    }

    fn lock_entry(
        &self,
        kind: Kind,
        address: usize,
        origin: u32,
        claims: bool,
    ) -> Option<(u32, &Lock)> {
        let own = with_time(kind as u32, &self.header);
        let is_same = |identity: u64| Lock::parts(identity) == (kind as u32, origin);
        let is_own = |index: usize| {
            let identity = &self.locks[index].identity;
            match identity.load(Relaxed) {
                0 if claims => {
                    let new = u64::from(origin) << 32 | u64::from(own);
                    match identity.compare_exchange(0, new, Relaxed, Relaxed) {
                        Ok(_) => {
                            self.give_histogram(&self.locks[index]);
                            true
                        }
                        Err(other) => is_same(other),
                    }
                }
                found => is_same(found),
            }
        };
        let key = address as u64;
        let hash = mix(key ^ mix(u64::from(origin) << 8 | u64::from(kind as u32)));
        let keys = |index: usize| &raw const self.locks[index].address;
        let (index, _) = matching_entry(keys, LOCKS, (key, hash), claims, is_own)?;
        Some((index as u32, &self.locks[index]))
    }

    fn give_histogram(&self, lock: &Lock) {
        let histogram = self.header.histograms_used.fetch_add(1, Relaxed) + 1;
        if histogram as usize <= HISTOGRAMS {
            lock.histogram.store(histogram, Relaxed);
        }
    }

    /// The histograms of a lock; `None` if their table was full.
    pub fn histograms_of(&self, lock: &Lock) -> Option<&Histograms> {
        self.histograms.get((lock.histogram.load(Relaxed) as usize).checked_sub(1)?)
    }

    /// Counts a wait of `ns` that ended at `now`.
    pub fn record_wait(&self, lock: &Lock, ns: u64, now: u64, is_read: bool) {
        lock.waits.fetch_add(1, Relaxed);
        lock.wait_ns.fetch_add(ns, Relaxed);
        if is_read {
            lock.read_waits.fetch_add(1, Relaxed);
            lock.read_wait_ns.fetch_add(ns, Relaxed);
        }
        if lock.first_taken.load(Relaxed) == 0 {
            // Only now: while the wait began, the first holder may have been recording its stack.
            let [_, first_taken] = self.origins(lock.address.load(Relaxed));
            lock.first_taken.store(first_taken, Relaxed);
        }
        if ns > lock.longest_ns.load(Relaxed) && lock.longest_ns.fetch_max(ns, Relaxed) < ns {
            lock.longest_at.store(now, Relaxed);
        }
        if let Some(histograms) = self.histograms_of(lock) {
            histograms.waits[bucket(ns)].fetch_add(1, Relaxed);
        }
        self.header.last_ns.store(now, Relaxed);
    }

    /// Counts a measured hold of `ns`.
    pub fn record_hold(&self, lock: &Lock, ns: u64) {
        lock.holds.fetch_add(1, Relaxed);
        lock.hold_ns.fetch_add(ns, Relaxed);
        lock.longest_hold_ns.fetch_max(ns, Relaxed);
        if let Some(histograms) = self.histograms_of(lock) {
            histograms.holds[bucket(ns)].fetch_add(1, Relaxed);
        }
    }

    /// Adds a sample that stands for `count` / [`COUNT_UNIT`] waits, which took `ns` in total.
    pub fn add_sample(&self, lock: u32, stacks: (u32, u32), ns: u64, count: u64) {
        self.add_samples(lock, stacks, (ns, count), 1);
    }

    /// As [`Self::add_sample`], for `samples` samples that together stand for this time and count.
    pub fn add_samples(
        &self,
        lock: u32,
        stacks: (u32, u32),
        (ns, count): (u64, u64),
        samples: u64,
    ) {
        let keys = |index: usize| &raw const self.samples[index].key;
        let key = Sample::key(lock, stacks.0, stacks.1);
        let Some((index, _)) = entry(keys, SAMPLES, key, true) else {
            self.header.lost_samples.fetch_add(samples as u32, Relaxed);
            return;
        };
        let sample = &self.samples[index];
        sample.ns.fetch_add(ns, Relaxed);
        sample.count.fetch_add(count, Relaxed);
        sample.samples.fetch_add(samples, Relaxed);
    }

    /// The number of the stack with these frames, innermost first, inserted if it is new; 0 if
    /// there are no frames, or no room for them. `mapped` stands for the mappings that the frames
    /// are in: with another value, the same addresses are another stack.
    pub fn stack(&self, frames: &[u64], mapped: u64) -> u32 {
        let frames = &frames[..frames.len().min(DEPTH)];
        if frames.is_empty() {
            return 0;
        }
        let hash = frames.iter().fold(mapped ^ frames.len() as u64, |hash, &pc| mix(hash ^ pc));
        let hash = hash.max(1);
        let keys = |index: usize| &raw const self.stacks[index].hash;
        let Some((index, is_new)) = entry(keys, STACKS, hash, true) else {
            self.header.lost_stacks.fetch_add(1, Relaxed);
            return 0;
        };
        if is_new {
            let first = self.header.frames_used.fetch_add(frames.len() as u32, Relaxed);
            let Some(room) = self.frames.get(first as usize..first as usize + frames.len()) else {
                self.header.lost_stacks.fetch_add(1, Relaxed);
                self.header.frames_used.store(FRAMES as u32, Relaxed);
                return 0;
            };
            room.iter().zip(frames).for_each(|(word, &pc)| word.store(pc, Relaxed));
            let stack = &self.stacks[index];
            stack.first.store(first, Relaxed);
            stack.depth.store(with_time(frames.len() as u32, &self.header), Release);
        } else if self.stacks[index].depth.load(Relaxed) == 0
            && self.header.frames_used.load(Relaxed) >= FRAMES as u32
        {
            // An entry that found no room for its frames.
            self.header.lost_stacks.fetch_add(1, Relaxed);
            return 0;
        }
        index as u32 + 1
    }

    /// Records the stack that initialised the lock at `address`. Stack 0 removes the record of an
    /// earlier lock at this address.
    pub fn record_origin(&self, address: usize, stack: u32) {
        if let Some(origin) = self.origin_entry(address as u64, stack != 0) {
            origin.stack.store(stack, Relaxed);
            origin.first_taken.store(0, Relaxed);
        }
    }

    /// Records the stack that first took the lock at `address`; stack 0 as for `record_origin`.
    pub fn record_first_taken(&self, address: usize, stack: u32) {
        if let Some(origin) = self.origin_entry(address as u64, stack != 0) {
            origin.first_taken.store(stack, Relaxed);
        }
    }

    /// The stacks of the last recorded initialisation of the lock at `address`, and of its first
    /// acquisition; 0 if unknown.
    pub fn origins(&self, address: u64) -> [u32; 2] {
        let origin = self.origin_entry(address, false);
        origin.map_or([0; 2], |it| [&it.stack, &it.first_taken].map(|stack| stack.load(Relaxed)))
    }

    fn origin_entry(&self, address: u64, claims: bool) -> Option<&Origin> {
        let keys = |index: usize| &raw const self.origins[index].address;
        let (index, _) = entry(keys, self.origins.len(), address, claims)?;
        Some(&self.origins[index])
    }

    /// Records a wait if it is one of the longest, in the place of the shortest of those.
    pub fn record_long_wait(&self, ns: u64, at: u64, lock: u32, stack: u32, thread: u32) {
        let shortest = self.longest.iter().min_by_key(|wait| wait.ns.load(Relaxed));
        let Some(wait) = shortest else { return };
        let before = wait.ns.load(Relaxed);
        if ns > before && wait.ns.compare_exchange(before, ns, Acquire, Relaxed).is_ok() {
            wait.at.store(at, Relaxed);
            wait.lock.store(lock, Relaxed);
            wait.stack.store(stack, Relaxed);
            wait.thread.store(thread, Relaxed);
        }
    }
}

/// A word of the layout that has a small number and the present length of the list of mapped files.
fn with_time(number: u32, header: &Header) -> u32 {
    number | header.modules_used.load(Relaxed) << TIME_SHIFT
}

/// What the sample of a wait of `ns` stands for: time waited, and number of waits in units of 1 /
/// [`COUNT_UNIT`]. The number is the inverse of the probability of the sample.
pub fn weight(ns: u64, period_ns: u64) -> (u64, u64) {
    let count = if ns >= period_ns { COUNT_UNIT } else { COUNT_UNIT * period_ns / ns.max(1) };
    (ns.max(period_ns), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::zeroed;

    #[test]
    fn key_keeps_its_parts() {
        let (lock, waiter, holder) = (LOCKS as u32 - 1, STACKS as u32, 7);
        assert_eq!(Sample::parts(Sample::key(lock, waiter, holder)), (lock, waiter, holder));
    }

    #[test]
    fn same_frames_have_same_number() {
        let profile = zeroed();
        let first = profile.stack(&[1, 2, 3], 0);
        assert_ne!(first, 0);
        assert_eq!(profile.stack(&[1, 2, 3], 0), first);
        assert_ne!(profile.stack(&[1, 2], 0), first);
        assert_eq!(profile.stack(&[], 0), 0);
        assert_eq!(profile.header.frames_used.load(Relaxed), 5);
    }

    #[test]
    fn full_tables_count_what_they_lose() {
        let profile = zeroed();
        for pc in 1..=STACKS as u64 + 1000 {
            profile.stack(&[pc; 20], 0);
        }
        assert!(profile.header.lost_stacks.load(Relaxed) >= 1000);
        assert_eq!(profile.stack(&[1; 20], 0), profile.stack(&[1; 20], 0));
        // Its entry has no room for frames, if there is one.
        let (before, last) = (profile.header.lost_stacks.load(Relaxed), STACKS as u64 - 1);
        assert_eq!([profile.stack(&[last; 20], 0), profile.stack(&[last; 20], 0)], [0, 0]);
        assert_eq!(profile.header.lost_stacks.load(Relaxed), before + 2);
        let locks = (1..=LOCKS + 100).filter(|&at| profile.lock(Kind::Mutex, 8 * at).is_some());
        assert!((LOCKS / 2..=LOCKS).contains(&locks.count()));
        let without = profile
            .locks
            .iter()
            .find(|lock| lock.address.load(Relaxed) != 0 && lock.histogram.load(Relaxed) == 0);
        profile.record_wait(without.expect("more locks than histograms"), 100, 1, false);
    }

    #[test]
    fn lock_of_another_kind_at_same_address_has_its_own_entry() {
        let profile = zeroed();
        let (mutex, lock) = profile.lock(Kind::Mutex, 0x1000).unwrap();
        profile.record_wait(lock, 100, 1, false);
        let (cond, lock) = profile.lock(Kind::Cond, 0x1000).unwrap();
        profile.record_wait(lock, 5_000, 1, false);
        assert_ne!(mutex, cond);
        for (kind, index, ns) in [(Kind::Mutex, mutex, 100), (Kind::Cond, cond, 5_000)] {
            let (found, lock) = profile.find_lock(kind, 0x1000).unwrap();
            assert_eq!((found, lock.kind(), lock.wait_ns.load(Relaxed)), (index, Some(kind), ns));
        }
        assert!(profile.find_lock(Kind::Spin, 0x1000).is_none());
    }

    #[test]
    fn lock_of_another_origin_at_same_address_has_its_own_entry() {
        let profile = zeroed();
        let [old, new] = [1, 2].map(|pc| profile.stack(&[pc], 0));
        profile.record_origin(0x1000, old);
        let (first, lock) = profile.lock(Kind::Mutex, 0x1000).unwrap();
        profile.record_origin(0x1000, old); // another lock, from the same place
        assert_eq!(profile.lock(Kind::Mutex, 0x1000).unwrap().0, first);
        profile.record_first_taken(0x1000, old);
        profile.record_wait(lock, 100, 1, false);
        profile.record_origin(0x1000, new);
        profile.record_first_taken(0x1000, new);
        assert!(profile.find_lock(Kind::Mutex, 0x1000).is_none());
        let (second, _) = profile.lock(Kind::Mutex, 0x1000).unwrap();
        assert_ne!(second, first);
        assert_eq!(Lock::parts(lock.identity.load(Relaxed)).1, old);
        assert_eq!(lock.first_taken.load(Relaxed), old);
    }

    #[test]
    fn weights_sum_to_time_waited() {
        // A wait of 100 us is sampled with probability 1/10 at a period of 1 ms.
        assert_eq!(weight(100_000, 1_000_000), (1_000_000, 10 * COUNT_UNIT));
        assert_eq!(weight(5_000_000, 1_000_000), (5_000_000, COUNT_UNIT));
    }

    #[test]
    fn threads_that_insert_at_once_lose_nothing() {
        let profile = zeroed();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for turn in 0..20_000_u64 {
                        let kind = if turn % 2 == 0 { Kind::Mutex } else { Kind::Cond };
                        let (index, lock) =
                            profile.lock(kind, 64 + 8 * (turn as usize % 25)).unwrap();
                        assert_eq!(lock.kind(), Some(kind));
                        profile.record_wait(lock, 10, turn, false);
                        let stack = profile.stack(&[turn % 7 + 1, 9], 0);
                        profile.add_sample(index, (stack, 0), 10, COUNT_UNIT);
                    }
                });
            }
        });
        let sum: u64 = profile.samples.iter().map(|sample| sample.ns.load(Relaxed)).sum();
        let waits: u64 = profile.locks.iter().map(|lock| lock.waits.load(Relaxed)).sum();
        assert_eq!((sum, waits), (800_000, 80_000));
        assert_eq!(profile.stacks.iter().filter(|stack| stack.depth.load(Relaxed) > 0).count(), 7);
    }

    #[test]
    fn longest_waits_stay() {
        let profile = zeroed();
        (1..=1000).for_each(|ns| profile.record_long_wait(ns, ns, 0, 0, 0));
        let shortest = profile.longest.iter().map(|wait| wait.ns.load(Relaxed)).min();
        assert_eq!(shortest, Some(1000 - crate::layout::LONGEST as u64 + 1));
    }
}
