//! Requests of waiters for the stack of the lock's holder, and the measurement of holds.
//!
//! A request is an entry of a fixed table, linked into the list of its lock. The next release takes
//! the whole list, so one stack answers all its requests.
//!
//! | state | set by | meaning |
//! | --- | --- | --- |
//! | `FREE` | the waiter, if its entry is first in the list; else the side that finishes last | unused |
//! | `OPEN` | the waiter, if `FREE` or `TIMED_OUT` | in the list of its lock |
//! | `CANCELLED` | the waiter, if `OPEN`; the exit, if `TIMED_OUT` | the wait has ended; the taker frees it |
//! | `TIMED_OUT` | the waiter, if `OPEN` | the wait has ended; still in the list of its lock |
//! | `TAKEN` | the holder, if `OPEN` | the holder is about to record its stack |
//! | `WAITED` | the waiter, if `TAKEN`; the holder, if `TIMED_OUT` | the wait has ended; the holder adds the sample |
//! | `ANSWERED` | the holder, if `TAKEN` | the stack is known; the waiter records the sample |
//!
//! An entry stays in its list until the lock's next release. A thread may time out at the same lock
//! again and again, so a wait from the same place takes over the entry of one that has timed out,
//! and adds its own weight to it.
//!
//! **Memory orderings.** The state's exchanges acquire and release, and so order the entry's other
//! words, which are relaxed. The list is pushed with release and taken with acquire.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_profile::layout::Lock;
use unconvoy_profile::{Kind, Profile, mix};

use super::state::{generation, get};
use super::{estimate, stack};

/// Capacity of the table.
const ASKS: usize = 1024;
/// Number of entries in which the requests of one place at one lock may be.
const PROBES: usize = 64;

const FREE: u32 = 0;
const OPEN: u32 = 1;
const CANCELLED: u32 = 2;
const TAKEN: u32 = 3;
const WAITED: u32 = 4;
const ANSWERED: u32 = 5;
const TIMED_OUT: u32 = 6;

struct Ask {
    state: AtomicU32,
    /// Number of the next entry in the list; 0 ends it. An entry's number is its index plus one.
    next: AtomicU32,
    /// Index of the lock.
    lock: AtomicU32,
    waiter: AtomicU32,
    holder: AtomicU32,
    ns: AtomicU64,
    count: AtomicU64,
}

static ENTRIES: [Ask; ASKS] = [const {
    Ask {
        state: AtomicU32::new(FREE),
        next: AtomicU32::new(0),
        lock: AtomicU32::new(0),
        waiter: AtomicU32::new(0),
        holder: AtomicU32::new(0),
        ns: AtomicU64::new(0),
        count: AtomicU64::new(0),
    }
}; ASKS];

/// Number of requests in lists and of holds being measured. While it is 0, a release need not look
/// up its lock.
static PENDING: AtomicU32 = AtomicU32::new(0);

fn entry(number: u32) -> &'static Ask {
    &ENTRIES[number as usize - 1]
}

/// Forgets all requests, in the child of a `fork`.
pub(super) fn reset() {
    ENTRIES.iter().for_each(|ask| ask.state.store(FREE, Relaxed));
    PENDING.store(0, Relaxed);
}

/// Requests the stack of the thread that releases the lock next. Returns the request's number, or
/// `None` if the table has no room.
pub(super) fn open(profile: &Profile, lock: &Lock, index: u32, waiter: u32) -> Option<u32> {
    let home = mix(u64::from(index) << 32 | u64::from(waiter)) as usize;
    let places = (0..PROBES).map(|probe| home.wrapping_add(probe) % ASKS);
    let mut places = places.map(|at| (at as u32 + 1, &ENTRIES[at]));
    if let Some((number, _)) = places.clone().find(|(_, ask)| ask.take_over(profile, index, waiter))
    {
        return Some(number);
    }
    let (number, ask) = places.find(|(_, ask)| {
        ask.state.load(Relaxed) == FREE
            && ask.state.compare_exchange(FREE, OPEN, Acquire, Relaxed).is_ok()
    })?;
    ask.lock.store(index, Relaxed);
    ask.waiter.store(waiter, Relaxed);
    ask.ns.store(0, Relaxed);
    ask.count.store(0, Relaxed);
    PENDING.fetch_add(1, Relaxed);
    let _ = lock.asking.fetch_update(Release, Relaxed, |first| {
        ask.next.store(first, Relaxed);
        Some(number)
    });
    Some(number)
}

/// Ends the request of a wait. Its sample stands for the time and the number of waits in `weight`.
///
/// The request of a wait that timed out stays in the list until the next release.
pub(super) fn finish(profile: &Profile, lock: &Lock, number: u32, weight: (u64, u64), held: bool) {
    let ask = entry(number);
    // The entries after this one leave the list only after it does, so `next` is still valid.
    let next = ask.next.load(Relaxed);
    // Read now: once the entry is free or cancelled, another wait may reuse it.
    let (index, waiter) = (ask.lock.load(Relaxed), ask.waiter.load(Relaxed));
    let before = (ask.ns.load(Relaxed), ask.count.load(Relaxed));
    let weight = (before.0 + weight.0, before.1 + weight.1);
    if held && lock.asking.compare_exchange(number, next, Relaxed, Relaxed).is_ok() {
        PENDING.fetch_sub(1, Relaxed);
        ask.state.store(FREE, Release);
        return add(profile, index, (waiter, 0), weight);
    }
    ask.ns.store(weight.0, Relaxed);
    ask.count.store(weight.1, Relaxed);
    if held && ask.state.compare_exchange(OPEN, CANCELLED, AcqRel, Acquire).is_ok() {
        return add(profile, index, (waiter, 0), weight);
    }
    ask.leave(profile);
}

