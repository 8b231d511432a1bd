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

pub(crate) mod wait;

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicI32, AtomicU32, fence};

use libc::{
    EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, clockid_t, pthread_mutex_t, pthread_mutexattr_t, timespec,
};
use unconvoy_locks::contention::Contention;
use unconvoy_locks::contention::loiter::Loiter;
use unconvoy_locks::load::gate::Gate;
use unconvoy_locks::lock;
use unconvoy_locks::platform::Native;

use crate::chosen::pair;
use crate::config::{self, Service};
use crate::dispatch::{Elision, State, Words};
use crate::identity::{me, me_at_hand};
use crate::stats;
use crate::time::{Clock, Deadline};
use crate::{real, stats::Kind as Recorded};

/// A `pthread_mutex_t`, as this library uses it.
#[repr(C)]
pub(crate) struct Mutex {
    /// Waits on condition variables that have released it and will acquire it again. A wait raises
    /// it before the release, and lowers it after the acquisition.
    waiting: AtomicU32,
    /// Locks beyond the first, of a recursive mutex; written by the owner.
    count: AtomicU32,
    /// [`me`] of the holder, else 0. What recursive and error-checking mutexes judge by; and who
    /// signals a condition variable is asked whether it holds the waiter's mutex.
    owner: AtomicU32,
    /// How often it was acquired, modulo 2^32; written by the owner. In a mutex of libc's, libc's
    /// count of its users.
    taken: AtomicU32,
    kind: AtomicI32,
    gate: Gate<Native>,
    state: State,
}

const _: () = assert!(size_of::<Mutex>() == size_of::<pthread_mutex_t>());
const _: () = assert!(core::mem::offset_of!(Mutex, kind) == 16, "glibc's 64-bit layout");

/// The bits of `kind` that a mutex of this library may have: the type, and glibc's flags for lock
/// elision.
const OWN_BITS: i32 = 3 | 256 | 512;

/// Of these, the one of mutexes whose type the program has set (`PTHREAD_MUTEX_NO_ELISION_NP`): a
/// normal one that is locked again by its holder has to wait for ever.
const NO_ELISION: i32 = 512;

/// What `kind` says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Normal, default or adaptive: no owner is kept.
    Plain,
    Recursive,
    ErrorCheck,
    /// libc's.
    HandedOver,
}

impl Mutex {
    /// # Safety
    ///
    /// `mutex` points to a mutex that lives as long as the caller's use of it.
    #[inline(always)]
    unsafe fn at<'a>(mutex: *mut pthread_mutex_t) -> &'a Mutex {
        // SAFETY: the same size, and all fields that are accessed here are atomics or states of atomics.
        unsafe { &*mutex.cast() }
    }

    #[inline(always)]
    fn kind(&self) -> Kind {
        let kind = self.kind.load(Relaxed);
        if kind & !OWN_BITS != 0 {
            return Kind::HandedOver;
        }
        match kind & 3 {
            libc::PTHREAD_MUTEX_RECURSIVE => Kind::Recursive,
            libc::PTHREAD_MUTEX_ERRORCHECK => Kind::ErrorCheck,
            _ => Kind::Plain,
        }
    }

    /// Whether this mutex, which is not libc's, is normal, default or adaptive: those types are 0 and
    /// 3, the others between.
    #[inline(always)]
    fn keeps_no_owner(&self) -> bool {
        let kind = self.kind.load(Relaxed);
        kind & 3 == 0 || kind & 3 == 3
    }

    /// Whether the default pair serves this mutex: what most mutexes are, found out with the fewest
    /// instructions.
    #[inline(always)]
    fn is_default(&self) -> bool {
        self.kind.load(Relaxed) & !OWN_BITS == 0 && config::is_default()
    }

