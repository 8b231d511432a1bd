//! Contexts, their run queues, and the machine's threads.

use std::cmp::Reverse;

use super::task::{State, Task};
use crate::machine::thread::NO_THREAD;
use crate::parameters::Order;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) core: usize,
    pub(super) current: u32,
    pub(super) queue: Vec<u32>,
    pub(super) last: u32,
    pub(super) tick_armed: bool,
    pub(super) least_vruntime: u64,
    /// Since when it has its current thread.
    pub(super) busy_since: u64,
    /// Time that it had earlier threads.
    busy_ns: u64,
}

impl Context {
    pub(super) fn is_free(&self) -> bool {
        self.current == NO_THREAD
    }

    /// Takes the current thread away.
    pub(super) fn free(&mut self, now: u64) {
        self.busy_ns = self.busy_ns(now);
        self.current = NO_THREAD;
    }

    /// Time that it has had a thread, up to `now`.
    pub(super) fn busy_ns(&self, now: u64) -> u64 {
        let span = if self.is_free() { 0 } else { now.saturating_sub(self.busy_since) };
        self.busy_ns + span
    }

    /// Forgets the last thread if the context is free. The context then runs the idle thread, so
    /// that even a return to the last thread is a context switch.
    pub(super) fn forget_last(&mut self) {
        if self.is_free() {
            self.last = NO_THREAD;
        }
    }
}

pub(super) struct Queues {
    pub(super) contexts: Vec<Context>,
    pub(super) tasks: Vec<Task>,
    /// Number of contexts without a thread.
    pub(super) idle: usize,
    /// Number of contexts with a thread, by core.
    pub(super) busy_in_core: Vec<u32>,
    /// Number of threads in run queues.
    pub(super) queued: usize,
    order: Order,
    /// The length of a slice.
    slice_ns: u64,
}

impl Queues {
    /// `order` decides which thread is next; slices are `slice_ns` long.
    pub(super) fn new(cores: usize, contexts_per_core: usize, order: Order, slice_ns: u64) -> Self {
        let context = |number: usize| Context {
            core: number / contexts_per_core,
            current: NO_THREAD,
            queue: Vec::new(),
            last: NO_THREAD,
            tick_armed: false,
            least_vruntime: 0,
            busy_since: 0,
            busy_ns: 0,
        };
        let contexts: Vec<Context> = (0..cores * contexts_per_core).map(context).collect();
        Queues {
            idle: contexts.len(),
            contexts,
            tasks: Vec::new(),
            busy_in_core: vec![0; cores],
            queued: 0,
            order,
            slice_ns,
        }
    }

    /// Adds a blocked thread that has used `slice_used` nanoseconds of its slice. New threads are
    /// spread over all cores first, then over the contexts of each.
    pub(super) fn add_thread(&mut self, slice_used: u64) {
        let (cores, contexts) = (self.busy_in_core.len(), self.contexts.len());
        let place = self.tasks.len() % contexts;
        let context = place % cores * (contexts / cores) + place / cores;
        self.tasks.push(Task::new(context, slice_used));
    }

    #[inline]
    pub(super) fn task(&self, thread: u32) -> &Task {
        &self.tasks[thread as usize]
    }

    #[inline]
    pub(super) fn task_mut(&mut self, thread: u32) -> &mut Task {
        &mut self.tasks[thread as usize]
    }

    /// Number of threads that wait for `context`.
    pub(super) fn waiting(&self, context: usize) -> usize {
        self.contexts[context].queue.len()
    }

    /// Number of threads that run on `context` or wait for it, other than `thread`.
    pub(super) fn others_on(&self, context: usize, thread: u32) -> u32 {
        let context = &self.contexts[context];
        context.queue.len() as u32 + u32::from(!context.is_free() && context.current != thread)
    }

    pub(super) fn enqueue(&mut self, thread: u32, context: usize) {
        let task = self.task_mut(thread);
        (task.state, task.context) = (State::Ready, context);
        self.contexts[context].queue.push(thread);
        self.queued += 1;
    }

    /// Same as [`enqueue`](Self::enqueue), before the threads that wait for `context`.
    pub(super) fn enqueue_first(&mut self, thread: u32, context: usize) {
        self.enqueue(thread, context);
        self.contexts[context].queue.rotate_right(1);
    }

    /// Number of threads of `priority` that wait for `context`.
    pub(super) fn waiting_at(&self, context: usize, priority: u8) -> usize {
        let queue = &self.contexts[context].queue;
        queue.iter().filter(|&&thread| self.task(thread).priority() == priority).count()
    }

