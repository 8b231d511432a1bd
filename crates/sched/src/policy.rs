//! What happens when a time slice ends and begins, and before a task acquires a lock (Algorithms 2 and 3).
//!
//! [`Policy::slice_ends`] is for back ends that have the policy to themselves. One whose processors share it takes the
//! paper's lock around it, and only tries for it: a slice that is not told is a vote that is lost.

use crate::parameters::Parameters;
use crate::search::{BoundSearch, Measured, Step};
use crate::task::{Slice, State, Task};
use crate::votes::Votes;

/// The bound has become another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub from: u32,
    /// From now on.
    pub to: u32,
    /// Whether that is the beginning of a new search.
    pub anew: bool,
}

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
        assert!(parameters.below < 1.0 && parameters.above > 1.0, "the band is about what was found");
        Policy {
            parameters,
            bound: BoundSearch::FIRST,
            votes: Votes::default(),
            search: BoundSearch::new(parameters),
            tasks: 0,
            anew_at: now_ns.saturating_add(parameters.research_ns),
        }
    }

    /// Cores of the special set: those from 0 to below this.
    pub fn bound(&self) -> u32 {
        self.bound
    }

    /// Lock-intensive tasks that have gone to the set.
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

    /// A time slice of `task` begins (Algorithm 3, line 41).
    pub fn slice_begins(&self, task: &mut Task) {
        task.slice_bound = self.bound;
    }

    /// A time slice of `task` has ended (Algorithm 3, lines 1 to 38).
    pub fn slice_ends(&mut self, task: &mut Task, slice: Slice, now_ns: u64) -> Option<Change> {
        let mut change = None;
        if !task.is_lock_intensive() {
            if slice.exceeds(self.parameters.threshold) {
                task.state = State::Qualified;
                task.placed_for = self.bound;
            }
        } else {
            // Only what was measured in the set, and under one bound, says something about the bound.
            if slice.core < self.bound && task.slice_bound == self.bound {
                self.votes.vote(slice.ran_ns, slice.waited_ns);
            }
            if self.votes_suffice() {
                change = self.determine_bound(now_ns);
            }
        }
        if now_ns >= self.anew_at {
            change = Some(self.begin_anew(now_ns));
        }
        change
    }

    fn votes_suffice(&self) -> bool {
        let votes = u64::from(self.parameters.votes_per_core) * u64::from(self.bound.min(self.tasks));
        self.votes.suffice(self.bound, self.parameters.voted_ns_per_core) && self.votes.count() >= votes
    }

    /// Algorithm 4.
    fn determine_bound(&mut self, now_ns: u64) -> Option<Change> {
        let measured = Measured { bound: self.bound, tasks: self.tasks, waiting: self.votes.share() };
        match self.search.step(measured) {
            Step::Move(to) => {
                let from = core::mem::replace(&mut self.bound, to);
                self.votes.clear();
                self.anew_at = now_ns.saturating_add(self.parameters.research_ns);
                Some(Change { from, to, anew: false })
            }
            step => {
                self.votes.halve();
                if step == Step::Anew {
                    self.anew_at = now_ns;
                }
                None
            }
        }
    }

    /// Algorithm 3, lines 31 to 34.
    fn begin_anew(&mut self, now_ns: u64) -> Change {
        let from = core::mem::replace(&mut self.bound, BoundSearch::FIRST);
        self.votes.clear();
        self.search.restart();
        self.anew_at = now_ns.saturating_add(self.parameters.research_ns);
        Change { from, to: self.bound, anew: true }
    }

    /// `task` is about to acquire a lock (Algorithm 2). If it has to go elsewhere first: the bound, for
    /// [`target`](crate::set::target).
    pub fn before_lock(&mut self, task: &mut Task) -> Option<u32> {
        match task.state {
            State::Ordinary => return None,
            State::Migrated if task.placed_for == self.bound => return None,
            State::Migrated => {}
            State::Qualified => {
                self.tasks += 1;
                task.state = State::Migrated;
            }
        }
        task.placed_for = self.bound;
        Some(self.bound)
    }

    /// What `parent` has begun a task of.
    pub fn child(&self, parent: &Task) -> Task {
        let state =
            if self.parameters.inherits && parent.is_lock_intensive() { State::Qualified } else { State::Ordinary };
        Task { state, ..Task::default() }
    }

    /// `task` has ended.
    pub fn ends(&mut self, task: &Task) {
        if task.state == State::Migrated {
            self.tasks -= 1;
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
