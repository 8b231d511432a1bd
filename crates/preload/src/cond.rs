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
//! Waiters stand in a list, each with a node on its own stack; a signal takes the longest waiting
//! out and wakes exactly that one. So a signal is never taken by a thread that came to wait after
//! it, and none is lost, whatever the kernel's queues do.
//!
//! | node | set by | meaning |
//! | --- | --- | --- |
//! | `LISTED` | the waiter | in the list, under the guard |
//! | `SIGNALLED` | the signaller, after it took the node out | the waiter may return, and its node is gone |
//!
//! **Invariant 1.** The list and the links of listed nodes are read and written under the guard
//! only.
//!
//! **Invariant 2.** A node that was taken out is touched by the signaller once more, to set
//! `SIGNALLED`; the waiter does not return before. From the time it releases the guard the signaller
//! touches the condition variable only until then, while that waiter is among the `users`.
//!
//! **Invariant 3.** `users` counts the waiters that may touch the condition variable still: from
//! before a waiter is listed until it knows that it will not be cancelled any more. Destruction
//! waits for it to be 0, and a waiter's last touch is what makes it 0; as with libc's `wrefs`. A
//! waiter that was moved to a gate does not leave before the mutex is released, which the
//! destroyer may hold: so destruction wakes the gate.
//!
//! **Invariant 4.** In the child of a `fork` no waiters exist, and neither does a holder of the
//! guard: the first use there, told by `generation`, clears all that they left.
//!
//! **Memory orderings.** `SIGNALLED` is stored with release and loaded with acquire. All else is
//! ordered by the guard and by the program's mutex.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use libc::{EINVAL, ETIMEDOUT, clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};
use unconvoy_locks::contention::Contention;
use unconvoy_locks::contention::futex::Futex;
use unconvoy_locks::primitive::turn::Verdict;
use unconvoy_locks::primitive::{Generation as _, Native, Parking as _, Threads as _};

use crate::config::{self, Service};
use crate::mutex::wait::{Use, gate_if_mine, pass_on};
use crate::mutex::{pthread_mutex_lock, pthread_mutex_unlock};
use crate::real;
use crate::time::{Clock, Deadline};

/// A `pthread_cond_t`, as this library uses it.
#[repr(C)]
struct Cond {
    guard: Futex<Native>,
    head: core::cell::UnsafeCell<*mut Node>,
    tail: core::cell::UnsafeCell<*mut Node>,
    users: AtomicU32,
    generation: AtomicU32,
    _unused: u32,
    flags: AtomicU32,
    /// The gate that waiters were moved to last.
    gate: AtomicPtr<AtomicU32>,
}

const _: () = assert!(size_of::<Cond>() == size_of::<pthread_cond_t>());
const _: () = assert!(core::mem::offset_of!(Cond, flags) == 36, "glibc's 64-bit layout");

/// Attribute bits of `flags`: glibc's `__PTHREAD_COND_SHARED_MASK` and
/// `__PTHREAD_COND_CLOCK_MONOTONIC_MASK`.
const PROCESS_SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// The kernel's `FUTEX_REQUEUE | FUTEX_PRIVATE_FLAG`.
const FUTEX_REQUEUE_PRIVATE: i32 = libc::FUTEX_REQUEUE | libc::FUTEX_PRIVATE_FLAG;

/// In `users`: somebody waits for it to be 0.
const DESTROYER: u32 = 1 << 31;

/// In `generation`: a thread is just clearing what a parent's threads left.
const BEING_CLEARED: u32 = u32::MAX;

/// glibc's number; the libc crate does not have it.
const PTHREAD_CANCEL_DEFERRED: c_int = 0;

const LISTED: u32 = 0;
const SIGNALLED: u32 = 1;

/// One wait, on the waiter's stack.
struct Node {
    state: AtomicU32,
    next: *mut Node,
    previous: *mut Node,
    cond: *const Cond,
    mutex: *mut pthread_mutex_t,
    /// Of the mutex, until the waiter has it again.
    in_use: Use,
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
    fn unconvoy_set_cancel_type(new: c_int) -> c_int;
}

