//! CLH: first come, first served; each waiter spins on its predecessor's node (Craig, University of
//! Washington TR 93-02-02, 1993; Magnusson, Landin and Hagersten, IPPS 1994) and can abandon the
//! queue (Scott, *Non-blocking timeout in scalable queue-based spin locks*, PODC 2002).
//!
//! An MCS waiter links itself to its predecessor so that the releaser can find it. A CLH waiter
//! only reads its predecessor's node: no thread waits for a link, and a releaser writes to its own
//! node without knowing which thread reads it. To abandon the queue, too, a waiter needs only its
//! predecessor.
//!
//! ```text
//!   word: A | HELD                     each waiter knows, and polls, the node before its own
//!
//!     node A <--polls-- node B <--polls-- node C <-- tail
//!     (holder)          WAITING           WAITING
//! ```
//!
//! To fit 16 bytes that the next holder may free, the lock differs from the papers' in three ways.
//! A node returns to the pool after each acquisition instead of passing to the next thread. An idle
//! lock owns no node. The waiter without a predecessor, the *front*, acquires a separate word; an
//! uncontended acquisition takes the same word without a node.
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | no holder |
//! | `HELD` | held, without a node |
//! | node + `HELD` | held through the node |
//! | any of these + `PARKED` | and the release must wake a parked waiter |
//!
//! | status | set by | meaning |
//! | --- | --- | --- |
//! | `WAITING` | the node's thread, on joining | the thread waits, or holds the lock |
//! | `RELEASED` | the node's thread | the thread is releasing the lock: the waiter behind is the front |
//! | `ABANDONED` | the node's thread | the thread has left: the waiter behind goes on to the node in `next` |
//!
//! **Invariant 1.** Mutual exclusion rests on the word alone: a compare-and-swap changes it from 0
//! to held, and only the holder changes it back. The queue merely decides which thread tries.
//!
//! **Invariant 2.** A queued node is referenced by exactly one of: the tail, its successor's
//! predecessor pointer, the `next` of an abandoned node.
//!
//! **Invariant 3.** Hence each node returns to the pool at most once. Its own thread returns it
//! after removing it from the tail by compare-and-swap. Otherwise its successor returns it on
//! finding `RELEASED` or `ABANDONED`; its own thread does not touch the node after setting either.
//!
//! **Invariant 4.** After the compare-and-swap that frees the word, the releaser does not touch the
//! lock. By then the holder's node belongs to the waiter behind it, or is out of the queue.
//!
//! **Invariant 5.** In the child of a `fork`, the parent's waiters do not exist. A node of another
//! generation is no predecessor: the waiter that finds it is the front. Two fronts may then exist,
//! which Invariant 1 permits. (The nodes left behind, and the node through which the forking thread
//! holds the lock, are lost to the child's pool.)
//!
//! **Invariant 6.** No arrival passes a waiter. A thread takes the word only as the front, or after
//! it found the tail null. In the second case it passes only waiters that arrived after that read.
//!
//! *Not* guaranteed: that an idle lock owns no node. A thread tries only once to take its node off
//! the tail. If the last waiter abandons the queue just after that try, the waiter may restore the
//! tail to that node. The next waiter reclaims the node; without a next waiter, 64 bytes leak.
//!
//! **Memory orderings.** The acquiring compare-and-swap on the word pairs with the releasing one.
//! One thread may return a node that another wrote, so `RELEASED` and `ABANDONED` are stored with
//! release and loaded with acquire, and changes of the tail are acquire-release.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::Contention;
use crate::primitive::Atomic;
use crate::primitive::turn::{Outcome, Turn, Verdict};
use crate::queue::list::POLLS_PER_TURN;
use crate::queue::node::{Node, NodeMemory, WAITING};

const RELEASED: u32 = 1;
const ABANDONED: u32 = 2;

const HELD: usize = 1;
/// Nodes are aligned to more than `HELD | PARKED`, which leaves both bits free.
const PARKED: usize = 2;

fn has<N>(word: *mut N, bit: usize) -> bool {
    word.addr() & bit != 0
}

fn with<N>(word: *mut N, bits: usize) -> *mut N {
    word.map_addr(|address| address | bits)
}

fn without<N>(word: *mut N, bits: usize) -> *mut N {
    word.map_addr(|address| address & !bits)
}

/// A CLH lock.
///
#[doc = example_of_pair!("clh::Clh", "control::Control")]
#[repr(C)]
pub struct Clh<P: NodeMemory> {
    word: P::Ptr<Node<P>>,
    tail: P::Ptr<Node<P>>,
}

/// The node that a waiter waits behind; null once the waiter is the front.
struct Predecessor<P: NodeMemory>(*mut Node<P>);

impl<P: NodeMemory> Predecessor<P> {
    fn node(&self) -> Option<&Node<P>> {
        // SAFETY: null, or a node referenced only from here, so no other thread returns it to the
        // pool (Invariants 2 and 3).
        unsafe { self.0.as_ref() }
    }

    /// Steps over predecessors that have released or abandoned, and returns their nodes to the
    /// pool. True once no predecessor is left.
    fn has_gone(&mut self) -> bool {
        while let Some(node) = self.node() {
            if node.was_left_behind() {
                self.0 = ptr::null_mut(); // Invariant 5
                break;
            }
            let before = match node.status.load(Acquire) {
                WAITING => return false,
                ABANDONED => node.next.load(Relaxed),
                _ => ptr::null_mut(),
            };
            // SAFETY: Invariant 3.
            unsafe { P::give_node(self.0) };
            self.0 = before;
        }
        true
    }
}

