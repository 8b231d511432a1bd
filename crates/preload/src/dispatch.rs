//! One table of functions for each pair of contention manager and load manager. A process chooses
//! its table once.
//!
//! The lock's state lives in the caller's object; see [`Words`]. A table costs an indirect call, so
//! the default pair has its own path in [`mutex`](crate::mutex) and [`rwlock`](crate::rwlock), used
//! while [`is_default`](crate::config::is_default) is true.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;

use unconvoy_locks::contention::Contention;
use unconvoy_locks::contention::biased_rw::BiasedRw;
use unconvoy_locks::contention::rw::Share;
use unconvoy_locks::load::{Holds, LoadManager};
use unconvoy_locks::lock::{self, Account, Acquired, Process as _};
use unconvoy_locks::parking::eventcount::Eventcount;
use unconvoy_locks::primitive::Native;

/// The words of a lock in place: its contention manager's state, and the eventcount.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) state: &'a State,
    pub(crate) eventcount: &'a Eventcount<Native>,
    /// Changes with each acquisition.
    pub(crate) acquisitions: &'a AtomicU32,
    /// The thread id of the holder, or 0.
    pub(crate) holder: &'a AtomicU32,
}

impl<'a> Words<'a> {
    /// The part of the lock that waiters may read.
    #[inline]
    pub(crate) fn account(&self) -> Account<'a, Native> {
        Account::Full { acquisitions: self.acquisitions, holder: self.holder }
    }
}

/// 16 bytes that hold any contention manager's state; all zeroes when unlocked.
#[repr(C, align(8))]
pub(crate) struct State(UnsafeCell<[u64; 2]>);

// SAFETY: used only as a contention manager's state, which threads may share.
unsafe impl Sync for State {}

impl State {
    #[inline(always)]
    pub(crate) fn of<C: Contention>(&self) -> &C {
        const {
            assert!(size_of::<C>() <= size_of::<State>());
            assert!(align_of::<C>() <= align_of::<State>());
        };
        // SAFETY: every contention manager's state consists of atomics, valid for zeroes and for
        // every value that it wrote itself. A process uses one contention manager from its first
        // lock operation to its last.
        unsafe { &*self.0.get().cast() }
    }
}

