//! `pthread_cond_*`, in place, for condition variables that are private to the process.
//!
//! ```text
//!  byte  glibc 2.36    glibc 2.41    here
//!  0     wseq          wseq          guard
//!  8     g1_start      g1_start      head
//!  16    g_refs        g_size        tail
//!  24    g_size        g1_orig_size  users
//!  28                  wrefs         flags or generation
//!  32    g1_orig_size  g_signals     history
//!  36    wrefs                       generation or flags
//!  40    g_signals     unused        eventcount
//! ```
//!
//! The flags are glibc's `wrefs`, with the [`attributes`] in glibc's bits: the clock, and
//! process-shared (then everything goes to libc).
//!
//! Waiters form a list ([`waiters`], with Invariants 1 and 2). They poll for short waits
//! ([`polling`]).
//!
//! **Invariant 3.** `users` counts the waiters that may still touch the condition variable: from
//! before a waiter is listed until it can no longer be cancelled. Destruction waits until `users`
//! is 0, and a waiter's last access is the decrement; libc's `wrefs` works the same way. A waiter
//! that was requeued to a mutex's eventcount does not leave before that mutex is released, and the
//! destroyer may hold the mutex. So destruction wakes the eventcount's waiters. The condition
//! variable knows only its last eventcount: before a waiter is requeued to another eventcount, the
//! signaller wakes the waiters of the last one.
//!
//! **Invariant 4.** In the child of a `fork`, no holder of the guard exists, and no waiter but the
//! forking thread, whose wait ends there if a signal handler forked. The first use sees another
//! [generation](unconvoy_locks::primitive::generation) and clears what the others left.

mod attributes;
mod polling;
mod shared;
mod waiters;

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use libc::{EINVAL, ETIMEDOUT, clockid_t, pthread_cond_t, timespec};
use unconvoy_locks::load::pollers::BROADCAST;
use unconvoy_locks::primitive::native::probe;
use unconvoy_locks::primitive::{Native, Parking as _};

use crate::cancel;
use crate::mutex::wait::{
    Use, eventcount_if_owned, give_way, is_first_wake, record_requeued, restore_parked_bit,
};
use crate::mutex::{Mutex, pthread_mutex_lock, pthread_mutex_unlock};
use crate::object::{InPlace, Until};
use crate::probe::probe;
use crate::profile::libcs::wait_for_signal;
use crate::profile::{SignalWait, may_record};
use crate::real;
use crate::time::{Clock, Deadline};
pub(crate) use waiters::end_interrupted_wait;
use waiters::{ASLEEP, Node, Taken, Waiters};

/// A `pthread_cond_t`, as this library uses it.
#[repr(C)]
pub struct Cond {
    waiters: Waiters,
    users: AtomicU32,
    /// The flags and the generation, in the order of this glibc ([`attributes`]), and between them
    /// the history of waits here, packed; 0 before the first wait has ended.
    words: [AtomicU32; 3],
    /// The word of the eventcount that waiters were last requeued to.
    eventcount: AtomicPtr<AtomicU32>,
}

const _: () = assert!(core::mem::offset_of!(Cond, words) == 28, "glibc's 64-bit layout");

// SAFETY: libc's initialisers and `init` leave zeroes except in the flags. The fields are atomics,
// and zeroes are an empty list.
unsafe impl InPlace for Cond {
    type Libcs = pthread_cond_t;
}

/// In `users`: a thread waits for the count to become 0.
const DESTROYER: u32 = 1 << 31;

/// What ends a wait. `is_crowd`: two waiters or more still wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Signal { is_crowd: bool },
    Broadcast,
}

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
    safe fn unconvoy_test_cancel();
}

