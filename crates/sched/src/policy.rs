//! What happens when a time slice ends and begins, and before a task acquires a lock (Algorithms 2 and 3).
//!
//! What has to be done about it is the [back end](BackEnd)'s. It has the policy to itself; one whose processors share
//! it takes the paper's lock around each call, and only tries for it: a slice that is not told is a vote that is lost.

use crate::back_end::{BackEnd, Change};
use crate::parameters::{INHERITORS, Parameters};
use crate::search::{BoundSearch, Measured, Step};
use crate::set::{balance_together, target};
use crate::task::{NOWHERE, Slice, State, Task, Totals};
use crate::votes::Votes;

/// A machine's policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    parameters: Parameters,
    /// Cores of the special set (`special_core_bound`).
    bound: u32,
    votes: Votes,
    search: BoundSearch,
    /// Lock-intensive tasks in the set (`n_lock_intensive_tasks`).
    tasks: u32,
    /// When the search begins anew (`remig_next`), in nanoseconds.
    anew_at: u64,
    /// Votes that were ever cast.
    voted: u64,
    /// What the last search found, when, and how long that is to be held.
    found: Option<u32>,
    found_at: u64,
    patience_ns: u64,
}

impl Policy {
    /// A policy without tasks at the time `now_ns`.
    ///
    /// # Panics
    ///
    /// There are no cores, or the threshold or the band make no sense.
    pub fn new(parameters: Parameters, now_ns: u64) -> Self {
        assert!(parameters.cores != 0, "a machine has at least one core");
        assert!((0.0..=1.0).contains(&parameters.threshold), "the threshold is a part of a time slice");
        assert!(parameters.slices_in_a_row != 0, "a slice shows who is lock-intensive");
        assert!(parameters.below < 1.0 && parameters.above > 1.0, "the band is about what was found");
        let search = BoundSearch::new(parameters);
        Policy {
            parameters,
            bound: search.first(),
            votes: Votes::default(),
            search,
            tasks: 0,
            anew_at: now_ns.saturating_add(parameters.research_ns),
            voted: 0,
            found: None,
            found_at: now_ns,
            patience_ns: parameters.patience_ns,
        }
    }

    /// Cores of the special set: those from 0 to below this.
    pub fn bound(&self) -> u32 {
        self.bound
    }

    /// Lock-intensive tasks that have gone to the set, or were so from their start.
    pub fn tasks(&self) -> u32 {
        self.tasks
    }

    /// Whether the search has ended.
    pub fn is_settled(&self) -> bool {
        self.search.is_settled()
    }

    /// The votes since the last change of the bound.
    pub fn votes(&self) -> Votes {
        self.votes
    }

    /// All votes that were ever cast.
    pub fn voted(&self) -> u64 {
        self.voted
    }

    /// A time slice of `task` begins, with what it ran and waited so far (Algorithm 3, line 41).
    pub fn slice_begins(&self, task: &mut Task, so_far: Totals) {
        (task.slice_bound, task.slice_began) = (self.bound, so_far);
    }

    /// A time slice of a task has ended at the time `now_ns` (Algorithm 3, lines 1 to 38).
    pub fn slice_ends<B: BackEnd>(&mut self, back_end: &mut B, id: B::Id, slice: Slice, now_ns: u64) {
        let Some(task) = back_end.task(id) else { return };
        let mut change = None;
        task.in_a_row = if slice.exceeds(self.parameters.threshold) { task.in_a_row.saturating_add(1) } else { 0 };
        if core::mem::take(&mut task.is_provisional) && !task.waits() {
            self.dismiss(back_end, id);
        } else if !task.is_lock_intensive() {
            if task.in_a_row >= self.parameters.slices_in_a_row {
                task.state = State::Qualified;
            }
        } else {
            // Only what was measured in the set, and under one bound, says something about the bound.
            if slice.core < self.bound && task.slice_bound == self.bound {
                self.votes.vote(slice.ran_ns, slice.waited_ns);
                self.voted += 1;
            }
            if self.votes_suffice() {
                change = self.determine_bound(now_ns);
            }
        }
        if now_ns >= self.anew_at {
            change = Some(self.begin_anew(now_ns));
        }
        if let Some(change) = change {
            back_end.resize(change, now_ns);
        }
    }

    fn votes_suffice(&self) -> bool {
        let votes = u64::from(self.parameters.votes_per_core) * u64::from(self.bound.min(self.tasks));
        self.votes.suffice(self.bound, self.parameters.voted_ns_per_core) && self.votes.count() >= votes
    }

