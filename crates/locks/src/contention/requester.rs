//! Requester-based locking: the first requester spins, later requesters wait in a low-power state
//! (Cui et al. 2012, as described and compared in Cui et al., *Lock-Contention-Aware Scheduler*,
//! ACM TACO 9(4), 2013, section 4.9.1).
//!
//! Like the paper's lock, this is a ticket lock. "If the current number [of requesters] is
//! estimated to be larger than zero, a newly arriving requester will enter into the power-saving
//! state"; this lock counts the waiters ahead of it. The paper does not say whether such a
//! requester has drawn a ticket, nor whether the holder counts. Locks for other readings
//! collapse further (docs/evaluation/simulated.md, "The requester-based lock").
//!
//! The paper's requesters wait with `monitor` and `mwait`, which are privileged. A user-space
//! program has `umonitor` and `umwait`, which also return at a deadline; processors without them
//! pause instead ([`Monitor`](crate::primitive::Monitor)).
//!
//! The algorithm and its Invariants are those of [`ticket`](super::ticket).

use super::ticket::{TicketLock, WaitStrategy};
use crate::primitive::Primitive;

/// Polls as the first requester and waits in a low-power state as a later one.
#[doc(hidden)]
pub struct FirstSpins;

impl WaitStrategy for FirstSpins {
    #[inline]
    fn wait<P: Primitive>(word: &P::U64, seen: u64, ahead: u64) {
        // With one ticket ahead, only the holder precedes this waiter.
        if ahead <= 1 { P::pause() } else { P::wait_for_change(word, seen) }
    }
}

/// The requester-based lock.
///
#[doc = example_of_pair!("requester::Requester", "control::Control")]
pub type Requester<P> = TicketLock<P, FirstSpins>;
