//! The lock-contention-aware scheduler of Cui et al. (ACM TACO 9(4), 2013): what the operating system does for the policy
//! of crates/sched, which decides.
//!
//! | when | what | the paper's |
//! | --- | --- | --- |
//! | a thread leaves its context, or has had it for a time slice | the policy is told how long it ran and waited for locks | Algorithm 3 |
//! | a thread is about to acquire a lock | it goes to the special set if it belongs there | Algorithm 2 |
//! | run queues are evened out, an idle context looks for work | within the set, and outside of it | section 3.4 |
//!
//! A slice also ends after `slice_ns` where nobody waits for the context: on the paper's machine kernel threads see to
//! that there is a switch now and then. Two looks at the clock are paid for with each lock (Algorithm 1).

use unconvoy_sched::set::{balance_together, target};
use unconvoy_sched::{Change, Parameters, Policy, Slice, State, Task};

use super::account::Place;
use super::coherence::Distance;
use super::thread::Flight;
use super::{Machine, NOBODY};

/// Section 4.1: what a migration takes, to a core of the same chip and on average to one that is one to three hops away
/// (9.7, 10.2 and 11.6 us).
const MIGRATION_NS: u64 = 9_300;
const FAR_MIGRATION_NS: u64 = 10_500;

/// The policy, and what it did.
pub(super) struct Special {
    policy: Policy,
    changes: Vec<(u64, Change)>,
}

/// What the policy knows of a thread, and where its time slice began.
#[derive(Debug, Default)]
pub(super) struct Sliced {
    task: Task,
    /// What has begun it, and begins the next one in its place: a shell.
    parent: Task,
    began: u64,
    waited_before: u64,
}

