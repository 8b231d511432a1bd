use super::*;
use crate::parameters::Search;
use core::num::NonZeroU32;

#[path = "closed_loop_tests.rs"]
mod closed_loop;

const MS: u64 = 1_000_000;

fn slice(core: u32, ran_ns: u64, waiting: f64) -> Slice {
    Slice { core, ran_ns, waited_ns: (ran_ns as f64 * waiting) as u64 }
}

/// A policy with a back end that follows a test's instructions.
struct System {
    policy: Policy,
    cores: Cores,
}

#[derive(Default)]
struct Cores {
    /// Each task and its core.
    tasks: Vec<(Task, u32)>,
    /// Whether `confine` fails.
    refuses: bool,
    change: Option<Change>,
    released: Vec<usize>,
    passed_on: Vec<(usize, bool)>,
}

impl BackEnd for Cores {
    type Id = usize;

    fn task(&mut self, id: usize) -> Option<&mut Task> {
        self.tasks.get_mut(id).map(|(task, _)| task)
    }

    fn core(&self, id: usize) -> u32 {
        self.tasks[id].1
    }

    fn load(&self, core: u32, id: usize) -> u32 {
        let others =
            self.tasks.iter().enumerate().filter(|&(other, task)| other != id && task.1 == core);
        others.count() as u32
    }

    fn confine(&mut self, id: usize, core: u32, bound: u32) -> bool {
        assert!(core < bound);
        if !self.refuses {
            self.tasks[id].1 = core;
        }
        !self.refuses
    }

    fn release(&mut self, id: usize) {
        self.released.push(id);
    }

    fn resize(&mut self, change: Change, _: u64) {
        assert_eq!(self.change.replace(change), None, "two changes in one slice");
    }

    fn pass_on(&mut self, id: usize, passes_on: bool) {
        self.passed_on.push((id, passes_on));
    }
}

impl System {
    /// A system with `tasks` tasks on core 20.
    fn new(parameters: Parameters, tasks: usize) -> Self {
        let cores = Cores { tasks: vec![(Task::default(), 20); tasks], ..Cores::default() };
        System { policy: Policy::new(parameters, 0), cores }
    }

    fn task(&mut self, id: usize) -> &mut Task {
        &mut self.cores.tasks[id].0
    }

    fn state(&self, id: usize) -> State {
        self.cores.tasks[id].0.state()
    }

    fn begin_slice(&mut self, id: usize) {
        self.policy.slice_begins(&mut self.cores.tasks[id].0, Totals::default());
    }

    fn end_slice(&mut self, id: usize, slice: Slice, now_ns: u64) -> Option<Change> {
        self.policy.slice_ends(&mut self.cores, id, slice, now_ns);
        self.cores.change.take()
    }

    /// Calls `before_lock`; returns the core that the task moved to, if any.
    fn lock(&mut self, id: usize) -> Option<u32> {
        self.policy.before_lock(&mut self.cores, id).then(|| self.cores.tasks[id].1)
    }

    fn begins(&mut self, id: usize, parent: usize) {
        self.policy.begins(&mut self.cores, id, Some(parent));
    }

    fn ends(&mut self, id: usize, parent: Option<usize>) {
        self.policy.ends(&mut self.cores, id, parent);
    }
}

#[test]
fn task_above_a_tenth_qualifies_and_migrates_before_its_next_lock() {
    let mut system = System::new(Parameters::published(32), 1);
    assert_eq!(system.lock(0), None);
    system.end_slice(0, slice(9, 10 * MS, 0.1), 0);
    assert_eq!(system.state(0), State::Ordinary, "exactly 10 % is not above the threshold");
    system.end_slice(0, slice(9, 10 * MS, 0.101), 0);
    assert_eq!((system.state(0), system.policy.tasks()), (State::Qualified, 0));
    assert_eq!(system.lock(0), Some(0));
    assert_eq!((system.state(0), system.policy.tasks()), (State::Migrated, 1));
    assert_eq!(system.lock(0), None, "a task moves once per bound");
    system.ends(0, None);
    assert_eq!(system.policy.tasks(), 0);
}