    /// Highest priority of the threads that wait for `context`.
    pub(super) fn best_waiting(&self, context: usize) -> Option<u8> {
        let queue = &self.contexts[context].queue;
        queue.iter().map(|&thread| self.task(thread).priority()).max()
    }

    /// Removes and returns the next thread of `context`.
    pub(super) fn pick(&mut self, context: usize) -> Option<u32> {
        let queue = &self.contexts[context].queue;
        let vruntime = |place: usize| self.task(queue[place]).vruntime;
        let first = match self.order {
            Order::RunTime => (0..queue.len()).min_by_key(|&place| vruntime(place))?,
            Order::TimeSharing => {
                let priority = |&place: &usize| Reverse(self.task(queue[place]).priority());
                (0..queue.len()).min_by_key(priority)?
            }
            Order::Deadline => {
                let slice = self.slice_ns;
                let sum: u128 = (0..queue.len()).map(|place| u128::from(vruntime(place))).sum();
                let is_eligible =
                    |&place: &usize| u128::from(vruntime(place)) * queue.len() as u128 <= sum;
                let deadline = |&place: &usize| self.task(queue[place]).deadline(slice);
                (0..queue.len()).filter(is_eligible).min_by_key(deadline)?
            }
        };
        Some(self.remove(context, first))
    }

    /// Postpones the turn of the running `thread`, which yields and for whose context others wait.
    ///
    /// By run time, all of them come first. By deadline, as in Linux since 6.18
    /// (`yield_task_fair`), a thread that is eligible forfeits the rest of its slice: each yield
    /// brings it a slice closer to the end of its turn, and one that does not yield runs on.
    pub(super) fn charge_yield(&mut self, thread: u32) {
        let (is_eligible, slice) = (self.is_eligible(thread, 0), self.slice_ns);
        let by_deadline = self.order == Order::Deadline;
        let last = self.others_of(thread).map(|other| self.task(other).vruntime).max().unwrap_or(0);
        let task = self.task_mut(thread);
        if !by_deadline {
            task.vruntime = task.vruntime.max(last + 1);
        } else if is_eligible {
            (task.vruntime, task.slice_used) = (task.deadline(slice), 0);
        }
    }

    /// The other threads on the context of `thread`, or waiting for it.
    fn others_of(&self, thread: u32) -> impl Iterator<Item = u32> {
        let Context { queue, current, .. } = &self.contexts[self.task(thread).context];
        let is_other = move |other: &u32| *other != thread && *other != NO_THREAD;
        queue.iter().chain([current]).copied().filter(is_other)
    }

    /// Whether `thread` has run for no more than its share of its context until `now`.
    fn is_eligible(&self, thread: u32, now: u64) -> bool {
        let running = self.contexts[self.task(thread).context].current;
        let vruntime = |other: u32| {
            let task = self.task(other);
            let ran = if other == running { now.saturating_sub(task.ran_since) } else { 0 };
            u128::from(task.vruntime + ran)
        };
        let (count, sum) = self
            .others_of(thread)
            .fold((0_u128, 0), |(count, sum), other| (count + 1, sum + vruntime(other)));
        u128::from(self.task(thread).vruntime) * count <= sum
    }

    /// Gives a new slice to `thread`, which wakes, if the order is by deadline. One that has not
    /// run yet keeps the part of a slice that it was [added](Self::add_thread) with.
    ///
    /// As in Linux (`dequeue_entity`), a thread that has run for more than its share when it blocks
    /// stays in its queue until it has not, and has its old slice if it wakes before.
    pub(super) fn renew_slice(&mut self, thread: u32, now: u64) {
        let has_run = self.task(thread).vruntime != 0;
        if self.order == Order::Deadline && has_run && self.is_eligible(thread, now) {
            self.task_mut(thread).slice_used = 0;
        }
    }

    /// Removes and returns the thread at index `place` in the queue of `context`.
    pub(super) fn remove(&mut self, context: usize, place: usize) -> u32 {
        self.queued -= 1;
        // Keep the order: among equals, the thread that has waited longest is next.
        self.contexts[context].queue.remove(place)
    }

    /// Adjusts the virtual run time of `thread` so that its lead or lag is the same on context
    /// `to`.
    pub(super) fn move_vruntime(&mut self, thread: u32, from: usize, to: usize) {
        let (from, to) = (self.contexts[from].least_vruntime, self.contexts[to].least_vruntime);
        let vruntime = &mut self.task_mut(thread).vruntime;
        *vruntime = (*vruntime + to).saturating_sub(from);
    }