impl Machine {
    /// Switches the scheduler on, before there are threads.
    pub(crate) fn schedule_specially(&mut self, parameters: Parameters) {
        assert!(self.threads.is_empty(), "time slices have begun that it does not know of");
        self.special = Some(Special { policy: Policy::new(parameters, self.now), changes: Vec::new() });
    }

    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.special.as_ref().map(|special| &special.policy)
    }

    pub(crate) fn changes_of_the_set(&self) -> &[(u64, Change)] {
        self.special.as_ref().map_or(&[], |special| &special.changes)
    }

    /// How a thread stands, and the context that it runs on or ran on last.
    pub(crate) fn standing(&self, thread: u32) -> (State, usize) {
        let known = &self.threads[thread as usize];
        (known.sliced.task.state(), known.context)
    }

    pub(super) fn is_special(&self) -> bool {
        self.special.is_some()
    }

    /// `thread` has a context from the time `start` on.
    pub(super) fn slice_begins(&mut self, thread: u32, start: u64) {
        let Some(special) = &self.special else { return };
        let known = &mut self.threads[thread as usize];
        special.policy.slice_begins(&mut known.sliced.task);
        (known.sliced.began, known.sliced.waited_before) = (start, known.account.waited_on_processor());
    }

    /// Nobody else wants the context of `thread`: the slice ends and another one begins, if it was long enough.
    pub(super) fn slice_goes_on(&mut self, thread: u32, now: u64) {
        let began = self.threads[thread as usize].sliced.began;
        if now.saturating_sub(began) >= self.parameters.scheduler.slice_ns {
            self.book(thread, now);
            self.slice_ends(thread, now);
            self.slice_begins(thread, now);
        }
    }

    /// `thread` loses its context, or has had it for long. What it did so far is booked.
    pub(super) fn slice_ends(&mut self, thread: u32, now: u64) {
        let Some(special) = &mut self.special else { return };
        let known = &mut self.threads[thread as usize];
        let slice = Slice {
            core: known.context as u32,
            ran_ns: now.saturating_sub(known.sliced.began),
            waited_ns: known.account.waited_on_processor() - known.sliced.waited_before,
        };
        if let Some(change) = special.policy.slice_ends(&mut known.sliced.task, slice, now) {
            special.changes.push((now, change));
        }
    }

    /// Whether run queues of both contexts may be evened out.
    pub(super) fn same_side(&self, one: usize, other: usize) -> bool {
        self.policy().is_none_or(|policy| balance_together(policy.bound(), one as u32, other as u32))
    }

    /// The waiting thread that `context`, which has nothing to do, takes from the other side, if the policy lets one: of the
    /// longest queue that has one the first.
    pub(super) fn lets_out(&self, context: usize) -> Option<(usize, usize)> {
        let policy = self.policy()?;
        let may_move = |from: usize, place: usize| {
            let thread = self.contexts[from].queue[place];
            policy.may_move(&self.threads[thread as usize].sliced.task, from as u32, context as u32)
        };
        let waiting = |from: usize| (0..self.contexts[from].queue.len()).map(move |place| (from, place));
        (0..self.contexts.len())
            .filter(|&from| !self.same_side(from, context))
            .filter_map(|from| waiting(from).find(|&(from, place)| may_move(from, place)))
            .max_by_key(|&(from, _)| self.contexts[from].queue.len())
    }

    /// A context of the set whose only thread may leave it while others wait in the set, and one outside that has nothing to
    /// do.
    pub(super) fn to_push_out(&self) -> Option<(usize, usize)> {
        let policy = self.policy()?;
        let (set, rest) = (0..policy.bound() as usize, policy.bound() as usize..self.contexts.len());
        let to = rest.into_iter().find(|&context| self.contexts[context].current == NOBODY)?;
        let may_leave = |context: usize| {
            let thread = self.contexts[context].current;
            let known = self.threads.get(thread as usize)?;
            let is_alone = self.contexts[context].queue.is_empty() && known.unpreemptible == 0;
            (is_alone && policy.may_move(&known.sliced.task, context as u32, to as u32)).then_some(context)
        };
        let is_wanted = set.clone().any(|context| !self.contexts[context].queue.is_empty());
        let from = if is_wanted { set.into_iter().find_map(may_leave) } else { None };
        from.map(|from| (from, to))
    }

    /// Whether `thread` may wake on `context`: one that has been moved to the set stays in it.
    pub(super) fn may_wake_on(&self, thread: u32, context: usize) -> bool {
        let is_placed = self.threads[thread as usize].sliced.task.state() == State::Migrated;
        self.policy().is_none_or(|policy| !is_placed || context < policy.bound() as usize)
    }

    fn tasks_on(&self, context: usize, without: u32) -> u32 {
        let context = &self.contexts[context];
        context.queue.len() as u32 + u32::from(context.current != NOBODY && context.current != without)
    }

    /// The running thread, about to acquire a lock, goes to the special set if it has to. To be suspended if true.
    pub(super) fn goes_to_set(&mut self) -> bool {
        let thread = self.current;
        let Some(special) = &mut self.special else { return false };
        let known = &mut self.threads[thread as usize];
        let Some(bound) = special.policy.before_lock(&mut known.sliced.task) else { return false };
        let here = known.context;
        let there = target(bound, here as u32, |core| self.tasks_on(core as usize, thread)) as usize;
        let distance = self.caches.distance(self.contexts[here].core, self.contexts[there].core);
        let cost = if distance <= Distance::SameSocket { MIGRATION_NS } else { FAR_MIGRATION_NS };
        here != there && self.moves_to(there, cost)
    }

    /// The running task has ended, and another one begins in its place, wherever there is least to do (the kernel balances
    /// when a program is started); `ns` is what both take. To be suspended if true.
    pub(super) fn renews(&mut self, ns: u64) -> bool {
        let thread = self.current;
        let known = &mut self.threads[thread as usize];
        if let Some(special) = &mut self.special {
            let Sliced { task, parent, .. } = &mut known.sliced;
            special.policy.child_ends(parent, task);
            *task = special.policy.child(parent);
        }
        let here = known.context;
        let count = self.contexts.len() as u32;
        let there = target(count, here as u32, |core| self.tasks_on(core as usize, thread)) as usize;
        if here == there {
            self.now += ns;
            return false;
        }
        self.moves_to(there, ns)
    }

    /// Moves the running thread to the context `there`, where it goes on after `cost` nanoseconds. True: to be suspended.
    fn moves_to(&mut self, there: usize, cost: u64) -> bool {
        let (thread, now) = (self.current, self.now);
        let here = self.threads[thread as usize].context;
        self.take_off(here, now, Place::Ready);
        self.threads[thread as usize].flight = Flight::Work(cost);
        self.move_vruntime(thread, here, there);
        self.enqueue(thread, there);
        if self.contexts[there].current == NOBODY {
            self.dispatch(there, now, 0);
        } else {
            self.arm_tick(there, now);
        }
        self.dispatch(here, now, 0);
        self.forget_last(here);
        true
    }
}