#[test]
fn unconfined_task_is_confined_before_its_next_lock() {
    let mut system = System::new(Parameters::published(32), 1);
    system.end_slice(0, slice(9, MS, 0.5), 0);
    system.cores.refuses = true;
    assert_eq!(
        (system.lock(0), system.task(0).is_placed(), system.policy.tasks()),
        (None, false, 1)
    );
    system.cores.refuses = false;
    assert_eq!(
        (system.lock(0), system.task(0).is_placed(), system.policy.tasks()),
        (Some(0), true, 1)
    );
    system.task(0).displace();
    assert_eq!((system.lock(0), system.lock(0)), (Some(0), None), "a displaced task moves once");
}

#[test]
fn dismissed_task_is_released_and_qualifies_again() {
    let mut system = System::new(Parameters::published(32), 1);
    for _ in 0..2 {
        system.end_slice(0, slice(9, MS, 0.5), 0);
        assert_eq!((system.lock(0), system.policy.tasks()), (Some(0), 1));
        system.policy.dismiss(&mut system.cores, 0);
        assert_eq!((system.state(0), system.policy.tasks()), (State::Ordinary, 0));
    }
    assert_eq!(system.cores.released, [0, 0]);
}

#[test]
fn slice_outside_the_set_or_under_two_bounds_does_not_vote() {
    let mut system = System::new(Parameters::published(32), 1);
    *system.task(0) = Task { state: State::Migrated, placed_for: 1, ..Task::default() };
    system.policy.tasks = 1;
    system.end_slice(0, slice(0, MS / 10, 0.5), 0);
    assert_eq!(system.policy.votes().count(), 0, "the bound changed during the slice");
    system.begin_slice(0);
    system.end_slice(0, slice(1, MS / 10, 0.5), 0);
    assert_eq!(system.policy.votes().count(), 0, "core 1 is outside a set of one core");
    system.end_slice(0, slice(0, MS / 10, 0.5), 0);
    assert_eq!(system.policy.votes().count(), 1);
}

#[test]
fn search_steps_after_135_us_of_votes_per_core_and_halves_them() {
    let mut system = System::new(Parameters::published(32), 1);
    system.policy.tasks = 32;
    *system.task(0) =
        Task { state: State::Migrated, placed_for: 1, slice_bound: 1, ..Task::default() };
    assert_eq!(system.end_slice(0, slice(0, 134_000, 0.2), 0), None);
    assert!(system.policy.votes().share() > 0.19);
    let before = system.policy.search.clone();
    assert_eq!(system.end_slice(0, slice(0, 2_000, 0.2), 0), None);
    assert_ne!(system.policy.search, before, "136 us suffice for one core");
    // The votes are halved to 68 us. Another 70 us make the second value, which moves the bound.
    assert_eq!(
        system.end_slice(0, slice(0, 70_000, 0.2), 0),
        Some(Change { from: 1, to: 2, restarts: false })
    );
    assert_eq!(system.policy.votes(), Votes::default());
}

#[test]
fn search_restarts_after_thirty_seconds_without_a_change() {
    let mut system = System::new(Parameters::published(32), 1);
    system.policy.bound = 8;
    assert_eq!(system.end_slice(0, slice(20, MS, 0.0), 30_000 * MS - 1), None);
    let change = system.end_slice(0, slice(20, MS, 0.0), 30_000 * MS);
    assert_eq!(
        change,
        Some(Change { from: 8, to: 1, restarts: true }),
        "any task's slice restarts it"
    );
    assert_eq!(system.end_slice(0, slice(20, MS, 0.0), 30_001 * MS), None);
}

