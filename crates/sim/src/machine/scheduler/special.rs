//! The lock-contention-aware scheduler of Cui et al. (ACM TACO 9(4), 2013): the operating system's
//! part. The policy in crates/sched decides.
//!
//! | event | action | paper |
//! | --- | --- | --- |
//! | a thread leaves its context or ends a time slice | the policy learns its run and lock wait time | Algorithm 3 |
//! | a thread is about to acquire a lock | it migrates to the special set if it belongs there | Algorithm 2 |
//! | balancing; an idle context looks for work | within the set, and among the other contexts | section 3.4 |
//!
//! A slice also ends after `slice_ns` if no thread waits for the context, because kernel threads
//! cause a switch now and then on the paper's machine. Each acquisition pays for two clock reads
//! (Algorithm 1).

use unconvoy_sched::{BackEnd, Change, Parameters, Policy, Task, Totals};

use super::queues::Queues;
use crate::parameters::Distance;

/// Costs of a migration (section 4.1): within a chip, and on average over cores one to three hops
/// away (9.7, 10.2 and 11.6 us).
const MIGRATION_NS: u64 = 9_300;
const FAR_MIGRATION_NS: u64 = 10_500;

pub(super) fn migration_ns(distance: Distance) -> u64 {
    if distance <= Distance::SameSocket { MIGRATION_NS } else { FAR_MIGRATION_NS }
}

/// The policy and its history.
pub(crate) struct Special {
    policy: Policy,
    changes: Vec<(u64, Change)>,
}

/// A task of the policy: a thread's task, or its shell, the parent that starts one task after
/// another.
#[derive(Debug, Clone, Copy)]
enum Id {
    Task(u32),
    Shell(u32),
}

impl Id {
    fn thread(self) -> u32 {
        match self {
            Id::Task(thread) | Id::Shell(thread) => thread,
        }
    }
}

/// The simulated machine as the policy's back end.
struct Contexts<'a> {
    queues: &'a mut Queues,
    changes: &'a mut Vec<(u64, Change)>,
    /// Where the confined thread must go; `None` if it is there already.
    destination: Option<usize>,
}

impl BackEnd for Contexts<'_> {
    type Id = Id;

    fn task(&mut self, id: Id) -> Option<&mut Task> {
        let task = self.queues.task_mut(id.thread());
        Some(match id {
            Id::Task(_) => &mut task.policy_task,
            Id::Shell(_) => &mut task.shell,
        })
    }

    fn core(&self, id: Id) -> u32 {
        self.queues.task(id.thread()).context as u32
    }

    fn load(&self, core: u32, id: Id) -> u32 {
        self.queues.others_on(core as usize, id.thread())
    }

    fn confine(&mut self, id: Id, core: u32, _: u32) -> bool {
        self.destination = (core != self.core(id)).then_some(core as usize);
        true
    }

    /// Nothing to do: any context that looks for work may now take the task.
    fn release(&mut self, _: Id) {}

    fn resize(&mut self, change: Change, now_ns: u64) {
        self.changes.push((now_ns, change));
    }
}

impl Special {
    pub(super) fn new(parameters: Parameters, now: u64) -> Self {
        Special { policy: Policy::new(parameters, now), changes: Vec::new() }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Changes of the set's size, with their times.
    pub(crate) fn changes(&self) -> &[(u64, Change)] {
        &self.changes
    }

    fn with<R>(
        &mut self,
        queues: &mut Queues,
        act: impl FnOnce(&mut Policy, &mut Contexts<'_>) -> R,
    ) -> R {
        act(
            &mut self.policy,
            &mut Contexts { queues, changes: &mut self.changes, destination: None },
        )
    }

    /// Starts a slice at `start`. So far the thread has waited on processors for `waited`
    /// nanoseconds.
    pub(super) fn begin_slice(&self, task: &mut Task, start: u64, waited: u64) {
        self.policy.slice_begins(task, Totals { ran_ns: start, waited_ns: waited });
    }

    /// Ends a slice: the thread loses its context, or has used a whole time slice.
    pub(super) fn end_slice(&mut self, queues: &mut Queues, thread: u32, now: u64, waited: u64) {
        let task = queues.task(thread);
        let slice =
            task.policy_task.slice(task.context as u32, Totals { ran_ns: now, waited_ns: waited });
        self.with(queues, |policy, contexts| {
            policy.slice_ends(contexts, Id::Task(thread), slice, now)
        });
    }

    /// The context of the set to which `thread` must migrate before it acquires a lock.
    pub(super) fn before_lock(&mut self, queues: &mut Queues, thread: u32) -> Option<usize> {
        self.with(queues, |policy, contexts| {
            policy.before_lock(contexts, Id::Task(thread));
            contexts.destination
        })
    }

    /// Ends the task of `thread` and begins the next one.
    pub(super) fn renew(&mut self, queues: &mut Queues, thread: u32) {
        let (task, shell) = (Id::Task(thread), Id::Shell(thread));
        self.with(queues, |policy, contexts| {
            policy.ends(contexts, task, Some(shell));
            policy.begins(contexts, task, Some(shell));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_sched::State;

    use crate::parameters::Order;

    const SLICE_NS: u64 = 3_000_000;

    /// A set of 8 of 32 cores, and thread 20 of 32, which waited for locks in all of its slices.
    fn contender() -> (Special, Queues) {
        let mut parameters = Parameters::published(32);
        parameters.search =
            unconvoy_sched::Search::Fixed(core::num::NonZeroU32::new(8).expect("not 0"));
        let (mut special, mut queues) = (Special::new(parameters, 0), queues());
        for slice in 0..100 {
            special.begin_slice(
                &mut queues.task_mut(20).policy_task,
                slice * SLICE_NS,
                slice * SLICE_NS,
            );
            special.end_slice(&mut queues, 20, (slice + 1) * SLICE_NS, (slice + 1) * SLICE_NS);
        }
        (special, queues)
    }

    fn queues() -> Queues {
        let mut queues = Queues::new(32, 1, Order::RunTime, SLICE_NS);
        (0..32).for_each(|_| queues.add_thread(0));
        queues
    }

    #[test]
    fn lock_intensive_thread_migrates_to_the_set() {
        let (mut special, mut queues) = contender();
        assert_eq!(special.before_lock(&mut queues, 20), Some(0));
        let task = &queues.task(20).policy_task;
        assert_eq!(task.state(), State::Migrated);
        assert!(special.policy().may_run(task, 7) && !special.policy().may_run(task, 8));
    }

    #[test]
    fn thread_without_waits_stays() {
        let (mut special, mut queues) = (Special::new(Parameters::published(32), 0), queues());
        special.begin_slice(&mut queues.task_mut(20).policy_task, 0, 0);
        special.end_slice(&mut queues, 20, SLICE_NS, 0);
        assert_eq!(special.before_lock(&mut queues, 20), None);
        assert!(special.policy().may_run(&queues.task(20).policy_task, 31));
    }

    #[test]
    fn set_and_rest_are_separate_sides() {
        let (special, _) = contender();
        let same_side = |one, other| special.policy().same_side(one, other);
        assert!(same_side(0, 7) && same_side(8, 31) && !same_side(7, 8));
    }

    #[test]
    fn migration_to_another_socket_costs_more() {
        assert!(migration_ns(Distance::SameSocket) < migration_ns(Distance::OtherSocket));
    }
}
