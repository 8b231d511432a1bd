//! Spin-then-park with an adaptive spin: a waiter spins for up to twice the average of its thread's
//! earlier spins, and only while threads acquire the lock. Then it parks.
//!
//! The adaptive mutex of Solaris spins while the holder runs, and parks when it does not (McDougall
//! and Mauro, *Solaris Internals*; DaMoN 2009, section 2.3). A Linux process cannot find out
//! cheaply whether a thread runs, but it can observe two other things:
//!
//! - How long earlier spins took. The adaptive mutex of glibc spins up to twice the running average
//!   of all spins, successful or not.
//! - Whether a thread has acquired the lock lately, if acquisitions are counted. If the last
//!   acquisition was longer ago than sections usually take, the holder is off the processor or in a
//!   long section, and spinning is a waste.
//!
//! The average belongs to the thread, since a lock has no room for it. A thread that alternates
//! between long and short locks spins for the mean of the two.

use super::{Context, LoadManager, ThreadState, Wait, WaitSummary};
use crate::primitive::Clock as _;
use crate::primitive::turn::Verdict;

/// Bounds of a spin: one or two hand-overs between processors, and twice the cost of parking and
/// waking up (Karlin et al. 1991: spinning as long as blocking costs is within twice the optimum).
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 20_000;

/// Weight of the past in the average, as in glibc (`nptl/pthread_mutex_lock.c`: an eighth of the
/// difference).
const INERTIA: u64 = 8;

/// A lock without an acquisition for this long makes no progress. Sections and hand-overs usually
/// take less.
const NO_PROGRESS_NS: u64 = 5_000;

/// Spin adaptively, then park.
///
#[doc = example_of_pair!("tpmcs::TpMcs", "adaptive::Adaptive")]
pub struct Adaptive;

/// One wait under [`Adaptive`].
#[doc(hidden)]
pub struct Waiter {
    since: u64,
    /// Longest duration of this spin.
    bound: u64,
    acquisitions: Option<u32>,
    /// When `acquisitions` was last seen to change.
    progress_at: u64,
    /// Duration of the last spin.
    spun: u64,
    sleeps: u32,
}

/// The running average after a spin of `spun` nanoseconds.
fn learn(average: u64, spun: u64) -> u64 {
    let spun = spun.min(LONGEST_NS);
    (average * (INERTIA - 1) + spun) / INERTIA
}

// SAFETY: `block` returns what `park` did.
unsafe impl LoadManager for Adaptive {
    type Waiter = Waiter;

    fn begin_wait<X: Context>(wait: &Wait<'_, X>, now: u64) -> Waiter {
        let bound = (2 * wait.process.thread_state().spun + SHORTEST_NS).min(LONGEST_NS);
        Waiter { since: now, bound, acquisitions: None, progress_at: now, spun: 0, sleeps: 0 }
    }

    fn turn<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>, now: u64) -> Verdict {
        waiter.spun = now.saturating_sub(waiter.since);
        let acquisitions = wait.lock.acquisitions();
        if acquisitions != waiter.acquisitions {
            (waiter.acquisitions, waiter.progress_at) = (acquisitions, now);
        }
        let no_progress =
            acquisitions.is_some() && now.saturating_sub(waiter.progress_at) > NO_PROGRESS_NS;
        if waiter.spun > waiter.bound || no_progress { Verdict::Leave } else { Verdict::Spin }
    }

    fn block<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>) -> bool {
        waiter.sleeps += 1;
        let acquired = wait.park();
        (waiter.since, waiter.progress_at) = (X::Machine::now(), X::Machine::now());
        acquired
    }

    fn end_wait<X: Context>(waiter: Waiter, wait: &Wait<'_, X>) -> WaitSummary {
        let state = wait.process.thread_state();
        wait.process
            .set_thread_state(ThreadState { spun: learn(state.spun, waiter.spun), ..state });
        WaitSummary { sleeps: waiter.sleeps, parked: waiter.sleeps > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_after_many_spins_equals_their_length() {
        let after = |spun| (0..100).fold(0, |average, _| learn(average, spun));
        assert!(after(800).abs_diff(800) < 20);
        assert!(
            after(1_000_000).abs_diff(LONGEST_NS) < 20,
            "a long wait counts as the longest spin"
        );
    }
}
