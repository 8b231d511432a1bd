//! The queue under MCS and TP-MCS: a linked list of waiters, each spinning on its own line, any of
//! which may abandon the queue.
//!
//! After Mellor-Crummey and Scott (ACM TOCS 9(1), 1991) with the abandonment of Scott and Scherer
//! (PPoPP 2001) and, where [`PreemptionBounds`] says so, the published time stamps of He, Scherer and Scott
//! (*Preemption adaptivity in time-published queue-based spin locks*, HiPC 2005).
//!
//! ```text
//!            holder's        waiter's       waiter's
//!   (owner)   node   --next--> node  --next--> node <-- tail
//!                             WAITING          ABANDONED
//! ```
//!
//! | status | set by | meaning |
//! | --- | --- | --- |
//! | `WAITING` | the waiter, on joining | polls this node |
//! | `GRANTED` | the releaser | the lock is the waiter's |
//! | `ABANDONED` | the waiter | it is gone; the node is the queue's, and the releaser that unlinks it gives it back |
//! | `SKIPPED` | the releaser | the waiter's time stamp was stale; the releaser is unlinking the node |
//! | `REMOVED` | the releaser | unlinked: the node is the waiter's again, which rejoins |
//!
//! **Invariant 1.** A node is in at most one queue, and only the thread that holds the lock unlinks
//! nodes, from the front.
//!
//! **Invariant 2.** `WAITING` is left by one compare-and-swap: to `GRANTED` or `SKIPPED` by the
//! releaser, to `ABANDONED` by the waiter. So a waiter that abandoned the queue is never handed the lock, and one that
//! was handed it knows.
//!
//! **Invariant 3.** A node goes back to its memory exactly once: by the thread that held the lock
//! through it, by the releaser that unlinked it as `ABANDONED`, or by its waiter after `REMOVED`.
//!
//! **Invariant 4.** The parked bit (see `Contention`) is the low bit of `tail`. A
//! joiner's swap may take it away; the joiner puts it back before it polls, hence before it can
//! hold and release the lock: no bit is lost to the release after the next.
//!
//! **Invariant 5.** In the child of a `fork` the waiters of its parent's queues do not exist, and
//! their links, which may lack one, are not followed: nodes whose generation is not the process's
//! are counted as one with the holder's. The first to join behind them links itself to the
//! holder's node. (The nodes of those who stayed behind are lost to the child's pool.)
//!
//! **Memory orderings.** `GRANTED` is stored with release and loaded with acquire: what the
//! releaser wrote is seen by the next holder. On an empty queue the swap of `tail` (acquire) pairs
//! with the compare-and-swap to null (release) of the last holder. `next` is stored with release
//! after the node's fields, and loaded with acquire by the releaser.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::node::{Node, NodeMemory, WAITING};
use crate::primitive::Atomic;
use crate::primitive::turn::{Outcome, Turn, Verdict};

const GRANTED: u32 = 1;
const ABANDONED: u32 = 2;
const SKIPPED: u32 = 3;
const REMOVED: u32 = 4;

/// Polls of the waiter's own node between two turns. The node is in the waiter's cache, so a poll
/// costs next to nothing, while a turn reads the clock and, under load control, a line shared by
/// all locks (ASPLOS 2010, section 3.2.3: polls of the lock are interleaved with the check for a
/// sleep slot, so that the hand-off never waits for the check).
pub(crate) const POLLS_PER_TURN: u32 = if cfg!(loom) { 1 } else { 8 };

/// Polls for a link that is two instructions away before its writer is taken for preempted between
/// the two, and is let run.
const POLLS_BEFORE_YIELD: u32 = if cfg!(loom) { 0 } else { 100 };

/// How far to look for a waiter among abandoned nodes.
const NODES_LOOKED_AT: u32 = 8;

/// What threads of a queue make of each other's time stamps.
pub trait PreemptionBounds: Send + Sync {
    /// Nanoseconds after which a waiter's time stamp is stale and it is skipped; `None`: hand over
    /// in strict order.
    const STALE_AFTER_NS: Option<u64>;

    /// Nanoseconds after which a holder that has not released is taken for preempted, and waiters
    /// yield; `None`: holders publish nothing, and waiters poll.
    const SUSPECT_AFTER_NS: Option<u64> = None;

    /// Whether a holder asks the kernel not to preempt it.
    const EXTENDS_SLICE: bool = false;
}

