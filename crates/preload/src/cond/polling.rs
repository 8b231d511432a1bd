//! The wait itself: spin for contention, block for load.
//!
//! A waiter whose recent waits at the condition variable were short polls its own node for a while
//! ([`History`]), if the process has a processor for it ([`event`]); then it sleeps. A signal to
//! a waiter that is awake makes no system call.
//!
//! The history is in the condition variable. The first wait at a condition variable uses the
//! history of the thread's first waits at other condition variables, because some programs create
//! one for each wait (LevelDB's writers).

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use libc::ETIMEDOUT;
use unconvoy_locks::load::event;
use unconvoy_locks::load::history::{History, LONGEST_POLL_NS};
use unconvoy_locks::load::{Context as _, ThreadState};
use unconvoy_locks::lock::Process as _;
use unconvoy_locks::primitive::{Clock as _, Native};

use super::Wait;
use super::waiters::get_up;
use crate::time::Deadline;

impl Wait<'_> {
    /// Waits until the node is signalled, or until the deadline has passed and the node is
    /// unlisted.
    #[inline]
    pub(super) fn await_signal(&self, deadline: Option<Deadline>) -> c_int {
        if self.node.is_signalled() {
            return 0;
        }
        let begin = Native::now();
        let before = self.history();
        if before.polls()
            && let Some(end) = self.poll(begin, deadline)
        {
            self.record(before, end - begin);
            return 0;
        }
        let result = self.sleep(deadline);
        get_up();
        let end = self.node.signalled_at().unwrap_or_else(Native::now);
        // A time-out is a long wait, whatever its length: a program that waits for a fixed time
        // should not use a processor meanwhile.
        let least = if result == ETIMEDOUT { LONGEST_POLL_NS + 1 } else { 0 };
        self.record(before, end.saturating_sub(begin).max(least));
        result
    }

    /// Polls for a while. Returns the time of the signal, if it came.
    #[inline]
    fn poll(&self, begin: u64, deadline: Option<Deadline>) -> Option<u64> {
        let longest = begin + LONGEST_POLL_NS;
        let end = deadline.map_or(longest, |it| Native::expected(it.for_locks()).min(longest));
        let is_done = || self.node.is_signalled();
        event::poll(Native::context(), begin, end, is_done)
    }

    fn history(&self) -> History {
        let of_thread = || History::unpack(Native::context().thread_state().history);
        History::unpack(self.cond.history().load(Relaxed)).or_else(of_thread).unwrap_or_default()
    }

    /// Records the length of this wait. The waiter still counts among the users (Invariant 3).
    #[inline]
    fn record(&self, before: History, ns: u64) {
        let after = before.after(ns).pack();
        let known = self.cond.history().load(Relaxed);
        if known == 0 {
            let process = Native::context();
            let state = process.thread_state();
            process.set_thread_state(ThreadState { history: after, ..state });
        }
        if known != after {
            self.cond.history().store(after, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::mem::MaybeUninit;

    use super::*;
    use crate::cond::Cond;
    use crate::cond::waiters::Node;
    use crate::mutex::Mutex;
    use crate::mutex::wait::Use;

    #[test]
    fn long_waits_end_the_polling() {
        // SAFETY: zeroes are a condition variable and a mutex.
        let (cond, mutex): (Cond, Mutex) =
            unsafe { (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init()) };
        let (node, in_use) = (Node::new(&mutex), Use::begin(&mutex));
        let wait = Wait { cond: &cond, mutex: &mutex, node, in_use };
        for _ in 0..3 {
            wait.record(wait.history(), 1_000_000);
        }
        assert!(!wait.history().polls());
        wait.in_use.end();
    }
}
