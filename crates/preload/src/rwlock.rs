//! `pthread_rwlock_*`, in place: readers share the lock, and waiting readers and writers are under
//! load control.
//!
//! ```text
//!  glibc  readers writers  wrphase  writers_futex  pad3        pad4    cur_writer  shared .. flags
//!  byte   0       4        8        12             16          20      24          28        48
//!  here   state . . . . . . . . . . . . . . . .    eventcount  number  owner       shared .. flags
//! ```
//!
//! `number` contains the state of the lock's bias, too, so the fast paths of unbiased locks do not
//! look for it. The words behind `shared` say when readers may set the bias.
//!
//! `shared` and `flags` are where libc's initialisers put them. `shared` is set in process-shared
//! locks, which libc serves, and `flags` says whether the lock prefers writers.

mod object;

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use libc::{EAGAIN, EBUSY, EINVAL, clockid_t};
use unconvoy_locks::contention::biased_rw::Begun;
use unconvoy_locks::contention::rw::Share;
use unconvoy_locks::lock;

use crate::held;
use crate::numbered::Numbered as _;
use crate::object::{InPlace, Until};
use crate::probe::probe;
use crate::profile;
use crate::real;
use crate::route::Route;
use crate::stats;
use crate::time::Clock;
pub(crate) use object::RwLock;

