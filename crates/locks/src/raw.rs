//! Locks for Rust: the traits of `lock_api` over any pair of managers.
//!
//! ```
//! use unconvoy::Mutex;
//!
//! static HITS: Mutex<u64> = Mutex::new(0);
//!
//! std::thread::scope(|scope| {
//!     for _ in 0..8 {
//!         scope.spawn(|| *HITS.lock() += 1);
//!     }
//! });
//! assert_eq!(*HITS.lock(), 8);
//! ```

use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use lock_api::GuardSend;

use crate::contention::Contention;
use crate::contention::biased_rw::BiasedRw;
use crate::contention::loiter::Loiter;
use crate::contention::rw::{RwWord, Share};
use crate::load::LoadManager;
use crate::load::control::Control;
use crate::lock::{self, Account};
use crate::parking::eventcount::Eventcount;
use crate::primitive::native::REALTIME;
use crate::primitive::{Clock as _, Native, Transactions as _};

/// A mutex of one contention manager and one load manager: the manager's state, at most 16 bytes,
/// and 8 bytes.
///
/// ```
/// use unconvoy::contention::mcs::Mcs;
/// use unconvoy::load::park::Park;
/// use unconvoy::primitive::Native;
/// use unconvoy::raw::RawLock;
///
/// type Mutex<T> = lock_api::Mutex<RawLock<Mcs<Native>, Park>, T>;
///
/// let queue = Mutex::new(vec![1, 2]);
/// queue.lock().push(3);
/// assert_eq!(queue.into_inner(), [1, 2, 3]);
/// ```
pub struct RawLock<C, L> {
    eventcount: Eventcount<Native>,
    acquisitions: AtomicU32,
    state: C,
    load: PhantomData<fn(L)>,
}

/// A reader-writer lock under one load manager, 12 bytes. Readers share the lock, and may lock it
/// again while a writer waits.
///
/// ```
/// use unconvoy::load::park::Park;
/// use unconvoy::raw::RawSharedLock;
///
/// type RwLock<T> = lock_api::RwLock<RawSharedLock<Park>, T>;
///
/// let limit = RwLock::new(10);
/// *limit.write() = 20;
/// assert_eq!(*limit.read(), 20);
/// ```
pub struct RawSharedLock<L> {
    eventcount: Eventcount<Native>,
    state: RwWord<Native>,
    load: PhantomData<fn(L)>,
}

/// The default mutex around a value: barging word, time-published queue, load control.
///
/// ```
/// use std::time::Duration;
///
/// let hits = unconvoy::Mutex::new(0);
/// *hits.lock() += 1;
///
/// let held = hits.lock();
/// assert!(hits.try_lock().is_none());
/// assert!(hits.try_lock_for(Duration::from_millis(1)).is_none());
/// assert_eq!(*held, 1);
/// ```
pub type Mutex<T> = lock_api::Mutex<RawLock<Loiter<Native>, Control>, T>;
/// The guard that [`Mutex::lock`](lock_api::Mutex::lock) returns.
///
/// ```
/// use unconvoy::{Mutex, MutexGuard};
///
/// fn count(mut hits: MutexGuard<'_, u64>) {
///     *hits += 1; // the end of the function releases the lock
/// }
///
/// let hits = Mutex::new(0);
/// count(hits.lock());
/// assert_eq!(hits.into_inner(), 1);
/// ```
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock<Loiter<Native>, Control>, T>;
/// A reader-writer lock under load control.
///
/// ```
/// let names = unconvoy::RwLock::new(vec!["a"]);
/// names.write().push("b");
///
/// let (first, second) = (names.read(), names.read()); // readers share the lock
/// assert_eq!(*first, *second);
/// assert!(names.try_write().is_none());
/// ```
pub type RwLock<T> = lock_api::RwLock<RawSharedLock<Control>, T>;

/// Latest deadline on the machine's clock; later ones have another meaning for [`Native`].
pub(crate) const LATEST: u64 = REALTIME - 1;

/// Converts `instant` to nanoseconds of the machine's clock, which `Instant` reads too.
fn deadline(instant: Instant) -> u64 {
    let ahead = instant.saturating_duration_since(Instant::now());
    Native::now().saturating_add(u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX)).min(LATEST)
}

/// The time at which `timeout` ends; `None`, which means never, if the clock cannot represent that
/// time.
fn after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

impl<C: Contention, L: LoadManager> RawLock<C, L> {
    /// Locks the mutex, or gives up at `deadline` on the machine's clock.
    #[inline]
    pub(crate) fn acquire(&self, deadline: Option<u64>) -> bool {
        self.state.abort_section(); // two guards of one thread would share the value
        let held = self.state.try_lock_without_barging() || self.wait(deadline);
        if held {
            self.count();
        }
        held
    }