    #[inline(always)]
    fn words(&self) -> Words<'_> {
        Words { state: &self.state, gate: &self.gate, acquisitions: &self.taken, holder: &self.owner }
    }

    #[inline(always)]
    fn default_state(&self) -> &Loiter<Native> {
        self.state.of()
    }

    /// Acquires the state; false only after the deadline. The mutex is not the caller's already.
    #[inline(always)]
    fn acquire(&self, deadline: Option<u64>) -> bool {
        match config::service() {
            Service::Default => {
                self.default_state().try_lock_politely()
                    || lock::acquire_counted::<Native, Loiter<Native>, config::DefaultLoad>(
                        self.default_state(),
                        &self.gate,
                        Some(self.words().account()),
                        deadline,
                    )
                    .held
            }
            _ => self.acquire_chosen(deadline),
        }
    }

    #[cold]
    fn acquire_chosen(&self, deadline: Option<u64>) -> bool {
        let address = core::ptr::from_ref(self).addr();
        if (pair().try_politely)(self.words()) {
            stats::acquired(Recorded::Mutex, address, None);
            return true;
        }
        let begin = stats::now();
        let acquired = (pair().acquire)(self.words(), deadline);
        if acquired.held {
            stats::acquired(Recorded::Mutex, address, Some((begin, acquired.departure.sleeps)));
        }
        acquired.held
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        match config::service() {
            Service::Default => self.default_state().try_lock(),
            _ => {
                let held = (pair().try_lock)(self.words());
                if held {
                    stats::acquired(Recorded::Mutex, core::ptr::from_ref(self).addr(), None);
                }
                held
            }
        }
    }

    /// # Safety
    ///
    /// The state is held.
    #[inline(always)]
    unsafe fn release(&self) {
        // SAFETY: passed on from the caller.
        unsafe {
            match config::service() {
                Service::Default => lock::release::<Native, Loiter<Native>>(self.default_state(), &self.gate),
                _ => {
                    stats::released(core::ptr::from_ref(self).addr());
                    (pair().release)(self.words());
                }
            }
        }
    }

    /// Enters the critical section of a mutex of the default type without taking it, where the chosen lock does that.
    /// Nothing is noted then, neither owner nor statistics: every write to the mutex would be a conflict
    /// with all who do the same.
    fn elide(&self) -> bool {
        let may = self.kind.load(Relaxed) & (3 | NO_ELISION) == 0;
        elision().is_some_and(|elision| may && (elision.enter)(self.words()))
    }

    /// Ends a critical section that [`elide`](Self::elide) let in; false if the mutex is held instead.
    ///
    /// # Safety
    ///
    /// The caller is in a critical section of this mutex, which is plain.
    unsafe fn end_elided(&self) -> bool {
        // SAFETY: passed on from the caller.
        elision().is_some_and(|elision| unsafe { (elision.end)(self.words()) })
    }

    /// Whether a thread holds this mutex, or will acquire it again at the end of a wait on a
    /// condition variable. False only if there was a time during the call when neither was so.
    #[cold]
    fn is_in_use(&self) -> bool {
        let taken = self.taken.load(Acquire);
        if (pair().is_locked)(self.words()) {
            return true;
        }
        // A wait that released the mutex before the look above has raised `waiting`. If that is
        // lowered by now, the wait has acquired the mutex since, and `taken` tells.
        fence(Acquire);
        self.waiting.load(Acquire) != 0 || self.taken.load(Relaxed) != taken
    }

    fn is_owner(&self, me: u32) -> bool {
        self.owner.load(Relaxed) == me
    }

    /// Notes that the caller, `me`, has acquired it.
    #[inline(always)]
    fn note_owner(&self, me: u32) {
        self.owner.store(me, Relaxed);
        self.taken.store(self.taken.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A lock by the owner itself: another level, or an error.
    fn relock(&self, kind: Kind, of_error_check: c_int) -> c_int {
        if kind == Kind::ErrorCheck {
            return of_error_check;
        }
        match self.count.load(Relaxed).checked_add(1) {
            Some(count) => {
                self.count.store(count, Relaxed);
                0
            }
            None => EAGAIN,
        }
    }

    /// Lock of the kinds that judge by their owner.
    #[inline]
    fn lock_owned(&self, kind: Kind) -> c_int {
        let me = me();
        if self.is_owner(me) {
            return self.relock(kind, EDEADLK);
        }
        self.acquire(None);
        self.note_owner(me);
        0
    }

    #[inline]
    fn unlock_owned(&self) -> c_int {
        if !self.is_owner(me()) {
            return EPERM;
        }
        let count = self.count.load(Relaxed);
        if count > 0 {
            self.count.store(count - 1, Relaxed);
            return 0;
        }
        self.owner.store(0, Relaxed);
        // SAFETY: the owner holds it.
        unsafe { self.release() };
        0
    }

    fn lock_until(&self, kind: Kind, clock: Clock, until: &timespec) -> c_int {
        let me = me();
        if kind != Kind::Plain && self.is_owner(me) {
            return self.relock(kind, EDEADLK);
        }
        // POSIX looks at the time only when it must wait.
        if self.try_acquire() {
            self.note_owner(me);
            return 0;
        }
        let Some(deadline) = Deadline::new(clock, until) else {
            return EINVAL;
        };
        loop {
            if self.acquire(Some(deadline.next_look())) {
                self.note_owner(me);
                return 0;
            }
            if deadline.has_passed() {
                return ETIMEDOUT;
            }
        }
    }
}

/// How the chosen lock is elided, if it is.
fn elision() -> Option<&'static Elision> {
    if config::service() == Service::Chosen { pair().elision.as_ref() } else { None }
}

