//! Interruptions: other work takes a context from its thread, at a random moment and for a random
//! time.
//!
//! Ticks preempt threads at times that recur, and only for another thread. Interruptions fall
//! anywhere: between any two accesses of a lock, and in the middle of a critical section. The work
//! is a thread of another process, one for each context, which no other thread preempts. Until it
//! ends, the interrupted thread waits in the context's run queue, and may move to another context.

use super::Scheduler;
use super::accounts::RunState;
use super::task::{Flight, State};
use crate::machine::clock::{Clock, Event};
use crate::machine::thread::NO_THREAD;

/// How often contexts are interrupted, and for how long. Both times are exponentially distributed,
/// so that the next interruption may come at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruptions {
    /// Mean time from the end of an interruption of a context to the next one, in nanoseconds; at
    /// least 1.
    pub every_ns: u64,
    /// Mean length of an interruption, in nanoseconds, without the context switches. No
    /// interruption is longer than ten times this.
    pub length_ns: u64,
}

/// Interruptions longer than this many times the mean, one in 22,000, are cut.
const LONGEST: u64 = 10;

/// The interruptions of a machine's contexts.
pub(crate) struct Interrupter {
    parameters: Interruptions,
    random: fastrand::Rng,
    /// The thread that interrupts each context.
    threads: Vec<u32>,
    /// Length of the current or last interruption of each context.
    lengths: Vec<u64>,
    count: u64,
}

impl Interrupter {
    fn exponential(&mut self, mean: u64) -> u64 {
        (-(mean as f64) * (1.0 - self.random.f64()).ln()) as u64
    }
}

impl Scheduler {
    /// Interrupts contexts at random times drawn from `seed`. The threads to do so are
    /// [registered](Self::add_interrupting_thread) next.
    pub(crate) fn enable_interruptions(&mut self, parameters: Interruptions, seed: u64) {
        assert!(parameters.every_ns != 0, "time must pass between two interruptions");
        self.interrupter = Some(Interrupter {
            parameters,
            random: fastrand::Rng::with_seed(seed ^ 0x17e44), // not the ticks' numbers
            threads: Vec::new(),
            lengths: vec![0; self.contexts()],
            count: 0,
        });
    }

    /// Makes `thread` the one that interrupts the next context, and schedules the first time.
    pub(crate) fn add_interrupting_thread(&mut self, thread: u32, clock: &mut Clock) {
        self.task_mut(thread).forbid_preemption();
        let Some(interrupter) = &mut self.interrupter else { return };
        let context = interrupter.threads.len() as u32;
        interrupter.threads.push(thread);
        let first = interrupter.exponential(interrupter.parameters.every_ns);
        clock.push(clock.now + first, Event::Interruption { context });
    }

    /// Number of interruptions so far.
    pub(crate) fn interruptions(&self) -> u64 {
        self.interrupter.as_ref().map_or(0, |interrupter| interrupter.count)
    }

    /// Length of the interruption by `thread` that begins.
    pub(crate) fn interruption_ns(&self, thread: u32) -> u64 {
        let context = self.task(thread).context();
        self.interrupter.as_ref().map_or(0, |interrupter| interrupter.lengths[context])
    }

    /// Schedules the interruption of `context` after the one that is due. Returns false if the
    /// latter is omitted, because the context's thread may not be preempted now.
    pub(crate) fn may_interrupt(&mut self, context: usize, clock: &mut Clock) -> bool {
        let Some(interrupter) = &mut self.interrupter else { return false };
        let Interruptions { every_ns, length_ns } = interrupter.parameters;
        let length = interrupter.exponential(length_ns).min(LONGEST * length_ns);
        let pause = interrupter.exponential(every_ns);
        interrupter.lengths[context] = length;
        let thread = interrupter.threads[context];
        clock.push(clock.now + length + pause, Event::Interruption { context: context as u32 });
        // The context's previous interruption may still wait for the lock of all switches.
        let is_free = self.running_on(context) == NO_THREAD;
        self.task(thread).state == State::Blocked
            && (is_free || self.request_preemption(context).is_some())
    }

    /// Interrupts `context`. The caller has aborted the transaction of its thread. Returns another
    /// context whose thread should be preempted for the interrupted one.
    pub(crate) fn interrupt_context(&mut self, context: usize, clock: &mut Clock) -> Option<usize> {
        let interrupter = self.interrupter.as_mut()?;
        interrupter.count += 1;
        let thread = interrupter.threads[context];
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
