//! A `pthread_mutex_t` as this library uses it: its kind, its owner, and the lock inside.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicI32, AtomicU32, fence};

use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, pthread_mutex_t};
use unconvoy_locks::contention::Contention;
use unconvoy_locks::contention::elided::Elided;
use unconvoy_locks::contention::loiter::Loiter;
use unconvoy_locks::lock::{self, Acquired};
use unconvoy_locks::parking::eventcount::Eventcount;
use unconvoy_locks::primitive::Native;

use crate::config::{self, NUMBER_SHIFT};
use crate::dispatch::{State, Words};
use crate::identity::{is_alone, me};
use crate::numbered::Numbered;
use crate::object::{InPlace, Until};
use crate::probe::probe;
use crate::profile::libcs::Observed;
use crate::profile::{self, Waited};
use crate::real;
use crate::route::Route;
use crate::stats::{self, Kind as Recorded};
use crate::strategy;
use crate::time::{Clock, Deadline};

#[repr(C)]
pub(crate) struct Mutex {
    /// Number of waits on condition variables that have released the mutex and will acquire it
    /// again. A wait increments it before the release, and decrements it after the acquisition.
    pub(super) waiting: AtomicU32,
    /// Locks of a recursive mutex beyond the first; written by the owner.
    pub(super) count: AtomicU32,
    /// [`me`] of the holder, otherwise 0. Recursive and error-checking mutexes check it, and so
    /// does a signaller of a condition variable, which asks whether it holds the waiter's mutex.
    pub(super) owner: AtomicU32,
    /// Number of acquisitions modulo 2^32; written by the owner. In a libc mutex, libc's count of
    /// users.
    pub(super) taken: AtomicU32,
    pub(super) kind: AtomicI32,
    pub(super) eventcount: Eventcount<Native>,
    state: State,
}

// SAFETY: libc's initialisers and `init` leave zeroes except in `kind`. The fields consist of
// atomics, and zeroes are an unlocked mutex.
unsafe impl InPlace for Mutex {
    type Libcs = pthread_mutex_t;
}

const _: () = assert!(core::mem::offset_of!(Mutex, kind) == 16, "glibc's 64-bit layout");

/// The bits of `kind` that a mutex of this library may have: the type, and glibc's flags for lock
/// elision.
const OWN_BITS: i32 = 3 | 256 | 512;

/// The bits of `kind` with the mutex's number in a [`strategy`]. glibc does not use them.
const NUMBER: i32 = 0xff << NUMBER_SHIFT;

/// The flag that asks for elision (`PTHREAD_MUTEX_ELISION_NP`). The other flag
/// (`PTHREAD_MUTEX_NO_ELISION_NP`) forbids elision, and is set in mutexes whose type the program
/// has set: a thread that locks a normal mutex again must deadlock.
const ELISION: i32 = 256;

/// The bit of robust mutexes.
const ROBUST: i32 = 16;

/// The bits of mutexes with the holder in libc's lock word: robust and priority-inheriting ones.
const HOLDER: i32 = ROBUST | 32;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Normal, default or adaptive: no owner check.
    Plain,
    Recursive,
    ErrorCheck,
}

impl Numbered for Mutex {
    const KIND: strategy::Kind = strategy::Kind::Mutex;

    #[inline(always)]
    fn number(&self) -> Option<u8> {
        let kind = self.kind.load(Relaxed);
        (kind & !(OWN_BITS | NUMBER) == 0).then_some((kind >> NUMBER_SHIFT) as u8)
    }

    fn set_number(&self, number: u8) {
        let kind = self.kind.load(Relaxed);
        let numbered = kind | i32::from(number) << NUMBER_SHIFT;
        if kind & NUMBER == 0 {
            let _ = self.kind.compare_exchange(kind, numbered, Relaxed, Relaxed);
        }
    }
}

