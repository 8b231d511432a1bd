//! Every pair of contention manager and load manager as a table of functions, chosen once per
//! process.
//!
//! The lock's state lives in the caller's object; see [`Words`]. A table costs an indirect call, so
//! the default pair has a path of its own in [`mutex`](crate::mutex) and [`rwlock`](crate::rwlock),
//! taken while [`is_default`](crate::config::is_default) says so.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;

use unconvoy_locks::contention::Contention;
use unconvoy_locks::contention::rw::{RwWord, Share};
use unconvoy_locks::load::LoadManager;
use unconvoy_locks::lock::{self, Account, Acquired};
use unconvoy_locks::parking::eventcount::Eventcount;
use unconvoy_locks::primitive::Native;

/// The words of a lock in place: its contention manager's state, and the gate.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) state: &'a State,
    pub(crate) gate: &'a Eventcount<Native>,
    /// Another number after each acquisition.
    pub(crate) acquisitions: &'a AtomicU32,
    /// The id of the thread that holds it, or 0.
    pub(crate) holder: &'a AtomicU32,
}

impl<'a> Words<'a> {
    /// What waiters may know.
    #[inline]
    pub(crate) fn account(&self) -> Account<'a, Native> {
        Account { acquisitions: self.acquisitions, holder: self.holder }
    }
}

/// 16 bytes that any contention manager's state fits, all zeroes when unlocked.
#[repr(C, align(8))]
pub(crate) struct State(UnsafeCell<[u64; 2]>);

// SAFETY: only ever used as a contention manager's state, which threads share.
unsafe impl Sync for State {}

impl State {
    /// The bytes as the state of one contention manager.
    #[inline(always)]
    pub(crate) fn of<C: Contention>(&self) -> &C {
        const { assert!(size_of::<C>() <= size_of::<State>() && align_of::<C>() <= align_of::<State>()) };
        // SAFETY: every contention manager's state consists of atomics, for which all bit patterns that it
        // wrote itself or zeroes are valid; a process uses one contention manager from the first
        // lock operation to the last.
        unsafe { &*self.0.get().cast() }
    }
}

