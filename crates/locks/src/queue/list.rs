//! The queue under MCS and TP-MCS: a linked list of waiters, each spinning on its own cache line.
//! Any waiter may abandon the queue.
//!
//! After Mellor-Crummey and Scott (ACM TOCS 9(1), 1991), with the abandonment of Scott and Scherer
//! (PPoPP 2001) and, under some [`PreemptionBounds`], the published time stamps of He, Scherer and
//! Scott (*Preemption adaptivity in time-published queue-based spin locks*, HiPC 2005).
//!
//! ```text
//!   holder's node --next--> waiter's node --next--> waiter's node <-- tail
//!                           WAITING                 ABANDONED
//! ```
//!
//! | status | set by | meaning |
//! | --- | --- | --- |
//! | `WAITING` | the waiter, on joining | the waiter polls this node |
//! | `GRANTED` | the releaser | the waiter holds the lock |
//! | `ABANDONED` | the waiter | the waiter has left; the releaser that unlinks the node returns it |
//! | `SKIPPED` | the releaser | the time stamp was stale; the releaser is unlinking the node |
//! | `REMOVED` | the releaser | unlinked: the node is the waiter's again, and the waiter rejoins |
//!
//! **Invariant 1.** A node is in at most one queue. Only the lock's holder unlinks nodes, from the
//! front.
//!
//! **Invariant 2.** One compare-and-swap ends `WAITING`: the releaser's to `GRANTED` or `SKIPPED`,
//! or the waiter's to `ABANDONED`. So a waiter that abandoned the queue is never handed the lock,
//! and a waiter that was handed the lock learns of it.
//!
//! **Invariant 3.** A node returns to its memory exactly once: from the thread that held the lock
//! through it, from the releaser that unlinked it as `ABANDONED`, or from its waiter after
//! `REMOVED`.
//!
//! **Invariant 4.** The parked bit (see `Contention`) is the low bit of `tail`. A joining waiter's
//! swap may drop the bit; the waiter restores it before its first poll, and so before it can hold
//! and release the lock. Hence only releases of the threads before it miss the bit.
//!
//! **Invariant 5.** In the child of a `fork`, the parent's waiters do not exist. Their links may be
//! incomplete and are not followed: the holder's node and all nodes of another generation count as
//! one node, and the first waiter to join behind them links itself to the holder's node. (The nodes
//! left behind are lost to the child's pool.) If that node is of the child's generation, it has
//! left this queue, whose holder stayed in the parent: nobody hands the lock over, and the waiter
//! links itself to nothing.
//!
//! **Memory orderings.** `GRANTED` is stored with release and loaded with acquire, so the next
//! holder sees the releaser's writes. On an empty queue, the swap of `tail` (acquire) pairs with
//! the last holder's compare-and-swap to null (release). `next` is stored with release after the
//! node's fields, and the releaser loads it with acquire.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::node::{Node, NodeMemory, WAITING};
use crate::primitive::Atomic;
use crate::primitive::backoff::BriefWait;
use crate::primitive::turn::{Outcome, Turn, Verdict};

const GRANTED: u32 = 1;
const ABANDONED: u32 = 2;
const SKIPPED: u32 = 3;
const REMOVED: u32 = 4;

/// Polls of the waiter's own node between two turns. A poll hits the waiter's cache and is nearly
/// free, while a turn reads the clock and, under load control, a line shared by all locks. (ASPLOS
/// 2010, section 3.2.3: polls are interleaved with the check for a sleep slot, so that the check
/// never delays the hand-off.)
pub(crate) const POLLS_PER_TURN: u32 = if cfg!(loom) { 1 } else { 8 };

/// How many nodes to inspect in search of a waiter that has not abandoned the queue.
const NODES_LOOKED_AT: u32 = 8;

/// How the threads of a queue interpret each other's time stamps.
pub trait PreemptionBounds: Send + Sync {
    /// Nanoseconds after which a waiter's time stamp is stale and the waiter is skipped; `None`:
    /// hand over in strict order.
    const STALE_AFTER_NS: Option<u64>;

    /// Nanoseconds after which waiters assume that a holder which has not released the lock is
    /// preempted, and yield; `None`: holders publish no time, and waiters only poll.
    const SUSPECT_AFTER_NS: Option<u64> = None;

    /// Whether a holder asks the kernel not to preempt it.
    const EXTENDS_SLICE: bool = false;
}

/// The parked bit in `tail`, which the alignment of nodes leaves free.
const PARKED: usize = 1;

fn has_parked_bit<N>(tail: *mut N) -> bool {
    tail.addr() & PARKED != 0
}

fn without_parked_bit<N>(tail: *mut N) -> *mut N {
    tail.map_addr(|address| address & !PARKED)
}

/// The queue's tail; null if the lock has no holder and no waiters.
#[repr(C)]
pub struct Queue<P: NodeMemory, S> {
    tail: P::Ptr<Node<P>>,
    bounds: core::marker::PhantomData<S>,
}

