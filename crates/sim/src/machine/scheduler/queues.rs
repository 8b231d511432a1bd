//! Contexts, their run queues, and the threads that are in them.

use super::task::{State, Task};
use crate::machine::thread::NOBODY;

/// A hardware context and its run queue.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) core: usize,
    pub(super) current: u32,
    pub(super) queue: Vec<u32>,
    pub(super) last: u32,
    pub(super) tick_armed: bool,
    pub(super) least_vruntime: u64,
}

impl Context {
    pub(super) fn is_free(&self) -> bool {
        self.current == NOBODY
    }

    /// If nobody has it now it is the kernel's idle thread that has it, from which to come back is
    /// a switch.
    pub(super) fn forget_last(&mut self) {
        if self.is_free() {
            self.last = NOBODY;
        }
    }
}

/// A machine's contexts and threads.
pub(super) struct Queues {
    pub(super) contexts: Vec<Context>,
    pub(super) tasks: Vec<Task>,
    /// Contexts without a thread.
    pub(super) idle: usize,
    /// Contexts with one, by core.
    pub(super) busy_in_core: Vec<u32>,
    /// Threads in run queues.
    pub(super) queued: usize,
}

impl Queues {
    pub(super) fn new(cores: usize, contexts_per_core: usize) -> Self {
        let context = |number: usize| Context {
            core: number / contexts_per_core,
            current: NOBODY,
            queue: Vec::new(),
            last: NOBODY,
            tick_armed: false,
            least_vruntime: 0,
        };
        let contexts: Vec<Context> = (0..cores * contexts_per_core).map(context).collect();
        Queues { idle: contexts.len(), contexts, tasks: Vec::new(), busy_in_core: vec![0; cores], queued: 0 }
    }

    /// A blocked thread more, which has run for `slice_used` nanoseconds of its slice. Threads
    /// start on all cores first, then on all contexts of them.
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

    /// Threads that wait for `context`.
    pub(super) fn waiting(&self, context: usize) -> usize {
        self.contexts[context].queue.len()
    }

    /// Threads that run on `context` or wait for it, other than `thread`.
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

    /// The next thread on `context`, out of its queue.
    pub(super) fn pick(&mut self, context: usize) -> Option<u32> {
        let queue = &self.contexts[context].queue;
        let first = (0..queue.len()).min_by_key(|&place| self.task(queue[place]).vruntime)?;
        Some(self.remove(context, first))
    }

    /// The thread at `place` in the queue of `context`, out of it.
    pub(super) fn remove(&mut self, context: usize, place: usize) -> u32 {
        self.queued -= 1;
        // In order, so that among equals the one that has waited longest is next.
        self.contexts[context].queue.remove(place)
    }

    /// `thread` keeps its lead, or its lag, on the context `to`.
    pub(super) fn move_vruntime(&mut self, thread: u32, from: usize, to: usize) {
        let (from, to) = (self.contexts[from].least_vruntime, self.contexts[to].least_vruntime);
        let vruntime = &mut self.task_mut(thread).vruntime;
        *vruntime = (*vruntime + to).saturating_sub(from);
    }

    /// Adds to the virtual run time of `thread`, which runs, what it ran.
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

    /// Two cores of two contexts, and four threads.
    fn queues() -> Queues {
        let mut queues = Queues::new(2, 2);
        (0..4).for_each(|_| queues.add_thread(0));
        queues
    }

    #[test]
    fn threads_start_on_all_cores_before_a_core_has_two() {
        let queues = queues();
        assert_eq!([0, 1, 2, 3].map(|thread| queues.task(thread).context), [0, 2, 1, 3]);
        assert_eq!([0, 1, 2, 3].map(|context: usize| queues.contexts[context].core), [0, 0, 1, 1]);
    }

    #[test]
    fn thread_that_ran_least_is_next_and_among_equals_the_first() {
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
    fn charge_counts_run_time_once_and_moves_the_queue_s_least_on() {
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
        assert_eq!(queues.contexts[0].least_vruntime, 70, "that of the thread that waits");
    }

    #[test]
    fn thread_keeps_its_lead_on_another_context() {
        let mut queues = queues();
        (queues.contexts[0].least_vruntime, queues.contexts[1].least_vruntime) = (100, 1_000);
        queues.task_mut(0).vruntime = 130;
        queues.move_vruntime(0, 0, 1);
        assert_eq!(queues.task(0).vruntime, 1_030);
    }
}
