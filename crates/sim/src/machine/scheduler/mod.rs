//! The operating system's scheduler: one run queue per context, ordered by virtual run time or by
//! the deadline of EEVDF, as in Linux, or by the priorities of Solaris' time-sharing class
//! ([`class`], [`dispatcher`]). The next two paragraphs hold for the first two orders.
//!
//! A waking thread goes to its last context if that one is idle or none is, and otherwise to the
//! nearest idle context of the least busy cores. It preempts a thread that has run for much longer.
//! An idle context takes a thread from the longest queue. Every `balance_ns`, the longest queue
//! gives one thread to the shortest. The tick ends the slice of a running thread, but only while
//! another thread waits for the context. A thread that blocks keeps the rest of its slice, as in
//! Solaris' time-sharing class (`ts_timeleft`), so that frequent sleepers are preempted too; in the
//! order of EEVDF it gets a new slice when it wakes, as in Linux, unless it has run for too long.
//!
//! A tick takes time from the running thread, and more if it switches to another one. The times are
//! drawn from a distribution. A preempted waiter's last sign of life is therefore old before the
//! next thread of the context can act, and equal threads get unequal slices. Both decide how locks
//! with a queue behave under overload (docs/evaluation/simulator.md).
//!
//! All switches pass one lock, which admits `switches_per_s` switches per second (DaMoN 2009,
//! section 4.2: 134,000 on the papers' machine). Beyond that rate, threads wait although contexts
//! are idle.
//!
//! *Not* modelled: scheduling domains (a wake-up searches for the nearest context, balancing covers
//! the whole machine), priorities of Linux, groups, and the cache cost of a migration beyond the
//! shared lines.
//!
//! The scheduler does not preempt a thread by itself. It reports that a thread should be preempted.
//! The machine first aborts that thread's transaction, and then asks for the preemption.

mod accounts;
mod balance;
mod class;
mod dispatcher;
mod interrupter;
mod interruptions;
mod placement;
mod queues;
mod recording;
mod slices;
mod special;
mod split;
mod task;
#[cfg(test)]
mod tests;
mod waits;

use super::clock::Clock;
use super::thread::NO_THREAD;
use crate::parameters::{self, Topology};
pub use accounts::Activity;
use accounts::{Accounts, RunState};
use class::TimeSharing;
use interrupter::Interrupter;
pub use interrupter::Interruptions;
use queues::Queues;
pub(crate) use special::Special;
pub use split::Split;
use task::Task;
pub(crate) use task::{Flight, State};
pub(crate) use waits::Waits;
pub use waits::{LongWait, Seen, Violation};

/// The scheduler of a machine. Threads and contexts are passed as numbers.
pub(crate) struct Scheduler {
    parameters: parameters::Scheduler,
    topology: Topology,
    queues: Queues,
    /// Solaris' time-sharing class, if the machine has it.
    time_sharing: Option<TimeSharing>,
    /// The lock-contention-aware scheduler, if enabled.
    special: Option<Special>,
    /// Other work that takes contexts at random times, if enabled.
    interrupter: Option<Interrupter>,
    /// The threads' waits for locks, if recorded.
    pub(crate) waits: Option<Waits>,
    /// Where the threads spend their time.
    pub(crate) accounts: Accounts,
    /// How often in a row balancing has left a difference of one thread.
    hesitations: u32,
    random: fastrand::Rng,
    switch_lock_free_at: u64,
    switches: u64,
    preemptions: u64,
    /// Number of contexts that wait in `mwait`, by core.
    mwaiting_in_core: Vec<u32>,
}

impl Scheduler {
    /// A scheduler that draws the lengths of ticks with random numbers from `seed`.
    pub(crate) fn new(topology: Topology, parameters: parameters::Scheduler, seed: u64) -> Self {
        Scheduler {
            parameters,
            topology,
            queues: Queues::new(
                topology.cores(),
                *topology.contexts_per_core as usize,
                parameters.order,
                parameters.slice_ns,
            ),
            time_sharing: TimeSharing::new(&parameters),
            special: None,
            interrupter: None,
            waits: None,
            accounts: Accounts::default(),
            hesitations: 0,
            random: fastrand::Rng::with_seed(seed),
            switch_lock_free_at: 0,
            switches: 0,
            preemptions: 0,
            mwaiting_in_core: vec![0; topology.cores()],
        }
    }

