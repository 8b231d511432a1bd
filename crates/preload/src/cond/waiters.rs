//! The waiters of a condition variable: a list of nodes, each on its waiter's own stack. A signal
//! takes the longest waiter out of the list and wakes exactly that thread. So a thread that started
//! to wait after a signal never consumes it, and no signal is lost, whatever order the kernel's
//! queues use.
//!
//! | node | set by | meaning |
//! | --- | --- | --- |
//! | `AWAKE` | the waiter | not signalled; the waiter polls, or is on its way to a poll or sleep |
//! | `ASLEEP` | the waiter, if `AWAKE` | not signalled; the waiter sleeps, or is about to |
//! | `SIGNALLED` | the signaller, after taking the node out | the waiter may return, which frees its node |
//! | `REQUEUED` | the signaller, likewise, if `ASLEEP` | the same; the waiter may sleep at its mutex's eventcount |
//!
//! **Invariant 1.** The list and the links of listed nodes are read and written only under the
//! guard.
//!
//! **Invariant 2.** A waiter whose node was taken out does not return before the signaller has
//! signalled the node, which is the signaller's last access to it. After releasing the guard, the
//! signaller accesses the condition variable only before that signal, while the waiter still counts
//! among the `users`.
//!
//! **Memory orderings.** `SIGNALLED` and `REQUEUED` are stored with release, loaded with acquire.
//! The kernel compares the node with `ASLEEP` before the waiter sleeps. The guard and the program's
//! mutex order everything else.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use unconvoy_locks::contention::Contention;
use unconvoy_locks::contention::futex::Futex;
use unconvoy_locks::primitive::turn::Verdict;
use unconvoy_locks::primitive::{Clock as _, Generation as _, Native, Parking as _};

use crate::mutex::Mutex;

/// The kernel's `FUTEX_REQUEUE | FUTEX_PRIVATE_FLAG`.
const FUTEX_REQUEUE_PRIVATE: i32 = libc::FUTEX_REQUEUE | libc::FUTEX_PRIVATE_FLAG;

const AWAKE: u32 = 0;
const SIGNALLED: u32 = 1;
const REQUEUED: u32 = 2;
pub(super) const ASLEEP: u32 = 4;

thread_local! {
    /// The state of the node at which this thread sleeps; else null.
    static SLEEPS_AT: Cell<*const AtomicU32> = const { Cell::new(ptr::null()) };
}

/// After the sleep.
#[inline(never)]
pub(super) fn get_up() {
    SLEEPS_AT.set(ptr::null());
}

/// Ends the wait that a signal handler interrupted to fork, in the child. The kernel would restart
/// its sleep, which nobody here would end.
pub(crate) fn end_interrupted_wait() {
    // SAFETY: if not null, it is in a frame of this thread, the only one of the child.
    if let Some(state) = unsafe { SLEEPS_AT.get().as_ref() } {
        let _ = state.compare_exchange(ASLEEP, SIGNALLED, Release, Relaxed);
    }
}

/// One wait, on a cache line of its own: the waiter polls here and uses the stack around it.
#[repr(align(64))]
pub(super) struct Node<'a> {
    state: AtomicU32,
    /// When the waiter was signalled; 0 if it was awake.
    signalled_at: AtomicU64,
    next: Cell<*const Node<'a>>,
    previous: Cell<*const Node<'a>>,
    /// The mutex that the wait released.
    mutex: &'a Mutex,
    /// The process that began the wait.
    generation: u32,
}

impl<'a> Node<'a> {
    pub(super) fn new(mutex: &'a Mutex) -> Self {
        let none = || Cell::new(ptr::null());
        Node {
            state: AtomicU32::new(AWAKE),
            signalled_at: AtomicU64::new(0),
            next: none(),
            previous: none(),
            mutex,
            generation: Native::generation(),
        }
    }

    /// Whether a signal handler has called `fork` since the wait began, and this is the child: no
    /// signaller knows this waiter.
    pub(super) fn is_inherited(&self) -> bool {
        self.generation != Native::generation()
    }

