//! `pthread_mutex_*`, in place.
//!
//! ```text
//!  glibc   lock     count  owner  nusers  kind  spins       list.prev   list.next
//!  byte    0        4      8      12      16    20          24          32
//!  here    waiting  count  owner  taken   kind  eventcount  state . . . . . . . .
//! ```
//!
//! `kind` is where libc's static initialisers and `pthread_mutex_init` put it, with libc's meaning.
//! Everything else is zero in an unlocked mutex, libc's or this library's. With a
//! [`strategy`](crate::strategy), `kind` also has the mutex's number, in bits that glibc does not
//! use. Robust, priority-inheriting, priority-protecting, process-shared and destroyed mutexes have
//! further bits in `kind`. libc serves them, and mutexes that a strategy hands to it. This library
//! never writes to them, except to the count of users during a wait on one of this library's
//! condition variables ([`wait::Use`]), and the number of those that a strategy hands to libc, or
//! that a profile has seen taken.
//!
//! The only thread of a process locks and releases a mutex of the default pair without atomic
//! read-modify-writes, as in glibc: a pair takes 2.4 ns instead of 13.8 on an Intel Xeon, and 2.5
//! with glibc.

mod object;
pub(crate) mod wait;

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use libc::{EBUSY, EINVAL, clockid_t};
use unconvoy_locks::contention::Contention;
use unconvoy_locks::contention::elided::Elided;
use unconvoy_locks::primitive::Native;

