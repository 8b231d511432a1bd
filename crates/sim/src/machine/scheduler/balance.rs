//! Migrations: to the special set, of a renewed task, and between run queues.

use super::accounts::RunState;
use super::task::Flight;
use super::{Scheduler, placement};
use crate::machine::clock::Clock;
use crate::machine::thread::NO_THREAD;

impl Scheduler {
    /// The context of the set to which `thread` has to [move](Self::move_to) before it acquires a
    /// lock, and the cost. `None` if it stays.
    pub(crate) fn place_in_set(&mut self, thread: u32) -> Option<(usize, u64)> {
        placement::to_set(&mut self.queues, self.special.as_mut()?, &self.topology, thread)
    }

    /// Ends the task of `thread` and begins another where the load is least, because the kernel
    /// balances when a program starts. Returns the context to which the thread has to
    /// [move](Self::move_to).
    pub(crate) fn renew(&mut self, thread: u32) -> Option<usize> {
        placement::to_renew_on(&mut self.queues, self.special.as_mut(), thread)
    }

    /// Moves the running `thread` to context `there`, where it resumes after `cost` nanoseconds.
    /// The caller suspends it.
    pub(crate) fn move_to(&mut self, thread: u32, there: usize, cost: u64, clock: &mut Clock) {
        let here = self.task(thread).context;
        self.deschedule(here, RunState::Ready, clock);
        self.task_mut(thread).set_flight(Flight::Work(cost));
        self.hand_over(thread, here, there, 0, clock);
        self.dispatch(here, 0, clock);
        self.queues.contexts[here].forget_last();
    }

    /// Moves `thread`, which is on no context and in no queue, from context `from` to context `to`.
    /// If `to` is free, the thread runs there after `extra` nanoseconds.
    fn hand_over(&mut self, thread: u32, from: usize, to: usize, extra: u64, clock: &mut Clock) {
        self.queues.move_vruntime(thread, from, to);
        self.queues.enqueue(thread, to);
        if self.running_on(to) == NO_THREAD {
            self.dispatch(to, extra, clock);
        } else {
            self.arm_tick(to, clock);
        }
    }

    /// Dispatches on idle contexts, beginning with context `first`. With a special set, a context
    /// may be idle while threads wait on the other side. It has to look again after the set has
    /// changed or a thread has been allowed to change sides, as idle processors of Linux do at each
    /// tick.
    pub(crate) fn serve_idle(&mut self, first: usize, clock: &mut Clock) {
        if !self.has_special_set() {
            return;
        }
        let count = self.contexts();
        let around = (0..count).map(|offset| (first + offset) % count);
        let idle: Vec<usize> =
            around.filter(|&context| self.queues.contexts[context].is_free()).collect();
        for context in idle {
            self.dispatch(context, self.parameters.idle_exit_ns, clock);
        }
    }

    pub(crate) fn to_push_out(&self) -> Option<(usize, usize)> {
        placement::to_push_out(&self.queues, self.special.as_ref()?)
    }

    /// Moves the thread that runs on `from` to the idle context `to`.
    pub(crate) fn push_out(&mut self, from: usize, to: usize, clock: &mut Clock) {
        let (thread, exit_ns) = self.interrupt(from, clock);
        self.hand_over(thread, from, to, self.parameters.idle_exit_ns.max(exit_ns), clock);
        self.dispatch(from, exit_ns, clock);
    }

    /// Moves a thread from the longest run queue to the shortest. Among queues of equal length, the
    /// order of the scan from context `first` decides.
    pub(crate) fn balance_queues(&mut self, first: usize, clock: &mut Clock) {
        if self.time_sharing.is_some() && !self.has_special_set() {
            return; // Only wake-ups, yields and idle contexts move threads.
        }
        for (longest, shortest) in placement::imbalances(&self.queues, self.special.as_ref(), first)
        {
            let difference = self.queues.waiting(longest) - self.queues.waiting(shortest);
            if self.parameters.balance_hesitates && difference == 1 && self.hesitations == 0 {
                self.hesitations += 1;
                continue;
            }
            self.hesitations = 0;
            if let Some(thread) = self.queues.pick(longest) {
                self.hand_over(thread, longest, shortest, self.parameters.idle_exit_ns, clock);
            }
        }
    }
}
