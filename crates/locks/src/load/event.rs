//! Polling for an event that another thread must bring about: a signal to a condition variable.
//!
//! A waiter for a lock may assume that the holder runs. A waiter for an event does not know which
//! thread will bring it about. So it polls only on a processor that no other thread wants
//! ([`pollers`](super::pollers)). Without a controller, two rules stand in for this check:
//!
//! 1. A poller yields now and then. If another thread runs meanwhile for longer than a turn, the
//!    poller stops, and starts the controller.
//! 2. A thread that polls for more than 1 % of its time starts the controller.

use super::{Context, ThreadState};
use crate::primitive::turn::LONGEST_TURN_NS;
use crate::primitive::{Clock as _, Spin as _, Threads as _};

/// Number of looks at the event between two reads of the clock. A read costs as much as a look.
const LOOKS: u32 = 8;

/// Polling time before the first yield, and between two. The thread that must bring the event
/// about may be waiting for the poller's own processor, above all if the poller has just woken it.
/// Without yields, Linux then leaves both threads on that processor, and they sleep in turn. (Two
/// threads that alternate: .4 M round trips a second without yields, 1.3 M with them.) A hand-over
/// takes less than 1 us, and a yield without another runnable thread takes .4 us.
const FIRST_YIELD_NS: u64 = 1_000;
const YIELD_EVERY_NS: u64 = 4_000;

/// Longest polling time of a thread that finds no room. A poller whose event has come leaves within
/// this time, often to bring about the event of the thread without room.
const FULL_NS: u64 = 1_000;

/// A yield that takes longer than this has cost more than the system calls to park and be woken.
const LONG_YIELD_NS: u64 = 25_000;

/// Number of waits of a thread that park after one long yield.
const PARKS: u32 = 15;

/// Polls `is_done` from the time `begin` until it is true, the time is `end`, or another thread
/// needs the processor. Returns the time at which it was true.
#[inline]
pub fn poll<X: Context>(
    process: X,
    begin: u64,
    end: u64,
    is_done: impl Fn() -> bool,
) -> Option<u64> {
    if !may_poll(process) {
        return is_done().then_some(begin);
    }
    let pollers = &process.control().pollers;
    let mut is_counted = pollers.enter();
    let mut yield_at = begin + FIRST_YIELD_NS;
    let mut now;
    let done = 'polling: loop {
        for _ in 0..LOOKS {
            if is_done() {
                now = X::Machine::now();
                break 'polling true;
            }
            X::Machine::pause();
        }
        now = X::Machine::now();
        is_counted = is_counted || pollers.enter();
        if now >= end || !is_counted && now - begin > FULL_NS {
            break is_done();
        }
        if now >= yield_at {
            let before = now;
            X::Machine::yield_now();
            now = X::Machine::now();
            yield_at = now + YIELD_EVERY_NS;
            if now - before > LONGEST_TURN_NS {
                process.report_contention();
                break is_done();
            }
        }
    };
    if is_counted {
        pollers.leave();
    }
    report(process, begin, now);
    done.then_some(now)
}

/// Lets the signaller release its lock. Called by a thread that was woken inside the signaller's
/// critical section, perhaps on the same processor, and takes the lock next.
///
/// A yield suffices if the signaller soon waits for something itself. If the signaller runs on
/// after its release, the yield takes long. Then the woken thread parks at once in its next waits,
/// and the release wakes it. (CPython, 8 threads on 2 processors, relative to libc: .89 if the
/// woken thread polls, .96 if it yields, 1.02 if it parks, 1.03 by this rule. A queue with 16
/// producers and consumers, in this order: 2.0, 2.3, 1.5 and 2.2.)
#[cold]
pub fn give_way<X: Context>(process: X) {
    let state = process.thread_state();
    if state.parks > 0 {
        let parks = state.parks - 1;
        return process.set_thread_state(ThreadState { parks, parks_at_once: true, ..state });
    }
    let begin = X::Machine::now();
    X::Machine::yield_now();
    if X::Machine::now() - begin > LONG_YIELD_NS {
        process.set_thread_state(ThreadState { parks: PARKS, ..state });
    }
}

