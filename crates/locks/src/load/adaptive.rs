//! Spin-then-park with a spin that adapts: as long as spinning has paid lately, and only while
//! threads acquire the lock.
//!
//! The adaptive mutex of Solaris spins while the holder runs, and parks when it does not (McDougall and
//! Mauro, *Solaris Internals*; DaMoN 2009, section 2.3). A Linux process cannot see for free
//! whether a thread runs. Two things it can see:
//!
//! - how long earlier spins took to succeed: glibc's adaptive mutex spins up to twice their running
//!   average, and takes the outcome, whatever it was, into the average;
//! - whether anybody acquired the lock lately, where acquisitions are counted: a lock that makes no
//!   progress for longer than sections usually take has a holder that does not run, or works for
//!   long. Then to spin on is a waste in either case.
//!
//! The average is a thread's, not a lock's: a lock has no room for it. Threads that use locks of very
//! different lengths in turn spin as for the mean of them.

use super::{Context, LoadManager, ThreadState, Wait, WaitSummary};
use crate::primitive::Clock as _;
use crate::primitive::turn::Verdict;

/// Bounds of a spin. The lower one is a hand-over between two processors or two; the upper one what
/// parking and being woken cost together, twice (Karlin et al. 1991: spinning for what blocking
/// costs is within twice of the optimum).
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 20_000;

/// Weight of the average's past: glibc's (`nptl/pthread_mutex_lock.c`: an eighth of the difference).
const INERTIA: u64 = 8;

/// A lock without an acquisition for this long makes no progress: some sections and hand-overs take less.
const NO_PROGRESS_NS: u64 = 5_000;

/// Spin adaptively, then park.
pub struct Adaptive;

/// One wait under [`Adaptive`].
pub struct Waiter {
    since: u64,
    /// How long this spin may take.
    bound: u64,
    acquisitions: Option<u32>,
    /// When they were last seen to have changed.
    progress_at: u64,
    /// The last spin's length.
    spun: u64,
    sleeps: u32,
}

/// The running average after a spin of `spun` nanoseconds.
fn learn(average: u64, spun: u64) -> u64 {
    let spun = spun.min(LONGEST_NS);
    (average * (INERTIA - 1) + spun) / INERTIA
}

impl LoadManager for Adaptive {
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
        let no_progress = acquisitions.is_some() && now.saturating_sub(waiter.progress_at) > NO_PROGRESS_NS;
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
        wait.process.set_thread_state(ThreadState { spun: learn(state.spun, waiter.spun), ..state });
        WaitSummary { sleeps: waiter.sleeps, parked: waiter.sleeps > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_follows_what_spins_took() {
        let after = |spun| (0..100).fold(0, |average, _| learn(average, spun));
        assert!(after(800).abs_diff(800) < 20);
        assert!(after(1_000_000).abs_diff(LONGEST_NS) < 20, "a long wait counts as the longest spin");
    }
}