/// The operations of a pair of managers on mutexes, spin locks and reader-writer locks.
pub(crate) struct Pair {
    pub(crate) lock: &'static str,
    pub(crate) load: &'static str,
    /// The controller's interval in nanoseconds, unless the user sets another.
    pub(crate) interval_ns: u64,
    pub(crate) try_lock: fn(Words<'_>) -> bool,
    /// A lock function's first attempt: fails also if a waiter is entitled to the lock.
    pub(crate) try_without_barging: fn(Words<'_>) -> bool,
    /// Whether the lock is [`Elided`](unconvoy_locks::contention::elided::Elided).
    pub(crate) elides: bool,
    pub(crate) acquire: fn(Words<'_>, Option<u64>) -> Acquired,
    /// The caller must hold the lock.
    pub(crate) release: unsafe fn(Words<'_>),
    pub(crate) is_locked: fn(Words<'_>) -> bool,
    /// See [`Contention::set_parked_bit`].
    pub(crate) set_parked_bit: fn(Words<'_>) -> bool,
    pub(crate) acquire_shared: fn(BiasedRw<'_, Native>, Share, Option<u64>) -> Acquired,
    /// Waits until `attempt` succeeds. `attempt` polls a word that has no room for an eventcount or
    /// a parked bit.
    pub(crate) poll: fn(&dyn Fn() -> bool) -> Acquired,
    /// See [`LoadManager::checkpoint`].
    pub(crate) checkpoint: fn(holds: fn() -> Holds) -> bool,
}

fn checkpoint<L: LoadManager>(holds: fn() -> Holds) -> bool {
    L::checkpoint(Native::context(), holds)
}

fn try_lock<C: Contention>(words: Words<'_>) -> bool {
    words.state.of::<C>().try_lock()
}

fn try_without_barging<C: Contention>(words: Words<'_>) -> bool {
    // The caller has decided whether this mutex may be elided.
    words.state.of::<C>().take_without_barging()
}

fn acquire<C: Contention, L: LoadManager>(words: Words<'_>, deadline: Option<u64>) -> Acquired {
    lock::acquire::<Native, C, L>(
        words.state.of(),
        words.eventcount,
        Some(words.account()),
        deadline,
    )
}

/// # Safety
///
/// The caller must hold the lock.
unsafe fn release<C: Contention>(words: Words<'_>) {
    // SAFETY: held. The state is a `C`, and its waiters park on this eventcount.
    unsafe { lock::release::<Native, C>(words.state.of(), words.eventcount) };
}

fn is_locked<C: Contention>(words: Words<'_>) -> bool {
    words.state.of::<C>().is_locked()
}

fn set_parked_bit<C: Contention>(words: Words<'_>) -> bool {
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
            try_without_barging: try_without_barging::<$contention>,
            elides: <$contention as Contention>::ELIDES,
            acquire: acquire::<$contention, $manager>,
            release: release::<$contention>,
            is_locked: is_locked::<$contention>,
            set_parked_bit: set_parked_bit::<$contention>,
            acquire_shared: lock::acquire_shared::<Native, $manager>,
            poll: lock::poll::<Native, $manager>,
            checkpoint: checkpoint::<$manager>,
        }),*]
    };
}

unconvoy_locks::with_managers!(pairs);

pub(crate) fn find(lock: &str, load: &str) -> Option<&'static Pair> {
    PAIRS.iter().copied().flatten().find(|pair| pair.lock == lock && pair.load == load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;
    use unconvoy_locks::catalogue::{CONTENTION, LOAD};

    /// The bit of `loiter`'s advice that a standby raises. Other bits of it say other things.
    const DEMAND: u32 = 1;

    struct Mutex {
        state: State,
        eventcount: Eventcount<Native>,
        acquisitions: AtomicU32,
        holder: AtomicU32,
    }

    impl Mutex {
        fn new() -> Self {
            Self {
                state: State(UnsafeCell::new([0; 2])),
                eventcount: Eventcount::new(),
                acquisitions: AtomicU32::new(0),
                holder: AtomicU32::new(0),
            }
        }

        fn words(&self) -> Words<'_> {
            Words {
                state: &self.state,
                eventcount: &self.eventcount,
                acquisitions: &self.acquisitions,
                holder: &self.holder,
            }
        }

        /// The advice of `loiter` and `elided`: the second word of their state.
        fn advice(&self) -> &AtomicU32 {
            // SAFETY: both words of the state are atomic for these contention managers.
            unsafe { &*self.state.0.get().cast::<AtomicU32>().add(1) }
        }

        fn is_demanded(&self) -> bool {
            self.advice().load(Relaxed) & DEMAND != 0
        }
    }

    #[test]
    fn pairs_cover_exactly_the_catalogue() {
        for lock in CONTENTION {
            for load in LOAD {
                assert!(find(lock.name, load.name).is_some(), "{}+{}", lock.name, load.name);
            }
        }
        assert_eq!(PAIRS.iter().map(|row| row.len()).sum::<usize>(), CONTENTION.len() * LOAD.len());
    }

    #[test]
    fn first_try_heeds_demand_also_if_the_lock_elides() {
        for lock in ["loiter", "elided"] {
            let pair = find(lock, "none").expect("in the catalogue");
            let mutex = Mutex::new();
            let words = mutex.words();
            mutex.advice().store(DEMAND, Relaxed);
            assert!(!(pair.try_without_barging)(words), "{lock} barges");
            mutex.advice().store(0, Relaxed);
            assert!((pair.try_without_barging)(words), "{lock} is free");
            // SAFETY: held.
            unsafe { (pair.release)(words) };
        }
    }

    #[test]
    fn polite_try_leaves_lock_to_due_waiter() {
        let pair = find("loiter", "none").expect("in the catalogue");
        let mutex = Mutex::new();
        let words = mutex.words();
        let mut overtaken = 0;
        for _ in 0..20 {
            assert!((pair.try_lock)(words));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert!((pair.acquire)(words, None).held);
                    // SAFETY: held.
                    unsafe { (pair.release)(words) };
                });
                while !mutex.is_demanded() {
                    std::thread::yield_now();
                }
                // SAFETY: held.
                unsafe { (pair.release)(words) };
                if (pair.try_without_barging)(words) {
                    overtaken += u32::from(mutex.is_demanded());
                    // SAFETY: held.
                    unsafe { (pair.release)(words) };
                }
            });
        }
        assert_eq!(overtaken, 0, "acquisitions ahead of an entitled waiter");
    }
}