/// The right to release a lock that is held through a queue.
pub struct Ticket<P: NodeMemory>(pub(crate) *mut Node<P>);

impl<P: NodeMemory, S: PreemptionBounds> Queue<P, S> {
    pub(crate) fn new() -> Self {
        Queue { tail: P::Ptr::new(ptr::null_mut()), bounds: core::marker::PhantomData }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tail.load(Relaxed).is_null()
    }

    /// Whether one of the first few nodes behind `holder` belongs to a waiter that has not
    /// abandoned the queue. A guess: the queue changes and nodes may be reused meanwhile. A wrong
    /// result costs efficiency only.
    pub(crate) fn seems_contended(&self, holder: *mut Node<P>) -> bool {
        let mut node = holder;
        for _ in 0..NODES_LOOKED_AT {
            // SAFETY: null or type-stable.
            let Some(next) = (unsafe { node.as_ref() }).map(|node| node.next.load(Acquire)) else {
                return false;
            };
            node = next;
            let waits =
                |node: &Node<P>| node.status.load(Relaxed) == WAITING && !node.was_left_behind();
            // SAFETY: as above.
            if unsafe { node.as_ref() }.is_some_and(waits) {
                return true;
            }
        }
        false
    }

    /// Joins if the queue is empty.
    pub(crate) fn try_join(&self) -> Option<Ticket<P>> {
        if !self.is_empty() {
            return None;
        }
        let node = P::take_node();
        // SAFETY: the node is fresh, and ours until it enters a queue.
        unsafe {
            (*node).status.store(WAITING, Relaxed);
            (*node).next.store(ptr::null_mut(), Relaxed);
            (*node).generation.store(P::generation(), Relaxed);
        }
        match self.tail.compare_exchange(ptr::null_mut(), node, AcqRel, Relaxed) {
            Ok(_) => Some(Ticket(node)),
            Err(_) => {
                // SAFETY: it never entered the queue.
                unsafe { P::give_node(node) };
                None
            }
        }
    }

    /// Joins at the tail and waits until the lock is handed over or `turn` says to leave.
    ///
    /// In the child of a `fork`, `holder` returns the node through which the forking thread holds
    /// the queue; null if threads hold the queue only inside lock functions and so never across a
    /// `fork`.
    pub(crate) fn join(
        &self,
        turn: &mut impl Turn,
        holder: &impl Fn() -> *mut Node<P>,
    ) -> Result<Ticket<P>, Outcome> {
        let mine = P::take_node();
        loop {
            // SAFETY: type-stable; ours to write until the swap below.
            let node = unsafe { &*mine };
            node.status.store(WAITING, Relaxed);
            node.next.store(ptr::null_mut(), Relaxed);
            node.published.store(P::now(), Relaxed);
            node.generation.store(P::generation(), Relaxed);
            let before = self.tail.swap(mine, AcqRel);
            if before.is_null() {
                return Ok(Ticket(mine));
            }
            if has_parked_bit(before) {
                self.set_parked_bit(); // Invariant 4
            }
            let mut before = without_parked_bit(before);
            // SAFETY: type-stable.
            let was_left_behind = |node: *mut Node<P>| unsafe { &*node }.was_left_behind();
            let mut has_releaser = true;
            if was_left_behind(before) {
                before = holder(); // Invariant 5
                if before.is_null() {
                    return Ok(Ticket(mine));
                }
                has_releaser = was_left_behind(before);
            }
            if has_releaser {
                // SAFETY: `before` is type-stable, and stays in this queue until its releaser has
                // seen this link.
                unsafe { &*before }.next.store(mine, Release);
            }
            match self.poll(node, turn) {
                GRANTED => return Ok(Ticket(mine)),
                ABANDONED => return Err(Outcome::Abandoned),
                // Skipped as stale: this thread was not running. Rejoin once the node is out of the
                // queue (He et al., section 3), but do not wait for a preempted releaser: leave the
                // node to that releaser.
                _ => {
                    if node.status.compare_exchange(SKIPPED, ABANDONED, AcqRel, Acquire).is_ok() {
                        return self.join(turn, holder);
                    }
                }
            }
        }
    }

    /// Polls `node` until its status changes or the waiter abandons it. Returns the new status.
    fn poll(&self, node: &Node<P>, turn: &mut impl Turn) -> u32 {
        loop {
            for _ in 0..POLLS_PER_TURN {
                let status = node.status.load(Acquire);
                if status != WAITING {
                    return status;
                }
                P::pause();
            }
            let now = P::now();
            if S::STALE_AFTER_NS.is_some() {
                node.published.store(now, Relaxed);
            }
            if turn.turn(now) == Verdict::Leave {
                return match node.status.compare_exchange(WAITING, ABANDONED, AcqRel, Acquire) {
                    Ok(_) => ABANDONED,
                    Err(GRANTED) => GRANTED,
                    Err(status) => self.abandon_while_skipped(node, status),
                };
            }
        }
    }

