//! `monitor` and `mwait`: a context waits for a write to a cache line, in a low-power state.
//!
//! The context makes no accesses meanwhile, and leaves the execution units of its core to the
//! core's other contexts. Another thread's write to the line ends the wait, and so does an
//! interrupt: a preemption, or the context's timer. (Other interrupts are not modelled.) The
//! context then needs [`mwait_exit_ns`](crate::parameters::Memory::mwait_exit_ns) until it runs on.
//! Its next access to the line pays for the transfer.

use super::abort::leave_transaction;
use super::access::{load, synchronise};
use super::interplay::Machine;
use super::running::{suspend, with};

/// Whether the processors have `mwait`.
pub(crate) fn has_mwait() -> bool {
    with(|machine| machine.parameters.memory.mwait_exit_ns.is_some())
}

/// Waits in `mwait` for a write to the line of `address`, for at most `limit_ns` nanoseconds.
/// Kernel code waits without that limit. Returns at once if `is_changed` returns true: the line was
/// written before the wait began.
pub(crate) fn mwait(address: usize, is_changed: impl FnOnce() -> bool, limit_ns: u64) {
    leave_transaction();
    load(address); // `monitor` reads the line.
    synchronise();
    if !is_changed() && with(|machine| machine.begin_mwait(address, limit_ns)) {
        suspend();
    }
}

impl Machine {
    /// Schedules the end of the running thread's `mwait`, which a write may bring forward. The
    /// caller suspends the thread. Returns false if no other thread can write the line, because it
    /// is on the thread's own stack, or if the machine has no `mwait`.
    fn begin_mwait(&mut self, address: usize, limit_ns: u64) -> bool {
        let line = self.memory.line_of(address);
        let (Some(line), Some(exit_ns)) = (line, self.parameters.memory.mwait_exit_ns) else {
            return false;
        };
        let (thread, now) = (self.current, self.clock.now);
        let task = self.scheduler.task(thread);
        let is_limited = !task.is_in_kernel();
        let tick = self.scheduler.next_tick(task.context(), now);
        let end = if is_limited { tick.min(now.saturating_add(limit_ns)) } else { tick };
        self.memory.watch(thread, line);
        self.scheduler.begin_mwait(thread, line, exit_ns, now);
        self.clock.schedule_resume(thread, end + exit_ns);
        true
    }
}
