//! Spin-then-park with a spin that adapts: as long as spinning has paid lately, and only while the
//! lock goes round.
//!
//! The adaptive mutex of Solaris spins while the holder runs, and parks when it does not (McDougall and
//! Mauro, *Solaris Internals*; DaMoN 2009, section 2.3). A Linux process cannot see for free
//! whether a thread runs. Two things it can see:
//!
//! - how long earlier spins took to succeed: glibc's adaptive mutex spins up to twice their running
//!   average, and takes the outcome, whatever it was, into the average;
//! - whether anybody came by the lock lately, where acquisitions are counted: a lock that stands
//!   still for longer than sections usually take has a holder that does not run, or works for
//!   long. Then to spin on is a waste in either case.
//!
//! The average is a thread's, not a lock's: a lock has no room for it. Threads that use locks of very
//! different lengths in turn spin as for the mean of them.

use super::gate::{Gate, Spot};
use super::{Departure, LoadManager};
use crate::contention::Verdict;
use crate::platform::{Platform, ThreadNote};

/// Bounds of a spin. The lower one is a hand-over between two processors or two; the upper one what
/// parking and being woken cost together, twice (Karlin et al. 1991: spinning for what blocking
/// costs is within twice of the optimum).
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 20_000;

/// Weight of the average's past: glibc's (`nptl/pthread_mutex_lock.c`: an eighth of the difference).
const INERTIA: u64 = 8;

/// A lock that nobody came by for so long stands still: some sections and hand-overs.
const STANDSTILL_NS: u64 = 5_000;

/// Spin adaptively, then park.
pub struct Adaptive;

/// One wait under [`Adaptive`].
pub struct Waiter {
    since: u64,
    /// How long this spin may take.
    patience: u64,
    acquisitions: Option<u32>,
    /// When they were last seen to have changed.
    moved: u64,
    /// The last spin's length.
    spun: u64,
    sleeps: u32,
}

/// The running average after a spin of `spun` nanoseconds.
fn learn(average: u64, spun: u64) -> u64 {
    let spun = spun.min(LONGEST_NS);
    (average * (INERTIA - 1) + spun) / INERTIA
}

impl<P: Platform> LoadManager<P> for Adaptive {
    type Waiter = Waiter;

    fn arrive(now: u64, _place: u64) -> Waiter {
        let patience = (2 * P::thread_note().spun + SHORTEST_NS).min(LONGEST_NS);
        Waiter { since: now, patience, acquisitions: None, moved: now, spun: 0, sleeps: 0 }
    }

    fn turn(waiter: &mut Waiter, now: u64, spot: &dyn Spot) -> Verdict {
        waiter.spun = now.saturating_sub(waiter.since);
        let acquisitions = spot.acquisitions();
        if acquisitions != waiter.acquisitions {
            (waiter.acquisitions, waiter.moved) = (acquisitions, now);
        }
        let stands_still = acquisitions.is_some() && now.saturating_sub(waiter.moved) > STANDSTILL_NS;
        if waiter.spun > waiter.patience || stands_still { Verdict::Leave } else { Verdict::Spin }
    }

    fn away(waiter: &mut Waiter, gate: &Gate<P>, spot: &dyn Spot, deadline: Option<u64>) -> bool {
        waiter.sleeps += 1;
        let acquired = gate.wait(spot, deadline);
        (waiter.since, waiter.moved) = (P::now(), P::now());
        acquired
    }

    fn depart(waiter: Waiter) -> Departure {
        let note = P::thread_note();
        P::set_thread_note(ThreadNote { spun: learn(note.spun, waiter.spun), ..note });
        Departure { sleeps: waiter.sleeps, parked: waiter.sleeps > 0 }
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
