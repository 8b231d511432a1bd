//! The operating system's scheduler: a run queue per context, in the order of virtual run time, as
//! in Linux; with long slices and a large credit for sleepers it is a time-sharing scheduler such
//! as Solaris'.
//!
//! A thread that wakes goes to the context that it ran on, or else to the nearest one that is idle.
//! It preempts who has run for much longer. A context that has nothing to do takes a thread from
//! the longest queue; every `balance_ns` the longest queue gives one to the shortest. The tick
//! looks whether the running thread's slice is over, but only where somebody waits for it to end.
//! What is left of a slice when a thread blocks is still there when it wakes, as under Solaris'
//! time-sharing class (`ts_timeleft`) and under EEVDF (the deadline): who sleeps often is preempted
//! too.
//!
//! All switches pass one lock that lets through `switches_per_s` (DaMoN 2009, section 4.2: 134,000
//! per second on the papers' machine): beyond, threads wait although there are idle contexts.
//!
//! What is *not* modelled: scheduling domains (the search is for the nearest, the balancing for the
//! whole machine), priorities, groups, and what the cache loses by a migration beyond the lines
//! that are shared.
//!
//! What a thread loses with its processor is the machine's concern: the scheduler says that a thread
//! is to be preempted, and preempts it on demand.

mod accounts;
mod placement;
mod queues;
mod special;
mod task;
#[cfg(test)]
mod tests;

use super::clock::{Clock, Event};
use super::thread::NOBODY;
use crate::parameters::{self, Topology};
use accounts::{Accounts, Place};
pub use accounts::{Activity, Split};
use queues::Queues;
pub(crate) use special::Special;
use task::Task;
pub(crate) use task::{Flight, State};

/// A machine's scheduler. Where a function takes a thread or a context, these are their numbers.
pub(crate) struct Scheduler {
    parameters: parameters::Scheduler,
    topology: Topology,
    queues: Queues,
    /// The lock-contention-aware scheduler, if there is one.
    special: Option<Special>,
    /// Where the threads' time goes.
    pub(crate) accounts: Accounts,
    switch_lock_free_at: u64,
    switches: u64,
    preemptions: u64,
}

impl Scheduler {
    pub(crate) fn new(topology: Topology, parameters: parameters::Scheduler) -> Self {
        Scheduler {
            parameters,
            topology,
            queues: Queues::new(topology.cores(), *topology.contexts_per_core as usize),
            special: None,
            accounts: Accounts::default(),
            switch_lock_free_at: 0,
            switches: 0,
            preemptions: 0,
        }
    }

    /// Switches the lock-contention-aware scheduler on, before there are threads.
    pub(crate) fn schedule_specially(&mut self, parameters: unconvoy_sched::Parameters, now: u64) {
        assert!(self.queues.tasks.is_empty(), "time slices have begun that it does not know of");
        self.special = Some(Special::new(parameters, now));
    }

    /// The lock-contention-aware scheduler, if it is on.
    pub(crate) fn special(&self) -> Option<&Special> {
        self.special.as_ref()
    }

    pub(crate) fn is_special(&self) -> bool {
        self.special.is_some()
    }

    /// A blocked thread more, which has run for `slice_used` nanoseconds of its slice.
    pub(crate) fn add_thread(&mut self, slice_used: u64) {
        self.queues.add_thread(slice_used);
    }

    #[inline]
    pub(crate) fn task(&self, thread: u32) -> &Task {
        self.queues.task(thread)
    }

    #[inline]
    pub(crate) fn task_mut(&mut self, thread: u32) -> &mut Task {
        self.queues.task_mut(thread)
    }

    /// The core that a thread runs on, or ran on last.
    #[inline]
    pub(crate) fn core_of(&self, thread: u32) -> usize {
        self.queues.contexts[self.task(thread).context].core
    }

    /// The thread that runs on a context, or [`NOBODY`].
    #[inline]
    pub(crate) fn running_on(&self, context: usize) -> u32 {
        self.queues.contexts[context].current
    }

    /// Contexts of the machine.
    pub(crate) fn contexts(&self) -> usize {
        self.queues.contexts.len()
    }

    /// Contexts of a core that have a thread.
    #[inline(always)]
    pub(crate) fn busy_in_core(&self, core: usize) -> u32 {
        self.queues.busy_in_core[core]
    }

