//! Requester-based locking: the first requester spins, those behind it save power (Cui et al. 2012, as
//! Cui et al. describe and compare it in *Lock-Contention-Aware Scheduler*, ACM TACO 9(4), 2013,
//! section 4.9.1).
//!
//! A ticket lock, as the paper's. What is an estimate of the number of requesters there is a count
//! here: the tickets ahead. The paper's requesters wait with `monitor` and `mwait`, which the
//! kernel's locks may use; a program has `umonitor` and `umwait`, which also end when time is up.
//!
//! The algorithm is [`ticket`](super::ticket)'s, with its Invariants.

use super::ticket::{TicketLock, WaitStrategy};
use crate::primitive::Primitive;

/// Look all the time as the first requester, save power as any other.
pub struct FirstSpins;

impl WaitStrategy for FirstSpins {
    #[inline]
    fn wait<P: Primitive>(word: &P::U64, seen: u64, ahead: u64) {
        // Only the holder is ahead.
        if ahead <= 1 { P::pause() } else { P::umwait(word, seen) }
    }
}

/// The requester-based lock.
pub type Requester<P> = TicketLock<P, FirstSpins>;
