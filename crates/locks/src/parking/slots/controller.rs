//! What the controller does with the sleep-slot buffer.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::{DONE, EMPTY, SleepSlots, exchange_interval_ns, is_thread};
use crate::primitive::{Atomic as _, Primitive};

impl<P: Primitive> SleepSlots<P> {
    /// Wakes one of the longest sleepers for every exchange that was due between `since` and `now`
    /// and that no waiter made. All locks may be free by now, and no release wakes a thread that
    /// sleeps for load.
    pub fn serve_turns(&self, since: u64, now: u64, timeout: u64) {
        let (next, sleeping) = (self.counters.next_exchange.load(Relaxed), self.sleeping());
        if sleeping == 0 || now < next {
            return;
        }
        let interval = exchange_interval_ns(timeout, self.target());
        let overdue = ((now - next.max(since)) / interval.max(1)).min(u64::from(sleeping));
        if overdue > 0
            && self
                .counters
                .next_exchange
                .compare_exchange(next, now + interval, Relaxed, Relaxed)
                .is_ok()
        {
            for _ in 0..overdue {
                self.wake_longest();
            }
        }
    }

    /// Calls `visit` for every sleeping thread with its position in the sequence of claims.
    pub fn for_each_sleeper(&self, mut visit: impl FnMut(u32, u32)) {
        for (position, slot) in self.used() {
            let thread = slot.load(Relaxed);
            if is_thread(thread) {
                visit(thread, position);
            }
        }
    }

    /// Sets T, wakes the longest sleepers in excess of it, and reclaims slots from the last known
    /// end. One thread at a time.
    pub fn set_target(&self, target: u32) {
        self.counters.target.store(target, Relaxed);
        P::fence(SeqCst); // Invariant 3; pairs with `claim`
        let mut sleeping = 0;
        self.for_each_sleeper(|_, _| sleeping += 1);
        let mut excess = u32::saturating_sub(sleeping, target);
        let mut end = self.controller.end.load(Relaxed);
        let mut contiguous = true;
        for (position, slot) in self.used() {
            let mut state = slot.load(Acquire);
            if excess > 0 && is_thread(state) && self.wake(slot, state) {
                excess -= 1;
                state = DONE;
            }
            contiguous &= state == DONE;
            if contiguous {
                slot.store(EMPTY, Release);
                end = position.wrapping_add(1);
            }
        }
        self.controller.end.store(end, Release);
    }
}