    /// The word that the waiter sleeps on while it is [`ASLEEP`].
    pub(super) fn state(&self) -> &AtomicU32 {
        &self.state
    }

    pub(super) fn is_signalled(&self) -> bool {
        self.state.load(Acquire) & (SIGNALLED | REQUEUED) != 0
    }

    /// Whether the signaller may have requeued the waiter to its mutex's eventcount.
    pub(super) fn is_requeued(&self) -> bool {
        self.state.load(Relaxed) == REQUEUED
    }

    /// When the waiter was signalled; `None` if it was awake.
    pub(super) fn signalled_at(&self) -> Option<u64> {
        Some(self.signalled_at.load(Relaxed)).filter(|&at| at != 0)
    }

    /// Announces that the waiter is about to sleep, unless it was signalled.
    pub(super) fn fall_asleep(&self) {
        SLEEPS_AT.set(&raw const self.state);
        let _ = self.state.compare_exchange(AWAKE, ASLEEP, Relaxed, Relaxed);
    }

    /// Waits for the signaller that took this node out to signal it, a few instructions later. The
    /// signaller may have been preempted by this thread, so the thread sleeps: a yield never lets a
    /// thread of lower real-time priority run.
    pub(super) fn wait_until_signalled(&self) {
        while !self.is_signalled() && !self.is_inherited() {
            Native::sleep_shortly(&self.state);
        }
    }
}

#[repr(C)]
pub(super) struct Waiters {
    guard: Futex<Native>,
    head: AtomicPtr<Node<'static>>,
    tail: AtomicPtr<Node<'static>>,
}

/// The ends of the list, for the holder of the guard.
struct Ends<'a> {
    head: &'a AtomicPtr<Node<'static>>,
    tail: &'a AtomicPtr<Node<'static>>,
}

impl<'a> Ends<'a> {
    /// The node that `link` points to.
    fn at(&self, link: *const Node<'static>) -> Option<&'a Node<'static>> {
        // SAFETY: null, or listed, hence alive while the guard is held (Invariant 1).
        unsafe { link.as_ref() }
    }

    fn head(&self) -> *const Node<'static> {
        self.head.load(Relaxed)
    }

    /// Makes `next` follow `previous`; null stands for an end of the list.
    fn link(&self, previous: *const Node<'static>, next: *const Node<'static>) {
        match self.at(previous) {
            Some(previous) => previous.next.set(next),
            None => self.head.store(next.cast_mut(), Relaxed),
        }
        match self.at(next) {
            Some(next) => next.previous.set(previous),
            None => self.tail.store(previous.cast_mut(), Relaxed),
        }
    }
}

impl Waiters {
    /// Runs `work` on the list, under the guard.
    fn guarded<'a, R>(&'a self, work: impl FnOnce(Ends<'a>) -> R) -> R {
        if !self.guard.try_lock() {
            self.guard.attempt(&mut |_now: u64| Verdict::Spin);
        }
        let result = work(Ends { head: &self.head, tail: &self.tail });
        // SAFETY: locked above. No thread parks for the guard, so its parked bit is never set.
        unsafe { self.guard.unlock() };
        result
    }

    /// Forgets all waiters and the holder of the guard.
    ///
    /// # Safety
    ///
    /// Neither exists in this process, and no other thread uses the list meanwhile.
    pub(super) unsafe fn clear(&self) {
        self.head.store(ptr::null_mut(), Relaxed);
        self.tail.store(ptr::null_mut(), Relaxed);
        if self.guard.is_locked() {
            // SAFETY: the holder does not exist here, and no other thread uses the guard.
            unsafe {
                self.guard.clear_parked_bit();
                self.guard.unlock();
            }
        }
    }

    /// Appends a waiter to the list.
    ///
    /// # Safety
    ///
    /// `node` stays in place, and its mutex alive, until it is signalled or
    /// [unlisted](Self::unlist) here.
    pub(super) unsafe fn list(&self, node: &Node<'_>) {
        let node = ptr::from_ref(node).cast::<Node<'static>>();
        self.guarded(|ends| {
            ends.link(ends.tail.load(Relaxed), node);
            ends.link(node, ptr::null());
        });
    }