impl Cond {
    /// # Safety
    ///
    /// `cond` points to a condition variable that lives as long as the caller's use of it.
    unsafe fn at<'a>(cond: *mut pthread_cond_t) -> &'a Cond {
        // SAFETY: the same size; the list is under the guard, the rest atomic.
        unsafe { &*cond.cast() }
    }

    fn is_libcs(&self) -> bool {
        self.flags.load(Relaxed) & PROCESS_SHARED != 0 || config::service() == Service::Declined
    }

    /// Whether a wait with `mutex` is libc's. A process-shared condition variable that nobody has
    /// waited on is taken over by a wait with a mutex of this library: all who wait on it use
    /// that mutex (POSIX), which is private to the process, and libc's wait would release a mutex
    /// that it cannot.
    ///
    /// # Safety
    ///
    /// `mutex` points to a mutex.
    unsafe fn wait_is_libcs(&self, mutex: *mut pthread_mutex_t) -> bool {
        // SAFETY: passed on from the caller.
        if self.is_libcs() && config::service() != Service::Declined && unsafe { !crate::mutex::belongs_to_libc(mutex) }
        {
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
        unsafe {
            *self.head.get() = ptr::null_mut();
            *self.tail.get() = ptr::null_mut();
            if self.guard.is_locked() {
                self.guard.clear_parked_bit();
                self.guard.unlock();
            }
        }
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

    /// Runs `work` on the list's ends under the guard.
    fn guarded<R>(&self, work: impl FnOnce(&mut *mut Node, &mut *mut Node) -> R) -> R {
        if !self.guard.try_lock() {
            self.guard.attempt(&mut |_now: u64| Verdict::Spin);
        }
        // SAFETY: Invariant 1.
        let result = unsafe { work(&mut *self.head.get(), &mut *self.tail.get()) };
        // SAFETY: locked above. Nobody parks at a gate for it, so it is never marked.
        unsafe { self.guard.unlock() };
        result
    }

    /// Lists a waiter.
    ///
    /// # Safety
    ///
    /// `node` stays where it is until it is `SIGNALLED` or unlisted.
    unsafe fn list(&self, node: *mut Node) {
        self.users.fetch_add(1, Relaxed);
        self.guarded(|head, tail| {
            // SAFETY: the caller's node; the tail is listed, hence alive.
            unsafe {
                (*node).previous = *tail;
                match tail.as_mut() {
                    Some(last) => last.next = node,
                    None => *head = node,
                }
            }
            *tail = node;
        });
    }

    /// Takes a waiter out, if no signaller has.
    ///
    /// # Safety
    ///
    /// `node` was listed here.
    unsafe fn unlist(&self, node: *mut Node) -> bool {
        self.guarded(|head, tail| {
            // SAFETY: alive: the caller's. Its neighbours are listed, hence alive.
            unsafe {
                let (previous, next) = ((*node).previous, (*node).next);
                // A node that was taken out from the front has no previous, and is not the head.
                if previous.is_null() && *head != node {
                    return false;
                }
                match previous.as_mut() {
                    Some(previous) => previous.next = next,
                    None => *head = next,
                }
                match next.as_mut() {
                    Some(next) => next.previous = previous,
                    None => *tail = previous,
                }
            }
            true
        })
    }

    /// Takes the longest waiting out.
    fn take_first(&self) -> *mut Node {
        self.guarded(|head, tail| {
            let first = *head;
            // SAFETY: listed, hence alive.
            if let Some(node) = unsafe { first.as_mut() } {
                *head = node.next;
                // SAFETY: as above.
                match unsafe { node.next.as_mut() } {
                    Some(next) => next.previous = ptr::null_mut(),
                    None => *tail = ptr::null_mut(),
                }
                node.next = ptr::null_mut();
            }
            first
        })
    }

    /// Takes all out, as a chain by `next`.
    fn take_all(&self) -> *mut Node {
        self.guarded(|head, tail| {
            let mut node = *head;
            // SAFETY: listed, hence alive.
            while let Some(listed) = unsafe { node.as_mut() } {
                listed.previous = ptr::null_mut(); // what `unlist` tells a taken node by
                node = listed.next;
            }
            *tail = ptr::null_mut();
            core::mem::replace(head, ptr::null_mut())
        })
    }

    fn is_empty(&self) -> bool {
        // A glance: a waiter that must be seen listed itself before the signaller's last acquire of
        // the mutex.
        // SAFETY: an atomic read of a pointer that is written under the guard.
        unsafe { (*self.head.get().cast::<AtomicPtr<Node>>()).load(Acquire) }.is_null()
    }

    fn signal(&self) {
        self.belong_to_this_process();
        if !self.is_empty() {
            wake(self.take_first());
        }
    }
}

/// Ends the wait of a node that was taken out.
///
/// A waiter whose mutex the signaller holds could do nothing but wait for it, and if it were woken
/// on the signaller's own processor, it would keep the signaller from releasing it. So it is not
/// woken, but moved to the mutex's gate, where the release wakes it; one of many after the other.
fn wake(node: *mut Node) {
    if node.is_null() {
        return;
    }
    // SAFETY: taken out, so its waiter stays until the store (Invariant 2); after it only the address
    // is used. The mutex outlives the wait.
    unsafe {
        let gate = gate_if_mine((*node).mutex);
        if let Some(gate) = gate {
            (*(*node).cond).gate.store(ptr::from_ref(gate).cast_mut(), Relaxed);
        }
        let state = &raw const (*node).state;
        (*state).store(SIGNALLED, Release);
        match gate {
            // If the waiter does not sleep yet, it finds itself signalled, and nothing is moved.
            Some(gate) => {
                let _ = syscalls::syscall!(
                    syscalls::Sysno::futex,
                    state,
                    FUTEX_REQUEUE_PRIVATE,
                    0,
                    1,
                    ptr::from_ref(gate),
                    0
                );
            }
            None => Native::unpark(state, 1),
        }
    }
}

/// A cancelled waiter: passes on a signal that it may have got, and takes the mutex for the
/// clean-up handlers.
unsafe extern "C" fn abandon(argument: *mut c_void) {
    let node = argument.cast::<Node>();
    // SAFETY: called by the waiter, whose frame is still there; POSIX keeps the condition variable and
    // the mutex alive meanwhile.
    unsafe {
        let cond = &*(*node).cond;
        if !cond.unlist(node) {
            until_signalled(&(*node).state);
            cond.signal();
        }
        cond.leave();
        if pthread_mutex_lock((*node).mutex) == 0 {
            (*node).in_use.end();
        }
        pass_on((*node).mutex);
    }
}

/// Waits for a signaller that has taken this node out to say so: it is a few instructions away.
fn until_signalled(state: &AtomicU32) {
    while state.load(Acquire) != SIGNALLED {
        Native::yield_now();
    }
}

/// Waits.
///
/// # Safety
///
/// As POSIX says of `pthread_cond_wait`. May be unwound by a cancellation: nothing on the way has a
/// destructor.
unsafe fn wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: Option<(Clock, &timespec)>) -> c_int {
    let deadline = match until.map(|(clock, until)| Deadline::new(clock, until)) {
        Some(None) => return EINVAL,
        deadline => deadline.flatten(),
    };
    // From here to the end a cancellation finds the waiter where it can be undone, and nowhere else.
    // SAFETY: sets this thread's type, and back.
    unsafe {
        let type_before = unconvoy_set_cancel_type(PTHREAD_CANCEL_DEFERRED);
        let result = wait_cancellably(cond, mutex, deadline);
        if type_before != PTHREAD_CANCEL_DEFERRED {
            unconvoy_set_cancel_type(type_before);
        }
        result
    }
}

/// # Safety
///
/// As [`wait`]; cancellation is deferred.
unsafe fn wait_cancellably(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: Option<Deadline>,
) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Cond::at(cond) };
    // SAFETY: passed on from the caller.
    let in_use = unsafe { Use::begin(mutex) };
    let (next, previous) = (ptr::null_mut(), ptr::null_mut());
    let mut node = Node { state: AtomicU32::new(LISTED), next, previous, cond: this, mutex, in_use };
    let node = &raw mut node;
    this.belong_to_this_process();
    // SAFETY: the node lives in this frame until it is unlisted or signalled.
    unsafe { this.list(node) };
    // SAFETY: passed on from the caller.
    let unlocked = unsafe { pthread_mutex_unlock(mutex) };
    if unlocked != 0 {
        // SAFETY: listed above.
        if !unsafe { this.unlist(node) } {
            // SAFETY: this frame's.
            until_signalled(unsafe { &(*node).state });
            this.signal(); // meant for somebody who waits
        }
        this.leave();
        // SAFETY: begun above.
        unsafe { in_use.end() };
        return unlocked;
    }
    let (mut result, mut has_slept) = (0, false);
    // SAFETY: this frame's.
    let state = unsafe { &(*node).state };
    let until = deadline.map(Deadline::as_timespec);
    let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
    let realtime = c_int::from(deadline.is_some_and(Deadline::is_realtime));
    while state.load(Acquire) != SIGNALLED {
        has_slept = true;
        // Also with a deadline that has passed: a wait is a cancellation point.
        // SAFETY: the word and the time are this frame's or the caller's; `abandon` undoes the wait.
        unsafe { unconvoy_cancellable_wait(state, LISTED, realtime, until, abandon, node.cast()) };
        if state.load(Acquire) != SIGNALLED && deadline.is_some_and(Deadline::has_passed) {
            // SAFETY: listed above.
            if unsafe { this.unlist(node) } {
                result = ETIMEDOUT;
            } else {
                until_signalled(state);
            }
            break;
        }
    }
    this.leave();
    // SAFETY: passed on from the caller. The mutex was ours, so that only a robust one can fail, which
    // POSIX reports.
    let locked = unsafe { pthread_mutex_lock(mutex) };
    if locked == 0 {
        // SAFETY: passed on from the caller; begun above, and locked.
        unsafe {
            in_use.end();
            if has_slept {
                pass_on(mutex);
            }
        }
    }
    if locked != 0 { locked } else { result }
}