impl Cond {
    /// Waits by libc's function. libc rejects an invalid deadline before it releases the mutex.
    fn wait_in_libc(
        &self,
        mutex: &Mutex,
        until: Option<(Clock, Until<'_>)>,
        wait: impl Fn() -> c_int,
    ) -> c_int {
        if !may_record() {
            return wait();
        }
        let is_valid = until.is_none_or(|(clock, until)| Deadline::new(clock, until).is_some());
        let is_released = is_valid && mutex.is_released_by_unlock();
        let released = is_released.then(|| ptr::from_ref(mutex).addr());
        wait_for_signal(ptr::from_ref(self).addr(), released, wait)
    }

    /// Clears what the parent's threads left (Invariant 4).
    ///
    /// # Safety
    ///
    /// No other thread uses the condition variable meanwhile.
    unsafe fn clear_inherited(&self) {
        // SAFETY: the caller vouches for it.
        unsafe { self.waiters.clear() };
        self.users.store(0, Relaxed);
    }

    fn history(&self) -> &AtomicU32 {
        &self.words[1]
    }

    /// Must run before any other access to the waiters.
    fn adopt_after_fork(&self) {
        // SAFETY: other threads wait inside `adopt`.
        self.generation().adopt(|| unsafe { self.clear_inherited() });
    }

    /// The calling waiter's last access to the condition variable.
    fn leave(&self, node: &Node<'_>) {
        if node.is_inherited() {
            return self.adopt_after_fork(); // which has cleared `users`, or does
        }
        let users = &raw const self.users;
        if self.users.fetch_sub(1, Release) == DESTROYER | 1 {
            Native::unpark(users, u32::MAX);
        }
    }

    /// Waits until no waiter will access the condition variable again.
    fn wait_for_waiters(&self) {
        loop {
            let users = self.users.fetch_or(DESTROYER, Acquire) | DESTROYER;
            if users == DESTROYER {
                self.users.store(0, Relaxed);
                return;
            }
            let eventcount = self.eventcount.load(Relaxed);
            if !eventcount.is_null() {
                Native::unpark(eventcount, u32::MAX);
            }
            Native::park(&self.users, users, None);
        }
    }

    fn signal(&self) {
        self.adopt_after_fork();
        if !self.waiters.is_empty()
            && let Some((waiter, is_crowd)) = self.waiters.take_first()
        {
            self.wake(waiter, By::Signal { is_crowd });
        }
    }

    /// Ends the wait of a waiter that was taken out of the list. No system call if it is awake.
    ///
    /// If the signaller holds a sleeper's mutex, a woken waiter could only wait for the mutex, and
    /// if woken on the signaller's processor, it would delay the release. So the waiter is requeued
    /// to the mutex's eventcount instead, where releases wake requeued waiters one after the other,
    /// or several at once if there are processors for them, and all at an interval (`Pollers`).
    ///
    /// But up to the waiter's own release, a requeueing costs three system calls, and a wake-up
    /// costs one. In a queue with many threads, each signal wakes one of a crowd, and is the only
    /// signal of its critical section. The waiter is then woken at once. (16 producers and
    /// consumers on 2 processors: .5 of libc's rate with requeueing, 1.35 without. LevelDB's writer
    /// signals one writer after the other, each the only waiter of its condition variable: 3.4 with
    /// requeueing, 2.3 without.)
    fn wake(&self, waiter: Taken<'_>, by: By) {
        let Some(waiter) = waiter.signal_awake() else { return };
        let mutex = waiter.mutex();
        let is_crowd = matches!(by, By::Signal { is_crowd: true });
        let is_woken = is_crowd && is_first_wake(mutex);
        let eventcount = if is_woken { None } else { eventcount_if_owned(mutex) };
        if let Some(eventcount) = eventcount {
            record_requeued(mutex, if by == By::Broadcast { BROADCAST } else { 1 });
            self.change_eventcount(eventcount);
        }
        waiter.signal(eventcount);
    }

    /// Records the eventcount that a waiter is about to be requeued to (Invariant 3). The caller
    /// holds the mutex, and concurrent waiters use the same mutex.
    fn change_eventcount(&self, eventcount: &AtomicU32) {
        let eventcount = ptr::from_ref(eventcount).cast_mut();
        let before = self.eventcount.load(Relaxed);
        if before != eventcount {
            self.eventcount.store(eventcount, Relaxed);
            if !before.is_null() {
                Native::unpark(before, u32::MAX);
            }
        }
    }

    /// Ends a wait without a signal. Passes on a signal that arrived meanwhile.
    fn give_up(&self, node: &Node<'_>) {
        if self.is_signalled_before_unlisted(node) {
            self.signal(); // it was meant for a thread that still waits
        }
        self.leave(node);
    }

    /// Takes `node` out of the list. Returns true, after the signal, if a signaller already has.
    fn is_signalled_before_unlisted(&self, node: &Node<'_>) -> bool {
        if node.is_inherited() || self.waiters.unlist(node) {
            return false;
        }
        node.wait_until_signalled();
        true
    }
}

/// One wait, on the waiter's stack.
struct Wait<'a> {
    cond: &'a Cond,
    mutex: &'a Mutex,
    node: Node<'a>,
    /// Keeps the mutex in use until the waiter holds it again.
    in_use: Use<'a>,
}