use crate::held;
use crate::identity::{me, me_from_tcb};
use crate::numbered::Numbered as _;
use crate::object::{InPlace, Until};
use crate::probe::probe;
use crate::profile;
use crate::real;
use crate::route::Route;
use crate::time::Clock;
use object::Kind;
pub(crate) use object::Mutex;

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_destroy(this: &Mutex) -> c_int {
    probe!("mutex_destroy"; this);
    if this.is_libcs() {
        return real::pthread_mutex_destroy(this.libcs());
    }
    if this.is_in_use() {
        return EBUSY;
    }
    this.kind.store(-1, Relaxed); // as in libc: every further use fails with EINVAL
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_lock(this: &Mutex) -> c_int {
    probe!("mutex_entry"; this);
    if this.is_default() {
        let me = me_from_tcb();
        // The holder takes the slow path: depending on the kind, its lock call is an error, another
        // level, or a deadlock.
        if !this.is_owner(me) && this.take_default() {
            this.set_owner(me);
            probe!("mutex_acquired"; this);
            return 0;
        }
    }
    lock(this)
}

/// The slow path: the fast path has not acquired the mutex.
#[inline(never)]
extern "C" fn lock(this: &Mutex) -> c_int {
    if let Some(elided) = this.known_elided() {
        return if elided.elide_at_once() { 0 } else { lock_known_not_elided(this) };
    }
    match this.usual_route() {
        Some(route) => lock_contended(this, route),
        None => lock_unusual(this),
    }
}

#[inline(never)]
extern "C" fn lock_unusual(this: &Mutex) -> c_int {
    if held::is_kept() {
        // SAFETY: a function of the same object.
        return unsafe { held::call_from_here(this, lock_not_elided) };
    }
    if this.elided(this.route()).is_some_and(Elided::elide_at_once) {
        return 0;
    }
    lock_not_elided(this)
}

/// The rest of the slow path, if no section was elided at once.
#[inline(never)]
extern "C" fn lock_not_elided(this: &Mutex) -> c_int {
    let route = this.route();
    if this.elided(route).is_some_and(|elided| lock_at_once(this, elided)) {
        return 0;
    }
    lock_contended(this, route)
}

/// As [`lock_not_elided`], for a mutex that is [known](Mutex::known_elided) to be elided.
#[inline(never)]
extern "C" fn lock_known_not_elided(this: &Mutex) -> c_int {
    if lock_at_once(this, this.state_of_elided()) {
        return 0;
    }
    lock_contended(this, this.route())
}

#[inline(always)]
fn lock_at_once(this: &Mutex, elided: &Elided<Native>) -> bool {
    let is_held = elided.lock_at_once();
    if is_held {
        this.set_owner(me());
        probe!("mutex_acquired"; this);
    }
    is_held
}

/// The rest of the slow path, if the mutex was not acquired at once either.
#[inline(never)]
extern "C" fn lock_contended(this: &Mutex, route: Route) -> c_int {
    match (route, this.kind()) {
        (Route::LIBC, _) => lock_in_libc(this),
        (Route::UNDECIDED, _) => {
            this.decide();
            lock_not_elided(this)
        }
        (_, Kind::Recursive | Kind::ErrorCheck) => this.lock_owned(route),
        (Route::DIRECT, Kind::Plain) => {
            this.acquire(Route::DIRECT, None);
            this.set_owner(me());
            probe!("mutex_acquired"; this);
            0
        }
        (_, Kind::Plain) if route.is_elided() => lock_elided(this, route),
        (_, Kind::Plain) => lock_by_pair(this, route),
    }
}

/// A function of its own, like the two that follow, so that [`lock_contended`] needs few registers
/// and keeps the program's frame pointer, by which `unconvoy inspect` unwinds the library in a core
/// without its file.
#[inline(never)]
extern "C" fn lock_elided(this: &Mutex, route: Route) -> c_int {
    match this.elided(route).is_some_and(Elided::elide) {
        true => 0,
        false => lock_by_pair(this, route),
    }
}

#[inline(never)]
extern "C" fn lock_by_pair(this: &Mutex, route: Route) -> c_int {
    this.acquire(route, None);
    this.set_owner(me());
    probe!("mutex_acquired"; this);
    0
}

#[inline(never)]
extern "C" fn lock_in_libc(this: &Mutex) -> c_int {
    this.observed().lock(
        || this.attempt_in_libc(|| real::pthread_mutex_lock(this.libcs())),
        |until| real::pthread_mutex_timedlock(this.libcs(), until),
        || real::pthread_mutex_lock(this.libcs()),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_trylock(this: &Mutex) -> c_int {
    if this.is_default() {
        let me = me_from_tcb();
        // The holder takes the slow path: its call may lock another level.
        if !this.is_owner(me) {
            if !this.default_state().try_lock() {
                return EBUSY;
            }
            this.set_owner(me);
            return 0;
        }
    }
    try_lock(this)
}

/// The slow path: the fast path does not serve the mutex, or its holder calls.
#[inline(never)]
extern "C" fn try_lock(this: &Mutex) -> c_int {
    let route = this.decided_route();
    if route == Route::LIBC {
        this.record_first_use();
        return real::pthread_mutex_trylock(this.libcs());
    }
    let (kind, me) = (this.kind(), me());
    if kind != Kind::Plain && this.is_owner(me) {
        return this.relock(kind, EBUSY);
    }
    if !this.try_acquire(route) {
        return EBUSY;
    }
    this.set_owner(me);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_timedlock(this: &Mutex, until: Until<'_>) -> c_int {
    probe!("mutex_timedlock_entry"; this, until);
    let route = this.decided_route();
    if route == Route::LIBC {
        return this.observed().lock_until(
            || this.attempt_in_libc(|| real::pthread_mutex_timedlock(this.libcs(), until)),
            || real::pthread_mutex_timedlock(this.libcs(), until),
        );
    }
    this.lock_until(route, Clock::Realtime, until)
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_clocklock(
    this: &Mutex,
    clock: clockid_t,
    until: Until<'_>,
) -> c_int {
    probe!("mutex_clocklock_entry"; this, clock, until);
    let route = this.decided_route();
    if route == Route::LIBC {
        let lock = || real::pthread_mutex_clocklock(this.libcs(), clock, until);
        // libc rejects another clock even if the mutex is free.
        return match Clock::of(clock) {
            Some(_) => this.observed().lock_until(|| this.attempt_in_libc(lock), lock),
            None => lock(),
        };
    }
    match Clock::of(clock) {
        Some(clock) => this.lock_until(route, clock, until),
        None => EINVAL,
    }
}

/// # Safety
///
/// POSIX: the caller holds the mutex, unless its kind checks the owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(this: &Mutex) -> c_int {
    if this.is_default() {
        let owner = this.owner.load(Relaxed);
        if this.keeps_no_owner() || (owner == me_from_tcb() && this.count.load(Relaxed) == 0) {
            this.owner.store(0, Relaxed);
            // SAFETY: the caller promises to hold the mutex, or `owner` proves it.
            if unsafe { this.release_default() } {
                probe!("mutex_release"; this);
                return 0;
            }
            this.owner.store(owner, Relaxed); // parked bit set: still held
        }
    }
    // SAFETY: the caller's promise still applies, since the mutex is still held.
    unsafe { unlock(this) }
}

/// The slow path: the fast path has not released the mutex.
///
/// # Safety
///
/// As for [`pthread_mutex_unlock`].
#[inline(never)]
unsafe extern "C" fn unlock(this: &Mutex) -> c_int {
    // SAFETY: the caller promises to be in a section: elided, or with the mutex held.
    if this.known_elided().is_some_and(|elided| unsafe { elided.end_at_once() }) {
        return 0;
    }
    // SAFETY: what the caller promises; the sections of a mutex with a usual route are not elided.
    unsafe {
        match this.usual_route() {
            Some(route) => unlock_held(this, route),
            None => unlock_unusual(this),
        }
    }
}

/// # Safety
///
/// As for [`pthread_mutex_unlock`].
#[inline(never)]
unsafe extern "C" fn unlock_unusual(this: &Mutex) -> c_int {
    if let Some(elided) = this.known_elided().or_else(|| this.elided(this.route())) {
        // SAFETY: the caller promises to be in a section: elided, or with the mutex held.
        if unsafe { elided.end_elided() } {
            return 0;
        }
        let owner = this.owner.load(Relaxed);
        this.owner.store(0, Relaxed);
        // SAFETY: as before, and the section is not elided.
        if unsafe { elided.unlock_held() } {
            probe!("mutex_release"; this);
            return 0;
        }
        this.owner.store(owner, Relaxed); // still held, because a waiter is parked
    }
    // SAFETY: the caller holds the mutex, and its section is not elided.
    unsafe { unlock_held(this, this.route()) }
}

/// The rest of [`unlock`], if the section was not elided.
///
/// # Safety
///
/// As for [`pthread_mutex_unlock`].
#[inline(never)]
unsafe extern "C" fn unlock_held(this: &Mutex, route: Route) -> c_int {
    if route == Route::LIBC {
        return unlock_in_libc(this);
    }
    if this.kind() != Kind::Plain {
        return this.unlock_owned(route);
    }
    if route == Route::UNDECIDED {
        return 0; // not held: an error of the program that libc tolerates
    }
    this.owner.store(0, Relaxed);
    // SAFETY: what the caller promises.
    unsafe { this.release(route) };
    probe!("mutex_release"; this);
    0
}

#[inline(never)]
extern "C" fn unlock_in_libc(this: &Mutex) -> c_int {
    let unlock = || real::pthread_mutex_unlock(this.libcs());
    // Without a profile or a watchdog, libc's words stay unread: race detectors watch them.
    let is_recorded = profile::may_record() || held::is_kept();
    match is_recorded && this.is_released_by_unlock() {
        true => this.observed().unlock(unlock),
        false => unlock(),
    }
}
