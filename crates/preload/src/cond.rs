//! `pthread_cond_*`, in place, for condition variables that are private to the process.
//!
//! ```text
//!  glibc   wseq   g1_start  g_refs  g_size  g1_orig_size  wrefs  g_signals
//!  byte    0      8         16      24      32            36     40
//!  here    guard  head      tail    users   -             flags  gate . . .
//!                                   generation at 28
//! ```
//!
//! `wrefs` keeps the attributes, in glibc's bits: process-shared (then everything goes to libc) and
//! the clock.
//!
//! Waiters stand in a list ([`waiters`], with Invariants 1 and 2).
//!
//! **Invariant 3.** `users` counts the waiters that may touch the condition variable still: from
//! before a waiter is listed until it knows that it will not be cancelled any more. Destruction
//! waits for it to be 0, and a waiter's last touch is what makes it 0; as with libc's `wrefs`. A
//! waiter that was moved to a gate does not leave before the mutex is released, which the
//! destroyer may hold: so destruction wakes the gate.
//!
//! **Invariant 4.** In the child of a `fork` no waiters exist, and neither does a holder of the
//! guard: the first use there, told by `generation`, clears all that they left.

mod waiters;

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use libc::{EINVAL, ETIMEDOUT, clockid_t, pthread_cond_t, timespec};
use unconvoy_locks::primitive::{Generation as _, Native, Parking as _, Threads as _};

use crate::config::{self, Service};
use crate::mutex::wait::{Use, gate_if_mine, pass_on};
use crate::mutex::{Mutex, pthread_mutex_lock, pthread_mutex_unlock};
use crate::object::{InPlace, Until};
use crate::real;
use crate::time::{Clock, Deadline};
use waiters::{LISTED, Node, Taken, Waiters};

/// A `pthread_cond_t`, as this library uses it.
#[repr(C)]
pub struct Cond {
    waiters: Waiters,
    users: AtomicU32,
    generation: AtomicU32,
    _unused: u32,
    flags: AtomicU32,
    /// The gate that waiters were moved to last.
    gate: AtomicPtr<AtomicU32>,
}

const _: () = assert!(core::mem::offset_of!(Cond, flags) == 36, "glibc's 64-bit layout");

// SAFETY: libc's initialisers and `init` leave zeroes but for `flags`; fields are atomics, of which
// zeroes are an empty list's.
unsafe impl InPlace for Cond {
    type Libcs = pthread_cond_t;
}

/// Attribute bits of `flags`: glibc's `__PTHREAD_COND_SHARED_MASK` and
/// `__PTHREAD_COND_CLOCK_MONOTONIC_MASK`.
const PROCESS_SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// In `users`: somebody waits for it to be 0.
const DESTROYER: u32 = 1 << 31;

/// In `generation`: a thread is just clearing what a parent's threads left.
const BEING_CLEARED: u32 = u32::MAX;

/// glibc's number; the libc crate does not have it.
const PTHREAD_CANCEL_DEFERRED: c_int = 0;

