//! CLH: first come, first served, each waiter spinning on the node of the one before it (Craig,
//! University of Washington TR 93-02-02, 1993; Magnusson, Landin and Hagersten, IPPS 1994), with
//! waiters that can abandon it (Scott, *Non-blocking timeout in scalable queue-based spin locks*, PODC
//! 2002).
//!
//! Where an MCS waiter links itself to the one before it, so that the releaser finds whom to hand
//! over to, a CLH waiter only looks: nobody waits for a link, and a releaser writes to its own node
//! without knowing who reads it. A waiter needs the same to abandon the queue: its predecessor.
//!
//! ```text
//!   word: A | HELD                                   each waiter knows, and polls, the node before
//!
//!     node A <--polls-- node B <--polls-- node C <-- tail
//!     (holder)          WAITING           WAITING
//! ```
//!
//! Differences from the papers' locks, all for the sake of a lock in 16 bytes that may be freed by
//! its next holder: a node goes back to the pool instead of from hand to hand; an idle lock has
//! none; and the one whose predecessor has gone, the *front*, takes a word, which is also what an
//! uncontended acquire takes, without a node.
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | nobody holds it |
//! | `HELD` | held by a thread that came when nobody waited |
//! | node + `HELD` | held through the node |
//! | any of these + `PARKED` | and its release must wake a parked waiter |
//!
//! | status | set by | meaning |
//! | --- | --- | --- |
//! | `WAITING` | the node's thread, on joining | it waits, or holds the lock |
//! | `RELEASED` | the node's thread | it is releasing the lock: who waits behind it is the front |
//! | `ABANDONED` | the node's thread | it is gone: who waits behind it goes on to the node before it, in `next` |
//!
//! **Invariant 1.** Mutual exclusion rests on the word alone: it goes from 0 to held by
//! compare-and-swap, and back by its holder only. The queue decides who tries.
//!
//! **Invariant 2.** A node that was swapped into the tail is named once at any time: by the tail, by
//! the waiter behind it as its predecessor, or by the `next` of an abandoned node.
//!
//! **Invariant 3.** So a node goes back to the pool at most once: by its own thread, if that
//! takes it out of the tail by compare-and-swap; else by whoever finds it as a predecessor that has
//! `RELEASED` or `ABANDONED`. Its own thread does not touch it after it has set either.
//!
//! **Invariant 4.** After the compare-and-swap that frees the word, the lock is not touched, and
//! neither is the holder's node: by then it is the pool's, or the next waiter's.
//!
//! **Invariant 5.** In the child of a `fork` the waiters of its parent's queues do not exist. A node
//! whose generation is not the process's is no predecessor: whoever finds one is the front. There
//! may then be two fronts, which Invariant 1 bears. (Nodes of those who stayed behind, and the
//! one through which the forking thread holds the lock, are lost to the child's pool.)
//!
//! What is *not* guaranteed: that an idle lock has no node. A last waiter that abandons it in the
//! instructions in which the holder looks at the tail can put the tail back to a node whose
//! thread has looked already. The next to wait there finds it; if nobody ever does, 64 bytes are
//! lost.
//!
//! **Memory orderings.** The acquiring compare-and-swap on the word pairs with the one that frees
//! it. Nodes are disposed of by others than wrote them: `RELEASED` and `ABANDONED` are stored with
//! release and loaded with acquire, the tail is changed with both.

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
/// Nodes are aligned to more than this and `HELD`.
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
#[repr(C)]
pub struct Clh<P: NodeMemory> {
    word: P::Ptr<Node<P>>,
    tail: P::Ptr<Node<P>>,
}

/// Whom a waiter waits behind; null once it is the front.
struct Predecessor<P: NodeMemory>(*mut Node<P>);

impl<P: NodeMemory> Predecessor<P> {
    fn node(&self) -> Option<&Node<P>> {
        // SAFETY: null, or a node that is named by nothing but this, and so given back by nobody else
        // (Invariants 2 and 3).
        unsafe { self.0.as_ref() }
    }

    /// Steps over predecessors that have gone, and gives their nodes back; whether nobody is left.
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
    /// Takes the word, if it is free, on behalf of `node`, which may be null.
    #[inline]
    fn take(&self, node: *mut Node<P>) -> bool {
        self.word.compare_exchange(ptr::null_mut(), with(node, HELD), Acquire, Relaxed).is_ok()
    }

    /// Takes `node` out of the tail, if nobody has come behind it, and puts `before` there.
    fn take_off_tail(&self, node: *mut Node<P>, before: *mut Node<P>) -> bool {
        self.tail.compare_exchange(node, before, AcqRel, Relaxed).is_ok()
    }

    /// Abandons the queue with `mine`, which waits behind `before`.
    fn abandon(&self, mine: *mut Node<P>, before: Predecessor<P>) {
        if self.take_off_tail(mine, before.0) {
            // SAFETY: nothing names it any more (Invariant 3).
            unsafe { P::give_node(mine) };
            return;
        }
        // SAFETY: ours until it is ABANDONED.
        let node = unsafe { &*mine };
        node.next.store(before.0, Relaxed);
        node.status.store(ABANDONED, Release);
    }

    /// Before the word is freed by who holds it through `node`: lets the next be the front. Whether
    /// the node is nobody's now, and to be given back.
    fn hand_over(&self, node: *mut Node<P>) -> bool {
        let mine = self.take_off_tail(node, ptr::null_mut());
        if !mine {
            // SAFETY: ours until it is RELEASED.
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

    /// Also past waiters, which is rare: between a release and the front's next poll.
    #[inline]
    fn try_lock(&self) -> bool {
        self.take(ptr::null_mut())
    }

    #[inline]
    fn try_lock_politely(&self) -> bool {
        self.tail.load(Relaxed).is_null() && self.try_lock()
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        let mine = P::take_node();
        // SAFETY: ours alone until it is swapped in; type-stable.
        let node = unsafe { &*mine };
        node.status.store(WAITING, Relaxed);
        node.generation.store(P::generation(), Relaxed);
        let mut before = Predecessor(self.tail.swap(mine, AcqRel));
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
        // Not held by anybody: a program's mistake, which libc bears, and so is borne here.
        if word.is_null() || has(word, PARKED) {
            return word.is_null();
        }
        let node = without(word, HELD);
        let is_spare = !node.is_null() && self.hand_over(node);
        let released = self.word.compare_exchange(word, ptr::null_mut(), Release, Relaxed).is_ok();
        if !released {
            // The bit was set meanwhile, so that nobody but its holder changes the word. The node has gone.
            self.word.store(with(ptr::null_mut(), HELD | PARKED), Relaxed);
        }
        if is_spare {
            // SAFETY: taken off the tail by us (Invariant 3).
            unsafe { P::give_node(node) };
        }
        released
    }

    unsafe fn clear_parked_bit(&self) {
        // Held, so nobody but parkers writes to it, and their bit is what this clears.
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
            return false; // nobody is there, or only the holder
        }
        // A guess, as the queue changes meanwhile, of no consequence but to efficiency.
        // SAFETY: null or type-stable.
        unsafe { tail.as_ref() }.is_some_and(|last| last.status.load(Relaxed) == WAITING && !last.was_left_behind())
    }
}
