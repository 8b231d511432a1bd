//! Counts and times of a machine's run so far.

use super::interplay::Machine;
use super::scheduler::Split;
use super::transactions::TransactionCounts;

/// Totals of a machine's run so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Context switches.
    pub switches: u64,
    /// Threads that were preempted.
    pub preemptions: u64,
    /// Accesses to simulated memory.
    pub accesses: u64,
    /// Accesses served by another cache or by memory.
    pub misses: u64,
    /// Simulation events.
    pub events: u64,
}

impl Machine {
    pub(crate) fn counts(&self) -> Counts {
        let ((switches, preemptions), (accesses, misses)) =
            (self.scheduler.counts(), self.memory.counts());
        Counts { switches, preemptions, accesses, misses, events: self.clock.handled() }
    }

    pub(crate) fn transactions(&self) -> TransactionCounts {
        self.transactions.counts()
    }

    pub(crate) fn runnable(&self, process: usize) -> u32 {
        self.scheduler.accounts.runnable(process)
    }

    pub(crate) fn split(&mut self, thread: u32) -> Split {
        self.scheduler.accounts.split(thread, self.clock.now)
    }

    /// See [`crate::simulation::Simulation::busy_times`].
    pub(crate) fn busy_times(&self) -> Vec<u64> {
        self.scheduler.busy_times(self.clock.now)
    }
}
