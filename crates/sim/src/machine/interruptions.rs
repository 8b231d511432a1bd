//! The threads that interrupt contexts at random times, and the waits that they lengthen.

use super::access::synchronise;
use super::interplay::Machine;
use super::running::{spawn, suspend, with};
use super::scheduler::{Interruptions, State, Waits};
use super::thread::NO_THREAD;

impl Machine {
    /// Interrupts the contexts at random times, by threads of `process`.
    pub(crate) fn enable_interruptions(
        &mut self,
        parameters: Interruptions,
        seed: u64,
        process: usize,
    ) {
        self.scheduler.enable_interruptions(parameters, seed);
        for context in 0..self.scheduler.contexts() {
            let name = format!("interruption of context {context}");
            let thread = spawn(self, process, name, false, interrupt_repeatedly);
            self.scheduler.add_interrupting_thread(thread, &mut self.clock);
        }
    }

    /// See [`crate::simulation::Simulation::interruptions`].
    pub(crate) fn interruptions(&self) -> u64 {
        self.scheduler.interruptions()
    }

    /// See [`crate::simulation::Simulation::record_waits`].
    pub(crate) fn record_waits(&mut self, bound: u64) {
        self.scheduler.enable_waits(bound);
    }

    /// See [`crate::simulation::Simulation::waits`].
    pub(crate) fn waits(&mut self) -> Option<&Waits> {
        let waits = self.scheduler.waits.as_mut()?;
        waits.check_all(self.clock.now);
        Some(waits)
    }

    /// Interrupts `context`, if its thread may be preempted.
    pub(super) fn interrupt(&mut self, context: usize) {
        if !self.scheduler.may_interrupt(context, &mut self.clock) {
            return;
        }
        let thread = self.scheduler.running_on(context);
        if thread != NO_THREAD {
            self.abort_before_leave(thread);
        }
        let next = self.scheduler.interrupt_context(context, &mut self.clock);
        self.preempt(next);
    }
}

/// Blocks until the scheduler interrupts a context by this thread, and then keeps the context for
/// as long as the scheduler says.
fn interrupt_repeatedly() {
    loop {
        with(|machine| machine.leave(State::Blocked));
        suspend();
        with(|machine| {
            machine.clock.now += machine.scheduler.interruption_ns(machine.current);
        });
        synchronise();
    }
}
