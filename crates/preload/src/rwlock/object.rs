//! A `pthread_rwlock_t` as this library uses it.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};

use libc::{EAGAIN, EDEADLK, EINVAL, ETIMEDOUT, pthread_rwlock_t};
use unconvoy_locks::contention::bias::{Bias, Limits};
use unconvoy_locks::contention::biased_rw::{Begun, BiasedRw, Drain};
use unconvoy_locks::contention::elided_rw::ElidedRw;
use unconvoy_locks::contention::rw::{RwWord, Share};
use unconvoy_locks::parking::eventcount::Eventcount;
use unconvoy_locks::primitive::Native;

use crate::config;
use crate::identity::{me, me_from_tcb};
use crate::numbered::Numbered;
use crate::object::{InPlace, Until};
use crate::profile::libcs::Observed;
use crate::profile::{self, Waited};
use crate::route::Route;
use crate::stats::{self, Kind as Recorded};
use crate::strategy;
use crate::time::{Clock, Deadline};

/// A `pthread_rwlock_t`, as this library uses it.
#[repr(C)]
pub(crate) struct RwLock {
    state: ElidedRw<Native>,
    pub(super) eventcount: Eventcount<Native>,
    /// The lock's number in a [`strategy`], in the lowest byte, and the state of its bias. libc
    /// does not use this word.
    number: AtomicU32,
    /// [`me`] of the writer, otherwise 0.
    pub(super) owner: AtomicU32,
    shared: AtomicU32,
    /// Of the bias, which only readers of locks on the fast path set. libc does not use these
    /// words.
    limits: Limits<Native>,
    flags: AtomicU8,
    _rest: [u8; 7],
}

// SAFETY: libc's initialisers and `init` leave zeroes except in `shared` and `flags`. All accessed
// fields are atomics, and zeroes are an unlocked lock.
unsafe impl InPlace for RwLock {
    type Libcs = pthread_rwlock_t;
}