impl Mutex {
    /// The kind of this mutex, which is not libc's.
    #[inline(always)]
    pub(super) fn kind(&self) -> Kind {
        match self.kind.load(Relaxed) & 3 {
            libc::PTHREAD_MUTEX_RECURSIVE => Kind::Recursive,
            libc::PTHREAD_MUTEX_ERRORCHECK => Kind::ErrorCheck,
            _ => Kind::Plain,
        }
    }

    /// Whether this mutex, which is not libc's, is normal, default or adaptive. Those types are 0
    /// and 3; the others lie between.
    #[inline(always)]
    pub(super) fn keeps_no_owner(&self) -> bool {
        let kind = self.kind.load(Relaxed);
        kind & 3 == 0 || kind & 3 == 3
    }

    /// Whether the default pair serves this mutex. Most mutexes qualify, so this check uses as few
    /// instructions as possible.
    #[inline(always)]
    pub(super) fn is_default(&self) -> bool {
        config::is_fast_kind(self.kind.load(Relaxed) & !OWN_BITS)
    }

    /// The state of a mutex that is known to be elided.
    #[inline(always)]
    pub(super) fn known_elided(&self) -> Option<&Elided<Native>> {
        config::is_elided_kind(self.kind.load(Relaxed) & !ELISION).then(|| self.state_of_elided())
    }

    /// The state of a mutex that may be elided, as its lock sees it.
    #[inline(always)]
    pub(super) fn state_of_elided(&self) -> &Elided<Native> {
        self.state.of()
    }

