//! MCS: strictly first come, first served (Mellor-Crummey and Scott, ACM TOCS 9(1), 1991).
//!
//! Every waiter spins on its own cache line, so a hand-over costs one line transfer regardless of
//! the number of waiters. The strict order is also the weakness: a preempted waiter delays every
//! waiter behind it (ASPLOS 2010, section 2.1). Waiters can abandon the queue; see
//! [`list`](crate::queue::list).
//!
//! **Invariant 1.** Only the lock's holder writes `holder`.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Contention;
use crate::primitive::Atomic;
use crate::primitive::turn::{Outcome, Turn};
use crate::queue::list::{PreemptionBounds, Queue, Ticket};
use crate::queue::{Node, NodeMemory};

/// Hands over in strict order and ignores time stamps.
#[doc(hidden)]
pub struct InOrder;

impl PreemptionBounds for InOrder {
    const STALE_AFTER_NS: Option<u64> = None;
}

/// A queue lock that handles preemption as `S` specifies.
#[doc(hidden)]
#[repr(C)]
pub struct QueueLock<P: NodeMemory, S> {
    queue: Queue<P, S>,
    /// The node through which the lock is held. `unlock` needs the node, and callers have no place
    /// for it.
    holder: P::Ptr<Node<P>>,
}

/// The MCS lock.
///
#[doc = example_of_pair!("mcs::Mcs", "control::Control")]
pub type Mcs<P> = QueueLock<P, InOrder>;

impl<P: NodeMemory, S: PreemptionBounds> QueueLock<P, S> {
    fn hold(&self, Ticket(node): Ticket<P>) {
        if S::SUSPECT_AFTER_NS.is_some() {
            // SAFETY: type-stable, and ours while we hold the lock.
            unsafe { &(*node).published }.store(P::now(), Relaxed);
        }
        // Release: under some locks, waiters dereference this pointer (`yield_to_late_holder`).
        self.holder.store(node, Release);
        if S::EXTENDS_SLICE {
            P::begin_slice_extension();
        }
    }

    /// Yields the processor if the holder acquired the lock more than `limit` nanoseconds ago.
    fn yield_to_late_holder(&self, limit: u64, now: u64) {
        // A guess: the lock may have changed hands, and the node may be in another queue. SAFETY:
        // null or type-stable.
        let since =
            unsafe { self.holder.load(Acquire).as_ref() }.map(|node| node.published.load(Relaxed));
        if since.is_some_and(|since| now.saturating_sub(since) > limit) {
            P::yield_now();
        }
    }
}

// SAFETY: the queue has one holder at a time (its Invariants 1 and 2) and provides the orderings.
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
        // Unlocking a free lock, a bug that libc tolerates, has no effect.
        if self.queue.is_empty() {
            return true;
        }
        if self.queue.has_parked_bit() {
            return false;
        }
        // SAFETY: the caller holds the lock, so `holder` is the caller's node (Invariant 1).
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
