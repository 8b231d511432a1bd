//! What a load manager is given: the wait that it is asked about, and the process around it.

use core::sync::atomic::Ordering::Relaxed;

use super::sensor::LiveLoad;
use super::state::LoadControl;
use crate::parking::eventcount::{Eventcount, WaitedLock};
use crate::primitive::{Atomic, AtomicInt, Atomics, Primitive};

/// Polling that a thread keeps to itself at most: small against an interval.
const PORTION_NS: u64 = 50_000;

/// What is remembered of a thread between two of its waits. Zeroes in a new thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadState {
    /// When it last came back from a sleep, on the machine's clock; 0 if it never slept.
    pub awake_since: u64,
    /// Nanoseconds that it polled and has not reported yet.
    pub polled: u64,
    /// Until when it may hold a lock at which others are parked, as far as it knows; 0 if it does not.
    pub pending_wake_until: u64,
    /// When it last released a lock at which others were parked.
    pub last_wake: u64,
    /// Running average of the nanoseconds that its spins took ([adaptive](super::adaptive)).
    pub spun: u64,
}

/// The process, as a waiter sees it.
pub trait Context: Copy {
    /// The machine that it runs on.
    type Machine: Primitive;

    /// The process's load control: one for all of its locks (ASPLOS 2010, section 3, last bullet).
    fn control(self) -> &'static LoadControl<Self::Machine>;

    /// What is remembered of the calling thread.
    fn thread_state(self) -> ThreadState;

    /// Sets [`thread_state`](Self::thread_state).
    fn set_thread_state(self, state: ThreadState);

    /// Sees to it that a controller serves [`control`](Self::control). Cheap when one does.
    fn ensure_controller(self);

    /// The load at this moment, where the process learns of each change. Cheap where it does not.
    #[inline(always)]
    fn live_load(self) -> Option<LiveLoad> {
        None
    }

    /// Whether the process wants to know how long threads [wait](Self::waited).
    #[inline(always)]
    fn counts_waits(self) -> bool {
        false
    }

    /// The calling thread has waited for locks for `ns` nanoseconds of processor time that it has not
    /// reported yet.
    #[inline(always)]
    fn waited(self, ns: u64) {
        let _ = ns;
    }

    /// The calling thread stops polling, after `polled` nanoseconds of it. Added to the others' in
    /// portions, since there may be millions of waits per second.
    #[inline]
    fn report_polling(self, polled: u64) {
        let mut state = self.thread_state();
        state.polled += polled;
        if state.polled > PORTION_NS {
            self.control().polled.fetch_add(core::mem::take(&mut state.polled), Relaxed);
        }
        self.set_thread_state(state);
    }

    /// A waiter has waited long enough for a controller to be of use.
    #[cold]
    fn report_contention(self) {
        let contended = &self.control().contended;
        if contended.load(Relaxed) == 0 {
            contended.store(1, Relaxed);
        }
        self.ensure_controller();
    }
}

/// One wait for a lock.
pub struct Wait<'a, X: Context> {
    /// The process of the waiting thread.
    pub process: X,
    /// Where to park until a release.
    pub eventcount: &'a Eventcount<X::Machine>,
    /// The lock that is waited for.
    pub lock: &'a dyn WaitedLock,
    /// When the waiter gives up, on the machine's clock.
    pub deadline: Option<u64>,
}

impl<X: Context> Wait<'_, X> {
    /// A number that tells the lock from others.
    pub fn key(&self) -> u64 {
        X::Machine::address(self.eventcount)
    }

    /// Parks at the lock until a release or the deadline; true if it found the lock free on the way,
    /// and took it.
    pub fn park(&self) -> bool {
        self.eventcount.wait(self.lock, self.deadline)
    }
}