const _: () = assert!(core::mem::offset_of!(RwLock, shared) == 28, "glibc's 64-bit layout");
const _: () = assert!(core::mem::offset_of!(RwLock, flags) == 48, "glibc's 64-bit layout");

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`. glibc, too, treats the recursive variant, 1, as
/// reader preference: a reader that holds the lock must be able to take it again.
const PREFER_WRITER_NONRECURSIVE: u8 = 2;

impl Numbered for RwLock {
    const KIND: strategy::Kind = strategy::Kind::RwLock;

    #[inline(always)]
    fn number(&self) -> Option<u8> {
        (self.shared.load(Relaxed) == 0).then(|| self.number.load(Relaxed) as u8)
    }

    fn set_number(&self, number: u8) {
        let undecided = strategy::UNDECIDED.into();
        let _ = self.number.compare_exchange(undecided, number.into(), Relaxed, Relaxed);
    }
}

impl RwLock {
    /// Whether the fast paths serve this lock: private to the process, statistics off, no bias.
    #[inline(always)]
    pub(super) fn is_default(&self) -> bool {
        self.shared.load(Relaxed) == 0 && config::is_fast_number(self.number.load(Relaxed))
    }

    /// Whether the fast paths would serve this lock without its bias.
    #[inline(always)]
    fn may_publish(&self) -> bool {
        self.number().is_some_and(|number| config::is_fast_number(number.into()))
    }

    /// Acquires a biased lock for reading, if that is possible at once: the fast path of such
    /// locks. None of them prefers writers.
    #[inline(always)]
    pub(super) fn read_biased(&self) -> bool {
        let lock = self.biased();
        lock.is_biased() && self.may_publish() && lock.read(config::may_bias)
    }

    pub(super) fn reading(&self) -> Share {
        match self.flags.load(Relaxed) {
            PREFER_WRITER_NONRECURSIVE => Share::ReadAfterWriters,
            _ => Share::Read,
        }
    }

    #[inline(always)]
    pub(super) fn word(&self) -> &RwWord<Native> {
        self.state.lock()
    }

    /// The lock with its bias: what sections take that are not elided.
    #[inline(always)]
    pub(super) fn biased(&self) -> BiasedRw<'_, Native> {
        let bias = Bias::new(&self.number, &self.limits);
        BiasedRw::new(self.word(), bias, &self.eventcount)
    }

    /// The state of a lock that may be elided. An elided section records no owner, because a write
    /// to the lock would conflict with all other elided sections of the lock.
    #[inline(always)]
    pub(super) fn elided(&self, route: Route) -> Option<&ElidedRw<Native>> {
        route.is_elided().then_some(&self.state)
    }

    #[inline]
    pub(super) fn elide_at_once(&self, share: Share) -> bool {
        self.elided(self.route()).is_some_and(|elided| elided.elide_at_once(share))
    }

    /// Takes a lock that is not worth eliding.
    #[inline]
    pub(super) fn lock_at_once(&self, route: Route, share: Share) -> bool {
        let held = self.elided(route).is_some_and(|elided| elided.lock_at_once(share));
        if held && share == Share::Write {
            self.owner.store(me(), Relaxed);
        }
        held
    }

    /// Drops the published holds of a lock that libc has initialised. POSIX lets no thread
    /// initialise a lock in use; with libc's locks, the lock is free afterwards.
    pub(crate) fn forget_published(&self) {
        self.biased().forget_published();
    }

    #[inline(always)]
    pub(super) fn begin_read(&self) -> Begun {
        match self.flags.load(Relaxed) {
            PREFER_WRITER_NONRECURSIVE => Begun::Failed,
            _ => self.biased().begin_read(),
        }
    }

    pub(super) fn end_read(&self, undecided: u32) -> bool {
        self.biased().end_read(undecided, config::may_bias)
    }

    #[inline(always)]
    pub(super) fn begin_write(&self) -> Begun {
        let begun = self.biased().begin_write();
        if begun == Begun::Held {
            self.owner.store(me_from_tcb(), Relaxed);
        }
        begun
    }

    pub(super) fn end_write(&self, _undecided: u32) -> bool {
        self.biased().end_write();
        false
    }

    #[inline]
    fn is_mine(&self) -> bool {
        self.word().is_written() && self.owner.load(Relaxed) == me()
    }

    pub(super) fn try_acquire(&self, route: Route, share: Share) -> bool {
        self.elided(route).inspect(|elided| elided.refuse_in_transaction());
        let lock = self.biased();
        let held = match share {
            Share::Read => lock.try_read(|| self.may_publish() && config::may_bias()),
            Share::ReadAfterWriters => self.word().try_acquire(share),
            Share::Write => lock.try_write(&Drain::new()),
        };
        if held {
            self.record_acquisition(route, share, None);
        }
        held
    }

    fn record_acquisition(&self, route: Route, share: Share, waited: Option<(u64, u32)>) {
        if share == Share::Write {
            self.owner.store(me(), Relaxed);
        }
        if let Some(elided) = self.elided(route) {
            elided.record_locked();
        } else if route.is_counted() {
            stats::acquired(Recorded::RwLock, self.address(), waited);
        }
    }

    fn waited<'a>(&self, is_read: bool, request: &'a dyn Fn()) -> Waited<'a> {
        let address = self.address();
        Waited { kind: profile::Kind::RwLock, address, is_read, acquisitions: None, request }
    }

    /// A lock that libc serves.
    pub(super) fn observed(&self, is_read: bool) -> Observed {
        Observed { kind: profile::Kind::RwLock, address: self.address(), is_read }
    }

    /// Locks by libc's `lock`, which rejects an invalid deadline even if the lock is free.
    pub(super) fn observe_until(
        &self,
        is_read: bool,
        until: Until<'_>,
        attempt: impl Fn() -> c_int,
        lock: impl Fn() -> c_int,
    ) -> c_int {
        match Deadline::new(Clock::Realtime, until) {
            Some(_) => self.observed(is_read).lock_until(attempt, lock),
            None => lock(),
        }
    }

    /// # Safety
    ///
    /// The caller holds the lock, which is not biased.
    #[inline(always)]
    pub(super) unsafe fn release_at_once(&self) -> bool {
        if self.word().is_written() {
            self.owner.store(0, Relaxed);
        }
        // SAFETY: held, as a reader or as the writer, whichever the word says.
        unsafe { self.word().release_at_once() }
    }

    fn lock(&self, route: Route, share: Share, until: Option<Deadline>) -> c_int {
        let request = || _ = self.word().set_parked_bit();
        let begin = stats::now();
        let acquired = profile::wait(self.waited(share != Share::Write, &request), || {
            let until = until.map(Deadline::for_locks);
            (self.begin_wait().acquire_shared)(self.biased(), share, until)
        });
        if !acquired.held {
            return ETIMEDOUT;
        }
        self.record_acquisition(route, share, Some((begin, acquired.wait.sleeps)));
        0
    }

    /// Acquires the lock, waiting until the deadline in `until` if there is one. Rejects an invalid
    /// deadline even if the lock is free, as libc does for this type of lock but not for mutexes.
    pub(super) fn lock_until(
        &self,
        route: Route,
        share: Share,
        until: Option<(Clock, Until<'_>)>,
    ) -> c_int {
        let deadline = match until.map(|(clock, until)| Deadline::new(clock, until)) {
            Some(None) => return EINVAL,
            deadline => deadline.flatten(),
        };
        let elide = || {
            let elided = self.elided(route).filter(|_| until.is_none() && !self.is_mine());
            elided.is_some_and(|elided| elided.elide(share))
        };
        if elide() {
            return 0;
        }
        if until.is_none() {
            self.biased().give_way(share);
        }
        if self.try_acquire(route, share) {
            0
        } else if self.is_mine() {
            EDEADLK
        } else if share != Share::Write && self.biased().is_full() {
            EAGAIN
        } else {
            self.lock(route, share, deadline)
        }
    }
}