/// Defines the functions for readers or for writers: lock, try, timed, clock.
macro_rules! holders {
    (
        $lock:ident, $undecided:ident, $slow:ident, $unusual:ident, $not_elided:ident,
        $contended:ident, $try:ident, $timed:ident, $clock:ident,
        $biased:expr, $begin:expr, $end:expr, $share:expr, $is_read:expr,
        $entry:literal, $acquired:literal
    ) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $lock(this: &RwLock) -> c_int {
            probe!($entry; this);
            if this.is_default() {
                match $begin(this) {
                    Begun::Held => {
                        probe!($acquired; this);
                        return 0;
                    }
                    Begun::Failed => {}
                    Begun::Undecided(undecided) => return $undecided(this, undecided),
                }
            }
            $slow(this)
        }

        /// The rest of the fast path, for a reader beside other readers, or a writer that has found
        /// a bias.
        #[inline(never)]
        extern "C" fn $undecided(this: &RwLock, undecided: u32) -> c_int {
            if $end(this, undecided) {
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
            if $biased(this) {
                probe!($acquired; this);
                return 0;
            }
            match this.usual_route() {
                Some(route) => $contended(this, route),
                None => $unusual(this),
            }
        }

        #[inline(never)]
        extern "C" fn $unusual(this: &RwLock) -> c_int {
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
            let route = this.route();
            if this.lock_at_once(route, $share(this)) {
                probe!($acquired; this);
                return 0;
            }
            $contended(this, route)
        }

        /// The rest of the slow path, if the lock was not acquired at once either.
        #[inline(never)]
        extern "C" fn $contended(this: &RwLock, route: Route) -> c_int {
            if route == Route::LIBC {
                this.record_first_use();
                let lock = || real::$lock(this.libcs());
                return this.observed($is_read).lock_until(|| real::$try(this.libcs()), lock);
            }
            if route == Route::UNDECIDED {
                this.decide();
                return $not_elided(this);
            }
            let result = this.lock_until(route, $share(this), None);
            if result == 0 {
                probe!($acquired; this);
            }
            result
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $try(this: &RwLock) -> c_int {
            let route = this.decided_route();
            if route == Route::LIBC {
                this.record_first_use();
                return real::$try(this.libcs());
            }
            let share = $share(this);
            if this.try_acquire(route, share) {
                0
            } else if share != Share::Write && this.biased().is_full() {
                EAGAIN
            } else {
                EBUSY
            }
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $timed(this: &RwLock, until: Until<'_>) -> c_int {
            let route = this.decided_route();
            if route == Route::LIBC {
                let lock = || real::$timed(this.libcs(), until);
                return this.observe_until($is_read, until, || real::$try(this.libcs()), lock);
            }
            this.lock_until(route, $share(this), Some((Clock::Realtime, until)))
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $clock(this: &RwLock, clock: clockid_t, until: Until<'_>) -> c_int {
            let route = this.decided_route();
            if route == Route::LIBC {
                let lock = || real::$clock(this.libcs(), clock, until);
                return match Clock::of(clock) {
                    Some(_) => {
                        this.observe_until($is_read, until, || real::$try(this.libcs()), lock)
                    }
                    None => lock(),
                };
            }
            match Clock::of(clock) {
                Some(clock) => this.lock_until(route, $share(this), Some((clock, until))),
                None => EINVAL,
            }
        }
    };
}

holders!(
    pthread_rwlock_rdlock,
    read_undecided,
    read,
    read_unusual,
    read_not_elided,
    read_contended,
    pthread_rwlock_tryrdlock,
    pthread_rwlock_timedrdlock,
    pthread_rwlock_clockrdlock,
    RwLock::read_biased,
    RwLock::begin_read,
    RwLock::end_read,
    RwLock::reading,
    true,
    "rdlock_entry",
    "rdlock_acquire_read"
);
holders!(
    pthread_rwlock_wrlock,
    write_undecided,
    write,
    write_unusual,
    write_not_elided,
    write_contended,
    pthread_rwlock_trywrlock,
    pthread_rwlock_timedwrlock,
    pthread_rwlock_clockwrlock,
    |_| false,
    RwLock::begin_write,
    RwLock::end_write,
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
    if !this.is_default() {
        // SAFETY: the caller holds it.
        return unsafe { unlock_not_default(this) };
    }
    // SAFETY: the caller holds it.
    if unsafe { this.release_at_once() } {
        return 0;
    }
    // SAFETY: the caller holds it still.
    unsafe { unlock(this) }
}

/// # Safety
///
/// As for [`unlock`].
#[cold]
#[inline(never)]
unsafe extern "C" fn unlock_not_default(this: &RwLock) -> c_int {
    let lock = this.biased();
    // The bias may be older than the counting of held locks. Read before the release, after which
    // a writer may destroy the lock.
    let is_counted = this.route().is_counted();
    // SAFETY: the caller holds it, as a reader: no writer holds a biased lock.
    if lock.is_biased() && unsafe { lock.release_published() } {
        if is_counted {
            stats::released(stats::Kind::RwLock, this.address());
        }
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
    let lock = this.biased();
    // SAFETY: the caller holds it, as a reader: no writer holds a biased lock.
    if lock.is_biased() && unsafe { lock.release_published() } {
        return 0;
    }
    // SAFETY: what the caller promises; the sections of a lock with a usual route are not elided.
    unsafe {
        match this.usual_route() {
            Some(route) => unlock_held(this, route),
            None => unlock_unusual(this),
        }
    }
}

/// # Safety
///
/// As for [`unlock`].
#[inline(never)]
unsafe extern "C" fn unlock_unusual(this: &RwLock) -> c_int {
    let route = this.route();
    if let Some(elided) = this.elided(route) {
        // SAFETY: the caller promises to be in a section: elided, or with the lock held.
        if unsafe { elided.end_elided() || !this.biased().is_biased() && this.release_at_once() } {
            return 0;
        }
    }
    // SAFETY: the caller holds the lock, and its section is not elided.
    unsafe { unlock_held(this, route) }
}

/// The rest of [`unlock`], if the section was not elided: locks that the fast paths do not serve,
/// or a word with waiters.
///
/// # Safety
///
/// The caller holds the lock.
#[inline(never)]
unsafe extern "C" fn unlock_held(this: &RwLock, route: Route) -> c_int {
    if route == Route::LIBC {
        return this.observed(false).unlock(|| real::pthread_rwlock_unlock(this.libcs()));
    }
    if route == Route::UNDECIDED {
        return 0; // not held: an error of the program
    }
    if route.is_counted() && !route.is_elided() {
        stats::released(stats::Kind::RwLock, this.address());
    }
    let releasing = profile::releasing(profile::Kind::RwLock, this.address());
    if this.word().is_written() {
        this.owner.store(0, Relaxed);
    }
    // SAFETY: the caller holds it.
    unsafe { lock::release_shared(this.biased()) };
    if let Some(releasing) = releasing {
        releasing.released();
    }
    0
}