    /// Whether no context has a thread.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.idle == self.queues.contexts.len()
    }

    /// Whether threads wait in run queues.
    pub(crate) fn has_waiting(&self) -> bool {
        self.queues.queued != 0
    }

    /// Context switches and preemptions so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.switches, self.preemptions)
    }

    /// `thread`, which was blocked, can run from now on; `waker` woke it, or [`NOBODY`]. The
    /// context whose thread is to be [preempted](Self::request_preemption) for it, if there is one.
    pub(crate) fn wake(&mut self, thread: u32, waker: u32, clock: &mut Clock) -> Option<usize> {
        debug_assert_eq!(self.task(thread).state, State::Blocked);
        let context = placement::to_wake_on(&self.queues, self.special.as_ref(), &self.topology, thread);
        let least = self.queues.contexts[context].least_vruntime;
        let task = self.task(thread);
        let least_before = self.queues.contexts[task.context].least_vruntime;
        let behind = least_before.saturating_sub(task.vruntime).min(self.parameters.sleeper_credit_ns);
        let ahead = task.vruntime.saturating_sub(least_before);
        let vruntime = (least + ahead).saturating_sub(behind);
        self.task_mut(thread).vruntime = vruntime;
        self.accounts.set_place(thread, Place::Ready, clock.now);
        self.queues.enqueue(thread, context);
        let running = self.running_on(context);
        if running == NOBODY {
            if waker != NOBODY {
                clock.now += self.parameters.wake_idle_ns;
            }
            self.dispatch(context, self.parameters.idle_exit_ns, clock);
            return None;
        }
        self.arm_tick(context, clock);
        self.queues.charge(running, clock.now);
        let lead = self.task(running).vruntime.saturating_sub(vruntime);
        if lead > self.parameters.wake_preempt_ns {
            return Some(context);
        }
        if self.task(running).flight == Flight::YieldingPoll && running != waker {
            clock.announce(running, clock.now + self.parameters.yield_ns);
        }
        None
    }

    /// A waiting thread of another context for `context`, which has nothing to do.
    fn steal(&mut self, context: usize) -> Option<u32> {
        if !self.has_waiting() {
            return None;
        }
        let special = self.special.as_ref();
        let victim = placement::to_steal_from(&self.queues, special, context);
        let stolen = victim.and_then(|victim| Some((self.queues.pick(victim)?, victim)));
        let (thread, victim) = match stolen {
            Some(stolen) => stolen,
            None => {
                let (victim, place) = placement::to_let_out(&self.queues, special?, context)?;
                (self.queues.remove(victim, place), victim)
            }
        };
        self.queues.move_vruntime(thread, victim, context);
        Some(thread)
    }

    /// Runs the next thread, if there is one, on the free `context`, `extra` nanoseconds later.
    fn dispatch(&mut self, context: usize, extra: u64, clock: &mut Clock) {
        debug_assert_eq!(self.running_on(context), NOBODY);
        let Some(thread) = self.queues.pick(context).or_else(|| self.steal(context)) else {
            return;
        };
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
        (place.current, place.last) = (thread, thread);
        (task.state, task.context, task.ran_since) = (State::Running, context, start);
        place.least_vruntime = place.least_vruntime.max(task.vruntime);
        let at = match task.flight {
            Flight::Work(left) => start + left,
            Flight::Until(time) => start.max(time),
            Flight::Poll | Flight::YieldingPoll => start,
        };
        self.accounts.set_place(thread, Place::Running, now);
        self.begin_slice(thread, start);
        clock.announce(thread, at);
        self.arm_tick(context, clock);
    }

    /// When a switch that begins at `now` gets through the scheduler's lock.
    fn pass_switch(&mut self, now: u64) -> u64 {
        let start = now.max(self.switch_lock_free_at);
        if let Some(span) = 1_000_000_000_u64.checked_div(self.parameters.switches_per_s) {
            self.switch_lock_free_at = start + span;
        }
        start
    }

    fn begin_slice(&mut self, thread: u32, start: u64) {
        if let Some(special) = &self.special {
            let task = &mut self.queues.task_mut(thread).standing;
            special.begin_slice(task, start, self.accounts.waited_on_processor(thread));
        }
    }

    /// A slice of `thread` is over. What it did so far is booked.
    fn end_slice(&mut self, thread: u32, now: u64) {
        if let Some(special) = &mut self.special {
            special.end_slice(&mut self.queues, thread, now, self.accounts.waited_on_processor(thread));
        }
    }

    /// Takes the running thread of `context` away from it; the context is free.
    fn take_off(&mut self, context: usize, place: Place, clock: &mut Clock) -> u32 {
        let thread = self.running_on(context);
        self.queues.charge(thread, clock.now);
        self.accounts.set_place(thread, place, clock.now);
        self.end_slice(thread, clock.now);
        let context = &mut self.queues.contexts[context];
        context.current = NOBODY;
        self.queues.idle += 1;
        self.queues.busy_in_core[context.core] -= 1;
        clock.cancel(thread);
        thread
    }

    /// Takes away the running thread of `context`, which is in the middle of something; what is
    /// left of that it does when it has a context again.
    fn interrupt(&mut self, context: usize, clock: &mut Clock) -> u32 {
        self.preemptions += 1;
        let thread = self.take_off(context, Place::Ready, clock);
        if let Flight::Work(left) = &mut self.task_mut(thread).flight {
            *left = clock.resumes_at(thread).saturating_sub(clock.now);
        }
        thread
    }

    /// The running thread of `context`, if it may be preempted; if not, it is as soon as it may.
    pub(crate) fn request_preemption(&mut self, context: usize) -> Option<u32> {
        let thread = self.running_on(context);
        self.task_mut(thread).begin_preemption().then_some(thread)
    }

    /// Has another thread run on `context` than the one that does.
    pub(crate) fn preempt(&mut self, context: usize, clock: &mut Clock) {
        let thread = self.interrupt(context, clock);
        self.task_mut(thread).extended = false;
        self.queues.enqueue(thread, context);
        self.dispatch(context, 0, clock);
    }

    /// `thread`, in a call to the machine, lets another one run. To be suspended.
    pub(crate) fn give_way(&mut self, thread: u32, clock: &mut Clock) {
        let context = self.task(thread).context;
        self.take_off(context, Place::Ready, clock);
        self.task_mut(thread).set_flight(Flight::Work(0));
        self.queues.enqueue(thread, context);
        self.dispatch(context, 0, clock);
    }

    /// The same, because it could not be preempted earlier.
    pub(crate) fn give_way_late(&mut self, thread: u32, clock: &mut Clock) {
        self.preemptions += 1;
        self.give_way(thread, clock);
    }

    /// `thread`, which runs, yields; false if there is nobody to yield to. To be suspended if true.
    pub(crate) fn yield_now(&mut self, thread: u32, clock: &mut Clock) -> bool {
        let queue = &self.queues.contexts[self.task(thread).context].queue;
        let Some(last) = queue.iter().map(|&other| self.task(other).vruntime).max() else { return false };
        self.queues.charge(thread, clock.now);
        let vruntime = &mut self.task_mut(thread).vruntime;
        *vruntime = (*vruntime).max(last + 1);
        self.give_way(thread, clock);
        true
    }

    /// `thread`, which runs, blocks, or ends. To be suspended.
    pub(crate) fn leave(&mut self, thread: u32, state: State, clock: &mut Clock) {
        let context = self.task(thread).context;
        self.take_off(context, Place::Blocked, clock);
        let task = self.task_mut(thread);
        (task.state, task.flight) = (state, Flight::Work(0));
        self.dispatch(context, 0, clock);
        self.queues.contexts[context].forget_last();
    }

    /// Has `context` tick if its thread's slice has to end some time.
    pub(crate) fn arm_tick(&mut self, context: usize, clock: &mut Clock) {
        let is_special = self.is_special();
        let place = &mut self.queues.contexts[context];
        if place.tick_armed || place.queue.is_empty() && !is_special {
            return;
        }
        place.tick_armed = true;
        let current = place.current;
        if current != NOBODY {
            // Slices that ended while nobody waited were followed by another one.
            self.queues.charge(current, clock.now);
            self.task_mut(current).slice_used %= self.parameters.slice_ns;
        }
        // Contexts tick one after the other, as in Linux without `skew_tick` they do by chance of
        // their start.
        let period = self.parameters.tick_ns;
        let phase = context as u64 * period / self.contexts() as u64;
        let next = (clock.now + period - phase) / period * period + phase;
        clock.push(next.max(clock.now + 1), Event::Tick { context: context as u32 });
    }

    /// A context ticks. True: its thread has to be preempted, and then [armed](Self::arm_tick).
    pub(crate) fn tick(&mut self, context: usize, clock: &mut Clock) -> bool {
        let place = &mut self.queues.contexts[context];
        place.tick_armed = false;
        let (current, is_alone) = (place.current, place.queue.is_empty());
        if current == NOBODY || is_alone && !self.is_special() {
            return false;
        }
        let now = clock.now;
        self.queues.charge(current, now);
        let task = self.task(current);
        if is_alone {
            // Nobody else wants the context: a slice ends and another one begins, if it was long
            // enough.
            if task.standing.slice_ran_ns(now) >= self.parameters.slice_ns {
                self.accounts.book(current, now);
                self.end_slice(current, now);
                self.begin_slice(current, now);
            }
        } else if task.slice_used >= self.parameters.slice_ns && !self.extend(context, clock) {
            self.task_mut(current).slice_used = 0;
            return true;
        }
        self.arm_tick(context, clock);
        false
    }

    /// Lets the thread on `context` run on if it asked for that; once.
    fn extend(&mut self, context: usize, clock: &mut Clock) -> bool {
        let extension = self.parameters.extension_ns;
        if extension == 0 || !self.task_mut(self.running_on(context)).extend() {
            return false;
        }
        self.queues.contexts[context].tick_armed = true;
        clock.push(clock.now + extension, Event::Tick { context: context as u32 });
        true
    }

    /// Where in the set `thread` has to [move](Self::move_to) before a lock, and what that takes.
    pub(crate) fn place_in_set(&mut self, thread: u32) -> Option<(usize, u64)> {
        placement::to_set(&mut self.queues, self.special.as_mut()?, &self.topology, thread)
    }

    /// The task of `thread` ends, and another one begins where there is least to do (the kernel
    /// balances when a program starts): the context to which it has to [move](Self::move_to).
    pub(crate) fn renew(&mut self, thread: u32) -> Option<usize> {
        placement::to_renew_on(&mut self.queues, self.special.as_mut(), thread)
    }

    /// Moves `thread`, which runs, to the context `there`, where it goes on after `cost`
    /// nanoseconds. To be suspended.
    pub(crate) fn move_to(&mut self, thread: u32, there: usize, cost: u64, clock: &mut Clock) {
        let here = self.task(thread).context;
        self.take_off(here, Place::Ready, clock);
        self.task_mut(thread).set_flight(Flight::Work(cost));
        self.hand_over(thread, here, there, 0, clock);
        self.dispatch(here, 0, clock);
        self.queues.contexts[here].forget_last();
    }

    /// `thread`, which is on no context and in no queue, goes from one context to another. If
    /// nobody runs there it goes on, after `extra` nanoseconds.
    fn hand_over(&mut self, thread: u32, from: usize, to: usize, extra: u64, clock: &mut Clock) {
        self.queues.move_vruntime(thread, from, to);
        self.queues.enqueue(thread, to);
        if self.running_on(to) == NOBODY {
            self.dispatch(to, extra, clock);
        } else {
            self.arm_tick(to, clock);
        }
    }

    /// Where there are two sides a context may have nothing to do while somebody waits on the
    /// other. Once one of them may change sides, or the sides have changed, it looks again, as
    /// Linux' idle processors do at each tick. The context `first` does so first.
    pub(crate) fn serve_idle(&mut self, first: usize, clock: &mut Clock) {
        if !self.is_special() {
            return;
        }
        let count = self.contexts();
        let around = (0..count).map(|offset| (first + offset) % count);
        let idle: Vec<usize> = around.filter(|&context| self.queues.contexts[context].is_free()).collect();
        for context in idle {
            self.dispatch(context, self.parameters.idle_exit_ns, clock);
        }
    }

    /// A context of the set whose thread is to be [pushed out](Self::push_out), and a free one.
    pub(crate) fn to_push_out(&self) -> Option<(usize, usize)> {
        placement::to_push_out(&self.queues, self.special.as_ref()?)
    }

    /// The thread that runs on `from` goes on on `to`, which has nothing to do.
    pub(crate) fn push_out(&mut self, from: usize, to: usize, clock: &mut Clock) {
        let thread = self.interrupt(from, clock);
        self.hand_over(thread, from, to, self.parameters.idle_exit_ns, clock);
        self.dispatch(from, 0, clock);
    }

    /// Moves a thread from the longest run queue to the shortest; among equals `first` decides.
    pub(crate) fn even_out(&mut self, first: usize, clock: &mut Clock) {
        for (longest, shortest) in placement::uneven(&self.queues, self.special.as_ref(), first) {
            if let Some(thread) = self.queues.pick(longest) {
                self.hand_over(thread, longest, shortest, self.parameters.idle_exit_ns, clock);
            }
        }
    }
}