unsafe extern "C-unwind" {
    /// See `boundary.c`.
    fn unconvoy_cancellable_wait(
        word: *const AtomicU32,
        expected: u32,
        realtime: c_int,
        until: *const timespec,
        abandon: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> c_int;

    /// See `boundary.c`.
    safe fn unconvoy_set_cancel_type(new: c_int) -> c_int;
}

impl Cond {
    fn is_libcs(&self) -> bool {
        self.flags.load(Relaxed) & PROCESS_SHARED != 0 || config::service() == Service::Declined
    }

    /// Whether a wait with `mutex` is libc's. A process-shared condition variable that nobody has
    /// waited on is taken over by a wait with a mutex of this library: all who wait on it use
    /// that mutex (POSIX), which is private to the process, and libc's wait would release a mutex
    /// that it cannot.
    fn wait_is_libcs(&self, mutex: &Mutex) -> bool {
        if self.is_libcs() && config::service() != Service::Declined && !mutex.is_libcs() {
            self.flags.fetch_and(!PROCESS_SHARED, Relaxed);
        }
        self.is_libcs()
    }

    fn clock(&self) -> Clock {
        let monotonic = self.flags.load(Relaxed) & MONOTONIC != 0;
        if monotonic { Clock::Monotonic } else { Clock::Realtime }
    }

    /// Clears what a parent's threads left (Invariant 4).
    #[cold]
    fn disown(&self, generation: u32) {
        let before = self.generation.load(Acquire);
        if before == BEING_CLEARED || self.generation.compare_exchange(before, BEING_CLEARED, Acquire, Relaxed).is_err()
        {
            while self.generation.load(Acquire) == BEING_CLEARED {
                Native::yield_now();
            }
            return;
        }
        // SAFETY: this thread alone is here: the others wait for the generation, above.
        unsafe { self.waiters.clear() };
        self.users.store(0, Relaxed);
        self.generation.store(generation, Release);
    }

    /// To be called before anything else is.
    fn belong_to_this_process(&self) {
        let generation = Native::generation();
        if self.generation.load(Acquire) != generation {
            self.disown(generation);
        }
    }

    /// The calling waiter touches the condition variable for the last time.
    fn leave(&self) {
        let users = &raw const self.users;
        if self.users.fetch_sub(1, Release) == DESTROYER | 1 {
            Native::unpark(users, u32::MAX);
        }
    }

    /// Waits until no waiter will touch this any more.
    fn outlast_waiters(&self) {
        loop {
            let users = self.users.fetch_or(DESTROYER, Acquire) | DESTROYER;
            if users == DESTROYER {
                self.users.store(0, Relaxed);
                return;
            }
            let gate = self.gate.load(Relaxed);
            if !gate.is_null() {
                Native::unpark(gate, u32::MAX);
            }
            Native::park(&self.users, users, None);
        }
    }

    fn signal(&self) {
        self.belong_to_this_process();
        if !self.waiters.is_empty() {
            self.waiters.take_first().into_iter().for_each(|waiter| self.wake(waiter));
        }
    }

    /// Ends the wait of a waiter that was taken out.
    ///
    /// A waiter whose mutex the signaller holds could do nothing but wait for it, and if it were woken
    /// on the signaller's own processor, it would keep the signaller from releasing it. So it is not
    /// woken, but moved to the mutex's gate, where the release wakes it; one of many after the other.
    fn wake(&self, waiter: Taken<'_>) {
        let gate = gate_if_mine(waiter.mutex());
        if let Some(gate) = gate {
            self.gate.store(ptr::from_ref(gate).cast_mut(), Relaxed);
        }
        waiter.signal(gate);
    }

    /// Ends a wait that no signal has ended, or passes the signal on that it got meanwhile.
    fn give_up(&self, node: &Node<'_>) {
        if !self.waiters.unlist(node) {
            node.until_signalled();
            self.signal(); // meant for somebody who waits
        }
        self.leave();
    }
}

/// A wait, on the waiter's stack.
struct Wait<'a> {
    cond: &'a Cond,
    mutex: &'a Mutex,
    node: Node<'a>,
    /// Of the mutex, until the waiter has it again.
    in_use: Use<'a>,
}

/// A cancelled waiter: passes on a signal that it may have got, and takes the mutex for the
/// clean-up handlers.
unsafe extern "C" fn abandon(argument: *mut c_void) {
    // SAFETY: called by the waiter with its wait, whose frame is still there; POSIX keeps the condition
    // variable and the mutex alive meanwhile.
    let Wait { cond, mutex, node, in_use } = unsafe { &*argument.cast() };
    cond.give_up(node);
    if pthread_mutex_lock(mutex) == 0 {
        in_use.end();
    }
    pass_on(mutex);
}