/// The parked bit in `tail`: nodes are aligned to more than this.
const PARKED: usize = 1;

fn has_parked_bit<N>(tail: *mut N) -> bool {
    tail.addr() & PARKED != 0
}

fn without_parked_bit<N>(tail: *mut N) -> *mut N {
    tail.map_addr(|address| address & !PARKED)
}

/// The queue's tail; null when nobody holds and nobody waits.
#[repr(C)]
pub struct Queue<P: NodeMemory, S> {
    tail: P::Ptr<Node<P>>,
    bounds: core::marker::PhantomData<S>,
}

/// The right to release, for as long as the lock is held through a queue.
pub struct Ticket<P: NodeMemory>(pub(crate) *mut Node<P>);

impl<P: NodeMemory, S: PreemptionBounds> Queue<P, S> {
    pub(crate) fn new() -> Self {
        Queue { tail: P::Ptr::new(ptr::null_mut()), bounds: core::marker::PhantomData }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tail.load(Relaxed).is_null()
    }

    /// Whether one of the first few nodes behind `holder` is that of a waiter who has not abandoned it. The
    /// queue changes meanwhile, and the nodes may be another's by then: a guess, of no consequence
    /// but to efficiency.
    pub(crate) fn seems_contended(&self, holder: *mut Node<P>) -> bool {
        let mut node = holder;
        for _ in 0..NODES_LOOKED_AT {
            // SAFETY: null or type-stable.
            let Some(next) = (unsafe { node.as_ref() }).map(|node| node.next.load(Acquire)) else {
                return false;
            };
            node = next;
            let waits = |node: &Node<P>| node.status.load(Relaxed) == WAITING && !node.was_left_behind();
            // SAFETY: as above.
            if unsafe { node.as_ref() }.is_some_and(waits) {
                return true;
            }
        }
        false
    }

    /// Joins if nobody holds and nobody waits.
    pub(crate) fn try_join(&self) -> Option<Ticket<P>> {
        if !self.is_empty() {
            return None;
        }
        let node = P::take_node();
        // SAFETY: the node is ours (fresh from its memory) until a queue has it.
        unsafe {
            (*node).status.store(WAITING, Relaxed);
            (*node).next.store(ptr::null_mut(), Relaxed);
            (*node).generation.store(P::generation(), Relaxed);
        }
        match self.tail.compare_exchange(ptr::null_mut(), node, AcqRel, Relaxed) {
            Ok(_) => Some(Ticket(node)),
            Err(_) => {
                // SAFETY: it never got into the queue.
                unsafe { P::give_node(node) };
                None
            }
        }
    }

    /// Joins at the end, and waits for the hand-over or for `turn` to say leave. `holder` is asked,
    /// in the child of a `fork`, for the node through which the forking thread holds the queue; null
    /// if it cannot, because it would have been inside a lock function.
    pub(crate) fn join(&self, turn: &mut impl Turn, holder: &impl Fn() -> *mut Node<P>) -> Result<Ticket<P>, Outcome> {
        let mine = P::take_node();
        loop {
            // SAFETY: type-stable memory; the node is ours to write until it is swapped in below.
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
            if unsafe { &*before }.was_left_behind() {
                before = holder(); // Invariant 5
                if before.is_null() {
                    return Ok(Ticket(mine));
                }
            }
            // SAFETY: `before` stays a node (type-stable), and stays in this queue until its releaser has seen
            // this link.
            unsafe { &*before }.next.store(mine, Release);
            match self.poll(node, turn) {
                GRANTED => return Ok(Ticket(mine)),
                ABANDONED => return Err(Outcome::Abandoned),
                // Skipped as stale: the processor was elsewhere. Take the node back once it is out of the queue, and
                // rejoin (He et al., section 3). A releaser preempted in the act is not waited for: the
                // node is left to it instead.
                _ => {
                    if node.status.compare_exchange(SKIPPED, ABANDONED, AcqRel, Acquire).is_ok() {
                        return self.join(turn, holder);
                    }
                }
            }
        }
    }

    /// Polls `node` until its status changes, or until the waiter abandons it (then `ABANDONED`).
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