/// What a pair of managers does for a mutex or spin lock, and for a reader-writer lock.
pub(crate) struct Pair {
    pub(crate) lock: &'static str,
    pub(crate) load: &'static str,
    /// The controller's interval unless the user sets another.
    pub(crate) interval_ns: u64,
    pub(crate) try_lock: fn(Words<'_>) -> bool,
    /// The first try of a lock function: leaves the lock to a waiter that is due.
    pub(crate) try_politely: fn(Words<'_>) -> bool,
    /// Of a lock that can be elided.
    pub(crate) elision: Option<Elision>,
    pub(crate) acquire: fn(Words<'_>, Option<u64>) -> Acquired,
    /// The caller holds the lock.
    pub(crate) release: unsafe fn(Words<'_>),
    pub(crate) is_locked: fn(Words<'_>) -> bool,
    /// See [`Contention::set_parked_bit`].
    pub(crate) mark: fn(Words<'_>) -> bool,
    pub(crate) acquire_shared: fn(&RwWord<Native>, Share, &Eventcount<Native>, Option<u64>) -> Acquired,
    /// Waits for `attempt`, which polls a word that has neither room for a gate nor for a mark.
    pub(crate) poll: fn(&dyn Fn() -> bool) -> Acquired,
}

/// A way into critical sections that does not take the lock.
pub(crate) struct Elision {
    /// See [`Contention::elide`].
    pub(crate) enter: fn(Words<'_>) -> bool,
    /// See [`Contention::end_elided`]. The caller is in a critical section of the lock.
    pub(crate) end: unsafe fn(Words<'_>) -> bool,
}

/// That of one contention manager, if it has it: the others are not to pay for a call.
const fn elision<C: Contention>() -> Option<Elision> {
    if C::ELIDES { Some(Elision { enter: elide::<C>, end: end_elided::<C> }) } else { None }
}

fn try_lock<C: Contention>(words: Words<'_>) -> bool {
    words.state.of::<C>().try_lock()
}

fn try_politely<C: Contention>(words: Words<'_>) -> bool {
    // A lock that can be elided would elide here; whether a mutex may be is decided before.
    let state = words.state.of::<C>();
    if C::ELIDES { state.try_lock() } else { state.try_lock_politely() }
}

fn elide<C: Contention>(words: Words<'_>) -> bool {
    words.state.of::<C>().elide()
}

/// # Safety
///
/// The caller is in a critical section of the lock.
unsafe fn end_elided<C: Contention>(words: Words<'_>) -> bool {
    // SAFETY: in a section of the lock, whose state is a `C`'s.
    unsafe { words.state.of::<C>().end_elided() }
}

fn acquire<C: Contention, L: LoadManager>(words: Words<'_>, deadline: Option<u64>) -> Acquired {
    lock::acquire::<Native, C, L>(words.state.of(), words.gate, Some(words.account()), deadline)
}

/// # Safety
///
/// The caller holds the lock.
unsafe fn release<C: Contention>(words: Words<'_>) {
    // SAFETY: held; its state is a `C`'s, and the gate is the one that its waiters park at.
    unsafe { lock::release::<Native, C>(words.state.of(), words.gate) };
}

fn is_locked<C: Contention>(words: Words<'_>) -> bool {
    words.state.of::<C>().is_locked()
}

fn mark<C: Contention>(words: Words<'_>) -> bool {
    words.state.of::<C>().set_parked_bit()
}

macro_rules! pairs {
    ([$(($lock:literal, $contention:ty)),*] $loads:tt) => {
        static PAIRS: &[&[Pair]] = &[$(pairs!(@row $lock, $contention, $loads)),*];
    };
    (@row $lock:literal, $contention:ty, [$(($load:literal, $manager:ty)),*]) => {
        &[$(Pair {
            lock: $lock,
            load: $load,
            interval_ns: <$manager as LoadManager>::INTERVAL_NS,
            try_lock: try_lock::<$contention>,
            try_politely: try_politely::<$contention>,
            elision: elision::<$contention>(),
            acquire: acquire::<$contention, $manager>,
            release: release::<$contention>,
            is_locked: is_locked::<$contention>,
            mark: mark::<$contention>,
            acquire_shared: lock::acquire_shared::<Native, $manager>,
            poll: lock::poll::<Native, $manager>,
        }),*]
    };
}

unconvoy_locks::with_managers!(pairs);

/// The pair of these names.
pub(crate) fn find(lock: &str, load: &str) -> Option<&'static Pair> {
    PAIRS.iter().copied().flatten().find(|pair| pair.lock == lock && pair.load == load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Acquire;
    use unconvoy_locks::catalogue::{CONTENTION, LOAD};

    #[test]
    fn every_name_of_the_catalogue_has_its_pairs_and_no_other_has() {
        for lock in CONTENTION {
            for load in LOAD {
                assert!(find(lock.name, load.name).is_some(), "{}+{}", lock.name, load.name);
            }
        }
        assert_eq!(PAIRS.iter().map(|row| row.len()).sum::<usize>(), CONTENTION.len() * LOAD.len());
    }

    #[test]
    fn newcomer_leaves_the_lock_to_a_waiter_that_is_due() {
        let pair = find("loiter", "none").expect("in the catalogue");
        let (state, gate) = (State(UnsafeCell::new([0; 2])), Eventcount::new());
        let words = Words { state: &state, gate: &gate, acquisitions: &AtomicU32::new(0), holder: &AtomicU32::new(0) };
        // SAFETY: the second word of a loiter lock, by its layout, is its waiter's demand.
        let demand = unsafe { &*state.0.get().cast::<AtomicU32>().add(1) };
        let mut overtaken = 0;
        for _ in 0..20 {
            assert!((pair.try_lock)(words));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert!((pair.acquire)(words, None).held);
                    // SAFETY: held.
                    unsafe { (pair.release)(words) };
                });
                while demand.load(Acquire) == 0 {
                    std::thread::yield_now();
                }
                // SAFETY: held.
                unsafe { (pair.release)(words) };
                if (pair.try_politely)(words) {
                    overtaken += u32::from(demand.load(Acquire) != 0);
                    // SAFETY: held.
                    unsafe { (pair.release)(words) };
                }
            });
        }
        assert_eq!(overtaken, 0, "times that a newcomer went before a waiter that was due");
    }
}