/// Whether libc serves the mutex at `mutex`.
///
/// # Safety
///
/// `mutex` points to a mutex.
pub(crate) unsafe fn belongs_to_libc(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: passed on from the caller.
    is_libcs(unsafe { Mutex::at(mutex) })
}

/// Whether libc must serve this mutex.
#[inline(always)]
fn is_libcs(mutex: &Mutex) -> bool {
    mutex.kind() == Kind::HandedOver || config::service() == Service::Declined
}

/// # Safety
///
/// As POSIX says of the function of this name; so for all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut pthread_mutex_t,
    attributes: *const pthread_mutexattr_t,
) -> c_int {
    // libc checks the attributes, zeroes the object and writes `kind`.
    // SAFETY: passed on from the caller.
    unsafe { real::pthread_mutex_init(mutex, attributes) }
}

/// # Safety
///
/// See [`pthread_mutex_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    if is_libcs(this) {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_mutex_destroy(mutex) };
    }
    if this.is_in_use() {
        return EBUSY;
    }
    this.kind.store(-1, Relaxed); // as libc does: every further use is refused, with EINVAL
    0
}

/// # Safety
///
/// See [`pthread_mutex_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    if this.is_default() {
        let me = me_at_hand();
        // Not by its holder: that is an error, a further level, or for ever, as the kind says.
        if !this.is_owner(me) && this.default_state().try_lock_politely() {
            this.note_owner(me);
            return 0;
        }
    }
    // SAFETY: passed on from the caller.
    unsafe { lock(mutex) }
}

/// All that is not the uncontended first lock of a mutex.
#[inline(never)]
unsafe extern "C" fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    if is_libcs(this) {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_mutex_lock(mutex) };
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

/// # Safety
///
/// See [`pthread_mutex_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    if is_libcs(this) {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_mutex_trylock(mutex) };
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

/// # Safety
///
/// See [`pthread_mutex_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    if is_libcs(this) {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_mutex_timedlock(mutex, until) };
    }
    // SAFETY: passed on from the caller.
    this.lock_until(this.kind(), Clock::Realtime, unsafe { &*until })
}

/// # Safety
///
/// See [`pthread_mutex_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    if is_libcs(this) {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_mutex_clocklock(mutex, clock, until) };
    }
    let Some(clock) = Clock::of(clock) else {
        return EINVAL;
    };
    // SAFETY: passed on from the caller.
    this.lock_until(this.kind(), clock, unsafe { &*until })
}

/// # Safety
///
/// See [`pthread_mutex_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    if this.is_default() {
        let owner = this.owner.load(Relaxed);
        if this.keeps_no_owner() || (owner == me_at_hand() && this.count.load(Relaxed) == 0) {
            this.owner.store(0, Relaxed);
            // SAFETY: POSIX: the caller holds it.
            if unsafe { this.default_state().unlock() } {
                return 0;
            }
            this.owner.store(owner, Relaxed); // marked, and so still held
        }
    }
    // SAFETY: passed on from the caller.
    unsafe { unlock(mutex) }
}

/// All that is not the last unlock of a mutex that nobody waits for off the processor.
#[inline(never)]
unsafe extern "C" fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Mutex::at(mutex) };
    if is_libcs(this) {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_mutex_unlock(mutex) };
    }
    if this.kind() == Kind::Plain {
        // SAFETY: POSIX: the caller holds it.
        if unsafe { this.end_elided() } {
            return 0;
        }
        this.owner.store(0, Relaxed);
        // SAFETY: POSIX: the caller holds it.
        unsafe { this.release() };
        return 0;
    }
    this.unlock_owned()
}