    /// Resolves a race: this waiter abandons the queue while a releaser skips it. The waiter leaves
    /// in any case; the exchange decides which of the two threads returns the node (Invariant 3).
    #[cold]
    fn abandon_while_skipped(&self, node: &Node<P>, status: u32) -> u32 {
        if status == REMOVED
            || node.status.compare_exchange(SKIPPED, ABANDONED, AcqRel, Acquire).is_err()
        {
            // SAFETY: REMOVED, so out of the queue and ours (Invariant 3).
            unsafe { P::give_node(ptr::from_ref(node).cast_mut()) };
        }
        ABANDONED
    }

    /// Hands the lock to the first waiter that can take it, and unlinks the waiters before it.
    /// `Err` if the parked bit is set and no queued waiter can take the lock: the lock is still
    /// held, through the ticket returned.
    ///
    /// # Safety
    ///
    /// `ticket` is that of this queue's current holder.
    pub(crate) unsafe fn release(&self, ticket: Ticket<P>) -> Result<(), Ticket<P>> {
        let mut front = ticket.0;
        loop {
            // SAFETY: `front` is the first node, and we hold the lock.
            let Some(next) = (unsafe { self.successor(front) }) else {
                return Err(Ticket(front));
            };
            // SAFETY: `front` is unlinked, or about to be: no other thread reaches it.
            unsafe { self.retire(front) };
            if next.is_null() {
                return Ok(());
            }
            // SAFETY: `next` is in the queue, and only we unlink.
            let node = unsafe { &*next };
            let verdict = if self.is_stale(node) { SKIPPED } else { GRANTED };
            if node.status.compare_exchange(WAITING, verdict, AcqRel, Relaxed).is_ok()
                && verdict == GRANTED
            {
                return Ok(());
            }
            front = next; // skipped, or abandoned by its waiter
        }
    }

    /// Whether the release must wake a parked waiter.
    pub(crate) fn has_parked_bit(&self) -> bool {
        has_parked_bit(self.tail.load(Relaxed))
    }

    /// Sets the parked bit if the lock is held; returns false if the queue is empty.
    pub(crate) fn set_parked_bit(&self) -> bool {
        let held = |seen: *mut Node<P>| {
            (!seen.is_null()).then(|| seen.map_addr(|address| address | PARKED))
        };
        self.tail.modify(Relaxed, Relaxed, held).is_ok()
    }

    /// Clears the parked bit. Only the holder may do so.
    pub(crate) fn clear_parked_bit(&self) {
        let _ = self.tail.modify(Relaxed, Relaxed, |seen| {
            has_parked_bit(seen).then(|| without_parked_bit(seen))
        });
    }

    /// The node behind `front`. Null if the queue is now empty, with `front` unlinked. `None` if
    /// `front` is the last node and the parked bit is set.
    ///
    /// # Safety
    ///
    /// The caller holds the lock and `front` is the first node.
    unsafe fn successor(&self, front: *mut Node<P>) -> Option<*mut Node<P>> {
        // SAFETY: in the queue, hence a node.
        let node = unsafe { &*front };
        let mut last = front;
        let mut delay = BriefWait::default();
        loop {
            let next = node.next.load(Acquire);
            // SAFETY: type-stable.
            if !next.is_null() && !unsafe { &*next }.was_left_behind() {
                return Some(next);
            }
            match self.tail.compare_exchange(last, ptr::null_mut(), Release, Acquire) {
                Ok(_) => return Some(ptr::null_mut()),
                Err(tail)
                    if tail != last
                        // SAFETY: type-stable.
                        && unsafe { &*without_parked_bit(tail) }.was_left_behind() =>
                {
                    if has_parked_bit(tail) {
                        return None;
                    }
                    last = tail; // Invariant 5: no waiter is behind `front`
                    continue;
                }
                Err(tail) if without_parked_bit(tail) == last => return None,
                Err(_) => {}
            }
            // A waiter has swapped itself in and is a few instructions from linking itself.
            delay.wait::<P>(&node.status);
        }
    }

    /// Passes an unlinked node to its owner (Invariant 3).
    ///
    /// # Safety
    ///
    /// The caller has unlinked `node`.
    unsafe fn retire(&self, node: *mut Node<P>) {
        // SAFETY: type-stable, and ours to dispose of: its waiter writes only by compare-and-swap
        // from SKIPPED.
        let status = unsafe { &(*node).status };
        if status.load(Relaxed) == SKIPPED
            && status.compare_exchange(SKIPPED, REMOVED, AcqRel, Relaxed).is_ok()
        {
            return;
        }
        // SAFETY: we held the lock through it, or its waiter abandoned it.
        unsafe { P::give_node(node) };
    }

    /// Whether a waiter is preempted, as far as its time stamp shows.
    fn is_stale(&self, node: &Node<P>) -> bool {
        S::STALE_AFTER_NS
            .is_some_and(|limit| P::now().saturating_sub(node.published.load(Relaxed)) > limit)
    }
}