/// Waits. May be unwound by a cancellation: nothing on the way has a destructor.
///
/// # Safety
///
/// The caller holds the mutex.
unsafe fn wait(cond: &Cond, mutex: &Mutex, until: Option<(Clock, Until<'_>)>) -> c_int {
    let deadline = match until.map(|(clock, until)| Deadline::new(clock, until)) {
        Some(None) => return EINVAL,
        deadline => deadline.flatten(),
    };
    // From here to the end a cancellation finds the waiter where it can be undone, and nowhere else.
    let type_before = unconvoy_set_cancel_type(PTHREAD_CANCEL_DEFERRED);
    let in_use = Use::begin(mutex);
    let wait = Wait { cond, mutex, node: Node::new(mutex), in_use };
    // SAFETY: the caller holds the mutex.
    let result = unsafe { wait.run(deadline) };
    if type_before != PTHREAD_CANCEL_DEFERRED {
        unconvoy_set_cancel_type(type_before);
    }
    result
}

impl Wait<'_> {
    /// # Safety
    ///
    /// The caller holds the mutex, and cancellation is deferred.
    unsafe fn run(&self, deadline: Option<Deadline>) -> c_int {
        let Wait { cond, mutex, ref node, in_use } = *self;
        cond.belong_to_this_process();
        cond.users.fetch_add(1, Relaxed);
        // SAFETY: the node stays where it is until this returns or is unwound, and is unlisted or signalled then.
        unsafe { cond.waiters.list(node) };
        // SAFETY: the caller holds it.
        let unlocked = unsafe { pthread_mutex_unlock(mutex) };
        if unlocked != 0 {
            cond.give_up(node);
            in_use.end();
            return unlocked;
        }
        let has_slept = !node.is_signalled();
        let result = self.sleep(deadline);
        cond.leave();
        // The mutex was ours, so that only a robust one can fail, which POSIX reports.
        let locked = pthread_mutex_lock(mutex);
        if locked == 0 {
            in_use.end();
            if has_slept {
                pass_on(mutex);
            }
        }
        if locked != 0 { locked } else { result }
    }

    /// Sleeps until the node is signalled, or the deadline has come and the node is unlisted.
    fn sleep(&self, deadline: Option<Deadline>) -> c_int {
        let node = &self.node;
        let until = deadline.map(Deadline::as_timespec);
        let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
        let realtime = c_int::from(deadline.is_some_and(Deadline::is_realtime));
        while !node.is_signalled() {
            let argument = ptr::from_ref(self).cast_mut().cast();
            // Also with a deadline that has passed: a wait is a cancellation point.
            // SAFETY: the word and the time are there for the length of the call; `abandon` undoes this wait.
            unsafe { unconvoy_cancellable_wait(node.state(), LISTED, realtime, until, abandon, argument) };
            if !node.is_signalled() && deadline.is_some_and(Deadline::has_passed) {
                if self.cond.waiters.unlist(node) {
                    return ETIMEDOUT;
                }
                node.until_signalled();
            }
        }
        0
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn pthread_cond_destroy(this: &Cond) -> c_int {
    if this.is_libcs() {
        return real::pthread_cond_destroy(this.libcs());
    }
    // As libc does: waiters that were signalled are on their way out, and a wait with a time-out ends.
    // POSIX leaves destruction under others undefined.
    this.belong_to_this_process();
    this.outlast_waiters();
    0
}

/// # Safety
///
/// POSIX: the caller holds the mutex; so for all waits below.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_wait(this: &Cond, mutex: &Mutex) -> c_int {
    if this.wait_is_libcs(mutex) {
        return real::pthread_cond_wait(this.libcs(), mutex.libcs());
    }
    // SAFETY: the caller holds the mutex.
    unsafe { wait(this, mutex, None) }
}

/// # Safety
///
/// See [`pthread_cond_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(this: &Cond, mutex: &Mutex, until: Until<'_>) -> c_int {
    if this.wait_is_libcs(mutex) {
        return real::pthread_cond_timedwait(this.libcs(), mutex.libcs(), until);
    }
    // SAFETY: the caller holds the mutex.
    unsafe { wait(this, mutex, Some((this.clock(), until))) }
}

/// # Safety
///
/// See [`pthread_cond_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_clockwait(
    this: &Cond,
    mutex: &Mutex,
    clock: clockid_t,
    until: Until<'_>,
) -> c_int {
    if this.wait_is_libcs(mutex) {
        return real::pthread_cond_clockwait(this.libcs(), mutex.libcs(), clock, until);
    }
    match Clock::of(clock) {
        // SAFETY: the caller holds the mutex.
        Some(clock) => unsafe { wait(this, mutex, Some((clock, until))) },
        None => EINVAL,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_cond_signal(this: &Cond) -> c_int {
    if this.is_libcs() {
        return real::pthread_cond_signal(this.libcs());
    }
    this.signal();
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_cond_broadcast(this: &Cond) -> c_int {
    if this.is_libcs() {
        return real::pthread_cond_broadcast(this.libcs());
    }
    this.belong_to_this_process();
    if !this.waiters.is_empty() {
        this.waiters.take_all().for_each(|waiter| this.wake(waiter));
    }
    0
}