    /// Takes `node` out of the list; false if a signaller already has.
    pub(super) fn unlist(&self, node: &Node<'_>) -> bool {
        let at = ptr::from_ref(node).cast::<Node<'static>>();
        self.guarded(|ends| {
            let (previous, next): (*const Node<'_>, *const Node<'_>) =
                (node.previous.get().cast(), node.next.get().cast());
            // A node that was taken from the front has no previous node and is not the head.
            let is_listed = !previous.is_null() || ends.head() == at;
            if is_listed {
                ends.link(previous, next);
            }
            is_listed
        })
    }

    /// Takes the longest waiter out. Also returns whether a crowd stays: two waiters or more.
    pub(super) fn take_first(&self) -> Option<(Taken<'_>, bool)> {
        self.guarded(|ends| {
            let node = ends.at(ends.head())?;
            let second = node.next.get();
            let is_crowd = ends.at(second).is_some_and(|second| !second.next.get().is_null());
            ends.link(ptr::null(), second);
            node.next.set(ptr::null());
            Some((Taken(node, PhantomData), is_crowd))
        })
    }

    pub(super) fn take_all(&self) -> impl Iterator<Item = Taken<'_>> {
        let mut next = self.guarded(|ends| {
            let first = ends.head();
            let mut node = first;
            while let Some(listed) = ends.at(node) {
                listed.previous.set(ptr::null()); // marks the node as taken, for `unlist`
                node = listed.next.get();
            }
            ends.link(ptr::null(), ptr::null());
            first
        });
        core::iter::from_fn(move || {
            // SAFETY: taken out and not yet signalled, so its waiter does not return (Invariant 2).
            let node = unsafe { next.as_ref() }?;
            next = node.next.get();
            Some(Taken(node, PhantomData))
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        // No guard needed: a waiter that this signal must reach listed itself before the
        // signaller's last acquisition of the mutex.
        self.head.load(Acquire).is_null()
    }
}

/// A waiter that was taken out of the list and waits until its new owner calls
/// [`signal`](Self::signal).
pub(super) struct Taken<'a>(*const Node<'static>, PhantomData<&'a Mutex>);

impl<'a> Taken<'a> {
    /// The mutex of the wait, which outlives the wait.
    pub(super) fn mutex(&self) -> &'a Mutex {
        // SAFETY: not yet signalled (Invariant 2).
        unsafe { (*self.0).mutex }
    }

    /// Ends the wait without a system call if the waiter is awake; otherwise returns the waiter.
    pub(super) fn signal_awake(self) -> Option<Self> {
        // SAFETY: not yet signalled (Invariant 2). After a successful exchange the node may be
        // gone, and is not accessed.
        let state = unsafe { &(*self.0).state };
        match state.compare_exchange(AWAKE, SIGNALLED, Release, Relaxed) {
            Ok(_) => None,
            Err(_) => Some(self),
        }
    }

    /// Ends the wait of a waiter that sleeps: wakes it, or requeues it to the mutex's `eventcount`.
    pub(super) fn signal(self, eventcount: Option<&AtomicU32>) {
        // SAFETY: not yet signalled (Invariant 2). After the store the node may be gone, and only
        // its address is used.
        let state = unsafe {
            (*self.0).signalled_at.store(Native::now(), Relaxed);
            let state = &raw const (*self.0).state;
            (*state).store(if eventcount.is_some() { REQUEUED } else { SIGNALLED }, Release);
            state
        };
        let Some(eventcount) = eventcount else { return Native::unpark(state, 1) };
        // SAFETY: the kernel checks that the two words are mapped. If the waiter does not sleep
        // yet, it finds itself signalled, and nothing is requeued.
        let requeued = unsafe {
            syscalls::syscall!(
                syscalls::Sysno::futex,
                state,
                FUTEX_REQUEUE_PRIVATE,
                0,
                1,
                ptr::from_ref(eventcount),
                0
            )
        };
        if requeued.is_err() {
            Native::unpark(state, 1);
        }
    }
}
