//! Time slices and the ticks that end them.

use super::Scheduler;
use super::task::Flight;
use crate::machine::clock::{Clock, Event};
use crate::machine::thread::NO_THREAD;

impl Scheduler {
    /// When the running `thread` is, or was, in its program again after the last tick and after the
    /// switch that gave it a processor.
    #[inline]
    pub(crate) fn back_at(&self, thread: u32) -> u64 {
        let task = self.task(thread);
        task.back_at.max(task.ran_since)
    }

    /// Yields for the running `thread`. Returns false if no other thread may have its context;
    /// otherwise the caller suspends `thread`. Also returns another context whose thread should be
    /// preempted for it.
    pub(crate) fn yield_now(&mut self, thread: u32, clock: &mut Clock) -> (bool, Option<usize>) {
        if self.time_sharing.is_some() {
            let Some(place) = self.yield_by_class(thread, clock) else { return (false, None) };
            let context = self.end_run(thread, clock);
            let preempted = self.requeue(thread, context, place, clock);
            self.dispatch(context, 0, clock);
            return (true, preempted);
        }
        if self.queues.waiting(self.task(thread).context) == 0 {
            return (false, None);
        }
        self.queues.charge(thread, clock.now);
        self.queues.charge_yield(thread);
        (true, self.give_way(thread, clock))
    }

    /// If the running thread polls and yields, it sees in its next turn that another thread waits.
    pub(super) fn let_yield(&mut self, running: u32, clock: &mut Clock) {
        let at = (clock.now + self.parameters.yield_ns).max(self.back_at(running));
        if self.task(running).flight == Flight::YieldingPoll && at < clock.resumes_at(running) {
            clock.schedule_resume(running, at);
        }
    }

    pub(super) fn begin_slice(&mut self, thread: u32, start: u64) {
        if let Some(special) = &self.special {
            let task = &mut self.queues.task_mut(thread).policy_task;
            special.begin_slice(task, start, self.accounts.waited_on_processor(thread));
        }
    }

    /// Ends a slice of `thread`, whose time is booked.
    pub(super) fn end_slice(&mut self, thread: u32, now: u64) {
        if let Some(special) = &mut self.special {
            special.end_slice(
                &mut self.queues,
                thread,
                now,
                self.accounts.waited_on_processor(thread),
            );
        }
    }

    /// Schedules the next tick of `context`, if its thread's slice has to end or ticks take time.
    pub(crate) fn arm_tick(&mut self, context: usize, clock: &mut Clock) {
        let has_special_set = self.has_special_set();
        let place = &mut self.queues.contexts[context];
        let takes_time = !place.is_free() && !self.parameters.tick_work_ns.is_zero();
        let counts = !place.is_free() && self.time_sharing.is_some();
        let is_needed = !place.queue.is_empty() || has_special_set || takes_time || counts;
        if place.tick_armed || !is_needed {
            return;
        }
        place.tick_armed = true;
        let current = place.current;
        if current != NO_THREAD {
            // While no thread waited, a new slice followed each one that ended.
            self.queues.charge(current, clock.now);
            self.task_mut(current).slice_used %= self.parameters.slice_ns;
        }
        let next = self.next_tick(context, clock.now);
        clock.push(next, Event::Tick { context: context as u32 });
    }

    /// When the timer of `context` next interrupts after `now`.
    pub(crate) fn next_tick(&self, context: usize, now: u64) -> u64 {
        let (period, count) = (self.parameters.tick_ns, self.contexts() as u64);
        let phase = match self.parameters.tick_skew_ns {
            Some(skew) => context as u64 * skew % period,
            None => context as u64 * period / count,
        };
        ((now + period - phase) / period * period + phase).max(now + 1)
    }

    /// Handles a tick of `context`. Returns true if the caller must preempt the context's thread
    /// and then [schedule](Self::arm_tick) the next tick.
    pub(crate) fn tick(&mut self, context: usize, clock: &mut Clock) -> bool {
        let place = &mut self.queues.contexts[context];
        place.tick_armed = false;
        let (current, is_alone) = (place.current, place.queue.is_empty());
        if current == NO_THREAD {
            return false;
        }
        let now = clock.now;
        let counts = self.time_sharing.is_some();
        if is_alone && !self.has_special_set() && !counts {
            self.work_at_tick(current, clock);
            self.arm_tick(context, clock);
            return false;
        }
        self.queues.charge(current, now);
        let task = self.task(current);
        let is_over = !counts && task.slice_used >= self.parameters.slice_ns;
        if is_alone && self.has_special_set() {
            // No other thread wants the context: a slice that was long enough is followed by a new
            // one.
            if task.policy_task.slice_ran_ns(now) >= self.parameters.slice_ns {
                self.accounts.book(current, now);
                self.end_slice(current, now);
                self.begin_slice(current, now);
            }
        } else if is_over && !self.extend(context, clock) {
            self.task_mut(current).slice_used = 0;
            return true;
        }
        if self.tick_by_class(current, context) {
            return true;
        }
        self.work_at_tick(current, clock);
        self.arm_tick(context, clock);
        false
    }

    /// Keeps the running `thread` from its context while the tick takes its time.
    fn work_at_tick(&mut self, thread: u32, clock: &mut Clock) {
        let takes = self.parameters.tick_work_ns.draw(&mut self.random);
        if takes == 0 {
            return;
        }
        let back_at = clock.now + takes;
        let task = self.task_mut(thread);
        task.back_at = back_at;
        let at = match task.flight {
            Flight::Work(_) => clock.resumes_at(thread).max(clock.now) + takes,
            Flight::Until(_) | Flight::Poll | Flight::YieldingPoll | Flight::Mwait { .. } => {
                clock.resumes_at(thread).max(back_at)
            }
        };
        clock.schedule_resume(thread, at);
    }

    /// Extends the slice of the thread on `context` once, if the thread requested it.
    fn extend(&mut self, context: usize, clock: &mut Clock) -> bool {
        let extension = self.parameters.extension_ns;
        if extension == 0 || !self.task_mut(self.running_on(context)).extend() {
            return false;
        }
        self.queues.contexts[context].tick_armed = true;
        clock.push(clock.now + extension, Event::Tick { context: context as u32 });
        true
    }
}