    #[inline(always)]
    pub(super) fn words(&self) -> Words<'_> {
        Words {
            state: &self.state,
            eventcount: &self.eventcount,
            acquisitions: &self.taken,
            holder: &self.owner,
        }
    }

    #[inline(always)]
    pub(super) fn default_state(&self) -> &Loiter<Native> {
        self.state.of()
    }

    /// Acquires the state of a mutex that the default pair serves, if that needs no wait.
    #[inline(always)]
    pub(super) fn take_default(&self) -> bool {
        let state = self.default_state();
        if is_alone() {
            // SAFETY: the process has one thread.
            unsafe { state.try_lock_alone() }
        } else {
            state.try_lock_without_barging()
        }
    }

    /// Releases the state, as [`Contention::unlock`] does.
    ///
    /// # Safety
    ///
    /// The state is held, and the default pair has served it since the first lock.
    #[inline(always)]
    pub(super) unsafe fn release_default(&self) -> bool {
        let state = self.default_state();
        // SAFETY: held, and either the process has one thread, or the atomic function is called.
        unsafe { if is_alone() { state.unlock_alone() } else { state.unlock() } }
    }

    /// Acquires the state; false only after the deadline. The caller must not hold the mutex.
    #[inline(always)]
    pub(super) fn acquire(&self, route: Route, until: Option<Deadline>) -> bool {
        self.try_in_turn(route)
            || match until {
                _ if route != Route::DIRECT => self.wait_by_pair(route, until),
                None => self.wait_by_default(),
                Some(deadline) => self.wait_by_default_until(deadline),
            }
    }

    #[inline(never)] // few registers; see `mutex::lock_elided`
    fn wait_by_default(&self) -> bool {
        profile::wait(self.waited(&|| self.request()), || self.acquire_default(None)).held
    }

    #[inline(never)]
    fn wait_by_default_until(&self, deadline: Deadline) -> bool {
        let attempt = || self.acquire_default(Some(deadline.for_locks()));
        profile::wait(self.waited(&|| self.request()), attempt).held
    }

    #[inline(always)]
    fn acquire_default(&self, deadline: Option<u64>) -> Acquired {
        lock::acquire::<Native, Loiter<Native>, config::DefaultLoad>(
            self.default_state(),
            &self.eventcount,
            Some(self.words().account()),
            deadline,
        )
    }

    #[inline(never)]
    fn wait_by_pair(&self, route: Route, until: Option<Deadline>) -> bool {
        let (pair, begin) = (self.begin_wait(), stats::now());
        let acquired = profile::wait(self.waited(&|| self.request()), || {
            (pair.acquire)(self.words(), until.map(Deadline::for_locks))
        });
        if acquired.held {
            self.count_acquired(route, Some((begin, acquired.wait.sleeps)));
        }
        acquired.held
    }

    #[inline(always)]
    fn count_acquired(&self, route: Route, waited: Option<(u64, u32)>) {
        if route.is_counted() {
            stats::acquired(Recorded::Mutex, self.address(), waited);
        }
    }

    fn waited<'a>(&'a self, request: &'a dyn Fn()) -> Waited<'a> {
        Waited {
            kind: profile::Kind::Mutex,
            address: self.address(),
            is_read: false,
            acquisitions: Some(&self.taken),
            request,
        }
    }

    /// Sends the next release to the slow path.
    fn request(&self) {
        (self.pair().set_parked_bit)(self.words());
    }

    /// A mutex that libc serves.
    pub(super) fn observed(&self) -> Observed {
        Observed { kind: profile::Kind::Mutex, address: self.address(), is_read: false }
    }

    /// Whether libc's unlock releases this mutex of libc's. The unlock fails if the mutex checks
    /// its owner and the caller is another thread. Inner unlocks of a recursive mutex release
    /// nothing.
    #[inline]
    pub(crate) fn is_released_by_unlock(&self) -> bool {
        let is_mine = || {
            // The owner of a robust mutex is unknown after the death of the last one.
            let has_holder = self.kind.load(Relaxed) & HOLDER != 0;
            if has_holder { self.libcs_holder() == me() } else { self.is_owner(me()) }
        };
        match self.kind.load(Relaxed) & 3 {
            // libc counts the first lock as well.
            libc::PTHREAD_MUTEX_RECURSIVE => is_mine() && self.count.load(Relaxed) == 1,
            libc::PTHREAD_MUTEX_ERRORCHECK => is_mine(),
            _ => true,
        }
    }

    /// The holder's thread id in libc's lock word, which also has two flags.
    fn libcs_holder(&self) -> u32 {
        self.waiting.load(Relaxed) & libc::FUTEX_TID_MASK
    }

    /// Locks a mutex of libc's if that takes no wait; otherwise returns `EBUSY`. `lock` may wait.
    ///
    /// libc's try leaves a robust mutex locked that it reports as not recoverable. So a robust
    /// mutex is locked by `lock`, unless another thread holds it.
    #[inline]
    pub(super) fn attempt_in_libc(&self, lock: impl Fn() -> c_int) -> c_int {
        self.record_first_use();
        if self.kind.load(Relaxed) & ROBUST == 0 {
            return real::pthread_mutex_trylock(self.libcs());
        }
        let holder = self.libcs_holder();
        if holder == 0 || holder == me() { lock() } else { EBUSY }
    }

    #[inline(always)]
    pub(super) fn try_acquire(&self, route: Route) -> bool {
        if route == Route::DIRECT {
            return self.default_state().try_lock();
        }
        let held = (self.pair().try_lock)(self.words());
        if held {
            self.count_acquired(route, None);
        }
        held
    }

    /// As [`Self::try_acquire`], but leaves a mutex that is another waiter's turn.
    #[inline(always)]
    fn try_in_turn(&self, route: Route) -> bool {
        if route == Route::DIRECT {
            return self.take_default();
        }
        let held = (self.pair().try_without_barging)(self.words());
        if held {
            self.count_acquired(route, None);
        }
        held
    }

    /// # Safety
    ///
    /// The state is held.
    #[inline(always)]
    pub(super) unsafe fn release(&self, route: Route) {
        let releasing = profile::releasing(profile::Kind::Mutex, self.address());
        if route == Route::DIRECT {
            // SAFETY: held, and the default pair has served it since the first lock.
            unsafe {
                if !(is_alone() && self.default_state().unlock_alone()) {
                    lock::release::<Native, Loiter<Native>>(self.default_state(), &self.eventcount);
                }
            }
        } else {
            if route.is_counted() {
                stats::released(Recorded::Mutex, self.address());
            }
            // SAFETY: held, and this pair has served it since the first lock.
            unsafe { (self.pair().release)(self.words()) };
        }
        if let Some(releasing) = releasing {
            releasing.released();
        }
    }

    /// The state of a mutex that may be elided: the chosen lock elides, and the mutex has the
    /// default type because the program has set none. An elided section records no owner, because a
    /// write to the mutex would conflict with all other elided sections of the mutex.
    #[inline(always)]
    pub(super) fn elided(&self, route: Route) -> Option<&Elided<Native>> {
        let may = route.is_elided() && self.kind.load(Relaxed) & !(ELISION | NUMBER) == 0;
        may.then(|| self.state_of_elided())
    }

    /// Whether a thread holds this mutex, or will acquire it again at the end of a wait on a
    /// condition variable. Returns false only if neither was true at some time during the call.
    #[cold]
    pub(super) fn is_in_use(&self) -> bool {
        let taken = self.taken.load(Acquire);
        if (self.pair().is_locked)(self.words()) {
            return true;
        }
        // A wait that released the mutex before `is_locked` was called has incremented `waiting`.
        // If `waiting` is 0 again, the wait has acquired the mutex since, which changed `taken`.
        fence(Acquire);
        self.waiting.load(Acquire) != 0 || self.taken.load(Relaxed) != taken
    }

    pub(super) fn is_owner(&self, me: u32) -> bool {
        self.owner.load(Relaxed) == me
    }

    /// Records the caller, `me`, as the owner after an acquisition.
    #[inline(always)]
    pub(super) fn set_owner(&self, me: u32) {
        self.owner.store(me, Relaxed);
        self.taken.store(self.taken.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A lock call by the owner: another level, or an error.
    pub(super) fn relock(&self, kind: Kind, of_error_check: c_int) -> c_int {
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

    /// Locks a mutex of a kind that checks its owner.
    #[inline(never)]
    pub(super) fn lock_owned(&self, route: Route) -> c_int {
        let (kind, me) = (self.kind(), me());
        if self.is_owner(me) {
            return self.relock(kind, EDEADLK);
        }
        self.acquire(route, None);
        self.set_owner(me);
        probe!("mutex_acquired"; self);
        0
    }

    #[inline(never)]
    pub(super) fn unlock_owned(&self, route: Route) -> c_int {
        if !self.is_owner(me()) {
            return EPERM;
        }
        let count = self.count.load(Relaxed);
        if count > 0 {
            self.count.store(count - 1, Relaxed);
            return 0;
        }
        self.owner.store(0, Relaxed);
        // SAFETY: the caller is the owner, and so holds it.
        unsafe { self.release(route) };
        probe!("mutex_release"; self);
        0
    }

    pub(super) fn lock_until(&self, route: Route, clock: Clock, until: Until<'_>) -> c_int {
        let (kind, me) = (self.kind(), me());
        if kind != Kind::Plain && self.is_owner(me) {
            return self.relock(kind, EDEADLK);
        }
        // POSIX: the deadline is checked only if the function must wait. A free mutex may be
        // another's turn; it is taken all the same rather than reported as held.
        if !self.try_in_turn(route) {
            let deadline = Deadline::new(clock, until);
            let held = deadline.is_some_and(|deadline| self.acquire(route, Some(deadline)));
            if !held && !self.try_acquire(route) {
                return if deadline.is_none() { EINVAL } else { ETIMEDOUT };
            }
        }
        self.set_owner(me);
        probe!("mutex_timedlock_acquired"; self);
        0
    }
}
