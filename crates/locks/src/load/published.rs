//! Load control as published, without what [`control`](super::control) adds to it: the baseline of
//! our deviations.
//!
//! Johnson, Stoica, Ailamaki and Mowry, *Decoupling Contention Management from Scheduling* (ASPLOS
//! 2010), section 3: each turn, a waiter checks whether fewer threads sleep than should, `S - W <
//! T`. If so, it claims a slot, leaves the lock's queue, and sleeps until the controller clears the
//! slot or 100 ms pass. Then it starts over, as if it had just arrived. If it acquires the lock
//! while it leaves, it gives the slot back. T aims at a load of 100 %.
//!
//! Sleep slots and controller are those of `control`, with two parts of the controller
//! [omitted](super::state::LoadControl::omit): it keeps no thread beyond the processors awake, and
//! wakes no sleeper whose turn is due. Two differences remain. The controller runs only while waits
//! exceed [`CONTENTION_NS`], and a waker counts the end of a sleep instead of the sleeper
//! ([`slots`](crate::parking::slots), Invariant 1).
//!
//! *Not* guaranteed, as in the paper: that a thread sleeps only for a lock that another thread
//! contends for, that a holder stays awake (section 6.1.2), and that the same threads do not sleep
//! again and again.

use core::sync::atomic::Ordering::Relaxed;

use super::checkpoint::{Holds, Manner, sleep_for_load};
use super::control::CONTENTION_NS;
use super::rules::Set;
use super::state::{MARGIN, TURNS};
use super::{Context, LoadManager, Wait, WaitSummary};
use crate::parking::slots::Claim;
use crate::primitive::turn::Verdict;
use crate::primitive::{Atomic as _, Clock as _, Threads as _};

/// Load control as published.
///
#[doc = example_of_pair!("tpmcs::TpMcs", "published::Published")]
pub struct Published;

/// One wait under [`Published`].
#[doc(hidden)]
pub struct Waiter {
    /// When the wait began or the last sleep ended.
    since: u64,
    reported: bool,
    claim: Option<Claim>,
    sleeps: u32,
}

// SAFETY: `block` acquires nothing.
unsafe impl LoadManager for Published {
    type Waiter = Waiter;

    #[inline]
    fn begin_wait<X: Context>(_: &Wait<'_, X>, now: u64) -> Waiter {
        Waiter { since: now, reported: false, claim: None, sleeps: 0 }
    }

    #[inline]
    fn turn<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>, now: u64) -> Verdict {
        if waiter.claim.is_some() {
            return Verdict::Leave; // leaving a queue may take several turns
        }
        let control = wait.process.control();
        if control.slots.has_room() {
            waiter.claim = control.slots.try_claim(X::Machine::thread_id());
            if waiter.claim.is_some() {
                return Verdict::Leave;
            }
        }
        if !waiter.reported && now.saturating_sub(waiter.since) > CONTENTION_NS {
            waiter.reported = true;
            control.omit(MARGIN | TURNS);
            wait.process.report_contention();
        }
        Verdict::Spin
    }

    fn block<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>) -> bool {
        waiter.sleeps += 1;
        let slots = &wait.process.control().slots;
        let wake = X::Machine::now() + wait.process.control().sleep.load(Relaxed);
        if let Some(claim) = waiter.claim.take() {
            slots.sleep(claim, wait.earlier(wake));
        }
        waiter.since = X::Machine::now();
        waiter.reported = false;
        false
    }

    #[inline]
    fn end_wait<X: Context>(waiter: Waiter, wait: &Wait<'_, X>) -> WaitSummary {
        if let Some(claim) = waiter.claim {
            wait.process.control().slots.give_back(claim);
        }
        WaitSummary { sleeps: waiter.sleeps, parked: false }
    }

    /// Not in that paper, which has no checkpoints; as for its waiters, without rules.
    #[inline]
    fn checkpoint<X: Context>(process: X, holds: impl FnOnce() -> Holds) -> bool {
        let manner = Manner::of::<Set<0>>(0);
        process.control().slots.has_room() && sleep_for_load(process, holds(), manner)
    }
}