    /// Adds the run time of the running `thread` to its virtual run time.
    pub(super) fn charge(&mut self, thread: u32, now: u64) {
        let task = self.task_mut(thread);
        let ran = now.saturating_sub(task.ran_since);
        task.vruntime += ran;
        task.slice_used += ran;
        task.ran_since = task.ran_since.max(now);
        let (vruntime, context) = (task.vruntime, task.context);
        let waiting = self.contexts[context].queue.iter().map(|&other| self.task(other).vruntime);
        let least = waiting.min().map_or(vruntime, |least| least.min(vruntime));
        let known = &mut self.contexts[context].least_vruntime;
        *known = (*known).max(least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cores with two contexts each, and four threads.
    fn queues() -> Queues {
        let mut queues = Queues::new(2, 2, Order::RunTime, 100);
        (0..4).for_each(|_| queues.add_thread(0));
        queues
    }

    #[test]
    fn new_threads_fill_all_cores_first() {
        let queues = queues();
        assert_eq!([0, 1, 2, 3].map(|thread| queues.task(thread).context), [0, 2, 1, 3]);
        assert_eq!([0, 1, 2, 3].map(|context: usize| queues.contexts[context].core), [0, 0, 1, 1]);
    }

    #[test]
    fn pick_prefers_least_vruntime_then_first_queued() {
        let mut queues = queues();
        for (thread, vruntime) in [(0, 30), (1, 20), (2, 20)] {
            queues.task_mut(thread).vruntime = vruntime;
            queues.enqueue(thread, 0);
        }
        assert_eq!((queues.queued, queues.waiting(0), queues.others_on(0, 3)), (3, 3, 3));
        assert_eq!([0; 4].map(|context| queues.pick(context)), [Some(1), Some(2), Some(0), None]);
        assert_eq!(queues.queued, 0);
    }

    #[test]
    fn pick_by_deadline_prefers_unfinished_slice_among_eligible() {
        let mut queues = Queues::new(2, 2, Order::Deadline, 100);
        (0..4).for_each(|_| queues.add_thread(0));
        // By virtual run time, 1 would be next. The slice of 0 ends earlier. That of 2 ends first,
        // but 2 has run longer than the average.
        for (thread, vruntime, slice_used) in [(0, 30, 60), (1, 20, 0), (2, 60, 99)] {
            let task = queues.task_mut(thread);
            (task.vruntime, task.slice_used) = (vruntime, slice_used);
            queues.enqueue(thread, 0);
        }
        assert_eq!([0, 1, 2].map(|thread| queues.task(thread).deadline(100)), [70, 120, 61]);
        assert_eq!([0; 4].map(|context| queues.pick(context)), [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn woken_thread_gets_a_new_slice_by_deadline_unless_it_has_run_for_too_long() {
        let woken = |order, vruntime| {
            let mut queues = Queues::new(1, 1, order, 100);
            (0..2).for_each(|_| queues.add_thread(60));
            queues.task_mut(0).vruntime = vruntime;
            queues.contexts[0].current = 1;
            queues.renew_slice(0, 500);
            queues.task(0).slice_used
        };
        assert_eq!(woken(Order::Deadline, 500), 0);
        assert_eq!(woken(Order::Deadline, 501), 60, "its share is 500 ns");
        assert_eq!(woken(Order::Deadline, 0), 60, "it has not run");
        assert_eq!(woken(Order::RunTime, 0), 60);
    }

    #[test]
    fn charge_counts_time_once_and_advances_least_vruntime() {
        let mut queues = queues();
        queues.task_mut(1).vruntime = 70;
        queues.enqueue(1, 0);
        queues.contexts[0].current = 0;
        (0..2).for_each(|_| queues.charge(0, 50));
        assert_eq!(
            (queues.task(0).vruntime, queues.task(0).slice_used, queues.contexts[0].least_vruntime),
            (50, 50, 50)
        );
        queues.charge(0, 100);
        assert_eq!(queues.contexts[0].least_vruntime, 70, "the waiting thread's");
    }

    #[test]
    fn moved_thread_keeps_its_lead() {
        let mut queues = queues();
        (queues.contexts[0].least_vruntime, queues.contexts[1].least_vruntime) = (100, 1_000);
        queues.task_mut(0).vruntime = 130;
        queues.move_vruntime(0, 0, 1);
        assert_eq!(queues.task(0).vruntime, 1_030);
    }
}
