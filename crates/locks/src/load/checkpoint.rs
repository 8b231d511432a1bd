//! Checkpoints: points between two units of a program's work, at which a thread may sleep for load
//! although it waits for no lock.
//!
//! Without checkpoints, only a thread that waits for a lock can sleep for load. A program whose
//! waits are short stays overloaded, and a thread that leaves the lock's queue may hold another
//! lock. At the end of a transaction a thread holds nothing and wants nothing. The backoff of
//! Johnson, Athanassoulis, Stoica and Ailamaki (DaMoN 2009, section 3.4) therefore decides there.
//! Its sleepers cannot be woken; section 4.2 of that paper asks for a controller that wakes them,
//! which ASPLOS 2010 supplies for waiters. A checkpoint joins the two: the thread claims a
//! [sleep slot](crate::parking::slots) exactly as a waiter does, when fewer threads sleep than
//! should, `S - W < T`.
//!
//! A sleeper wakes when
//!
//! - the [controller](super::controller) lowers T, which it does within one interval if load drops,
//! - a thread that waits for a lock takes its place ([`claim_in_exchange`]), or the controller ends
//!   its turn ([`serve_turns`]),
//! - a waiter [pins](super::pinned) it as the holder of a lock that makes no progress, or
//! - its time-out passes (100 ms by default).
//!
//! No release of a lock wakes it, because it waits for none. It announces key 0, so that neither
//! [`wake_waiter`] nor a waiter that takes its place mistakes it for a contender of the lock whose
//! waiter last used the slot.
//!
//! A thread at a checkpoint takes no sleeper's place itself: units of work may be short, and each
//! exchange costs two context switches. (`counter`, think time 1 us, 4, 8 and 32 threads on 2
//! processors: throughput is .96, .90 and .87 of that without checkpoints, with exchanges .94, .88
//! and .92. TPC-C with 8 threads gains 16 % from checkpoints without exchanges.)
//!
//! **No sleep with a lock.** A thread that [`Holds::Locks`] does not sleep. A process that cannot
//! count its locks answers [`Holds::Unknown`]; then a thread with a pending wake-up, which may hold
//! a lock with parked waiters, does not sleep either. If such a thread nevertheless sleeps with a
//! lock, it is woken 20 us after a waiter begins to poll, if the lock records its holder; otherwise
//! its waiters poll, park, and wait for the sleeper's turn or time-out.
//!
//! [`claim_in_exchange`]: crate::parking::slots::SleepSlots::claim_in_exchange
//! [`serve_turns`]: crate::parking::slots::SleepSlots::serve_turns
//! [`wake_waiter`]: crate::parking::slots::SleepSlots::wake_waiter

use core::sync::atomic::Ordering::Relaxed;

use super::rules::{Rule, Rules};
use super::{Context, ThreadState};
use crate::parking::slots::Claim;
use crate::primitive::{Atomic as _, Clock as _, Generation as _, Threads as _};

/// What a process knows about the locks that the calling thread holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// None of the locks that it counts.
    Nothing,
    /// One or more.
    Locks,
    /// It does not count them.
    Unknown,
}

impl Holds {
    /// Whether other threads may need the calling thread, whose state is `state`, at the time
    /// `now`.
    pub(super) fn may_be_needed(self, state: ThreadState, now: u64) -> bool {
        match self {
            Holds::Nothing => false,
            Holds::Locks => true,
            Holds::Unknown => state.pending_wake_until > now,
        }
    }
}

/// How a load manager treats threads at checkpoints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Least time between two sleeps of a thread.
    grace: u64,
    /// Whether sleepers take turns, and wake at times spread evenly.
    has_turns: bool,
    /// Whether waiters keep lock holders awake.
    has_pins: bool,
}

impl Manner {
    /// By the rules of `R`, with a grace of `grace` nanoseconds.
    pub(super) fn of<R: Rules>(grace: u64) -> Self {
        Manner {
            grace: if R::has(Rule::Grace) { grace } else { 0 },
            has_turns: R::has(Rule::Turns),
            has_pins: R::has(Rule::Pins),
        }
    }
}

/// Sleeps for load, if fewer threads sleep than should. Returns whether the thread slept. Call only
/// while the buffer seems to have room.
#[cold]
pub(super) fn sleep_for_load<X: Context>(process: X, holds: Holds, manner: Manner) -> bool {
    let control = process.control();
    let slots = &control.slots;
    X::Machine::generation(); // empties the buffer in the child of a `fork`
    let (state, now) = (process.thread_state(), X::Machine::now());
    let is_fresh = state.awake_since != 0 && now.saturating_sub(state.awake_since) < manner.grace;
    // All before the claim, since a claim that is given back uses up a slot.
    if is_fresh
        || holds.may_be_needed(state, now)
        || !slots.has_room()
        || X::Machine::is_real_time()
    {
        return false;
    }
    let Some(claim) = slots.claim(X::Machine::thread_id()) else { return false };
    slots.announce(&claim, NO_LOCK);
    let is_pinned = manner.has_pins
        && control.pinned.is_enabled()
        && control.pinned.is_pinned(claim.thread(), state.last_wake);
    if is_pinned {
        slots.give_back(claim);
        return false;
    }
    let longest = control.sleep.load(Relaxed);
    let wake = if manner.has_turns { slots.wake_time(now, longest) } else { now + longest };
    sleep(process, claim, wake);
    true
}

/// The key of a sleeper that waits for no lock.
const NO_LOCK: u32 = 0;

fn sleep<X: Context>(process: X, claim: Claim, wake: u64) {
    let control = process.control();
    let thread = claim.thread();
    control.slots.sleep(claim, wake);
    let now = X::Machine::now();
    control.pinned.resume(thread, now);
    process.set_thread_state(ThreadState { awake_since: now, ..process.thread_state() });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::load::one_thread::OneThread;
    use crate::primitive::Native;

    #[test]
    fn thread_is_needed_if_it_may_hold_a_lock_with_waiters() {
        let state = ThreadState { pending_wake_until: 10, ..ThreadState::default() };
        let is_needed = |holds: Holds| [9, 10].map(|now| holds.may_be_needed(state, now));
        assert_eq!(is_needed(Holds::Unknown), [true, false]);
        assert_eq!(is_needed(Holds::Locks), [true, true]);
        assert_eq!(is_needed(Holds::Nothing), [false, false]);
    }

    #[test]
    fn sleep_without_turns_takes_its_whole_time() {
        const SLEEP_NS: u64 = 1_000_000;
        let (process, begin) = (OneThread::new(), Native::now());
        process.control.sleep.store(SLEEP_NS, Relaxed);
        let manner = Manner { grace: 0, has_turns: false, has_pins: false };
        assert!(!sleep_for_load(process, Holds::Nothing, manner), "no thread should sleep");
        process.control.slots.raise_target(1);
        assert!(sleep_for_load(process, Holds::Nothing, manner));
        assert!(process.thread_state().awake_since >= begin + SLEEP_NS);
    }
}
