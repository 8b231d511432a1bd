//! A `pthread_mutex_t`, as this library uses it: its kind, its owner, and the lock in it.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicI32, AtomicU32, fence};

use libc::{EAGAIN, EDEADLK, EINVAL, EPERM, ETIMEDOUT, pthread_mutex_t};
use unconvoy_locks::contention::Contention;
use unconvoy_locks::contention::loiter::Loiter;
use unconvoy_locks::lock;
use unconvoy_locks::parking::eventcount::Eventcount;
use unconvoy_locks::primitive::Native;

use crate::chosen::pair;
use crate::config::{self, Service};
use crate::dispatch::{Elision, State, Words};
use crate::identity::me;
use crate::object::{InPlace, Until};
use crate::stats::{self, Kind as Recorded};
use crate::time::{Clock, Deadline};

/// A `pthread_mutex_t`, as this library uses it.
#[repr(C)]
pub(crate) struct Mutex {
    /// Waits on condition variables that have released it and will acquire it again. A wait raises
    /// it before the release, and lowers it after the acquisition.
    pub(super) waiting: AtomicU32,
    /// Locks beyond the first, of a recursive mutex; written by the owner.
    pub(super) count: AtomicU32,
    /// [`me`] of the holder, else 0. What recursive and error-checking mutexes judge by; and who
    /// signals a condition variable is asked whether it holds the waiter's mutex.
    pub(super) owner: AtomicU32,
    /// How often it was acquired, modulo 2^32; written by the owner. In a mutex of libc's, libc's
    /// count of its users.
    pub(super) taken: AtomicU32,
    pub(super) kind: AtomicI32,
    pub(super) gate: Eventcount<Native>,
    state: State,
}

// SAFETY: libc's initialisers and `init` leave zeroes but for `kind`; fields are atomics, or states of
// atomics of which zeroes are the unlocked ones.
unsafe impl InPlace for Mutex {
    type Libcs = pthread_mutex_t;
}

const _: () = assert!(core::mem::offset_of!(Mutex, kind) == 16, "glibc's 64-bit layout");

/// The bits of `kind` that a mutex of this library may have: the type, and glibc's flags for lock
/// elision.
const OWN_BITS: i32 = 3 | 256 | 512;

/// Of these, the one of mutexes whose type the program has set (`PTHREAD_MUTEX_NO_ELISION_NP`): a
/// normal one that is locked again by its holder has to wait for ever.
const NO_ELISION: i32 = 512;

/// What `kind` says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Normal, default or adaptive: no owner is kept.
    Plain,
    Recursive,
    ErrorCheck,
    /// libc's.
    HandedOver,
}

impl Mutex {
    #[inline(always)]
    pub(super) fn kind(&self) -> Kind {
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

    /// Whether libc must serve this mutex.
    #[inline(always)]
    pub(crate) fn is_libcs(&self) -> bool {
        self.kind() == Kind::HandedOver || config::service() == Service::Declined
    }

    /// Whether this mutex, which is not libc's, is normal, default or adaptive: those types are 0 and
    /// 3, the others between.
    #[inline(always)]
    pub(super) fn keeps_no_owner(&self) -> bool {
        let kind = self.kind.load(Relaxed);
        kind & 3 == 0 || kind & 3 == 3
    }

    /// Whether the default pair serves this mutex: what most mutexes are, found out with the fewest
    /// instructions.
    #[inline(always)]
    pub(super) fn is_default(&self) -> bool {
        self.kind.load(Relaxed) & !OWN_BITS == 0 && config::is_default()
    }

    #[inline(always)]
    pub(super) fn words(&self) -> Words<'_> {
        Words { state: &self.state, gate: &self.gate, acquisitions: &self.taken, holder: &self.owner }
    }

    #[inline(always)]
    pub(super) fn default_state(&self) -> &Loiter<Native> {
        self.state.of()
    }

    /// Acquires the state; false only after the deadline. The mutex is not the caller's already.
    #[inline(always)]
    pub(super) fn acquire(&self, deadline: Option<u64>) -> bool {
        match config::service() {
            Service::Default => {
                self.default_state().try_lock_politely()
                    || lock::acquire::<Native, Loiter<Native>, config::DefaultLoad>(
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
            stats::acquired(Recorded::Mutex, address, Some((begin, acquired.wait.sleeps)));
        }
        acquired.held
    }

    #[inline(always)]
    pub(super) fn try_acquire(&self) -> bool {
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
    pub(super) unsafe fn release(&self) {
        match config::service() {
            // SAFETY: held, and by the default pair from the first lock on.
            Service::Default => unsafe {
                lock::release::<Native, Loiter<Native>>(self.default_state(), &self.gate);
            },
            _ => {
                stats::released(core::ptr::from_ref(self).addr());
                // SAFETY: held, and by the chosen pair from the first lock on.
                unsafe { (pair().release)(self.words()) };
            }
        }
    }

    /// Enters the critical section of a mutex of the default type without taking it, where the chosen lock does that.
    /// Nothing is noted then, neither owner nor statistics: every write to the mutex would be a conflict
    /// with all who do the same.
    pub(super) fn elide(&self) -> bool {
        let may = self.kind.load(Relaxed) & (3 | NO_ELISION) == 0;
        elision().is_some_and(|elision| may && (elision.enter)(self.words()))
    }

    /// Ends a critical section that [`elide`](Self::elide) let in; false if the mutex is held instead.
    ///
    /// # Safety
    ///
    /// The caller is in a critical section of this mutex, which is plain.
    pub(super) unsafe fn end_elided(&self) -> bool {
        // SAFETY: the caller is in a critical section, which `elide` or an acquisition let it in to.
        elision().is_some_and(|elision| unsafe { (elision.end)(self.words()) })
    }

    /// Whether a thread holds this mutex, or will acquire it again at the end of a wait on a
    /// condition variable. False only if there was a time during the call when neither was so.
    #[cold]
    pub(super) fn is_in_use(&self) -> bool {
        let taken = self.taken.load(Acquire);
        if (pair().is_locked)(self.words()) {
            return true;
        }
        // A wait that released the mutex before the look above has raised `waiting`. If that is
        // lowered by now, the wait has acquired the mutex since, and `taken` tells.
        fence(Acquire);
        self.waiting.load(Acquire) != 0 || self.taken.load(Relaxed) != taken
    }

    pub(super) fn is_owner(&self, me: u32) -> bool {
        self.owner.load(Relaxed) == me
    }

    /// Notes that the caller, `me`, has acquired it.
    #[inline(always)]
    pub(super) fn note_owner(&self, me: u32) {
        self.owner.store(me, Relaxed);
        self.taken.store(self.taken.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A lock by the owner itself: another level, or an error.
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

    /// Lock of the kinds that judge by their owner.
    #[inline]
    pub(super) fn lock_owned(&self, kind: Kind) -> c_int {
        let me = me();
        if self.is_owner(me) {
            return self.relock(kind, EDEADLK);
        }
        self.acquire(None);
        self.note_owner(me);
        0
    }

    #[inline]
    pub(super) fn unlock_owned(&self) -> c_int {
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

    pub(super) fn lock_until(&self, kind: Kind, clock: Clock, until: Until<'_>) -> c_int {
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