impl<P: NodeMemory> Clh<P> {
    /// Acquires the word if it is free, through `node`, which may be null.
    #[inline]
    fn take(&self, node: *mut Node<P>) -> bool {
        self.word.compare_exchange(ptr::null_mut(), with(node, HELD), Acquire, Relaxed).is_ok()
    }

    /// Replaces `node` in the tail by `before`; fails if another node has joined behind it.
    fn take_off_tail(&self, node: *mut Node<P>, before: *mut Node<P>) -> bool {
        self.tail.compare_exchange(node, before, AcqRel, Relaxed).is_ok()
    }

    /// Joins the queue with a node of the caller's, and returns it and its predecessor.
    fn join(&self) -> (*mut Node<P>, Predecessor<P>) {
        let mine = P::take_node();
        // SAFETY: ours alone until swapped in; type-stable.
        let node = unsafe { &*mine };
        node.status.store(WAITING, Relaxed);
        node.generation.store(P::generation(), Relaxed);
        (mine, Predecessor(self.tail.swap(mine, AcqRel)))
    }

    /// Joins the queue of a free lock, and abandons it unless the caller is the front. The tail
    /// alone does not show whether a thread waits: it may be a node that was left behind.
    #[cold]
    fn try_from_queue(&self) -> bool {
        if !self.word.load(Relaxed).is_null() {
            return false;
        }
        let (mine, mut before) = self.join();
        let acquired = before.has_gone() && self.take(mine);
        if !acquired {
            self.abandon(mine, before);
        }
        acquired
    }

    /// Abandons the queue with `mine`, which waits behind `before`.
    fn abandon(&self, mine: *mut Node<P>, before: Predecessor<P>) {
        if self.take_off_tail(mine, before.0) {
            // SAFETY: no longer referenced (Invariant 3).
            unsafe { P::give_node(mine) };
            return;
        }
        // SAFETY: ours until we store ABANDONED.
        let node = unsafe { &*mine };
        node.next.store(before.0, Relaxed);
        node.status.store(ABANDONED, Release);
    }

    /// Makes the waiter behind `node` the front, before the holder frees the word. True if there is
    /// no such waiter: the caller then returns the node to the pool.
    fn hand_over(&self, node: *mut Node<P>) -> bool {
        let mine = self.take_off_tail(node, ptr::null_mut());
        if !mine {
            // SAFETY: ours until we store RELEASED.
            unsafe { &(*node).status }.store(RELEASED, Release);
        }
        mine
    }
}

// SAFETY: Invariants 1 and 4, and the orderings above.
unsafe impl<P: NodeMemory> Contention for Clh<P> {
    fn unlocked() -> Self {
        Clh { word: P::Ptr::new(ptr::null_mut()), tail: P::Ptr::new(ptr::null_mut()) }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.tail.load(Relaxed).is_null() && self.take(ptr::null_mut()) || self.try_from_queue()
    }

    /// Does not join a queue, since `attempt` joins it anyway.
    #[inline]
    fn try_lock_without_barging(&self) -> bool {
        self.tail.load(Relaxed).is_null() && self.take(ptr::null_mut())
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        let (mine, mut before) = self.join();
        loop {
            for _ in 0..POLLS_PER_TURN {
                if before.has_gone() && self.word.load(Relaxed).is_null() && self.take(mine) {
                    return Outcome::Acquired;
                }
                P::pause();
            }
            if turn.turn(P::now()) == Verdict::Leave {
                self.abandon(mine, before);
                return Outcome::Abandoned;
            }
        }
    }

    #[inline]
    unsafe fn unlock(&self) -> bool {
        let word = self.word.load(Relaxed);
        // An unlock of a free lock is a bug that libc tolerates, so it has no effect.
        if word.is_null() || has(word, PARKED) {
            return word.is_null();
        }
        let node = without(word, HELD);
        let is_spare = !node.is_null() && self.hand_over(node);
        let released = self.word.compare_exchange(word, ptr::null_mut(), Release, Relaxed).is_ok();
        if !released {
            // A parker set the bit after the load above. Parkers change nothing more, so a store
            // suffices. `hand_over` has given the node up.
            self.word.store(with(ptr::null_mut(), HELD | PARKED), Relaxed);
        }
        if is_spare {
            // SAFETY: we removed it from the tail (Invariant 3).
            unsafe { P::give_node(node) };
        }
        released
    }

    unsafe fn clear_parked_bit(&self) {
        // A store suffices: parkers alone write to a held word, and they set only this bit.
        self.word.store(without(self.word.load(Relaxed), PARKED), Relaxed);
    }

    fn set_parked_bit(&self) -> bool {
        let held = |seen: *mut Node<P>| (!seen.is_null()).then(|| with(seen, PARKED));
        self.word.modify(Relaxed, Relaxed, held).is_ok()
    }

    fn is_locked(&self) -> bool {
        !self.word.load(Relaxed).is_null()
    }

    fn has_contender(&self) -> bool {
        let tail = self.tail.load(Acquire);
        if tail == without(self.word.load(Relaxed), HELD | PARKED) {
            return false; // the queue is empty, or contains only the holder
        }
        // A guess, since the queue may change meanwhile. A wrong result costs efficiency only.
        // SAFETY: null or type-stable.
        unsafe { tail.as_ref() }
            .is_some_and(|last| last.status.load(Relaxed) == WAITING && !last.was_left_behind())
    }
}
