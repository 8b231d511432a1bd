//! TP-MCS: an MCS queue that skips waiters that are not running.
//!
//! He, Scherer and Scott, *Preemption adaptivity in time-published queue-based spin locks* (HiPC
//! 2005): each waiter publishes the time of its last poll in its node. A releaser assumes that a
//! waiter with a stale time stamp is preempted, removes it, and tries the next one. A removed
//! waiter rejoins at the tail. This is the lock of the ASPLOS 2010 paper's experiments (section
//! 3.1.2).
//!
//! *Not* guaranteed: that the holder keeps running (ASPLOS 2010, section 2.1). That is the task of
//! load control. The DaMoN 2009 paper (section 3.1) compares two locks that deal with a preempted
//! holder themselves: waiters of [`Yielding`] yield when the holder is late, and the holder of
//! [`SliceExtending`] asks for a longer time slice.

use super::mcs::QueueLock;
use crate::queue::list::PreemptionBounds;

/// Skips waiters with a stale time stamp.
#[doc(hidden)]
pub struct TimePublished;

impl PreemptionBounds for TimePublished {
    /// A running waiter publishes every few hundred nanoseconds, and a context switch away and back
    /// takes about 10 us. He et al. use the same magnitude for UPDATE_DELAY. A much shorter bound
    /// would skip waiters that merely took an interrupt.
    const STALE_AFTER_NS: Option<u64> = Some(25_000);
}

/// [`TimePublished`], with waiters that yield to a holder that looks preempted. The holder
/// publishes the time of its acquisition. If it has held the lock for longer than any critical
/// section lasts, waiters assume that it is not running (He et al., who call the bound
/// `MAX_CS_TIME`; Johnson et al., DaMoN 2009, section 3.1, `yield`).
///
/// The scheduler chooses which thread runs instead, mostly another waiter. The paper therefore
/// finds this lock worse than TP-MCS on an overloaded machine (section 3.2).
#[doc(hidden)]
pub struct Yielding;

impl PreemptionBounds for Yielding {
    const STALE_AFTER_NS: Option<u64> = TimePublished::STALE_AFTER_NS;
    /// The same as for a waiter's time stamp: longer than a short critical section plus an
    /// interrupt, and far shorter than a time slice of milliseconds.
    const SUSPECT_AFTER_NS: Option<u64> = TimePublished::STALE_AFTER_NS;
}

/// [`TimePublished`], with a holder that asks for a longer time slice: through Solaris `schedctl`
/// in the paper's experiments (Johnson et al., DaMoN 2009, section 3.1), here through the
/// time-slice extension of restartable sequences. Without kernel support it behaves like TP-MCS.
///
/// The kernel grants some microseconds, once per request. A thread that holds several locks loses
/// the request on its first release: counting the locks would add a thread-local word to every
/// acquisition.
#[doc(hidden)]
pub struct SliceExtending;

impl PreemptionBounds for SliceExtending {
    const STALE_AFTER_NS: Option<u64> = TimePublished::STALE_AFTER_NS;
    const EXTENDS_SLICE: bool = true;
}

/// The time-published MCS lock.
///
#[doc = example_of_pair!("tpmcs::TpMcs", "control::Control")]
pub type TpMcs<P> = QueueLock<P, TimePublished>;

/// TP-MCS whose waiters yield to a late holder.
///
#[doc = example_of_pair!("tpmcs::TpMcsYield", "control::Control")]
pub type TpMcsYield<P> = QueueLock<P, Yielding>;

/// TP-MCS whose holder asks for a longer time slice.
///
#[doc = example_of_pair!("tpmcs::TpMcsSlice", "control::Control")]
pub type TpMcsSlice<P> = QueueLock<P, SliceExtending>;
