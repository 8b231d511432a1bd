//! A process and a lock for tests of load managers: the test plays the controller and the holder.

use std::cell::Cell;

use super::context::OVERTAKEN_NS;
use super::{Context, LoadControl, ThreadState, Wait};
use crate::parking::eventcount::{Eventcount, WaitedLock};
use crate::primitive::Native;

/// A process with one thread and without a controller.
#[derive(Clone, Copy)]
pub(crate) struct OneThread {
    pub(crate) control: &'static LoadControl<Native>,
    pub(crate) state: &'static Cell<ThreadState>,
}

impl OneThread {
    pub(crate) fn new() -> Self {
        OneThread { control: Box::leak(Box::default()), state: Box::leak(Box::default()) }
    }

    /// A wait for the lock of `eventcount`.
    pub(crate) fn wait<'a>(
        self,
        eventcount: &'a Eventcount<Native>,
        lock: &'a Busy,
    ) -> Wait<'a, Self> {
        Wait {
            process: self,
            eventcount,
            lock,
            deadline: None,
            begin: u64::MAX,
            parked: Cell::new(None),
        }
    }
}

impl Context for OneThread {
    type Machine = Native;

    fn control(self) -> &'static LoadControl<Native> {
        self.control
    }

    fn thread_state(self) -> ThreadState {
        self.state.get()
    }

    fn set_thread_state(self, state: ThreadState) {
        self.state.set(state);
    }

    fn ensure_controller(self) {}
}

/// A lock that other threads hold, and acquire `progress` times between two checks.
#[derive(Default)]
pub(crate) struct Busy {
    pub(crate) progress: u32,
    pub(crate) is_exclusive: bool,
    /// Acquisitions are counted only after a call of `watch`.
    pub(crate) unwatched: Cell<bool>,
    pub(crate) checks: Cell<u32>,
    pub(crate) parked: Cell<u32>,
    pub(crate) cannot_be_reserved: bool,
    /// Number of times that the lock was reserved.
    pub(crate) reserved: Cell<u32>,
}

impl WaitedLock for Busy {
    fn try_lock(&self) -> bool {
        false
    }

    fn set_parked_bit(&self) -> bool {
        self.parked.set(self.parked.get() + 1);
        true
    }

    fn reserve_after(&self) -> Option<u64> {
        (!self.cannot_be_reserved).then_some(OVERTAKEN_NS)
    }

    fn reserve(&self) {
        self.reserved.set(self.reserved.get() + 1);
    }

    fn take_reserved(&self) -> bool {
        self.reserved.get() != 0
    }

    fn has_contender(&self) -> bool {
        true
    }

    fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    fn acquisitions(&self) -> Option<u32> {
        self.checks.set(self.checks.get() + 1);
        (!self.unwatched.get()).then(|| self.checks.get() * self.progress)
    }

    fn watch(&self) {
        self.unwatched.set(false);
    }
}
