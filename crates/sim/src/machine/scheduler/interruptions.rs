//! Interruptions: other work takes a context from its thread, at a random moment and for a random
//! time.
//!
//! Ticks preempt threads at times that recur, and only for another thread. Interruptions fall
//! anywhere: between any two accesses of a lock, and in the middle of a critical section. The work
//! is a thread of another process, one for each context, which no other thread preempts. Until it
//! ends, the interrupted thread waits in the context's run queue, and may move to another context.

use super::Scheduler;
use super::accounts::RunState;
use super::interrupter::{Interrupter, Interruptions};
use super::task::{Flight, State};
use crate::machine::clock::{Clock, Event};
use crate::machine::thread::NO_THREAD;

impl Scheduler {
    /// Interrupts contexts at random times drawn from `seed`. The threads to do so are
    /// [registered](Self::add_interrupting_thread) next.
    pub(crate) fn enable_interruptions(&mut self, parameters: Interruptions, seed: u64) {
        self.interrupter = Some(Interrupter::new(parameters, seed, self.contexts()));
    }

    /// Makes `thread` the one that interrupts the next context, and schedules the first time.
    pub(crate) fn add_interrupting_thread(&mut self, thread: u32, clock: &mut Clock) {
        self.task_mut(thread).forbid_preemption();
        let Some(interrupter) = &mut self.interrupter else { return };
        let (context, first) = interrupter.add(thread);
        clock.push(clock.now + first, Event::Interruption { context });
    }

    /// Number of interruptions so far.
    pub(crate) fn interruptions(&self) -> u64 {
        self.interrupter.as_ref().map_or(0, Interrupter::count)
    }

    /// Length of the interruption by `thread` that begins.
    pub(crate) fn interruption_ns(&self, thread: u32) -> u64 {
        let context = self.task(thread).context();
        self.interrupter.as_ref().map_or(0, |interrupter| interrupter.length(context))
    }

    /// Schedules the interruption of `context` after the one that is due. Returns false if the
    /// latter is omitted, because the context's thread may not be preempted now.
    pub(crate) fn may_interrupt(&mut self, context: usize, clock: &mut Clock) -> bool {
        let Some(interrupter) = &mut self.interrupter else { return false };
        let next = interrupter.draw(context);
        let thread = interrupter.thread(context);
        clock.push(clock.now + next, Event::Interruption { context: context as u32 });
        // The context's previous interruption may still wait for the lock of all switches.
        let is_free = self.running_on(context) == NO_THREAD;
        self.task(thread).state == State::Blocked
            && (is_free || self.request_preemption(context).is_some())
    }

    /// Interrupts `context`. The caller has aborted the transaction of its thread. Returns another
    /// context whose thread should be preempted for the interrupted one.
    pub(crate) fn interrupt_context(&mut self, context: usize, clock: &mut Clock) -> Option<usize> {
        let thread = self.interrupter.as_mut()?.begin(context);
        let mut exit_ns = self.parameters.idle_exit_ns;
        let mut preempted = None;
        if self.running_on(context) != NO_THREAD {
            let (interrupted, exit) = self.interrupt(context, clock);
            exit_ns = exit;
            self.task_mut(interrupted).extended = false;
            preempted = self.requeue_preempted(interrupted, context, clock);
        }
        let vruntime = self.queues.contexts[context].least_vruntime;
        let task = self.task_mut(thread);
        (task.vruntime, task.flight, task.context) = (vruntime, Flight::Work(0), context);
        self.accounts.set_run_state(thread, RunState::Ready, clock.now);
        self.run_on(thread, context, exit_ns, clock);
        preempted
    }
}
