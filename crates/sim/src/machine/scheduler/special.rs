//! The lock-contention-aware scheduler of Cui et al. (ACM TACO 9(4), 2013): what the operating
//! system does for the policy of crates/sched, which decides.
//!
//! | when | what | the paper's |
//! | --- | --- | --- |
//! | a thread leaves its context, or has had it for a time slice | the policy learns how long it ran and waited for locks | Algorithm 3 |
//! | a thread is about to acquire a lock | it goes to the special set if it belongs there | Algorithm 2 |
//! | run queues are evened out, an idle context looks for work | within the set, and outside of it | section 3.4 |
//!
//! A slice also ends after `slice_ns` where nobody waits for the context: on the paper's machine
//! kernel threads see to that there is a switch now and then. Two looks at the clock are paid for
//! with each lock (Algorithm 1).

use unconvoy_sched::{BackEnd, Change, Parameters, Policy, Task, Totals};

use super::queues::Queues;
use crate::parameters::Distance;

/// Section 4.1: what a migration takes, to a core of the same chip and on average to one that is
/// one to three hops away (9.7, 10.2 and 11.6 us).
const MIGRATION_NS: u64 = 9_300;
const FAR_MIGRATION_NS: u64 = 10_500;

/// What a migration over this distance takes.
pub(super) fn migration_ns(distance: Distance) -> u64 {
    if distance <= Distance::SameSocket { MIGRATION_NS } else { FAR_MIGRATION_NS }
}

/// The policy, and what it did.
pub(crate) struct Special {
    policy: Policy,
    changes: Vec<(u64, Change)>,
}

/// A task of the policy's: that of a thread, or what has begun it and begins the next one in its
/// place, a shell.
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

/// The simulated machine, for the policy.
struct Contexts<'a> {
    queues: &'a mut Queues,
    changes: &'a mut Vec<(u64, Change)>,
    /// Where the thread that is confined goes, if it is not there.
    destination: Option<usize>,
}

impl BackEnd for Contexts<'_> {
    type Id = Id;

    fn task(&mut self, id: Id) -> Option<&mut Task> {
        let task = self.queues.task_mut(id.thread());
        Some(match id {
            Id::Task(_) => &mut task.standing,
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

    /// It may be taken by any context that looks for work.
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

    /// When the set's size became another one, and which.
    pub(crate) fn changes(&self) -> &[(u64, Change)] {
        &self.changes
    }

    fn with<R>(&mut self, queues: &mut Queues, act: impl FnOnce(&mut Policy, &mut Contexts<'_>) -> R) -> R {
        act(&mut self.policy, &mut Contexts { queues, changes: &mut self.changes, destination: None })
    }

    /// A thread has a context from the time `start` on. It has waited on processors for `waited`
    /// nanoseconds so far.
    pub(super) fn begin_slice(&self, task: &mut Task, start: u64, waited: u64) {
        self.policy.slice_begins(task, Totals { ran_ns: start, waited_ns: waited });
    }

    /// A thread loses its context, or has had it for long.
    pub(super) fn end_slice(&mut self, queues: &mut Queues, thread: u32, now: u64, waited: u64) {
        let task = queues.task(thread);
        let slice = task.standing.slice(task.context as u32, Totals { ran_ns: now, waited_ns: waited });
        self.with(queues, |policy, contexts| policy.slice_ends(contexts, Id::Task(thread), slice, now));
    }

    /// The context of the set to which a thread has to go before it acquires a lock.
    pub(super) fn before_lock(&mut self, queues: &mut Queues, thread: u32) -> Option<usize> {
        self.with(queues, |policy, contexts| {
            policy.before_lock(contexts, Id::Task(thread));
            contexts.destination
        })
    }

    /// A task has ended, and another one begins in its place.
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

    const SLICE_NS: u64 = 3_000_000;

    /// A set of 8 of 32 cores, and thread 20 of as many, which waited for locks in all of its slices.
    fn contender() -> (Special, Queues) {
        let mut parameters = Parameters::published(32);
        parameters.search = unconvoy_sched::Search::Fixed(core::num::NonZeroU32::new(8).expect("not 0"));
        let (mut special, mut queues) = (Special::new(parameters, 0), queues());
        for slice in 0..100 {
            special.begin_slice(&mut queues.task_mut(20).standing, slice * SLICE_NS, slice * SLICE_NS);
            special.end_slice(&mut queues, 20, (slice + 1) * SLICE_NS, (slice + 1) * SLICE_NS);
        }
        (special, queues)
    }

    fn queues() -> Queues {
        let mut queues = Queues::new(32, 1);
        (0..32).for_each(|_| queues.add_thread(0));
        queues
    }

    #[test]
    fn thread_that_waits_goes_to_the_set_and_wakes_in_it() {
        let (mut special, mut queues) = contender();
        assert_eq!(special.before_lock(&mut queues, 20), Some(0));
        let task = &queues.task(20).standing;
        assert_eq!(task.state(), State::Migrated);
        assert!(special.policy().may_run(task, 7) && !special.policy().may_run(task, 8));
    }

    #[test]
    fn thread_that_never_waits_stays_where_it_is() {
        let (mut special, mut queues) = (Special::new(Parameters::published(32), 0), queues());
        special.begin_slice(&mut queues.task_mut(20).standing, 0, 0);
        special.end_slice(&mut queues, 20, SLICE_NS, 0);
        assert_eq!(special.before_lock(&mut queues, 20), None);
        assert!(special.policy().may_run(&queues.task(20).standing, 31));
    }

    #[test]
    fn set_and_rest_are_balanced_apart() {
        let (special, _) = contender();
        let same_side = |one, other| special.policy().same_side(one, other);
        assert!(same_side(0, 7) && same_side(8, 31) && !same_side(7, 8));
    }

    #[test]
    fn migration_to_another_socket_takes_longer() {
        assert!(migration_ns(Distance::SameSocket) < migration_ns(Distance::OtherSocket));
    }
}
