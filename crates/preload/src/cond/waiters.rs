//! The waiters of a condition variable: a list of nodes, each on its waiter's own stack. A signal takes
//! the longest waiting out and wakes exactly that one. So a signal is never taken by a thread that came
//! to wait after it, and none is lost, whatever the kernel's queues do.
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
//! **Memory orderings.** `SIGNALLED` is stored with release and loaded with acquire. All else is
//! ordered by the guard and by the program's mutex.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use unconvoy_locks::contention::Contention;
use unconvoy_locks::contention::futex::Futex;
use unconvoy_locks::primitive::turn::Verdict;
use unconvoy_locks::primitive::{Native, Parking as _, Threads as _};

use crate::mutex::Mutex;

/// The kernel's `FUTEX_REQUEUE | FUTEX_PRIVATE_FLAG`.
const FUTEX_REQUEUE_PRIVATE: i32 = libc::FUTEX_REQUEUE | libc::FUTEX_PRIVATE_FLAG;

pub(super) const LISTED: u32 = 0;
const SIGNALLED: u32 = 1;

/// One wait.
pub(super) struct Node<'a> {
    state: AtomicU32,
    next: Cell<*const Node<'a>>,
    previous: Cell<*const Node<'a>>,
    /// That the wait has released.
    mutex: &'a Mutex,
}

impl<'a> Node<'a> {
    pub(super) fn new(mutex: &'a Mutex) -> Self {
        let nobody = || Cell::new(ptr::null());
        Node { state: AtomicU32::new(LISTED), next: nobody(), previous: nobody(), mutex }
    }

    /// What the waiter sleeps on while it is [`LISTED`].
    pub(super) fn state(&self) -> &AtomicU32 {
        &self.state
    }

    pub(super) fn is_signalled(&self) -> bool {
        self.state.load(Acquire) == SIGNALLED
    }

    /// Waits for a signaller that has taken this node out to say so: it is a few instructions away.
    pub(super) fn until_signalled(&self) {
        while !self.is_signalled() {
            Native::yield_now();
        }
    }
}

/// The list.
#[repr(C)]
pub(super) struct Waiters {
    guard: Futex<Native>,
    head: AtomicPtr<Node<'static>>,
    tail: AtomicPtr<Node<'static>>,
}

/// The list's ends, for the holder of the guard.
struct Ends<'a> {
    head: &'a AtomicPtr<Node<'static>>,
    tail: &'a AtomicPtr<Node<'static>>,
}

impl<'a> Ends<'a> {
    /// The node that a link leads to.
    fn at(&self, link: *const Node<'static>) -> Option<&'a Node<'static>> {
        // SAFETY: null, or listed, hence alive as long as the guard is held (Invariant 1).
        unsafe { link.as_ref() }
    }

    fn head(&self) -> *const Node<'static> {
        self.head.load(Relaxed)
    }

    /// Has `next` follow `previous`, where null is an end of the list.
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
    /// Runs `work` on the list under the guard.
    fn guarded<'a, R>(&'a self, work: impl FnOnce(Ends<'a>) -> R) -> R {
        if !self.guard.try_lock() {
            self.guard.attempt(&mut |_now: u64| Verdict::Spin);
        }
        let result = work(Ends { head: &self.head, tail: &self.tail });
        // SAFETY: locked above. Nobody parks at a gate for it, so it is never marked.
        unsafe { self.guard.unlock() };
        result
    }

    /// Forgets the waiters, and a holder of the guard.
    ///
    /// # Safety
    ///
    /// Neither exists any more, and no other thread calls a function of this meanwhile.
    pub(super) unsafe fn clear(&self) {
        self.head.store(ptr::null_mut(), Relaxed);
        self.tail.store(ptr::null_mut(), Relaxed);
        if self.guard.is_locked() {
            // SAFETY: its holder is gone, and nobody else is here.
            unsafe {
                self.guard.clear_parked_bit();
                self.guard.unlock();
            }
        }
    }

    /// Lists a waiter.
    ///
    /// # Safety
    ///
    /// `node` stays where it is, and its mutex alive, until it is signalled or [unlisted](Self::unlist)
    /// here.
    pub(super) unsafe fn list(&self, node: &Node<'_>) {
        let node = ptr::from_ref(node).cast::<Node<'static>>();
        self.guarded(|ends| {
            ends.link(ends.tail.load(Relaxed), node);
            ends.link(node, ptr::null());
        });
    }

    /// Takes a waiter that was listed here out, if no signaller has.
    pub(super) fn unlist(&self, node: &Node<'_>) -> bool {
        let at = ptr::from_ref(node).cast::<Node<'static>>();
        self.guarded(|ends| {
            let (previous, next): (*const Node<'_>, *const Node<'_>) =
                (node.previous.get().cast(), node.next.get().cast());
            // A node that was taken out from the front has no previous, and is not the head.
            let is_listed = !previous.is_null() || ends.head() == at;
            if is_listed {
                ends.link(previous, next);
            }
            is_listed
        })
    }

    /// Takes the longest waiting out.
    pub(super) fn take_first(&self) -> Option<Taken<'_>> {
        self.guarded(|ends| {
            let node = ends.at(ends.head())?;
            ends.link(ptr::null(), node.next.get());
            node.next.set(ptr::null());
            Some(Taken(node, PhantomData))
        })
    }

    /// Takes all out.
    pub(super) fn take_all(&self) -> impl Iterator<Item = Taken<'_>> {
        let mut next = self.guarded(|ends| {
            let first = ends.head();
            let mut node = first;
            while let Some(listed) = ends.at(node) {
                listed.previous.set(ptr::null()); // what `unlist` tells a taken node by
                node = listed.next.get();
            }
            ends.link(ptr::null(), ptr::null());
            first
        });
        core::iter::from_fn(move || {
            // SAFETY: taken out and not yet signalled, so its waiter stays (Invariant 2).
            let node = unsafe { next.as_ref() }?;
            next = node.next.get();
            Some(Taken(node, PhantomData))
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        // A glance: a waiter that must be seen listed itself before the signaller's last acquire of
        // the mutex.
        self.head.load(Acquire).is_null()
    }
}

/// A waiter that was taken out, whose wait the owner of this is to end: until then it stays.
pub(super) struct Taken<'a>(*const Node<'static>, PhantomData<&'a Mutex>);

impl<'a> Taken<'a> {
    /// The mutex of the wait, which outlives it.
    pub(super) fn mutex(&self) -> &'a Mutex {
        // SAFETY: not yet signalled (Invariant 2).
        unsafe { (*self.0).mutex }
    }

    /// Ends the wait: wakes the waiter, or moves it to where others wait for the mutex.
    pub(super) fn signal(self, gate: Option<&AtomicU32>) {
        // SAFETY: not yet signalled (Invariant 2). From here on the node may be gone, and only its address is
        // used.
        let state = unsafe {
            let state = &raw const (*self.0).state;
            (*state).store(SIGNALLED, Release);
            state
        };
        let Some(gate) = gate else { return Native::unpark(state, 1) };
        // SAFETY: the kernel looks at the two words if they are there. If the waiter does not sleep yet, it
        // finds itself signalled, and nothing is moved.
        let _ = unsafe {
            syscalls::syscall!(syscalls::Sysno::futex, state, FUTEX_REQUEUE_PRIVATE, 0, 1, ptr::from_ref(gate), 0)
        };
    }
}
