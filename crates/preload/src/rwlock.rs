//! `pthread_rwlock_*`, in place: readers share the lock, and waiting readers and writers are under
//! load control.
//!
//! ```text
//!  glibc  readers writers  wrphase  writers_futex  pad3        pad4    cur_writer  shared .. flags
//!  byte   0       4        8        12             16          20      24          28        48
//!  here   state . . . . . . . . . . . . . . . .    eventcount  number  owner       shared .. flags
//! ```
//!
//! `shared` and `flags` are where libc's initialisers put them. `shared` is set in process-shared
//! locks, which libc serves, and `flags` says whether the lock prefers writers.

mod number;

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};

use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, ETIMEDOUT, clockid_t, pthread_rwlock_t};
use unconvoy_locks::contention::elided_rw::ElidedRw;
use unconvoy_locks::contention::rw::{RwWord, Share};
use unconvoy_locks::lock;
use unconvoy_locks::parking::eventcount::Eventcount;
use unconvoy_locks::primitive::Native;

use crate::config::{self, Service};
use crate::held;
use crate::identity::{me, me_from_tcb};
use crate::object::{InPlace, Until};
use crate::probe::probe;
use crate::profile::libcs::Observed;
use crate::profile::{self, Waited};
use crate::real;
use crate::stats::{self, Kind as Recorded};
use crate::strategy;
use crate::time::{Clock, Deadline};

/// A `pthread_rwlock_t`, as this library uses it.
#[repr(C)]
pub(crate) struct RwLock {
    state: ElidedRw<Native>,
    eventcount: Eventcount<Native>,
    /// The lock's number in a [`strategy`]. libc does not use this word.
    number: AtomicU32,
    /// [`me`] of the writer, otherwise 0.
    owner: AtomicU32,
    shared: AtomicU32,
    _between: [u64; 2],
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

impl RwLock {
    /// Whether the fast paths serve this lock: private to the process, statistics off.
    #[inline(always)]
    fn is_default(&self) -> bool {
        self.shared.load(Relaxed) == 0 && config::is_fast_number(self.number.load(Relaxed))
    }

    fn is_libcs(&self) -> bool {
        self.shared.load(Relaxed) != 0
            || config::service() == Service::Declined
            || self.number() == strategy::LIBC
    }

    fn reading(&self) -> Share {
        match self.flags.load(Relaxed) {
            PREFER_WRITER_NONRECURSIVE => Share::ReadAfterWriters,
            _ => Share::Read,
        }
    }

    #[inline(always)]
    fn word(&self) -> &RwWord<Native> {
        self.state.lock()
    }

    /// The state of a lock that may be elided. An elided section records no owner, because a write
    /// to the lock would conflict with all other elided sections of the lock.
    #[inline(always)]
    fn elided(&self) -> Option<&ElidedRw<Native>> {
        let elides = config::elides() || strategy::elides(self.number());
        (elides && self.shared.load(Relaxed) == 0).then_some(&self.state)
    }

    #[inline]
    fn elide_at_once(&self, share: Share) -> bool {
        self.elided().is_some_and(|elided| elided.elide_at_once(share))
    }

    /// Takes a lock that is not worth eliding.
    #[inline]
    fn lock_at_once(&self, share: Share) -> bool {
        let held = self.elided().is_some_and(|elided| elided.lock_at_once(share));
        if held && share == Share::Write {
            self.owner.store(me(), Relaxed);
        }
        held
    }

    #[inline(always)]
    fn read_at_once(&self) -> bool {
        self.flags.load(Relaxed) != PREFER_WRITER_NONRECURSIVE
            && self.word().try_acquire(Share::Read)
    }

    #[inline(always)]
    fn write_at_once(&self) -> bool {
        let held = self.word().try_acquire(Share::Write);
        if held {
            self.owner.store(me_from_tcb(), Relaxed);
        }
        held
    }

    #[inline]
    fn is_mine(&self) -> bool {
        self.word().is_written() && self.owner.load(Relaxed) == me()
    }

    fn try_acquire(&self, share: Share) -> bool {
        self.elided().inspect(|elided| elided.refuse_in_transaction());
        let held = self.word().try_acquire(share);
        if held {
            self.record_acquisition(share, None);
        }
        held
    }

