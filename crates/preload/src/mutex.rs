//! `pthread_mutex_*`, in place.
//!
//! ```text
//!  glibc   lock     count  owner  nusers  kind  spins  list.prev   list.next
//!  byte    0        4      8      12      16    20     24          32
//!  here    waiting  count  owner  taken   kind  gate   state . . . . . . . .
//! ```
//!
//! `kind` is where libc's static initialisers and `pthread_mutex_init` put it, and means what it
//! means there. Everything else is zero in an unlocked mutex of either. Robust,
//! priority-inheriting, priority-protecting and process-shared mutexes, and destroyed ones, have
//! further bits in `kind`: they go to libc, which sees an object that this library never wrote to,
//! but for the count of users during a wait on a condition variable of this library ([`wait::Use`]).

mod object;
pub(crate) mod wait;

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use libc::{EBUSY, EINVAL, clockid_t};
use unconvoy_locks::contention::Contention;

use crate::identity::{me, me_at_hand};
use crate::object::{InPlace, Until};
use crate::real;
use crate::time::Clock;
use object::Kind;
pub(crate) use object::Mutex;

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_destroy(this: &Mutex) -> c_int {
    if this.is_libcs() {
        return real::pthread_mutex_destroy(this.libcs());
    }
    if this.is_in_use() {
        return EBUSY;
    }
    this.kind.store(-1, Relaxed); // as libc does: every further use is refused, with EINVAL
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_lock(this: &Mutex) -> c_int {
    if this.is_default() {
        let me = me_at_hand();
        // Not by its holder: that is an error, a further level, or for ever, as the kind says.
        if !this.is_owner(me) && this.default_state().try_lock_politely() {
            this.note_owner(me);
            return 0;
        }
    }
    lock(this)
}

/// All that is not the uncontended first lock of a mutex.
#[inline(never)]
extern "C" fn lock(this: &Mutex) -> c_int {
    if this.is_libcs() {
        return real::pthread_mutex_lock(this.libcs());
    }
    match this.kind() {
        Kind::Plain => {
            if !this.elide() {
                this.acquire(None);
                this.note_owner(me());
            }
            0
        }
        kind => this.lock_owned(kind),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_trylock(this: &Mutex) -> c_int {
    if this.is_libcs() {
        return real::pthread_mutex_trylock(this.libcs());
    }
    let (kind, me) = (this.kind(), me());
    if kind != Kind::Plain && this.is_owner(me) {
        return this.relock(kind, EBUSY);
    }
    if !this.try_acquire() {
        return EBUSY;
    }
    this.note_owner(me);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_timedlock(this: &Mutex, until: Until<'_>) -> c_int {
    if this.is_libcs() {
        return real::pthread_mutex_timedlock(this.libcs(), until);
    }
    this.lock_until(this.kind(), Clock::Realtime, until)
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_clocklock(this: &Mutex, clock: clockid_t, until: Until<'_>) -> c_int {
    if this.is_libcs() {
        return real::pthread_mutex_clocklock(this.libcs(), clock, until);
    }
    match Clock::of(clock) {
        Some(clock) => this.lock_until(this.kind(), clock, until),
        None => EINVAL,
    }
}

/// # Safety
///
/// POSIX: the caller holds the mutex, if its kind is none that would notice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(this: &Mutex) -> c_int {
    if this.is_default() {
        let owner = this.owner.load(Relaxed);
        if this.keeps_no_owner() || (owner == me_at_hand() && this.count.load(Relaxed) == 0) {
            this.owner.store(0, Relaxed);
            // SAFETY: the caller holds it, as it promises or its id in `owner` shows.
            if unsafe { this.default_state().unlock() } {
                return 0;
            }
            this.owner.store(owner, Relaxed); // marked, and so still held
        }
    }
    // SAFETY: what the caller promises of the mutex is the same, which is held still.
    unsafe { unlock(this) }
}

/// All that is not the last unlock of a mutex that nobody waits for off the processor.
///
/// # Safety
///
/// As of [`pthread_mutex_unlock`].
#[inline(never)]
unsafe extern "C" fn unlock(this: &Mutex) -> c_int {
    if this.is_libcs() {
        return real::pthread_mutex_unlock(this.libcs());
    }
    if this.kind() != Kind::Plain {
        return this.unlock_owned();
    }
    // SAFETY: a plain mutex is held by the caller, or elided.
    if unsafe { this.end_elided() } {
        return 0;
    }
    this.owner.store(0, Relaxed);
    // SAFETY: not elided, and so held.
    unsafe { this.release() };
    0
}
