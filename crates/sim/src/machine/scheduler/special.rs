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

use unconvoy_sched::set::balance_together;
use unconvoy_sched::{Change, Parameters, Policy, Slice, State, Task};

use crate::parameters::Distance;

/// Section 4.1: what a migration takes, to a core of the same chip and on average to one that is
/// one to three hops away (9.7, 10.2 and 11.6 us).
const MIGRATION_NS: u64 = 9_300;
const FAR_MIGRATION_NS: u64 = 10_500;

/// What a migration over this distance takes.
pub(super) fn migration_ns(distance: Distance) -> u64 {
    if distance <= Distance::SameSocket { MIGRATION_NS } else { FAR_MIGRATION_NS }
}

/// What the policy knows of a thread, and where its time slice began.
#[derive(Debug, Default)]
pub(super) struct Slices {
    task: Task,
    /// What has begun it, and begins the next one in its place: a shell.
    parent: Task,
    began: u64,
    waited_before: u64,
}

impl Slices {
    pub(super) fn state(&self) -> State {
        self.task.state()
    }

    /// For how long the slice has lasted.
    pub(super) fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.began)
    }
}

/// The policy, and what it did.
pub(crate) struct Special {
    policy: Policy,
    changes: Vec<(u64, Change)>,
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

    /// Contexts in the set: the first ones.
    pub(super) fn bound(&self) -> usize {
        self.policy.bound() as usize
    }

    /// A thread has a context from the time `start` on. It has waited on processors for `waited`
    /// nanoseconds so far.
    pub(super) fn begin_slice(&self, slices: &mut Slices, start: u64, waited: u64) {
        self.policy.slice_begins(&mut slices.task);
        (slices.began, slices.waited_before) = (start, waited);
    }

    /// A thread loses its context, or has had it for long.
    pub(super) fn end_slice(&mut self, slices: &mut Slices, context: usize, now: u64, waited: u64) {
        let waited_ns = waited - slices.waited_before;
        let slice = Slice { core: context as u32, ran_ns: slices.age(now), waited_ns };
        if let Some(change) = self.policy.slice_ends(&mut slices.task, slice, now) {
            self.changes.push((now, change));
        }
    }

    /// The size of the set to which a thread has to go before it acquires a lock.
    pub(super) fn before_lock(&mut self, slices: &mut Slices) -> Option<u32> {
        self.policy.before_lock(&mut slices.task)
    }

    /// A task has ended, and another one begins in its place.
    pub(super) fn renew(&mut self, slices: &mut Slices) {
        let Slices { task, parent, .. } = slices;
        self.policy.child_ends(parent, task);
        *task = self.policy.child(parent);
    }

    /// Whether run queues of both contexts may be evened out.
    pub(super) fn same_side(&self, one: usize, other: usize) -> bool {
        balance_together(self.policy.bound(), one as u32, other as u32)
    }

    /// Whether a thread may change sides.
    pub(super) fn may_move(&self, slices: &Slices, from: usize, to: usize) -> bool {
        self.policy.may_move(&slices.task, from as u32, to as u32)
    }

    /// Whether a thread may wake on `context`: one that has been moved to the set stays in it.
    pub(super) fn may_wake_on(&self, slices: &Slices, context: usize) -> bool {
        slices.state() != State::Migrated || context < self.bound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE_NS: u64 = 3_000_000;

    /// A set of 8 of 32 cores, and a thread that waited for locks in all of its slices.
    fn contender() -> (Special, Slices) {
        let mut parameters = Parameters::published(32);
        parameters.search = unconvoy_sched::Search::Fixed(core::num::NonZeroU32::new(8).expect("not 0"));
        let (mut special, mut slices) = (Special::new(parameters, 0), Slices::default());
        for slice in 0..100 {
            special.begin_slice(&mut slices, slice * SLICE_NS, slice * SLICE_NS);
            special.end_slice(&mut slices, 20, (slice + 1) * SLICE_NS, (slice + 1) * SLICE_NS);
        }
        (special, slices)
    }

    #[test]
    fn thread_that_waits_goes_to_the_set_and_wakes_in_it() {
        let (mut special, mut slices) = contender();
        assert_eq!(special.before_lock(&mut slices), Some(8));
        assert_eq!(slices.state(), State::Migrated);
        assert!(special.may_wake_on(&slices, 7) && !special.may_wake_on(&slices, 8));
    }

    #[test]
    fn thread_that_never_waits_stays_where_it_is() {
        let (mut special, mut slices) = (Special::new(Parameters::published(32), 0), Slices::default());
        special.begin_slice(&mut slices, 0, 0);
        special.end_slice(&mut slices, 20, SLICE_NS, 0);
        assert_eq!(special.before_lock(&mut slices), None);
        assert!(special.may_wake_on(&slices, 31));
    }

    #[test]
    fn set_and_rest_are_balanced_apart() {
        let (special, _) = contender();
        assert!(special.same_side(0, 7) && special.same_side(8, 31) && !special.same_side(7, 8));
    }

    #[test]
    fn migration_to_another_socket_takes_longer() {
        assert!(migration_ns(Distance::SameSocket) < migration_ns(Distance::OtherSocket));
    }
}