    fn record_acquisition(&self, share: Share, waited: Option<(u64, u32)>) {
        if share == Share::Write {
            self.owner.store(me(), Relaxed);
        }
        if let Some(elided) = self.elided() {
            elided.record_locked();
        } else if !config::is_default() {
            stats::acquired(Recorded::RwLock, core::ptr::from_ref(self).addr(), waited);
        }
    }

    fn waited<'a>(&self, is_read: bool, request: &'a dyn Fn()) -> Waited<'a> {
        let address = core::ptr::from_ref(self).addr();
        Waited { kind: profile::Kind::RwLock, address, is_read, acquisitions: None, request }
    }

    /// A lock that libc serves.
    fn observed(&self, is_read: bool) -> Observed {
        let address = core::ptr::from_ref(self).addr();
        Observed { kind: profile::Kind::RwLock, address, is_read }
    }

    /// Locks by libc's `lock`, which rejects an invalid deadline even if the lock is free.
    fn observe_until(
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
    /// The caller holds the lock.
    #[inline(always)]
    unsafe fn release_at_once(&self) -> bool {
        if self.word().is_written() {
            self.owner.store(0, Relaxed);
        }
        // SAFETY: held, as a reader or as the writer, whichever the word says.
        unsafe { self.word().release_at_once() }
    }

    fn lock(&self, share: Share, until: Option<Deadline>) -> c_int {
        let request = || _ = self.word().set_parked_bit();
        loop {
            let begin = stats::now();
            let look = until.map(Deadline::next_look);
            let acquired = profile::wait(self.waited(share != Share::Write, &request), || {
                (self.pair().acquire_shared)(self.word(), share, &self.eventcount, look)
            });
            if acquired.held {
                self.record_acquisition(share, Some((begin, acquired.wait.sleeps)));
                return 0;
            }
            if until.is_none_or(Deadline::has_passed) {
                return ETIMEDOUT;
            }
        }
    }

    /// Acquires the lock, waiting until the deadline in `until` if there is one. Rejects an invalid
    /// deadline even if the lock is free, as libc does for this type of lock but not for mutexes.
    fn lock_until(&self, share: Share, until: Option<(Clock, Until<'_>)>) -> c_int {
        let deadline = match until.map(|(clock, until)| Deadline::new(clock, until)) {
            Some(None) => return EINVAL,
            deadline => deadline.flatten(),
        };
        let elide = || {
            let elided = self.elided().filter(|_| until.is_none() && !self.is_mine());
            elided.is_some_and(|elided| elided.elide(share))
        };
        if elide() || self.try_acquire(share) {
            0
        } else if self.is_mine() {
            EDEADLK
        } else if share != Share::Write && self.word().is_full() {
            EAGAIN
        } else {
            self.lock(share, deadline)
        }
    }
}

/// Defines the functions for readers or for writers: lock, try, timed, clock.
macro_rules! holders {
    (
        $lock:ident, $slow:ident, $not_elided:ident, $contended:ident,
        $try:ident, $timed:ident, $clock:ident, $fast:expr, $share:expr, $is_read:expr,
        $entry:literal, $acquired:literal
    ) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $lock(this: &RwLock) -> c_int {
            probe!($entry; this);
            if this.is_default() && $fast(this) {
                probe!($acquired; this);
                return 0;
            }
            $slow(this)
        }

        /// The slow path: everything but an immediate acquisition of a lock with default
        /// attributes. `extern "C"`, here as in [`mutex`](crate::mutex), says that nothing unwinds
        /// out of this function, so the fast path before it needs no frame.
        #[inline(never)]
        extern "C" fn $slow(this: &RwLock) -> c_int {
            if held::is_kept() {
                // SAFETY: a function of the same object.
                unsafe { held::call_from_here(this, $not_elided) }
            } else if this.elide_at_once($share(this)) {
                0
            } else {
                $not_elided(this)
            }
        }

        /// The rest of the slow path, if no section was elided at once.
        #[inline(never)]
        extern "C" fn $not_elided(this: &RwLock) -> c_int {
            if this.lock_at_once($share(this)) {
                probe!($acquired; this);
                return 0;
            }
            $contended(this)
        }

        /// The rest of the slow path, if the lock was not acquired at once either.
        #[inline(never)]
        extern "C" fn $contended(this: &RwLock) -> c_int {
            if this.is_libcs() {
                this.record_first_use();
                let lock = || real::$lock(this.libcs());
                return this.observed($is_read).lock_until(|| real::$try(this.libcs()), lock);
            }
            if this.decide() {
                return $not_elided(this);
            }
            let result = this.lock_until($share(this), None);
            if result == 0 {
                probe!($acquired; this);
            }
            result
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $try(this: &RwLock) -> c_int {
            this.decide();
            if this.is_libcs() {
                this.record_first_use();
                return real::$try(this.libcs());
            }
            let share = $share(this);
            if this.try_acquire(share) {
                0
            } else if share != Share::Write && this.word().is_full() {
                EAGAIN
            } else {
                EBUSY
            }
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $timed(this: &RwLock, until: Until<'_>) -> c_int {
            this.decide();
            if this.is_libcs() {
                let lock = || real::$timed(this.libcs(), until);
                return this.observe_until($is_read, until, || real::$try(this.libcs()), lock);
            }
            this.lock_until($share(this), Some((Clock::Realtime, until)))
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $clock(this: &RwLock, clock: clockid_t, until: Until<'_>) -> c_int {
            this.decide();
            if this.is_libcs() {
                let lock = || real::$clock(this.libcs(), clock, until);
                return match Clock::of(clock) {
                    Some(_) => {
                        this.observe_until($is_read, until, || real::$try(this.libcs()), lock)
                    }
                    None => lock(),
                };
            }
            match Clock::of(clock) {
                Some(clock) => this.lock_until($share(this), Some((clock, until))),
                None => EINVAL,
            }
        }
    };
}

holders!(
    pthread_rwlock_rdlock,
    read,
    read_not_elided,
    read_contended,
    pthread_rwlock_tryrdlock,
    pthread_rwlock_timedrdlock,
    pthread_rwlock_clockrdlock,
    RwLock::read_at_once,
    RwLock::reading,
    true,
    "rdlock_entry",
    "rdlock_acquire_read"
);
holders!(
    pthread_rwlock_wrlock,
    write,
    write_not_elided,
    write_contended,
    pthread_rwlock_trywrlock,
    pthread_rwlock_timedwrlock,
    pthread_rwlock_clockwrlock,
    RwLock::write_at_once,
    |_| Share::Write,
    false,
    "wrlock_entry",
    "wrlock_acquire_write"
);

#[unsafe(no_mangle)]
pub extern "C" fn pthread_rwlock_destroy(this: &RwLock) -> c_int {
    probe!("rwlock_destroy"; this);
    if this.is_libcs() {
        return real::pthread_rwlock_destroy(this.libcs());
    }
    0 // like libc, without a check for holders
}

/// # Safety
///
/// POSIX: the caller holds the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_unlock(this: &RwLock) -> c_int {
    probe!("rwlock_unlock"; this);
    // SAFETY: the caller holds it.
    if this.is_default() && unsafe { this.release_at_once() } {
        return 0;
    }
    // SAFETY: the caller holds it still.
    unsafe { unlock(this) }
}

/// The slow path: the fast path has not released the lock.
///
/// # Safety
///
/// The caller holds the lock, or is in an elided section of it.
#[inline(never)]
unsafe extern "C" fn unlock(this: &RwLock) -> c_int {
    if let Some(elided) = this.elided() {
        // SAFETY: the caller promises to be in a section: elided, or with the lock held.
        if unsafe { elided.end_elided() || this.release_at_once() } {
            return 0;
        }
    }
    // SAFETY: the caller holds the lock, and its section is not elided.
    unsafe { unlock_held(this) }
}

/// The rest of [`unlock`], if the section was not elided: locks that the fast paths do not serve,
/// or a word with waiters.
///
/// # Safety
///
/// The caller holds the lock.
#[inline(never)]
unsafe extern "C" fn unlock_held(this: &RwLock) -> c_int {
    if this.is_libcs() {
        return this.observed(false).unlock(|| real::pthread_rwlock_unlock(this.libcs()));
    }
    if this.is_undecided() {
        return 0; // not held: an error of the program
    }
    let address = core::ptr::from_ref(this).addr();
    if this.elided().is_none() {
        stats::released(address);
    }
    let releasing = profile::releasing(address);
    if this.word().is_written() {
        this.owner.store(0, Relaxed);
    }
    // SAFETY: the caller holds it.
    unsafe { lock::release_shared(this.word(), &this.eventcount) };
    if let Some(releasing) = releasing {
        releasing.released();
    }
    0
}
