//! `pthread_rwlock_*`, in place: shared readers, and load control for the waiters of both kinds.
//!
//! ```text
//!  glibc   readers  writers  wrphase  writers_futex  pad3  pad4  cur_writer  shared  ...  flags
//!  byte    0        4        8        12             16          24          28           48
//!  here    state . . . . .   gate     -              owner  -   -           shared  ...  flags
//! ```
//!
//! `shared` and `flags` are where libc's initialisers put them: process-shared locks go to libc,
//! and the flags tell whether writers are preferred.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};

use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, ETIMEDOUT, clockid_t, pthread_rwlock_t};
use unconvoy_locks::contention::rw::{RwWord, Share};
use unconvoy_locks::lock;
use unconvoy_locks::parking::eventcount::Eventcount;
use unconvoy_locks::primitive::Native;

use crate::chosen::pair;
use crate::config::{self, Service};
use crate::identity::{me, me_at_hand};
use crate::object::{InPlace, Until};
use crate::real;
use crate::stats::{self, Kind as Recorded};
use crate::time::{Clock, Deadline};

/// A `pthread_rwlock_t`, as this library uses it.
#[repr(C)]
pub(crate) struct RwLock {
    state: RwWord<Native>,
    gate: Eventcount<Native>,
    _unused: u32,
    /// [`me`] of the writer, else 0.
    owner: AtomicU32,
    _unused_too: u32,
    _cur_writer: u32,
    shared: AtomicU32,
    _between: [u64; 2],
    flags: AtomicU8,
    _rest: [u8; 7],
}

// SAFETY: libc's initialisers and `init` leave zeroes but for `shared` and `flags`; what is accessed of
// it are atomics, of which zeroes are an unlocked lock's.
unsafe impl InPlace for RwLock {
    type Libcs = pthread_rwlock_t;
}