    /// Algorithm 4.
    fn determine_bound(&mut self, now_ns: u64) -> Option<Change> {
        let measured = Measured { bound: self.bound, tasks: self.tasks, waiting: self.votes.share() };
        let was_settled = self.search.is_settled();
        let step = self.search.step(measured);
        let change = match step {
            Step::Move(to) => {
                let from = core::mem::replace(&mut self.bound, to);
                self.votes.clear();
                self.anew_at = now_ns.saturating_add(self.parameters.research_ns);
                Some(Change { from, to, anew: false })
            }
            Step::Stay | Step::Anew => {
                self.votes.halve();
                None
            }
        };
        if step == Step::Anew {
            self.anew_at = self.anew_at.min(now_ns.max(self.found_at.saturating_add(self.patience_ns)));
        } else if self.search.is_settled() && !was_settled {
            self.note_found(now_ns);
        } else if was_settled && self.parameters.patience_ns != 0 {
            // Back within the band while it was held.
            self.anew_at = self.found_at.saturating_add(self.parameters.research_ns);
        }
        change
    }

    /// A search has ended.
    fn note_found(&mut self, now_ns: u64) {
        self.patience_ns = if self.found == Some(self.bound) {
            (2 * self.patience_ns).min(self.parameters.research_ns)
        } else {
            self.parameters.patience_ns
        };
        (self.found, self.found_at) = (Some(self.bound), now_ns);
    }

    /// Algorithm 3, lines 31 to 34.
    fn begin_anew(&mut self, now_ns: u64) -> Change {
        let from = core::mem::replace(&mut self.bound, self.search.first());
        self.votes.clear();
        self.search.restart();
        self.anew_at = now_ns.saturating_add(self.parameters.research_ns);
        Change { from, to: self.bound, anew: true }
    }

    /// A task is about to acquire a lock (Algorithm 2). Whether it was confined to another place for that.
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

    /// `parent` has begun a task. Whoever was lock-intensive once may have become a shell that only waits for its children:
    /// these inherit what their parent does now, or what the last of its children did, and are judged by their own first
    /// slice.
    pub fn begins<B: BackEnd>(&mut self, back_end: &mut B, id: B::Id, parent: Option<B::Id>) {
        let parent = parent.and_then(|parent| back_end.task(parent));
        let has_example =
            parent.is_some_and(|parent| parent.is_lock_intensive() && parent.waits() || parent.passes_on());
        let Some(task) = back_end.task(id) else { return };
        *task = Task { slice_began: task.slice_began, ..Task::default() };
        if self.parameters.inherits && has_example {
            // Counted at once, so that a task that ends and its successor are one all the time.
            self.tasks += 1;
            (task.state, task.in_a_row, task.is_counted) = (State::Qualified, 1, true);
            (task.is_inherited, task.is_provisional) = (true, true);
        }
    }

    /// A task has ended. `parent`, which lives on, may begin others: a shell, which never waits for a lock itself.
    pub fn ends<B: BackEnd>(&mut self, back_end: &mut B, id: B::Id, parent: Option<B::Id>) {
        let Some(child) = back_end.task(id).copied() else { return };
        self.uncount(&child);
        let Some(parent) = parent else { return };
        let Some(task) = back_end.task(parent) else { return };
        let passed_on = task.passes_on();
        task.inheritors = match child {
            // Nobody knows what it would have done.
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

    /// A task is not lock-intensive any more, whatever it was.
    pub fn dismiss<B: BackEnd>(&mut self, back_end: &mut B, id: B::Id) {
        back_end.release(id);
        let Some(task) = back_end.task(id) else { return };
        self.uncount(task);
        (task.state, task.placed_for, task.is_counted, task.in_a_row) = (State::Ordinary, NOWHERE, false, 0);
    }

    /// Whether `task` may run on `core`: one that is confined keeps to the set.
    pub fn may_run(&self, task: &Task, core: u32) -> bool {
        task.state != State::Migrated || core < self.bound
    }

    /// Whether the loads of two cores may be evened out: those of the set and the rest are balanced apart.
    pub fn same_side(&self, one: u32, other: u32) -> bool {
        balance_together(self.bound, one, other)
    }

    /// Whether `task`, which waits for the core `from`, may be moved to the core `to` to even out their loads.
    pub fn may_move(&self, task: &Task, from: u32, to: u32) -> bool {
        self.same_side(from, to) || self.parameters.lets_out && from < self.bound && !task.is_lock_intensive()
    }

    fn uncount(&mut self, task: &Task) {
        if task.is_counted {
            self.tasks -= 1;
            if self.tasks == 0 && self.parameters.patience_ns != 0 {
                // What was found was found for tasks that are gone.
                (self.found, self.anew_at) = (None, 0);
            }
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