/// Whether the process has a processor for a poller, now or soon.
#[inline]
fn may_poll(process: impl Context) -> bool {
    let is_crowded = process.control().pollers.is_crowded();
    if is_crowded {
        process.control().report_contention(); // keeps the controller, which found no room, running
    }
    !is_crowded && process.live_load().is_none_or(|load| load.runnable <= load.low)
}

/// Adds a poll to the calling thread's account.
#[inline]
fn report(process: impl Context, begin: u64, now: u64) {
    let mut state = process.thread_state();
    let is_dense = process.control().pollers.report(&mut state.portion, begin, now);
    process.set_thread_state(state);
    if is_dense {
        process.report_contention();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::load::LoadControl;
    use crate::load::one_thread::OneThread;
    use crate::load::sensor::LiveLoad;
    use crate::primitive::Native;
    use core::sync::atomic::AtomicU32;
    use core::sync::atomic::Ordering::Relaxed;

    /// A process that counts the requests for a controller, and its live load.
    #[derive(Clone, Copy)]
    struct Counted(&'static LoadControl<Native>, &'static AtomicU32, Option<LiveLoad>);

    impl Context for Counted {
        type Machine = Native;

        fn control(self) -> &'static LoadControl<Native> {
            self.0
        }

        fn thread_state(self) -> ThreadState {
            ThreadState::default()
        }

        fn set_thread_state(self, _: ThreadState) {}

        fn ensure_controller(self) {
            self.1.fetch_add(1, Relaxed);
        }

        fn live_load(self) -> Option<LiveLoad> {
            self.2
        }
    }

    fn process(processors: u32) -> Counted {
        let process = Counted(Box::leak(Box::default()), Box::leak(Box::default()), None);
        process.0.pollers.assume_processors(processors);
        process
    }

    /// Polls for up to a second until `is_done`; false if the thread gave up before.
    fn poll(process: Counted, is_done: impl Fn() -> bool) -> bool {
        let begin = Native::now();
        let end = begin + 1_000_000_000;
        super::poll(process, begin, end, is_done).is_some()
    }

    #[test]
    fn poll_for_an_event_that_has_come_is_done() {
        assert!(poll(process(2), || true));
        assert!(poll(process(1), || true), "without room as well");
    }

    #[test]
    fn poll_until_its_end_is_not_done_and_leaves_its_room() {
        let process = process(2);
        let begin = Native::now();
        let end = begin + 2 * FIRST_YIELD_NS;
        assert_eq!(super::poll(process, begin, end, || false), None);
        assert!(process.0.pollers.enter());
    }

    #[test]
    fn poll_without_room_ends_at_once_and_starts_no_controller() {
        let process = process(1);
        let looks = AtomicU32::new(0);
        assert!(!poll(process, || looks.fetch_add(1, Relaxed) > LOOKS));
        assert_eq!(process.1.load(Relaxed), 0);
        assert_eq!(process.0.contended.load(Relaxed), 1, "a running one stays");
    }

    #[test]
    fn thread_polls_only_while_the_live_load_leaves_a_processor() {
        let polls = |runnable| {
            let load = LiveLoad { runnable, low: 2, high: 3 };
            let looks = AtomicU32::new(0);
            let process = Counted(process(4).0, Box::leak(Box::default()), Some(load));
            poll(process, || looks.fetch_add(1, Relaxed) > 0)
        };
        assert_eq!([1, 2, 3].map(polls), [true, true, false]);
    }

    #[test]
    fn waits_after_a_long_yield_park_at_once() {
        let process = OneThread::new();
        process.set_thread_state(ThreadState { parks: 2, ..ThreadState::default() });
        let parks = [0; 3].map(|_| {
            give_way(process);
            let state = process.thread_state();
            process.set_thread_state(ThreadState { parks_at_once: false, ..state });
            state.parks_at_once
        });
        assert_eq!(parks, [true, true, false]);
    }

    #[test]
    fn poll_beside_as_many_pollers_as_may_ends_soon() {
        let process = process(2);
        assert!(process.0.pollers.enter());
        assert!(!poll(process, || false));
        assert!(!process.0.pollers.enter());
    }
}