fn add(profile: &Profile, lock: u32, stacks: (u32, u32), (ns, count): (u64, u64)) {
    if count > 0 {
        profile.add_sample(lock, stacks, ns, count);
    }
}

impl Ask {
    /// Makes the request of a wait that has timed out that of another wait from the same place for
    /// the same lock. Returns whether this is such a request.
    fn take_over(&self, profile: &Profile, index: u32, waiter: u32) -> bool {
        let is_same = || (self.lock.load(Relaxed), self.waiter.load(Relaxed)) == (index, waiter);
        if self.state.load(Relaxed) != TIMED_OUT
            || !is_same()
            || self.state.compare_exchange(TIMED_OUT, OPEN, AcqRel, Relaxed).is_err()
        {
            return false;
        }
        // Before the exchange, the entry may have become another wait's.
        let is_same = is_same();
        if !is_same {
            self.leave(profile);
        }
        is_same
    }

    /// The waiter's last step, unless it has the lock and no release has answered it.
    fn leave(&self, profile: &Profile) {
        if self.state.compare_exchange(OPEN, TIMED_OUT, AcqRel, Acquire).is_err()
            && self.state.swap(WAITED, AcqRel) == ANSWERED
        {
            self.complete(profile);
        }
    }

    /// The holder's first step, after it has taken the list. Returns whether the request is to be
    /// answered.
    fn take(&self) -> bool {
        loop {
            match self.state.compare_exchange(OPEN, TAKEN, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(TIMED_OUT) => {}
                Err(_) => {
                    self.state.store(FREE, Release); // cancelled
                    return false;
                }
            }
            if self.state.compare_exchange(TIMED_OUT, WAITED, AcqRel, Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Records the sample, after both sides have finished.
    fn complete(&self, profile: &Profile) {
        let stacks = (self.waiter.load(Relaxed), self.holder.load(Relaxed));
        let weight = (self.ns.load(Relaxed), self.count.load(Relaxed));
        add(profile, self.lock.load(Relaxed), stacks, weight);
        self.state.store(FREE, Release);
    }
}

/// Records the samples of waits that timed out and whose lock has not been released since.
pub(super) fn flush(profile: &Profile) {
    for ask in &ENTRIES {
        let (lock, waiter) = (ask.lock.load(Relaxed), ask.waiter.load(Relaxed));
        let weight = (ask.ns.load(Relaxed), ask.count.load(Relaxed));
        // The entry may still be in its lock's list, so only the next release frees it.
        if ask.state.compare_exchange(TIMED_OUT, CANCELLED, AcqRel, Acquire).is_ok() {
            add(profile, lock, (waiter, 0), weight);
        }
    }
}

/// Begins to measure the hold of the calling thread, which has just acquired the lock exclusively.
pub(super) fn begin_hold(lock: &Lock, now: u64) {
    if lock.held_since.swap(now, Relaxed) == 0 {
        PENDING.fetch_add(1, Relaxed);
    }
}

/// A release by a holder whose stack waiters have requested.
pub(crate) struct Releasing {
    profile: &'static Profile,
    generation: u32,
    /// Number of the first taken request; the others follow by `next`.
    first: u32,
}

/// Prepares the release of the lock of this kind at `address`. The caller holds the lock, releases
/// it, and then calls [`Releasing::released`].
#[inline]
pub(crate) fn releasing(kind: Kind, address: usize) -> Option<Releasing> {
    let profile = get()?;
    if PENDING.load(Relaxed) == 0 { None } else { take(profile, kind, address) }
}

/// Ends the measured hold of the mutex at `address`. The release that follows answers no requests.
pub(crate) fn end_hold(address: usize) {
    if let Some(profile) = get().filter(|_| PENDING.load(Relaxed) != 0)
        && let Some(found) = profile.find_lock(Kind::Mutex, address)
    {
        record_hold(profile, found);
    }
}

fn record_hold(profile: &Profile, (index, lock): (u32, &Lock)) {
    if lock.held_since.load(Relaxed) == 0 {
        return;
    }
    let since = lock.held_since.swap(0, Relaxed);
    if since != 0 {
        PENDING.fetch_sub(1, Relaxed);
        // A hold that began before the recording was paused is not measured.
        if since >= profile.header.begin_ns.load(Relaxed) {
            let ns = Native::now().saturating_sub(since);
            profile.record_hold(lock, ns);
            estimate::end(index, ns);
        }
    }
}

#[cold]
fn take(profile: &'static Profile, kind: Kind, address: usize) -> Option<Releasing> {
    let (index, lock) = profile.find_lock(kind, address)?;
    record_hold(profile, (index, lock));
    if lock.asking.load(Relaxed) == 0 || stack::is_unwinding() {
        return None;
    }
    let (mut number, mut first) = (lock.asking.swap(0, Acquire), 0);
    while number != 0 {
        let ask = entry(number);
        let next = ask.next.load(Relaxed);
        PENDING.fetch_sub(1, Relaxed);
        if ask.take() {
            ask.next.store(first, Relaxed);
            first = number;
        }
        number = next;
    }
    (first != 0).then(|| Releasing { profile, generation: generation(), first })
}

impl Releasing {
    /// Answers the requests with the calling thread's stack, after the lock's release.
    #[cold]
    pub(crate) fn released(self) {
        let holder = stack::record(self.profile);
        if self.generation != generation() {
            return; // a signal handler has forked, and this is the child
        }
        let mut number = self.first;
        while number != 0 {
            let ask = entry(number);
            number = ask.next.load(Relaxed);
            ask.holder.store(holder, Relaxed);
            if ask.state.swap(ANSWERED, AcqRel) == WAITED {
                ask.complete(self.profile);
            }
        }
    }
}
