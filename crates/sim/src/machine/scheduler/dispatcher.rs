//! Solaris' dispatcher, for machines whose order is `time-sharing`: a queue per context and
//! priority, and the [time-sharing class](super::class) that sets the priorities.
//!
//! | | Solaris' function |
//! | --- | --- |
//! | a context runs the first thread of its highest priority | `disp` |
//! | an idle context takes the thread of the highest priority that waits elsewhere | `disp_getwork`, `disp_getbest` |
//! | a thread returns to its last context for 3 ticks, then to that of the lowest priority | `cpu_choose` |
//! | it goes to the neighbour if that has a shorter queue of its priority | `setbackdq` |
//! | it preempts a running thread of lower priority | `cpu_resched` |
//! | `sched_yield` runs a thread of the same or a higher priority only | `ts_yield`, `swtch` |
//!
//! Each processor's queue is one list here, in order of arrival. Busy contexts do not balance.
//! Idle contexts are chosen as under the other orders, the least busy core first, which is what
//! `cmt_balance` does. With the lock-contention-aware scheduler, that scheduler places the threads.
//!
//! Source: `usr/src/uts/common/disp/disp.c` of OpenSolaris and illumos.

use super::class::{Place, Running, SECOND_NS, Second, Tick};
use super::task::State;
use super::{Scheduler, placement};
use crate::machine::clock::Clock;
use crate::machine::thread::NO_THREAD;

/// How many ticks after its last run a thread returns to its context without a search
/// (`RECHOOSE_INTERVAL`).
const RECHOOSE_TICKS: u64 = 3;
/// Priority from which queues may differ in length (`RUNQ_MATCH_PRI`), and by how many threads
/// (`RUNQ_MAX_DIFF`).
const MATCH_PRIORITY: u8 = 16;
const MOST_DIFFERENCE: usize = 2;

impl Scheduler {
    fn is_protected(&self, thread: u32) -> bool {
        let has_control = self.time_sharing.as_ref().is_some_and(|class| class.has_control);
        has_control && self.task(thread).wants_extension
    }

    /// Queues `thread` on `context`. Returns the context if its thread should be
    /// [preempted](Scheduler::request_preemption).
    fn insert(
        &mut self,
        thread: u32,
        context: usize,
        place: Place,
        clock: &mut Clock,
    ) -> Option<usize> {
        match place {
            Place::First => self.queues.enqueue_first(thread, context),
            Place::Last => self.queues.enqueue(thread, context),
        }
        let running = self.running_on(context);
        if running == NO_THREAD {
            return None;
        }
        self.arm_tick(context, clock);
        let (new, old) = (self.task(thread).priority(), self.task(running).priority());
        if new == old {
            self.let_yield(running, clock);
        }
        (new > old).then_some(context)
    }

    /// Queues `thread`, which has just lost its `context`. Returns another context whose thread
    /// should be preempted for it.
    pub(super) fn requeue(
        &mut self,
        thread: u32,
        context: usize,
        place: Place,
        clock: &mut Clock,
    ) -> Option<usize> {
        let there = match place {
            Place::First => context,
            Place::Last => self.neighbour_if_shorter(thread, context),
        };
        self.insert(thread, there, place, clock)
    }

    /// Queues `thread`, which has been preempted.
    pub(super) fn requeue_preempted(
        &mut self,
        thread: u32,
        context: usize,
        clock: &mut Clock,
    ) -> Option<usize> {
        let Some(class) = &self.time_sharing else {
            self.queues.enqueue(thread, context);
            return None;
        };
        let place = self.queues.task_mut(thread).class.preempted(&class.table);
        self.requeue(thread, context, place, clock)
    }

    /// `context`, or its neighbour if the queue of the thread's priority is shorter there.
    fn neighbour_if_shorter(&self, thread: u32, context: usize) -> usize {
        let priority = self.task(thread).priority();
        let allowed = if priority < MATCH_PRIORITY { 0 } else { MOST_DIFFERENCE };
        let here = self.queues.waiting_at(context, priority).saturating_sub(allowed);
        let there = (context + 1) % self.contexts();
        if !self.has_special_set() && self.queues.waiting_at(there, priority) < here {
            return there;
        }
        context
    }

    /// The context for `thread`, which has none and is to be the last of its priority.
    fn choose(&self, thread: u32, now: u64) -> usize {
        if self.queues.idle != 0 || self.has_special_set() {
            let special = self.special.as_ref();
            return placement::to_wake_on(&self.queues, special, &self.topology, thread);
        }
        let task = self.task(thread);
        let tick_ns = self.parameters.tick_ns;
        let is_recent = now / tick_ns - task.left_at / tick_ns <= RECHOOSE_TICKS;
        let context = if is_recent {
            task.context
        } else {
            placement::with_lowest_priority(&self.queues, task.context)
        };
        self.neighbour_if_shorter(thread, context)
    }