/// # Safety
///
/// As POSIX says of the function of this name; so for all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_init(cond: *mut pthread_cond_t, attributes: *const pthread_condattr_t) -> c_int {
    // libc zeroes the object and writes the attributes' bits.
    // SAFETY: passed on from the caller.
    unsafe { real::pthread_cond_init(cond, attributes) }
}

/// # Safety
///
/// See [`pthread_cond_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Cond::at(cond) };
    if this.is_libcs() {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_cond_destroy(cond) };
    }
    // As libc does: waiters that were signalled are on their way out, and a wait with a time-out ends.
    // POSIX leaves destruction under others undefined.
    this.belong_to_this_process();
    this.outlast_waiters();
    0
}

/// # Safety
///
/// See [`pthread_cond_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        if Cond::at(cond).wait_is_libcs(mutex) {
            return real::pthread_cond_wait(cond, mutex);
        }
        wait(cond, mutex, None)
    }
}

/// # Safety
///
/// See [`pthread_cond_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        let this = Cond::at(cond);
        if this.wait_is_libcs(mutex) {
            return real::pthread_cond_timedwait(cond, mutex, until);
        }
        wait(cond, mutex, Some((this.clock(), &*until)))
    }
}

/// # Safety
///
/// See [`pthread_cond_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_clockwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        if Cond::at(cond).wait_is_libcs(mutex) {
            return real::pthread_cond_clockwait(cond, mutex, clock, until);
        }
        match Clock::of(clock) {
            Some(clock) => wait(cond, mutex, Some((clock, &*until))),
            None => EINVAL,
        }
    }
}

/// # Safety
///
/// See [`pthread_cond_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Cond::at(cond) };
    if this.is_libcs() {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_cond_signal(cond) };
    }
    this.signal();
    0
}

/// # Safety
///
/// See [`pthread_cond_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: passed on from the caller.
    let this = unsafe { Cond::at(cond) };
    if this.is_libcs() {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_cond_broadcast(cond) };
    }
    this.belong_to_this_process();
    if this.is_empty() {
        return 0;
    }
    let mut node = this.take_all();
    while !node.is_null() {
        // SAFETY: taken out and not yet signalled, so its waiter stays.
        let next = unsafe { (*node).next };
        wake(node);
        node = next;
    }
    0
}