    /// A waiter that abandons the queue finds that a releaser is skipping it: gone is gone, only the
    /// node must find its owner (Invariant 3).
    #[cold]
    fn abandon_while_skipped(&self, node: &Node<P>, status: u32) -> u32 {
        if status == REMOVED || node.status.compare_exchange(SKIPPED, ABANDONED, AcqRel, Acquire).is_err() {
            // SAFETY: REMOVED: out of the queue, and ours (Invariant 3).
            unsafe { P::give_node(ptr::from_ref(node).cast_mut()) };
        }
        ABANDONED
    }

    /// Hands the lock to the first waiter that is there to take it, unlinking those that are not.
    /// `Err`: the parked bit is set and nobody in the queue can take the lock; it is still held, through
    /// the ticket returned.
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
            // SAFETY: `front` is out of the queue, or about to be: nobody but us goes there.
            unsafe { self.retire(front) };
            if next.is_null() {
                return Ok(());
            }
            // SAFETY: `next` is in the queue, and only we unlink.
            let node = unsafe { &*next };
            let verdict = if self.is_stale(node) { SKIPPED } else { GRANTED };
            if node.status.compare_exchange(WAITING, verdict, AcqRel, Relaxed).is_ok() && verdict == GRANTED {
                return Ok(());
            }
            front = next; // skipped, or abandoned by its waiter
        }
    }

    /// Whether the release must wake somebody who waits elsewhere.
    pub(crate) fn has_parked_bit(&self) -> bool {
        has_parked_bit(self.tail.load(Relaxed))
    }

    /// Sets the parked bit if somebody holds or waits; false if the queue is empty.
    pub(crate) fn set_parked_bit(&self) -> bool {
        let held = |seen: *mut Node<P>| (!seen.is_null()).then(|| seen.map_addr(|address| address | PARKED));
        self.tail.modify(Relaxed, Relaxed, held).is_ok()
    }

    /// Clears the parked bit, which only the holder does.
    pub(crate) fn clear_parked_bit(&self) {
        let _ = self.tail.modify(Relaxed, Relaxed, |seen| has_parked_bit(seen).then(|| without_parked_bit(seen)));
    }

    /// The node behind `front`; null once the queue is empty, in which case `front` is out of it;
    /// `None` if `front` is the last and the parked bit set.
    ///
    /// # Safety
    ///
    /// The caller holds the lock and `front` is the first node.
    unsafe fn successor(&self, front: *mut Node<P>) -> Option<*mut Node<P>> {
        // SAFETY: in the queue, hence a node.
        let node = unsafe { &*front };
        let mut last = front;
        let mut polls = 0;
        loop {
            let next = node.next.load(Acquire);
            // SAFETY: type-stable.
            if !next.is_null() && !unsafe { &*next }.was_left_behind() {
                return Some(next);
            }
            match self.tail.compare_exchange(last, ptr::null_mut(), Release, Acquire) {
                Ok(_) => return Some(ptr::null_mut()),
                // SAFETY: type-stable.
                Err(tail) if tail != last && unsafe { &*without_parked_bit(tail) }.was_left_behind() => {
                    if has_parked_bit(tail) {
                        return None;
                    }
                    last = tail; // Invariant 5: nobody is behind `front`
                    continue;
                }
                Err(tail) if without_parked_bit(tail) == last => return None,
                Err(_) => {}
            }
            // Somebody has swapped itself in and is a few instructions from linking itself.
            polls += 1;
            if polls < POLLS_BEFORE_YIELD { P::pause() } else { P::yield_now() }
        }
    }

    /// Gives an unlinked node to whom it belongs (Invariant 3).
    ///
    /// # Safety
    ///
    /// The caller has unlinked `node`.
    unsafe fn retire(&self, node: *mut Node<P>) {
        // SAFETY: type-stable memory, and ours to dispose of: its waiter writes only by compare-and-swap
        // from SKIPPED.
        let status = unsafe { &(*node).status };
        if status.load(Relaxed) == SKIPPED && status.compare_exchange(SKIPPED, REMOVED, AcqRel, Relaxed).is_ok() {
            return;
        }
        // SAFETY: held through by us, or abandoned by its waiter.
        unsafe { P::give_node(node) };
    }

    /// Whether a waiter is not there to take the lock: preempted, as far as its time stamp tells.
    fn is_stale(&self, node: &Node<P>) -> bool {
        S::STALE_AFTER_NS.is_some_and(|limit| P::now().saturating_sub(node.published.load(Relaxed)) > limit)
    }
}
