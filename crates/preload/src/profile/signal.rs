//! One wait for a signal on a condition variable.
//!
//! Once per period, one waiter's stack is recorded for each condition variable. It stands for all
//! waits there that ended since the last such stack was recorded.

use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_profile::layout::{COUNT_UNIT, Lock};
use unconvoy_profile::{Kind, Profile};

use super::process::of_waiter;
use super::stack;
use super::state::{generation, period};
use crate::identity::me;

/// A wait. It has no destructor, because a cancellation may unwind its frame.
#[derive(Clone, Copy)]
pub(crate) struct SignalWait {
    profile: &'static Profile,
    lock: &'static Lock,
    index: u32,
    generation: u32,
    begin: u64,
    /// The waiter's stack, if this wait was chosen.
    stack: Option<u32>,
}

impl SignalWait {
    /// Begins a wait on the condition variable at `address`; `None` if the wait is not recorded.
    #[inline]
    pub(crate) fn begin(address: usize) -> Option<Self> {
        Self::begin_recorded(of_waiter()?, address)
    }

    #[cold]
    fn begin_recorded(profile: &'static Profile, address: usize) -> Option<Self> {
        let Some((index, lock)) = profile.lock(Kind::Cond, address) else {
            profile.header.lost_waits.fetch_add(1, Relaxed);
            return None;
        };
        let (generation, begin) = (generation(), Native::now());
        let last = lock.chosen_at.load(Relaxed);
        let is_chosen = begin >= last + period().load(Relaxed)
            && lock.chosen_at.compare_exchange(last, begin, Relaxed, Relaxed).is_ok();
        let stack = is_chosen.then(|| stack::record(profile));
        Some(SignalWait { profile, lock, index, generation, begin, stack })
    }

    pub(crate) fn end(self) {
        let SignalWait { profile, lock, index, begin, stack, .. } = self;
        if self.generation != generation() {
            return; // a signal handler has forked, and this is the child
        }
        let now = Native::now();
        let ns = now.saturating_sub(begin);
        profile.record_wait(lock, ns, now, false);
        let Some(stack) = stack else { return };
        if lock.first_stack.load(Relaxed) == 0 {
            lock.first_stack.store(stack, Relaxed);
        }
        let (waited, waits) = (lock.wait_ns.load(Relaxed), lock.waits.load(Relaxed));
        let ns_since = waited.saturating_sub(lock.hold_ns.fetch_max(waited, Relaxed));
        let waits_since = waits.saturating_sub(lock.holds.fetch_max(waits, Relaxed));
        profile.add_sample(index, (stack, 0), ns_since, waits_since * COUNT_UNIT);
        if ns >= period().load(Relaxed) {
            profile.record_long_wait(ns, now, index, stack, me());
        }
    }
}
