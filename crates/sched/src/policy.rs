//! The policy's actions at the start and end of a time slice, and before a task acquires a lock
//! (Algorithms 2 and 3).
//!
//! The [back end](BackEnd) carries the decisions out. It must have exclusive access to the policy.
//! If several processors share the policy, the back end guards each call with the paper's lock,
//! which it only tries to take. If the lock is taken, the vote of the slice is lost.

use crate::back_end::{BackEnd, Change};
use crate::parameters::{INHERITORS, Parameters};
use crate::search::{BoundSearch, Measured, Step};
use crate::set::{balance_together, target};
use crate::task::{NOWHERE, Slice, State, Task, Totals};
use crate::votes::Votes;

/// The scheduling policy of one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    parameters: Parameters,
    /// Cores of the special set (`special_core_bound`).
    bound: u32,
    votes: Votes,
    search: BoundSearch,
    /// Lock-intensive tasks in the set (`n_lock_intensive_tasks`).
    tasks: u32,
    /// When the search restarts (`remig_next`), in nanoseconds.
    restart_at: u64,
    /// Number of votes ever cast.
    voted: u64,
    /// Result of the last search, when the search ended, and the minimum time to hold the result.
    found: Option<u32>,
    found_at: u64,
    hold_ns: u64,
}

impl Policy {
    /// A policy without tasks at the time `now_ns`.
    ///
    /// # Panics
    ///
    /// `cores` or `slices_in_a_row` is 0, `threshold` is not in 0 to 1, or `below` and `above` do
    /// not enclose 1.
    pub fn new(parameters: Parameters, now_ns: u64) -> Self {
        assert!(parameters.cores != 0, "a machine has at least one core");
        assert!(
            (0.0..=1.0).contains(&parameters.threshold),
            "the threshold is a fraction of a time slice"
        );
        assert!(parameters.slices_in_a_row != 0, "at least one slice qualifies a task");
        assert!(parameters.below < 1.0 && parameters.above > 1.0, "the band encloses 1");
        let search = BoundSearch::new(parameters);
        Policy {
            parameters,
            bound: search.first(),
            votes: Votes::default(),
            search,
            tasks: 0,
            restart_at: now_ns.saturating_add(parameters.research_ns),
            voted: 0,
            found: None,
            found_at: now_ns,
            hold_ns: parameters.hold_ns,
        }
    }

    /// Number of cores in the special set, which consists of the cores with lower numbers.
    pub fn bound(&self) -> u32 {
        self.bound
    }

    /// Number of lock-intensive tasks that moved to the set or started lock-intensive.
    pub fn tasks(&self) -> u32 {
        self.tasks
    }

    /// Whether the search has found a bound.
    pub fn has_converged(&self) -> bool {
        self.search.has_converged()
    }

    /// Votes since the last change of the bound.
    pub fn votes(&self) -> Votes {
        self.votes
    }

    /// Number of votes ever cast.
    pub fn voted(&self) -> u64 {
        self.voted
    }

    /// Starts a time slice of `task`, whose totals up to now are `so_far` (Algorithm 3, line 41).
    pub fn slice_begins(&self, task: &mut Task, so_far: Totals) {
        (task.slice_bound, task.slice_began) = (self.bound, so_far);
    }

    /// Ends a time slice of a task at the time `now_ns` (Algorithm 3, lines 1 to 38).
    pub fn slice_ends<B: BackEnd>(
        &mut self,
        back_end: &mut B,
        id: B::Id,
        slice: Slice,
        now_ns: u64,
    ) {
        let Some(task) = back_end.task(id) else { return };
        let mut change = None;
        task.in_a_row = if slice.exceeds(self.parameters.threshold) {
            task.in_a_row.saturating_add(1)
        } else {
            0
        };
        if core::mem::take(&mut task.is_provisional) && !task.waits() {
            self.dismiss(back_end, id);
        } else if !task.is_lock_intensive() {
            if task.in_a_row >= self.parameters.slices_in_a_row {
                task.state = State::Qualified;
            }
        } else {
            // A slice that ran outside the set, or during which the bound changed, says nothing
            // about the present bound.
            if slice.core < self.bound && task.slice_bound == self.bound {
                self.votes.vote(slice.ran_ns, slice.waited_ns);
                self.voted += 1;
            }
            if self.votes_suffice() {
                change = self.determine_bound(now_ns);
            }
        }
        // A restart would only clear the votes on a fixed bound.
        if now_ns >= self.restart_at && !self.search.is_fixed() {
            change = Some(self.restart(now_ns));
        }
        if let Some(change) = change {
            back_end.resize(change, now_ns);
        }
    }

    fn votes_suffice(&self) -> bool {
        let votes =
            u64::from(self.parameters.votes_per_core) * u64::from(self.bound.min(self.tasks));
        self.votes.suffice(self.bound, self.parameters.voted_ns_per_core, votes)
    }

    /// Algorithm 4.
    fn determine_bound(&mut self, now_ns: u64) -> Option<Change> {
        let measured =
            Measured { bound: self.bound, tasks: self.tasks, waiting: self.votes.share() };
        let had_converged = self.search.has_converged();
        let step = self.search.step(measured);
        let change = match step {
            Step::Move(to) => {
                let from = core::mem::replace(&mut self.bound, to);
                self.votes.clear();
                self.restart_at = now_ns.saturating_add(self.parameters.research_ns);
                Some(Change { from, to, restarts: false })
            }
            Step::Stay | Step::Restart => {
                self.votes.halve();
                None
            }
        };
        if step == Step::Restart {
            self.restart_at =
                self.restart_at.min(now_ns.max(self.found_at.saturating_add(self.hold_ns)));
        } else if self.search.has_converged() && !had_converged {
            self.record_found(now_ns);
        } else if had_converged && self.parameters.hold_ns != 0 {
            // Throughput returned to the band while the bound was held.
            self.restart_at = self.found_at.saturating_add(self.parameters.research_ns);
        }
        change
    }