/// The waiting share of the only task leaves the band with each slice.
#[test]
fn found_bound_is_held_for_increasing_times() {
    const SECOND: u64 = 1_000_000_000;
    let searches = |hold_ns| {
        let mut system = System::new(Parameters { hold_ns, ..Parameters::refined(2) }, 1);
        (0..8_000)
            .filter(|&turn| {
                system.begin_slice(0);
                system.lock(0);
                let waiting =
                    if system.policy.has_converged() && turn % 2 == 0 { 0.9 } else { 0.2 };
                system
                    .end_slice(0, slice(0, MS, waiting), turn * MS)
                    .is_some_and(|change| change.restarts)
            })
            .count()
    };
    assert!(searches(0) > 100);
    // The bound is held for 1, 2 and 4 of the 8 seconds.
    assert_eq!(searches(SECOND), 3);
}

#[test]
fn fixed_bound_stays() {
    let fixed = |cores| Parameters {
        search: Search::Fixed(NonZeroU32::new(cores).unwrap()),
        ..Parameters::refined(8)
    };
    assert_eq!(Policy::new(fixed(20), 0).bound(), 8, "limited to the machine's cores");
    // 100 seconds, with and without a time to hold a found bound.
    for hold_ns in [0, 3_000 * MS] {
        let mut system = System::new(Parameters { hold_ns, ..fixed(3) }, 1);
        for turn in 0..1_000 {
            system.begin_slice(0);
            let waiting = if turn < 8 { 0.5 } else { 0.0 };
            assert_eq!(system.end_slice(0, slice(0, MS, waiting), turn * 100 * MS), None);
            system.lock(0);
        }
        assert!(system.policy.has_converged() && system.policy.bound() == 3);
    }
}

#[test]
fn found_bound_is_dropped_when_all_its_tasks_have_ended() {
    let mut system = System::new(Parameters { hold_ns: 1 << 60, ..Parameters::refined(8) }, 9);
    for turn in 0..1_000 {
        let task = turn % 8;
        system.begin_slice(task);
        system.end_slice(task, slice(0, MS, if turn < 8 { 0.5 } else { 0.0 }), 0);
        system.lock(task);
    }
    assert!(system.policy.has_converged() && system.policy.bound() == 8);
    (0..8).for_each(|task| system.ends(task, None));
    let change = system.end_slice(8, slice(5, MS, 0.5), MS);
    assert_eq!(change, Some(Change { from: 8, to: 1, restarts: true }));
}

#[test]
fn children_inherit_only_in_the_refined_policy() {
    let parent = Task { state: State::Migrated, in_a_row: 1, ..Task::default() };
    let system = |parameters, parent| {
        let mut system = System::new(parameters, 2);
        *system.task(0) = parent;
        system.begins(1, 0);
        system
    };
    assert_eq!(system(Parameters::published(4), parent).state(1), State::Ordinary);
    assert_eq!(system(Parameters::refined(4), Task::default()).state(1), State::Ordinary);
    let mut system = system(Parameters::refined(4), parent);
    assert_eq!(system.state(1), State::Qualified);
    assert_eq!(system.policy.tasks(), 1, "the child counts from its start");
    assert_eq!(system.lock(1), Some(0), "the child has no place yet");
    assert_eq!(system.policy.tasks(), 1);
    system.ends(1, None);
    assert_eq!(system.policy.tasks(), 0);
}

#[test]
fn child_inherits_the_state_of_the_child_before() {
    let found = |parameters| {
        // A shell waits for no lock itself.
        let mut system = System::new(parameters, 2);
        let (child, shell) = (0, 1);
        let mut found = 0;
        system.begins(child, shell);
        for turn in 0..64 {
            // Each child lives for one slice; the first 32 children wait for locks.
            found += u32::from(system.task(child).is_lock_intensive());
            system.lock(child);
            system.begin_slice(child);
            system.end_slice(child, slice(0, MS, if turn < 32 { 0.3 } else { 0.0 }), turn * MS);
            system.ends(child, Some(shell));
            system.begins(child, shell);
        }
        system.ends(child, None);
        assert_eq!(system.policy.tasks(), 0, "all counted tasks have ended");
        (found, system.cores.passed_on)
    };
    // No child lives long enough to be recognized.
    assert_eq!(found(Parameters::published(4)).0, 0);
    // The first child is recognized in its slice. The 33rd is the first that does not wait, as its
    // own slice shows.
    assert_eq!(found(Parameters::refined(4)), (32, vec![(1, true), (1, false)]));
}