const _: () = assert!(core::mem::offset_of!(RwLock, shared) == 28, "glibc's 64-bit layout");
const _: () = assert!(core::mem::offset_of!(RwLock, flags) == 48, "glibc's 64-bit layout");

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`. The recursive variant, 1, is treated as reader
/// preference by glibc too: a reader that holds the lock must be able to take it again.
const PREFER_WRITER_NONRECURSIVE: u8 = 2;

impl RwLock {
    /// Whether the fast paths serve this lock: private to the process, and no statistics.
    #[inline(always)]
    fn is_default(&self) -> bool {
        self.shared.load(Relaxed) == 0 && config::is_default()
    }

    fn is_libcs(&self) -> bool {
        self.shared.load(Relaxed) != 0 || config::service() == Service::Declined
    }

    fn reading(&self) -> Share {
        match self.flags.load(Relaxed) {
            PREFER_WRITER_NONRECURSIVE => Share::ReadAfterWriters,
            _ => Share::Read,
        }
    }

    #[inline(always)]
    fn read_at_once(&self) -> bool {
        self.flags.load(Relaxed) != PREFER_WRITER_NONRECURSIVE && self.state.try_acquire(Share::Read)
    }

    #[inline(always)]
    fn write_at_once(&self) -> bool {
        let held = self.state.try_acquire(Share::Write);
        if held {
            self.owner.store(me_at_hand(), Relaxed);
        }
        held
    }

    /// Whether the caller is the writer.
    #[inline]
    fn is_mine(&self) -> bool {
        self.state.is_written() && self.owner.load(Relaxed) == me()
    }

    fn try_acquire(&self, share: Share) -> bool {
        let held = self.state.try_acquire(share);
        if held {
            self.note(share, None);
        }
        held
    }

    fn note(&self, share: Share, waited: Option<(u64, u32)>) {
        if share == Share::Write {
            self.owner.store(me(), Relaxed);
        }
        if !config::is_default() {
            stats::acquired(Recorded::RwLock, core::ptr::from_ref(self).addr(), waited);
        }
    }

    /// # Safety
    ///
    /// The caller holds the lock.
    #[inline(always)]
    unsafe fn release_at_once(&self) -> bool {
        if self.state.is_written() {
            self.owner.store(0, Relaxed);
        }
        // SAFETY: held, as a reader or the writer, whichever the word says.
        unsafe { self.state.release_at_once() }
    }

    fn lock(&self, share: Share, until: Option<Deadline>) -> c_int {
        loop {
            let begin = stats::now();
            let look = until.map(Deadline::next_look);
            let acquired = (pair().acquire_shared)(&self.state, share, &self.gate, look);
            if acquired.held {
                self.note(share, Some((begin, acquired.wait.sleeps)));
                return 0;
            }
            if until.is_none_or(Deadline::has_passed) {
                return ETIMEDOUT;
            }
        }
    }

    /// Locks, with the time-out that `until` may give. Its time is checked first, as libc does for
    /// these, though not for mutexes.
    fn lock_until(&self, share: Share, until: Option<(Clock, Until<'_>)>) -> c_int {
        let deadline = match until.map(|(clock, until)| Deadline::new(clock, until)) {
            Some(None) => return EINVAL,
            deadline => deadline.flatten(),
        };
        if self.try_acquire(share) {
            0
        } else if self.is_mine() {
            EDEADLK
        } else if share != Share::Write && self.state.is_full() {
            EAGAIN
        } else {
            self.lock(share, deadline)
        }
    }
}

/// Defines the functions of one kind of holder: lock, try, timed, clock.
macro_rules! holders {
    ($lock:ident, $slow:ident, $try:ident, $timed:ident, $clock:ident, $fast:expr, $share:expr) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $lock(this: &RwLock) -> c_int {
            if this.is_default() && $fast(this) { 0 } else { $slow(this) }
        }

        /// All that is not had at once from a lock of default attributes. `extern "C"`, here as in
        /// [`mutex`](crate::mutex), says that nothing unwinds out of it: so the fast path before
        /// it needs no frame.
        #[inline(never)]
        extern "C" fn $slow(this: &RwLock) -> c_int {
            if this.is_libcs() {
                return real::$lock(this.libcs());
            }
            this.lock_until($share(this), None)
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $try(this: &RwLock) -> c_int {
            if this.is_libcs() {
                return real::$try(this.libcs());
            }
            let share = $share(this);
            if this.try_acquire(share) {
                0
            } else if share != Share::Write && this.state.is_full() {
                EAGAIN
            } else {
                EBUSY
            }
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $timed(this: &RwLock, until: Until<'_>) -> c_int {
            if this.is_libcs() {
                return real::$timed(this.libcs(), until);
            }
            this.lock_until($share(this), Some((Clock::Realtime, until)))
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $clock(this: &RwLock, clock: clockid_t, until: Until<'_>) -> c_int {
            if this.is_libcs() {
                return real::$clock(this.libcs(), clock, until);
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
    pthread_rwlock_tryrdlock,
    pthread_rwlock_timedrdlock,
    pthread_rwlock_clockrdlock,
    RwLock::read_at_once,
    RwLock::reading
);
holders!(
    pthread_rwlock_wrlock,
    write,
    pthread_rwlock_trywrlock,
    pthread_rwlock_timedwrlock,
    pthread_rwlock_clockwrlock,
    RwLock::write_at_once,
    |_| Share::Write
);

#[unsafe(no_mangle)]
pub extern "C" fn pthread_rwlock_destroy(this: &RwLock) -> c_int {
    if this.is_libcs() {
        return real::pthread_rwlock_destroy(this.libcs());
    }
    0 // as libc does, which does not look either
}

/// # Safety
///
/// POSIX: the caller holds the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_unlock(this: &RwLock) -> c_int {
    // SAFETY: the caller holds it.
    if this.is_default() && unsafe { this.release_at_once() } {
        return 0;
    }
    // SAFETY: the caller holds it still.
    unsafe { unlock(this) }
}

/// Unlock of what the fast paths do not serve, or where others are at the word.
///
/// # Safety
///
/// The caller holds the lock.
#[inline(never)]
unsafe extern "C" fn unlock(this: &RwLock) -> c_int {
    if this.is_libcs() {
        return real::pthread_rwlock_unlock(this.libcs());
    }
    stats::released(core::ptr::from_ref(this).addr());
    if this.state.is_written() {
        this.owner.store(0, Relaxed);
    }
    // SAFETY: the caller holds it.
    unsafe { lock::release_shared(&this.state, &this.gate) };
    0
}