/// Runs when a waiter is cancelled: passes on a signal that it may have received, and acquires the
/// mutex for the clean-up handlers.
unsafe extern "C" fn abandon(argument: *mut c_void) {
    // SAFETY: the waiter calls this with its own wait, whose frame still exists. POSIX keeps the
    // condition variable and the mutex alive meanwhile.
    let Wait { cond, mutex, node, in_use } = unsafe { &*argument.cast() };
    waiters::get_up();
    cond.give_up(node);
    if pthread_mutex_lock(mutex) == 0 {
        in_use.end();
    }
    restore_parked_bit(mutex);
}

/// Waits. A cancellation may unwind this function: no frame on the way has a destructor.
///
/// # Safety
///
/// The caller holds the mutex.
unsafe fn wait(cond: &Cond, mutex: &Mutex, until: Option<(Clock, Until<'_>)>) -> c_int {
    let deadline = match until.map(|(clock, until)| Deadline::new(clock, until)) {
        Some(None) => return EINVAL,
        deadline => deadline.flatten(),
    };
    // From here to the end, cancellation takes effect only inside the sleep, where `abandon` can
    // undo the wait. A wait that is signalled before it sleeps is a cancellation point as well, so
    // the call below acts on a pending cancellation while the caller still holds the mutex.
    let type_before = cancel::defer();
    unconvoy_test_cancel();
    let in_use = Use::begin(mutex);
    let result = if cond.is_libcs() {
        // SAFETY: the caller holds the mutex.
        unsafe { cond.wait_in_slices(mutex, in_use, deadline) }
    } else {
        let wait = Wait { cond, mutex, node: Node::new(mutex), in_use };
        // SAFETY: the caller holds the mutex.
        unsafe { wait.run(deadline) }
    };
    type_before.restore();
    result
}

impl Wait<'_> {
    /// # Safety
    ///
    /// The caller holds the mutex, and cancellation is deferred.
    unsafe fn run(&self, deadline: Option<Deadline>) -> c_int {
        let Wait { cond, mutex, ref node, in_use } = *self;
        cond.adopt_after_fork();
        cond.users.fetch_add(1, Relaxed);
        // SAFETY: the node stays in place until this function returns or is unwound, and is
        // unlisted or signalled by then.
        unsafe { cond.waiters.list(node) };
        // SAFETY: the caller holds the mutex.
        let unlocked = unsafe { pthread_mutex_unlock(mutex) };
        if unlocked != 0 {
            cond.give_up(node);
            in_use.end();
            return unlocked;
        }
        let recorded = SignalWait::begin(ptr::from_ref(cond).addr());
        let result = self.await_signal(deadline);
        if let Some(recorded) = recorded {
            recorded.end();
        }
        cond.leave(node);
        if node.is_requeued() {
            record_requeued(mutex, 0);
        } else if node.signalled_at().is_some() {
            give_way(mutex);
        }
        // This thread held the mutex, so locking fails only for a robust mutex; POSIX reports that
        // error.
        let locked = pthread_mutex_lock(mutex);
        if locked == 0 {
            in_use.end();
            if node.is_requeued() {
                restore_parked_bit(mutex);
            }
        }
        if locked != 0 { locked } else { result }
    }

    /// Sleeps until the node is signalled, or unlisted: at the deadline, or in a forked child.
    #[inline(never)]
    fn sleep(&self, deadline: Option<Deadline>) -> c_int {
        let node = &self.node;
        let until = deadline.map(Deadline::as_timespec);
        let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
        let realtime = c_int::from(deadline.is_some_and(Deadline::is_realtime));
        let word = node.state();
        node.fall_asleep();
        while !node.is_signalled() {
            let argument = ptr::from_ref(self).cast_mut().cast();
            probe::sleep(ptr::from_ref(word).addr(), 0);
            if !node.is_inherited() {
                // Called even if the deadline has passed: a wait is a cancellation point. SAFETY:
                // the word and the time outlive the call; `abandon` undoes this wait.
                unsafe {
                    unconvoy_cancellable_wait(word, ASLEEP, realtime, until, abandon, argument)
                };
            }
            let has_passed = || deadline.is_some_and(Deadline::has_passed);
            if !node.is_signalled() && (has_passed() || node.is_inherited()) {
                let is_signalled = self.cond.is_signalled_before_unlisted(node);
                return if has_passed() && !is_signalled { ETIMEDOUT } else { 0 };
            }
        }
        0
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn pthread_cond_destroy(this: &Cond) -> c_int {
    probe!("cond_destroy"; this);
    if this.is_libcs() {
        return real::pthread_cond_destroy(this.libcs());
    }
    // As in libc, destruction waits: signalled waiters are about to return, and a timed wait ends.
    // POSIX leaves destruction with other waiters undefined.
    this.adopt_after_fork();
    this.wait_for_waiters();
    0
}

/// # Safety
///
/// POSIX: the caller holds the mutex. The same holds for all waits below.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_wait(this: &Cond, mutex: &Mutex) -> c_int {
    probe!("cond_wait"; this, mutex);
    if this.wait_is_libcs(mutex) {
        let wait = || real::pthread_cond_wait(this.libcs(), mutex.libcs());
        return this.wait_in_libc(mutex, None, wait);
    }
    // SAFETY: the caller holds the mutex.
    unsafe { wait(this, mutex, None) }
}

/// # Safety
///
/// See [`pthread_cond_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(
    this: &Cond,
    mutex: &Mutex,
    until: Until<'_>,
) -> c_int {
    probe!("cond_wait"; this, mutex);
    if this.wait_is_libcs(mutex) {
        let wait = || real::pthread_cond_timedwait(this.libcs(), mutex.libcs(), until);
        return this.wait_in_libc(mutex, Some((this.clock(), until)), wait);
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
    probe!("cond_wait"; this, mutex);
    if this.wait_is_libcs(mutex) {
        let wait = || real::pthread_cond_clockwait(this.libcs(), mutex.libcs(), clock, until);
        return match Clock::of(clock) {
            Some(clock) => this.wait_in_libc(mutex, Some((clock, until)), wait),
            None => wait(),
        };
    }
    match Clock::of(clock) {
        // SAFETY: the caller holds the mutex.
        Some(clock) => unsafe { wait(this, mutex, Some((clock, until))) },
        None => EINVAL,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_cond_signal(this: &Cond) -> c_int {
    probe!("cond_signal"; this);
    if this.is_libcs() {
        return real::pthread_cond_signal(this.libcs());
    }
    this.signal();
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_cond_broadcast(this: &Cond) -> c_int {
    probe!("cond_broadcast"; this);
    if this.is_libcs() {
        return real::pthread_cond_broadcast(this.libcs());
    }
    this.adopt_after_fork();
    if !this.waiters.is_empty() {
        this.waiters.take_all().for_each(|waiter| this.wake(waiter, By::Broadcast));
    }
    0
}