    /// Sets the priority of `thread`, which wakes, and queues it. Returns its context, and the
    /// context whose thread should be preempted.
    pub(super) fn queue_woken(&mut self, thread: u32, clock: &mut Clock) -> (usize, Option<usize>) {
        let now = clock.now;
        let Some(class) = &self.time_sharing else { unreachable!("the caller has checked") };
        let task = self.queues.task_mut(thread);
        let is_same_tick = now / class.tick_ns == task.left_at / class.tick_ns;
        let place = task.class.wakes(&class.table, is_same_tick);
        let context = match place {
            Place::First if self.queues.idle == 0 && !self.has_special_set() => {
                self.task(thread).context
            }
            _ => self.choose(thread, now),
        };
        let preempted = self.insert(thread, context, place, clock);
        (context, preempted)
    }

    /// A tick of `context`, on which `thread` runs. Returns whether the thread gives way.
    pub(super) fn tick_by_class(&mut self, thread: u32, context: usize) -> bool {
        let (best, is_protected) = (self.queues.best_waiting(context), self.is_protected(thread));
        let Some(class) = &self.time_sharing else { return false };
        let task = self.queues.task_mut(thread);
        match task.class.tick(&class.table, best, is_protected) {
            Tick::GoesOn => false,
            Tick::Deferred => {
                task.extended = true;
                false
            }
            Tick::GivesWay => true,
        }
    }

    /// Whether the running `thread` may be preempted by its class. If not, it yields when its
    /// request for preemption control ends.
    pub(super) fn class_allows_preemption(&mut self, thread: u32) -> bool {
        if !self.is_protected(thread) {
            return true;
        }
        let task = self.queues.task_mut(thread);
        if task.class.defers_preemption() {
            task.extended = true;
            return false;
        }
        task.wants_extension = false;
        true
    }

    /// Yields for `thread` to a thread of the same or a higher priority. See
    /// [`yield_now`](Scheduler::yield_now).
    pub(super) fn yield_by_class(&mut self, thread: u32, clock: &mut Clock) -> Option<Place> {
        let class = self.time_sharing.as_ref()?;
        self.queues.charge(thread, clock.now);
        let task = self.queues.task_mut(thread);
        task.extended = false;
        let place = task.class.yields(&class.table);
        let (context, priority) = (task.context, task.priority());
        self.queues.best_waiting(context).is_some_and(|best| best >= priority).then_some(place)
    }

    /// Records that the running `thread` enters the kernel.
    pub(crate) fn enter_kernel(&mut self, thread: u32) {
        if let Some(class) = &self.time_sharing {
            self.queues.task_mut(thread).class.enters_kernel(&class.table);
        }
    }

    /// Raises the priorities of the threads that have waited too long, once a second. Returns the
    /// contexts whose threads should be preempted.
    pub(crate) fn raise_priorities(&mut self, clock: &mut Clock) -> Vec<usize> {
        let Some(class) = &mut self.time_sharing else { return Vec::new() };
        if clock.now < class.next_second {
            return Vec::new();
        }
        while clock.now >= class.next_second {
            class.next_second += SECOND_NS;
        }
        // Begin with another thread each time: among equals, the first wins (`ts_update_marker`).
        let count = self.queues.tasks.len() as u32;
        let first = self.random.u32(0..count.max(1));
        for thread in (0..count).map(|offset| (first + offset) % count) {
            self.raise_priority(thread, clock);
        }
        let is_due = |&context: &usize| {
            let running = self.queues.tasks.get(self.running_on(context) as usize);
            running.is_some_and(|task| self.queues.best_waiting(context) > Some(task.priority()))
        };
        (0..self.contexts()).filter(is_due).collect()
    }

    fn raise_priority(&mut self, thread: u32, clock: &mut Clock) {
        let is_protected = self.is_protected(thread);
        let Some(class) = &self.time_sharing else { return };
        let task = self.queues.task_mut(thread);
        let running = match task.state {
            State::Running => Running::Yes,
            State::Ready => Running::Ready,
            State::Blocked => Running::Asleep,
            State::Done => return,
        };
        let context = task.context;
        let change = task.class.second(&class.table, running, is_protected);
        if change == Second::Stays || running != Running::Ready {
            return;
        }
        let mut queue = self.queues.contexts[context].queue.iter();
        let place = queue.position(|&other| other == thread).expect("a ready thread is queued");
        self.queues.remove(context, place);
        let context = self.choose(thread, clock.now);
        self.insert(thread, context, Place::Last, clock);
    }
}