    fn record_found(&mut self, now_ns: u64) {
        self.hold_ns = if self.found == Some(self.bound) {
            (2 * self.hold_ns).min(self.parameters.research_ns)
        } else {
            self.parameters.hold_ns
        };
        (self.found, self.found_at) = (Some(self.bound), now_ns);
    }

    /// Algorithm 3, lines 31 to 34.
    fn restart(&mut self, now_ns: u64) -> Change {
        let from = core::mem::replace(&mut self.bound, self.search.first());
        self.votes.clear();
        self.search.restart();
        self.restart_at = now_ns.saturating_add(self.parameters.research_ns);
        Change { from, to: self.bound, restarts: true }
    }

    /// Prepares a task for acquiring a lock (Algorithm 2). Returns whether the task was confined to
    /// another core or another set.
    pub fn before_lock<B: BackEnd>(&mut self, back_end: &mut B, id: B::Id) -> bool {
        let Some(task) = back_end.task(id) else { return false };
        match task.state {
            State::Ordinary => return false,
            State::Migrated if task.placed_for == self.bound => return false,
            State::Migrated => {}
            State::Qualified => {
                self.tasks += u32::from(!core::mem::replace(&mut task.is_counted, true));
                task.state = State::Migrated;
            }
        }
        let core = target(self.bound, back_end.core(id), |core| back_end.load(core, id));
        let is_confined = back_end.confine(id, core, self.bound);
        if let Some(task) = back_end.task(id) {
            task.placed_for = if is_confined { self.bound } else { NOWHERE };
        }
        is_confined
    }

    /// Registers a new task `id` of `parent`. A child inherits the state of a parent that waits for
    /// locks itself. If the parent is a shell, which waits only for its children, the new child
    /// inherits the state of the shell's last child. The first slice of the new child decides
    /// whether it stays lock-intensive.
    pub fn begins<B: BackEnd>(&mut self, back_end: &mut B, id: B::Id, parent: Option<B::Id>) {
        let parent = parent.and_then(|parent| back_end.task(parent));
        let inherits_from_parent = parent.is_some_and(|parent| {
            parent.is_lock_intensive() && parent.waits() || parent.passes_on()
        });
        let Some(task) = back_end.task(id) else { return };
        *task = Task { slice_began: task.slice_began, ..Task::default() };
        if self.parameters.inherits && inherits_from_parent {
            // Count the task at once, so that the number stays the same when one task ends and the
            // next begins.
            self.tasks += 1;
            (task.state, task.in_a_row, task.is_counted) = (State::Qualified, 1, true);
            (task.is_inherited, task.is_provisional) = (true, true);
        }
    }

    /// Removes a task that has ended. Its `parent`, if still alive, may be a shell, which creates
    /// further tasks but never waits for a lock itself.
    pub fn ends<B: BackEnd>(&mut self, back_end: &mut B, id: B::Id, parent: Option<B::Id>) {
        let Some(child) = back_end.task(id).copied() else { return };
        self.uncount(&child);
        let Some(parent) = parent else { return };
        let Some(task) = back_end.task(parent) else { return };
        let passed_on = task.passes_on();
        task.inheritors = match child {
            // The child ended before its first slice: its state is unknown.
            Task { is_provisional: true, .. } => task.inheritors.saturating_sub(1),
            child if child.is_lock_intensive() => INHERITORS,
            Task { is_inherited: true, .. } => 0,
            _ => task.inheritors,
        };
        let passes_on = task.passes_on();
        if passes_on != passed_on {
            back_end.pass_on(parent, passes_on);
        }
    }

    /// Makes a task ordinary, whatever its state.
    pub fn dismiss<B: BackEnd>(&mut self, back_end: &mut B, id: B::Id) {
        back_end.release(id);
        let Some(task) = back_end.task(id) else { return };
        self.uncount(task);
        (task.state, task.placed_for, task.is_counted, task.in_a_row) =
            (State::Ordinary, NOWHERE, false, 0);
    }

    /// Whether `task` may run on `core`: a confined task stays in the set.
    pub fn may_run(&self, task: &Task, core: u32) -> bool {
        task.state != State::Migrated || core < self.bound
    }

    /// Whether load may be balanced between two cores: the set and the other cores are balanced
    /// separately.
    pub fn same_side(&self, one: u32, other: u32) -> bool {
        balance_together(self.bound, one, other)
    }

    /// Whether load balancing may move `task`, which waits for the core `from`, to the core `to`.
    pub fn may_move(&self, task: &Task, from: u32, to: u32) -> bool {
        self.same_side(from, to)
            || self.parameters.lets_out && from < self.bound && !task.is_lock_intensive()
    }

    fn uncount(&mut self, task: &Task) {
        if task.is_counted {
            self.tasks -= 1;
            if self.tasks == 0 && self.parameters.hold_ns != 0 {
                // The bound was found for tasks that have ended.
                (self.found, self.restart_at) = (None, 0);
            }
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