    /// Enables the lock-contention-aware scheduler; call before the first thread is added.
    pub(crate) fn enable_special_set(&mut self, parameters: unconvoy_sched::Parameters, now: u64) {
        assert!(self.queues.tasks.is_empty(), "enable the special set before the first thread");
        self.special = Some(Special::new(parameters, now));
    }

    pub(crate) fn special(&self) -> Option<&Special> {
        self.special.as_ref()
    }

    pub(crate) fn has_special_set(&self) -> bool {
        self.special.is_some()
    }

    /// Adds a blocked thread that has used `slice_used` nanoseconds of its slice.
    pub(crate) fn add_thread(&mut self, slice_used: u64) {
        self.queues.add_thread(slice_used);
        if let (Some(class), Some(task)) = (&self.time_sharing, self.queues.tasks.last_mut()) {
            task.class.begin(&class.table, slice_used, self.parameters.slice_ns);
        }
    }

    /// Lets the new `thread` begin on `context`, even if another is idle.
    pub(crate) fn start_on(&mut self, thread: u32, context: usize) {
        let task = self.task_mut(thread);
        (task.context, task.stays) = (context, true);
    }

    #[inline]
    pub(crate) fn task(&self, thread: u32) -> &Task {
        self.queues.task(thread)
    }

    #[inline]
    pub(crate) fn task_mut(&mut self, thread: u32) -> &mut Task {
        self.queues.task_mut(thread)
    }

    #[inline]
    pub(crate) fn core_of(&self, thread: u32) -> usize {
        self.queues.contexts[self.task(thread).context].core
    }

    /// The thread that runs on `context`, or [`NO_THREAD`].
    #[inline]
    pub(crate) fn running_on(&self, context: usize) -> u32 {
        self.queues.contexts[context].current
    }

    pub(crate) fn contexts(&self) -> usize {
        self.queues.contexts.len()
    }

    /// Number of contexts of `core` that have a thread, without those that wait in `mwait`: they
    /// leave the core's execution units to the others.
    #[inline(always)]
    pub(crate) fn active_in_core(&self, core: usize) -> u32 {
        self.queues.busy_in_core[core] - self.mwaiting_in_core[core]
    }

    /// Suspends the running `thread` in `mwait` for a write to `line`. An interrupt ends the wait:
    /// the caller schedules it by [`next_tick`](Self::next_tick).
    pub(crate) fn begin_mwait(&mut self, thread: u32, line: usize, exit_ns: u64, now: u64) {
        let core = self.core_of(thread);
        self.mwaiting_in_core[core] += 1;
        self.task_mut(thread).flight = Flight::Mwait { line, exit_ns };
        self.accounts.set_mwait(thread, true, now);
    }

    /// Ends the `mwait` of `thread`, if it is in one, and returns its exit latency. The thread
    /// checks its line when it next runs.
    #[inline]
    pub(crate) fn end_mwait(&mut self, thread: u32, now: u64) -> u64 {
        let Flight::Mwait { exit_ns, .. } = self.task(thread).flight else { return 0 };
        let core = self.core_of(thread);
        self.mwaiting_in_core[core] -= 1;
        self.task_mut(thread).flight = Flight::Poll;
        self.accounts.set_mwait(thread, false, now);
        exit_ns
    }

    /// Time that each context has had a thread, up to `now`.
    pub(crate) fn busy_times(&self, now: u64) -> Vec<u64> {
        self.queues.contexts.iter().map(|context| context.busy_ns(now)).collect()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queues.idle == self.queues.contexts.len()
    }

    /// Whether any thread waits in a run queue.
    pub(crate) fn has_waiting(&self) -> bool {
        self.queues.queued != 0
    }

