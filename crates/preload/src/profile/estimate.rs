//! An estimate of the time for which mutexes were held, for the metrics: each measured hold stands
//! for all acquisitions since the measured hold before it, but for no more time than has passed.
//!
//! Only holds that follow a wait are measured, and the measurement itself takes part of a
//! microsecond. *Not guaranteed*: that the other holds are as long.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use unconvoy_profile::layout::LOCKS;

/// The estimate for one lock.
struct Estimate {
    /// Number of acquisitions up to the last hold that was chosen to be measured, modulo 2^32.
    acquisitions: AtomicU32,
    /// Number of acquisitions that this hold stands for.
    stands_for: AtomicU32,
    /// Time in which they happened.
    within_ns: AtomicU64,
    held_ns: AtomicU64,
}

static ESTIMATES: [Estimate; LOCKS] = [const {
    Estimate {
        acquisitions: AtomicU32::new(0),
        stands_for: AtomicU32::new(0),
        within_ns: AtomicU64::new(0),
        held_ns: AtomicU64::new(0),
    }
}; LOCKS];

/// Begins the measured hold that follows acquisition number `acquisitions` of a mutex, and `ns`
/// after the measured hold before it began.
pub(super) fn begin(lock: u32, acquisitions: u32, ns: u64) {
    let estimate = &ESTIMATES[lock as usize];
    let before = estimate.acquisitions.swap(acquisitions, Relaxed);
    // A lower number: the mutex has been initialised again.
    let since = if acquisitions < before { acquisitions } else { acquisitions - before };
    estimate.within_ns.store(ns, Relaxed);
    estimate.stands_for.store(since, Relaxed);
}

/// Ends a measured hold of `ns`.
pub(super) fn end(lock: u32, ns: u64) {
    let estimate = &ESTIMATES[lock as usize];
    let count = u64::from(estimate.stands_for.swap(0, Relaxed));
    if count != 0 {
        let most = ns.saturating_add(estimate.within_ns.load(Relaxed));
        estimate.held_ns.fetch_add(ns.saturating_mul(count).min(most), Relaxed);
    }
}

pub(super) fn held_ns(lock: usize) -> u64 {
    ESTIMATES[lock].held_ns.load(Relaxed)
}

/// Forgets the parent's figures, in the child of a `fork`.
pub(super) fn after_fork() {
    for estimate in &ESTIMATES {
        estimate.acquisitions.store(0, Relaxed);
        estimate.held_ns.store(0, Relaxed);
    }
}