    fn wait(&self, deadline: Option<u64>) -> bool {
        let account = Account::Watched { acquisitions: &self.acquisitions };
        let (state, eventcount) = (&self.state, &self.eventcount);
        lock::acquire::<Native, C, L>(state, eventcount, Some(account), deadline).held
    }

    /// Counts an acquisition by the caller for a waiter that watches, except by a transaction: it
    /// must not write the lock.
    #[inline]
    fn count(&self) {
        if (!C::ELIDES || !Native::in_transaction()) && self.state.is_watched() {
            self.acquisitions.store(self.acquisitions.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

// SAFETY: a `Contention` admits one holder at a time.
unsafe impl<C: Contention, L: LoadManager> lock_api::RawMutex for RawLock<C, L> {
    // SAFETY: all zeroes is the unlocked state of every contention manager, and an eventcount
    // without waiters.
    const INIT: Self = unsafe { core::mem::zeroed() };

    // A lock does not record its holder, so another thread may release it.
    type Guard = GuardSend;

    #[inline]
    fn lock(&self) -> GuardSend {
        self.acquire(None);
        GuardSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardSend> {
        let held = self.state.try_lock();
        if held {
            self.count();
        }
        held.then(GuardSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _: GuardSend) {
        // SAFETY: `lock_api` releases only what a guard holds.
        unsafe { lock::release::<Native, C>(&self.state, &self.eventcount) };
    }

    fn is_locked(&self) -> bool {
        self.state.is_locked()
    }
}

// SAFETY: as above.
unsafe impl<C: Contention, L: LoadManager> lock_api::RawMutexTimed for RawLock<C, L> {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> Option<GuardSend> {
        self.acquire(after(timeout).map(deadline)).then(GuardSend::new)
    }

    fn try_lock_until(&self, timeout: Instant) -> Option<GuardSend> {
        self.acquire(Some(deadline(timeout))).then(GuardSend::new)
    }
}

/// Acquires a reader-writer lock for reading if that is possible at once. Looks first: a reader
/// counted beside a writer, even for a moment, stays counted in the child of a fork by that writer.
#[inline]
pub(crate) fn try_read(word: &RwWord<Native>) -> bool {
    !word.is_written() && word.try_acquire(Share::Read)
}

impl<L: LoadManager> RawSharedLock<L> {
    /// The lock; it has no room for a bias.
    #[inline]
    fn lock(&self) -> BiasedRw<'_, Native> {
        BiasedRw::unbiased(&self.state, &self.eventcount)
    }

    #[inline]
    fn acquire(&self, share: Share) {
        let lock = self.lock();
        if !lock.acquire_at_once(share) {
            lock.give_way(share);
            lock::acquire_shared::<Native, L>(lock, share, None);
        }
    }
}

// SAFETY: `RwWord` admits readers together, or one writer alone.
unsafe impl<L: LoadManager> lock_api::RawRwLock for RawSharedLock<L> {
    // SAFETY: all zeroes is a free lock, and an eventcount without waiters.
    const INIT: Self = unsafe { core::mem::zeroed() };

    type SharedGuard = GuardSend;
    type ExclusiveGuard = GuardSend;

    #[inline]
    fn lock_shared(&self) -> GuardSend {
        self.acquire(Share::Read);
        GuardSend::new()
    }

    #[inline]
    fn try_lock_shared(&self) -> Option<GuardSend> {
        try_read(&self.state).then(GuardSend::new)
    }

    #[inline]
    unsafe fn unlock_shared(&self, _: GuardSend) {
        // SAFETY: `lock_api` releases only what a guard holds.
        unsafe { lock::release_shared(self.lock()) };
    }

    #[inline]
    fn lock_exclusive(&self) -> GuardSend {
        self.acquire(Share::Write);
        GuardSend::new()
    }

    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardSend> {
        self.state.try_acquire(Share::Write).then(GuardSend::new)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, _: GuardSend) {
        // SAFETY: `lock_api` releases only what a guard holds.
        unsafe { lock::release_shared(self.lock()) };
    }

    fn is_locked(&self) -> bool {
        self.state.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.state.is_written()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use lock_api::{RawMutex as _, RawMutexTimed as _};

    #[test]
    fn acquisitions_are_counted_while_a_waiter_watches() {
        let lock = RawLock::<Loiter<Native>, Control>::INIT;
        let count = || lock.acquisitions.load(Relaxed);
        assert!(lock.try_lock().is_some() && count() == 0);
        // SAFETY: held.
        unsafe { lock.unlock(GuardSend::new()) };
        lock.state.watch();
        lock.lock();
        assert!(lock.try_lock().is_none() && lock.try_lock_for(Duration::ZERO).is_none());
        assert_eq!(count(), 1);
        // SAFETY: held.
        unsafe { lock.unlock(GuardSend::new()) };
        lock.state.watch(); // the attempt's watch ends if it takes longer than a watch
        assert!(lock.try_lock().is_some() && count() == 2);
        assert_eq!(size_of_val(&lock), 24);
    }
}