    /// Number of context switches and preemptions so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.switches, self.preemptions)
    }

    /// Makes `thread`, which is blocked, runnable; `waker` is the thread that wakes it, or
    /// [`NO_THREAD`]. Returns the context whose thread should be
    /// [preempted](Self::request_preemption) for it, if any.
    pub(crate) fn wake(&mut self, thread: u32, waker: u32, clock: &mut Clock) -> Option<usize> {
        debug_assert_eq!(self.task(thread).state, State::Blocked);
        if self.time_sharing.is_some() {
            self.accounts.set_run_state(thread, RunState::Ready, clock.now);
            let (context, preempted) = self.queue_woken(thread, clock);
            self.run_if_idle(context, waker, clock);
            return preempted;
        }
        self.queues.renew_slice(thread, clock.now);
        let context = if core::mem::take(&mut self.task_mut(thread).stays) {
            self.task(thread).context
        } else {
            placement::to_wake_on(&self.queues, self.special.as_ref(), &self.topology, thread)
        };
        let least = self.queues.contexts[context].least_vruntime;
        let task = self.task(thread);
        let least_before = self.queues.contexts[task.context].least_vruntime;
        let behind =
            least_before.saturating_sub(task.vruntime).min(self.parameters.sleeper_credit_ns);
        let ahead = task.vruntime.saturating_sub(least_before);
        let vruntime = (least + ahead).saturating_sub(behind);
        self.task_mut(thread).vruntime = vruntime;
        self.accounts.set_run_state(thread, RunState::Ready, clock.now);
        self.queues.enqueue(thread, context);
        if self.run_if_idle(context, waker, clock) {
            return None;
        }
        let running = self.running_on(context);
        self.arm_tick(context, clock);
        self.queues.charge(running, clock.now);
        let lead = self.task(running).vruntime.saturating_sub(vruntime);
        if lead > self.parameters.wake_preempt_ns {
            return Some(context);
        }
        if running != waker {
            self.let_yield(running, clock);
        }
        None
    }

    /// Runs the thread that `waker` has queued on `context`, if that is idle.
    fn run_if_idle(&mut self, context: usize, waker: u32, clock: &mut Clock) -> bool {
        if self.running_on(context) != NO_THREAD {
            return false;
        }
        if waker != NO_THREAD {
            clock.now += self.parameters.wake_idle_ns;
        }
        self.dispatch(context, self.parameters.idle_exit_ns, clock);
        true
    }

    /// Takes a waiting thread of another context for the idle `context`.
    fn steal(&mut self, context: usize) -> Option<u32> {
        if !self.has_waiting() {
            return None;
        }
        let special = self.special.as_ref();
        let victim = match &self.time_sharing {
            Some(_) => placement::with_best_waiting(&self.queues, special, context),
            None => placement::to_steal_from(&self.queues, special, context),
        };
        let stolen = victim.and_then(|victim| Some((self.queues.pick(victim)?, victim)));
        let (thread, victim) = match stolen {
            Some(stolen) => stolen,
            None => {
                let (victim, place) = placement::to_steal_across(&self.queues, special?, context)?;
                (self.queues.remove(victim, place), victim)
            }
        };
        self.queues.move_vruntime(thread, victim, context);
        Some(thread)
    }

    /// Runs the next thread, if any, on the free `context`, `extra` nanoseconds later.
    fn dispatch(&mut self, context: usize, extra: u64, clock: &mut Clock) {
        debug_assert_eq!(self.running_on(context), NO_THREAD);
        let Some(thread) = self.queues.pick(context).or_else(|| self.steal(context)) else {
            return;
        };
        self.run_on(thread, context, extra, clock);
    }

    /// Runs `thread`, which is in no queue, on the free `context`, `extra` nanoseconds later.
    fn run_on(&mut self, thread: u32, context: usize, extra: u64, clock: &mut Clock) {
        let now = clock.now;
        let is_switch = self.queues.contexts[context].last != thread;
        let mut start = now + extra;
        if is_switch {
            start = self.pass_switch(now) + self.parameters.switch_ns + extra;
            self.switches += 1;
        }
        let Queues { contexts, tasks, idle, busy_in_core, .. } = &mut self.queues;
        let (place, task) = (&mut contexts[context], &mut tasks[thread as usize]);
        *idle -= 1;
        busy_in_core[place.core] += 1;
        (place.current, place.last, place.busy_since) = (thread, thread, now);
        (task.state, task.context, task.ran_since) = (State::Running, context, start);
        place.least_vruntime = place.least_vruntime.max(task.vruntime);
        let at = match task.flight {
            Flight::Work(left) => start + left,
            Flight::Until(time) => start.max(time),
            Flight::Poll | Flight::YieldingPoll | Flight::Mwait { .. } => start,
        };
        self.accounts.set_run_state(thread, RunState::Running, now);
        if let Some(waits) = &mut self.waits {
            waits.set_processor(thread, true, now);
        }
        self.begin_slice(thread, start);
        clock.schedule_resume(thread, at);
        self.arm_tick(context, clock);
    }

    /// Returns the time at which a switch that begins at `now` has passed the scheduler's lock.
    fn pass_switch(&mut self, now: u64) -> u64 {
        let start = now.max(self.switch_lock_free_at);
        if let Some(span) = 1_000_000_000_u64.checked_div(self.parameters.switches_per_s) {
            self.switch_lock_free_at = start + span;
        }
        start
    }

    /// Deschedules the running thread of `context`, which becomes free.
    fn deschedule(&mut self, context: usize, place: RunState, clock: &mut Clock) -> u32 {
        let thread = self.running_on(context);
        self.queues.charge(thread, clock.now);
        self.accounts.set_run_state(thread, place, clock.now);
        if let Some(waits) = &mut self.waits {
            waits.set_processor(thread, false, clock.now);
        }
        self.end_slice(thread, clock.now);
        self.task_mut(thread).left_at = clock.now;
        let context = &mut self.queues.contexts[context];
        context.free(clock.now);
        self.queues.idle += 1;
        self.queues.busy_in_core[context.core] -= 1;
        clock.cancel(thread);
        thread
    }

    /// Deschedules the running thread of `context` in the middle of its work. The thread finishes
    /// the work when it next runs. Returns the thread, and how long the context needs to leave
    /// `mwait` for the interrupt.
    fn interrupt(&mut self, context: usize, clock: &mut Clock) -> (u32, u64) {
        self.preemptions += 1;
        let exit_ns = self.end_mwait(self.running_on(context), clock.now);
        let thread = self.deschedule(context, RunState::Ready, clock);
        let ran_since = self.task(thread).ran_since;
        if let Flight::Work(left) = &mut self.task_mut(thread).flight {
            // A switch to the thread that has not ended is no work of the thread.
            *left = clock.resumes_at(thread).saturating_sub(ran_since.max(clock.now));
        }
        (thread, exit_ns)
    }

    /// Returns the running thread of `context` if it may be preempted. If not, the thread gives way
    /// as soon as it may.
    pub(crate) fn request_preemption(&mut self, context: usize) -> Option<u32> {
        let thread = self.running_on(context);
        (self.task_mut(thread).begin_preemption() && self.class_allows_preemption(thread))
            .then_some(thread)
    }

    /// Replaces the running thread of `context` by the next one. Returns another context whose
    /// thread should be preempted for the replaced one.
    pub(crate) fn preempt(&mut self, context: usize, clock: &mut Clock) -> Option<usize> {
        self.replace(context, 0, clock)
    }

    /// Same as [`preempt`](Self::preempt), at a tick, which takes time.
    pub(crate) fn preempt_at_tick(&mut self, context: usize, clock: &mut Clock) -> Option<usize> {
        let takes = self.parameters.tick_switch_ns.draw(&mut self.random);
        self.replace(context, takes.saturating_sub(self.parameters.switch_ns), clock)
    }

    fn replace(&mut self, context: usize, extra: u64, clock: &mut Clock) -> Option<usize> {
        let (thread, exit_ns) = self.interrupt(context, clock);
        self.task_mut(thread).extended = false;
        let preempted = self.requeue_preempted(thread, context, clock);
        self.dispatch(context, extra + exit_ns, clock);
        preempted
    }

    /// Deschedules `thread`, which is inside an operation, and runs the next one. The caller
    /// suspends it. Returns another context whose thread should be preempted for it.
    pub(crate) fn give_way(&mut self, thread: u32, clock: &mut Clock) -> Option<usize> {
        let context = self.end_run(thread, clock);
        let preempted = self.requeue_preempted(thread, context, clock);
        self.dispatch(context, 0, clock);
        preempted
    }

    /// Same as [`give_way`](Self::give_way), for a preemption that was due earlier.
    pub(crate) fn give_way_late(&mut self, thread: u32, clock: &mut Clock) -> Option<usize> {
        self.preemptions += 1;
        self.give_way(thread, clock)
    }

    /// Takes the running `thread`, which is inside an operation, from its context. Returns the
    /// context.
    fn end_run(&mut self, thread: u32, clock: &mut Clock) -> usize {
        let context = self.task(thread).context;
        self.deschedule(context, RunState::Ready, clock);
        self.task_mut(thread).set_flight(Flight::Work(0));
        context
    }

    /// Blocks or ends the running `thread`. The caller suspends it.
    pub(crate) fn leave(&mut self, thread: u32, state: State, clock: &mut Clock) {
        let context = self.task(thread).context;
        self.enter_kernel(thread);
        self.deschedule(context, RunState::Blocked, clock);
        let task = self.task_mut(thread);
        (task.state, task.flight) = (state, Flight::Work(0));
        self.dispatch(context, 0, clock);
        self.queues.contexts[context].forget_last();
    }
}