#[test]
fn children_without_a_slice_inherit_a_limited_number_of_times() {
    let mut system = System::new(Parameters::refined(4), 2);
    let (child, shell) = (0, 1);
    system.end_slice(child, slice(0, MS, 0.3), 0);
    system.ends(child, Some(shell));
    let inheritors = (0..64).filter(|_| {
        system.begins(child, shell);
        system.ends(child, Some(shell));
        system.task(child).is_lock_intensive()
    });
    assert_eq!(inheritors.count(), usize::from(INHERITORS));
    assert_eq!(system.policy.tasks(), 0);
}

#[test]
fn ordinary_task_may_leave_the_set_only_in_the_refined_policy() {
    let (ordinary, intensive) =
        (Task::default(), Task { state: State::Migrated, ..Task::default() });
    for (parameters, leaves) in
        [(Parameters::published(32), false), (Parameters::refined(32), true)]
    {
        let mut policy = Policy::new(parameters, 0);
        policy.bound = 4;
        assert_eq!(policy.may_move(&ordinary, 3, 4), leaves);
        assert!(!policy.may_move(&ordinary, 4, 3), "load balancing moves no task into the set");
        assert!(!policy.may_move(&intensive, 3, 4));
        assert!(policy.may_move(&intensive, 3, 0) && policy.may_move(&ordinary, 4, 31));
        assert!(
            policy.may_run(&intensive, 3)
                && !policy.may_run(&intensive, 4)
                && policy.may_run(&ordinary, 4)
        );
    }
}

#[test]
fn state_changes_after_consecutive_slices_above_the_threshold() {
    let state = |waits: &[f64]| {
        let mut system =
            System::new(Parameters { slices_in_a_row: 3, ..Parameters::refined(4) }, 1);
        waits
            .iter()
            .for_each(|&waits| assert_eq!(system.end_slice(0, slice(3, MS, waits), 0), None));
        system.state(0)
    };
    assert_eq!(state(&[0.9, 0.9, 0.0, 0.9, 0.9]), State::Ordinary);
    assert_eq!(state(&[0.9, 0.0, 0.2, 0.2, 0.2]), State::Qualified);
}

#[test]
fn inherited_child_that_does_not_wait_leaves_the_set() {
    let mut system = System::new(Parameters::refined(4), 4);
    let (parent, grandchild) = (0, 3);
    system.end_slice(parent, slice(3, MS, 0.5), 0);
    system.lock(parent);
    [1, 2].into_iter().for_each(|child| system.begins(child, parent));
    for (child, waiting) in [(1, 0.5), (2, 0.05)] {
        system.lock(child);
        system.begins(grandchild, child);
        assert_eq!(system.state(grandchild), State::Qualified, "its parent waits");
        system.ends(grandchild, None);
        system.end_slice(child, slice(0, MS, waiting), 0);
        // Only the first slice is provisional.
        system.end_slice(child, slice(0, MS, 0.0), 0);
    }
    assert_eq!([1, 2].map(|child| system.state(child)), [State::Migrated, State::Ordinary]);
    assert_eq!((system.cores.released.clone(), system.policy.tasks()), (vec![2], 2));
    system.end_slice(parent, slice(0, MS, 0.05), 0);
    assert_eq!(system.state(parent), State::Migrated, "its state was not provisional");
    system.begins(grandchild, parent);
    assert_eq!(system.state(grandchild), State::Ordinary, "its parent no longer waits");
}
