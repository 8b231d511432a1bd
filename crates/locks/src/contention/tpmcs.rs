//! TP-MCS: an MCS queue that is not held up by waiters that are not running.
//!
//! He, Scherer and Scott, *Preemption adaptivity in time-published queue-based spin locks* (HiPC
//! 2005): each waiter publishes the time of its last poll in its node; a releaser that finds a
//! stale one takes the waiter for preempted, removes it and goes to the next. A waiter that finds
//! itself removed rejoins at the end. The lock of the ASPLOS 2010 paper's experiments (section
//! 3.1.2).
//!
//! What it does *not* guarantee: that the holder is not preempted (ASPLOS 2010, section 2.1). That
//! is load control's part. The DaMoN 2009 paper (section 3.1) compares two locks that try to do
//! something about it themselves: waiters of one yield when the holder is late ([`Yielding`]), the
//! holder of the other asks for a longer time slice ([`SliceExtending`]).

use super::mcs::QueueLock;
use crate::queue::list::PreemptionBounds;

/// Skip waiters whose time stamp is stale.
pub struct TimePublished;

impl PreemptionBounds for TimePublished {
    /// A running waiter publishes every few hundred nanoseconds; a context switch away and back
    /// takes some 10 us. He et al. use the same magnitude for their UPDATE_DELAY. Too short
    /// would skip waiters that only met an interrupt.
    const STALE_AFTER_NS: Option<u64> = Some(25_000);
}

/// And waiters yield to a holder that looks preempted: it publishes when it acquired the lock, and one
/// that was longer ago than critical sections take is not running (He et al., whose `MAX_CS_TIME`
/// that is; Johnson et al., DaMoN 2009, section 3.1, `yield`).
///
/// Whom the processor goes to is the scheduler's choice: mostly another waiter, which is why the
/// paper finds this worse than TP-MCS once the machine is overloaded (its section 3.2).
pub struct Yielding;

impl PreemptionBounds for Yielding {
    const STALE_AFTER_NS: Option<u64> = TimePublished::STALE_AFTER_NS;
    /// As long as a waiter's time stamp: beyond what short critical sections and an interrupt take,
    /// far below the milliseconds of a time slice.
    const SUSPECT_AFTER_NS: Option<u64> = TimePublished::STALE_AFTER_NS;
}

/// And the holder asks for a longer time slice: Solaris' `schedctl` in the paper's experiments
/// (Johnson et al., DaMoN 2009, section 3.1), here the time-slice extension of restartable
/// sequences. Where the kernel has none it is TP-MCS.
///
/// The kernel grants some microseconds, once per request. A thread that releases one of several
/// locks which it holds has none for the others: counting them would cost every acquisition a
/// word of thread-local memory.
pub struct SliceExtending;

impl PreemptionBounds for SliceExtending {
    const STALE_AFTER_NS: Option<u64> = TimePublished::STALE_AFTER_NS;
    const EXTENDS_SLICE: bool = true;
}

/// The time-published MCS lock.
pub type TpMcs<P> = QueueLock<P, TimePublished>;

/// TP-MCS whose waiters yield to a late holder.
pub type TpMcsYield<P> = QueueLock<P, Yielding>;

/// TP-MCS whose holder asks for a longer time slice.
pub type TpMcsSlice<P> = QueueLock<P, SliceExtending>;
