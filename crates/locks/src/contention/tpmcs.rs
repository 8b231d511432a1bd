//! TP-MCS: an MCS queue that is not held up by waiters that are not running.
//!
//! He, Scherer and Scott, *Preemption adaptivity in time-published queue-based spin locks* (HiPC
//! 2005): each waiter publishes the time of its last poll in its node; a releaser that finds a
//! stale one takes the waiter for preempted, removes it and goes to the next. A waiter that finds
//! itself removed rejoins at the end. The lock of the ASPLOS 2010 paper's experiments (section
//! 3.1.2).
//!
//! What it does *not* guarantee: that the holder is not preempted (ASPLOS 2010, section 2.1). That
//! is load control's part.

use super::mcs::QueueLock;
use super::queue::Patience;

/// Skip waiters whose time stamp is stale.
pub struct TimePublished;

impl Patience for TimePublished {
    /// A running waiter publishes every few hundred nanoseconds; a context switch away and back
    /// takes some 10 us. He et al. use the same magnitude for their UPDATE_DELAY. Too short
    /// would skip waiters that only met an interrupt.
    const STALE_AFTER_NS: Option<u64> = Some(25_000);
}

/// The time-published MCS lock.
pub type TpMcs<P> = QueueLock<P, TimePublished>;
