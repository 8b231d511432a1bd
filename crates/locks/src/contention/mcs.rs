//! MCS: strictly first come, first served (Mellor-Crummey and Scott, ACM TOCS 9(1), 1991).
//!
//! Every waiter spins on its own cache line, so that a hand-over costs one line transfer whatever
//! the number of waiters. The order is also the weakness: a preempted waiter holds up all behind it
//! (ASPLOS 2010, section 2.1). Waiters can abandon it; see [`list`](crate::queue::list).
//!
//! **Invariant 1.** `holder` is written only by the thread that holds the lock.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Contention;
use crate::primitive::Atomic;
use crate::primitive::turn::{Outcome, Turn};
use crate::queue::list::{PreemptionBounds, Queue, Ticket};
use crate::queue::{Node, NodeMemory};

/// Hand over in strict order, whatever a waiter's time stamp says.
pub struct InOrder;

impl PreemptionBounds for InOrder {
    const STALE_AFTER_NS: Option<u64> = None;
}

/// A queue lock that reckons with preemption as `S` says.
#[repr(C)]
pub struct QueueLock<P: NodeMemory, S> {
    queue: Queue<P, S>,
    /// The node through which the lock is held: what `unlock` needs, kept here so that no caller
    /// has to carry it.
    holder: P::Ptr<Node<P>>,
}

/// The MCS lock.
pub type Mcs<P> = QueueLock<P, InOrder>;

impl<P: NodeMemory, S: PreemptionBounds> QueueLock<P, S> {
    fn hold(&self, Ticket(node): Ticket<P>) {
        if S::SUSPECT_AFTER_NS.is_some() {
            // SAFETY: type-stable, and ours while we hold the lock.
            unsafe { &(*node).published }.store(P::now(), Relaxed);
        }
        // Release: waiters of some locks look at the node that they find here.
        self.holder.store(node, Release);
        if S::EXTENDS_SLICE {
            P::begin_slice_extension();
        }
    }

    /// Lets others run, maybe the holder, if that has had the lock for longer than `limit`.
    fn yield_to_late_holder(&self, limit: u64, now: u64) {
        // A guess: the lock may be another's by now, and the node in another queue.
        // SAFETY: null or type-stable.
        let since = unsafe { self.holder.load(Acquire).as_ref() }.map(|node| node.published.load(Relaxed));
        if since.is_some_and(|since| now.saturating_sub(since) > limit) {
            P::yield_now();
        }
    }
}

// SAFETY: the queue has one holder at a time (its Invariants 1 and 2) and carries the orderings.
unsafe impl<P: NodeMemory, S: PreemptionBounds> Contention for QueueLock<P, S> {
    fn unlocked() -> Self {
        QueueLock { queue: Queue::new(), holder: P::Ptr::new(ptr::null_mut()) }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.queue.try_join().map(|ticket| self.hold(ticket)).is_some()
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        let holder = || self.holder.load(Relaxed);
        let joined = match S::SUSPECT_AFTER_NS {
            None => self.queue.join(turn, &holder),
            Some(limit) => {
                let mut turn = |now| {
                    self.yield_to_late_holder(limit, now);
                    turn.turn(now)
                };
                self.queue.join(&mut turn, &holder)
            }
        };
        match joined {
            Ok(ticket) => {
                self.hold(ticket);
                Outcome::Acquired
            }
            Err(outcome) => outcome,
        }
    }

    #[inline]
    unsafe fn unlock(&self) -> bool {
        // Nobody holds it: a program's mistake, which libc bears, and so is borne here.
        if self.queue.is_empty() {
            return true;
        }
        if self.queue.has_parked_bit() {
            return false;
        }
        // SAFETY: the caller holds the lock, so `holder` is its node (Invariant 1).
        match unsafe { self.queue.release(Ticket(self.holder.load(Relaxed))) } {
            Ok(()) => {
                if S::EXTENDS_SLICE {
                    P::end_slice_extension();
                }
                true
            }
            Err(ticket) => {
                self.hold(ticket);
                false
            }
        }
    }

    unsafe fn clear_parked_bit(&self) {
        self.queue.clear_parked_bit();
    }

    fn set_parked_bit(&self) -> bool {
        self.queue.set_parked_bit()
    }

    fn is_locked(&self) -> bool {
        !self.queue.is_empty()
    }

    fn has_contender(&self) -> bool {
        self.queue.seems_contended(self.holder.load(Relaxed))
    }
}
