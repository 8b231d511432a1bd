//! Lets the policy of crates/sched conduct the kernel's side: turns what that side records into calls of [`Policy`], and
//! what the policy answers into orders.
//!
//! | record | calls | orders |
//! | --- | --- | --- |
//! | a slice of a task | `slice_begins`, `slice_ends`, `before_lock` | the task belongs to the set; the set has another size |
//! | a child | `child`, `before_lock` | the child does not belong to the set, if so |
//! | an end | `child_ends` | the parent's children belong to the set from their start, or do not any more |
//!
//! A parent is kept as long as it has heirs, though it never waits itself: a shell. Of one that the kernel's side does not name there is nobody to
//! inherit from, and its children's ends are `ends`.
//!
//! A slice that began under another bound may not vote (Algorithm 3, line 14). What was lost on the way is no harm: a task that the policy
//! does not know is met at its next slice, and ends that were lost are asked for ([`Conductor::all`]).
//!
//! `before_lock` is called as soon as a task is found to be lock-intensive, and not before its next lock: main.bpf.c, 5, says why.

use std::collections::HashMap;

use unconvoy_sched::{Change, Parameters, Policy, Slice, State, Task};

/// What the kernel's side has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The task's number, which no other task ever has.
    pub task: u64,
    /// Its id.
    pub tid: u32,
    /// Whether the kernel's side takes it for one of the set.
    pub is_special: bool,
    /// What has begun it, if that is known.
    pub parent: Option<Parent>,
    /// What is recorded of it.
    pub event: Event,
}

/// The task that has begun another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// Its number.
    pub task: u64,
    /// Its id.
    pub tid: u32,
}

/// What is recorded of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A time slice has ended.
    Slice {
        /// Where and how long.
        slice: Slice,
        /// [`Conductor::bound`] when it began.
        bound: Bound,
    },
    /// The task has begun, and may be an heir.
    Child,
    /// The task has ended.
    Exit,
}

/// A size of the set, and which one in the row of sizes it is: 4 that follows 8 is not the 4 that it followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Cores in the set.
    pub cores: u32,
    /// Changes before it; wraps.
    pub serial: u32,
}

impl Bound {
    /// As the kernel's side has it.
    pub fn pack(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.cores)
    }

    /// See [`pack`](Self::pack).
    pub fn unpack(packed: u64) -> Self {
        Bound { cores: packed as u32, serial: (packed >> 32) as u32 }
    }
}

/// What the kernel's side has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The task is one of the set from now on, or is not.
    Tell {
        /// Its number.
        task: u64,
        /// Its id.
        tid: u32,
        /// Whether it is.
        is_special: bool,
        /// Whether its children are from their start, though it does not wait itself.
        has_heirs: bool,
    },
    /// The set has another size.
    Rebound(Bound),
}

/// A lock-intensive task, or one that has heirs.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Its id.
    pub tid: u32,
    /// The part of its last slices that it waited, 0 to 1; each slice counts for an eighth.
    pub share: f64,
    /// The core of its last slice.
    pub core: u32,
    task: Task,
    parent: Option<Parent>,
}

impl Known {
    fn new(tid: u32, core: u32, parent: Option<Parent>, task: Task) -> Self {
        Known { tid, share: 0.0, core, task, parent }
    }

    /// What the kernel's side has to know of it.
    fn order(&self, task: u64) -> Order {
        let (is_special, has_heirs) = (self.task.state() == State::Migrated, self.task.has_heirs());
        Order::Tell { task, tid: self.tid, is_special, has_heirs }
    }
}

/// The policy with the tasks that it has found.
#[derive(Debug)]
pub struct Conductor {
    policy: Policy,
    tasks: HashMap<u64, Known>,
    serial: u32,
    changes: u64,
}

impl Conductor {
    /// Without tasks, at the time `now_ns`.
    pub fn new(parameters: Parameters, now_ns: u64) -> Self {
        Conductor { policy: Policy::new(parameters, now_ns), tasks: HashMap::new(), serial: 0, changes: 0 }
    }

    /// The policy, to look at.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The set's present size.
    pub fn bound(&self) -> Bound {
        Bound { cores: self.policy.bound(), serial: self.serial }
    }

    /// How often that changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The lock-intensive tasks, in no order.
    pub fn tasks(&self) -> impl Iterator<Item = &Known> {
        self.tasks.values().filter(|known| known.task.is_lock_intensive())
    }

    /// Takes in a record, at the time `now_ns`; what is to be done is appended to `orders`.
    pub fn hear(&mut self, record: Record, now_ns: u64, orders: &mut Vec<Order>) {
        if let Some(known) = self.tasks.get_mut(&record.task) {
            known.parent = record.parent;
        }
        match record.event {
            Event::Slice { slice, bound } => self.slice(record, slice, bound, now_ns, orders),
            Event::Child => {
                let parent = record.parent.and_then(|parent| self.tasks.get(&parent.task));
                let task = parent.map(|parent| self.policy.child(&parent.task)).unwrap_or_default();
                self.tasks.insert(record.task, Known::new(record.tid, 0, record.parent, task));
                self.settle(record, orders);
            }
            Event::Exit => self.ended(record.task, orders),
        }
    }

    fn slice(&mut self, record: Record, slice: Slice, bound: Bound, now_ns: u64, orders: &mut Vec<Order>) {
        let present = self.bound();
        let new = || Known::new(record.tid, slice.core, record.parent, Task::default());
        let known = self.tasks.entry(record.task).or_insert_with(new);
        let share = slice.waited_ns.min(slice.ran_ns) as f64 / slice.ran_ns.max(1) as f64;
        known.share += (share - known.share) / 8.0;
        known.core = slice.core;
        self.policy.slice_begins(&mut known.task);
        // Of another bound: on no core of this one's set, and so no vote.
        let slice = if bound == present { slice } else { Slice { core: u32::MAX, ..slice } };
        if let Some(change) = self.policy.slice_ends(&mut known.task, slice, now_ns) {
            self.changed(change, orders);
        }
        self.settle(record, orders);
    }

    fn changed(&mut self, change: Change, orders: &mut Vec<Order>) {
        if change.from != change.to {
            self.changes += 1;
        }
        self.serial = self.serial.wrapping_add(1);
        orders.push(Order::Rebound(self.bound()));
    }

    /// Sees that both sides think the same of the task that was recorded, and forgets it if it is nothing special.
    fn settle(&mut self, record: Record, orders: &mut Vec<Order>) {
        let Some(known) = self.tasks.get_mut(&record.task) else { return };
        // Where to is no question: the set has one queue.
        self.policy.before_lock(&mut known.task);
        let is_special = known.task.state() == State::Migrated;
        if is_special != record.is_special {
            orders.push(known.order(record.task));
        }
        self.forget_if_ordinary(record.task);
    }

    fn forget_if_ordinary(&mut self, task: u64) {
        // An heir's end says something of its parent's next children, and most of all if it was nothing special.
        let matters = |task: &Task| task.is_lock_intensive() || task.waits() || task.has_heirs() || task.is_heir();
        if self.tasks.get(&task).is_some_and(|known| !matters(&known.task)) {
            self.tasks.remove(&task);
        }
    }

    /// The task with this number has ended. What that says of its parent's next children is appended to `orders`.
    pub fn ended(&mut self, task: u64, orders: &mut Vec<Order>) {
        let Some(child) = self.tasks.remove(&task) else { return };
        let Some(Parent { task, tid }) = child.parent else { return self.policy.ends(&child.task) };
        let parent = self.tasks.entry(task).or_insert_with(|| Known::new(tid, 0, None, Task::default()));
        let had_heirs = parent.task.has_heirs();
        self.policy.child_ends(&mut parent.task, &child.task);
        if parent.task.has_heirs() != had_heirs {
            orders.push(parent.order(task));
        }
        self.forget_if_ordinary(task);
    }

    /// Orders that tell all tasks again what they are: whoever has ended unheard is found so.
    pub fn all(&self) -> Vec<Order> {
        self.tasks.iter().map(|(&task, known)| known.order(task)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_sched::parameters::HEIRS;

    const MS: u64 = 1_000_000;

    fn slice(task: u64, core: u32, waited: f64, bound: Bound, is_special: bool) -> Record {
        let slice = Slice { core, ran_ns: 4 * MS, waited_ns: (4.0 * MS as f64 * waited) as u64 };
        Record { task, tid: task as u32 + 100, is_special, parent: None, event: Event::Slice { slice, bound } }
    }

    const SHELL: u64 = 1_000;

    fn of_shell(record: Record) -> Record {
        Record { parent: Some(Parent { task: SHELL, tid: 7 }), ..record }
    }

    fn event(task: u64, event: Event) -> Record {
        Record { task, tid: task as u32 + 100, is_special: true, parent: None, event }
    }

    fn tell(task: u64, is_special: bool) -> Order {
        Order::Tell { task, tid: task as u32 + 100, is_special, has_heirs: false }
    }

    fn shell_has_heirs(has_heirs: bool) -> Order {
        Order::Tell { task: SHELL, tid: 7, is_special: false, has_heirs }
    }

    fn hear(conductor: &mut Conductor, record: Record) -> Vec<Order> {
        let mut orders = Vec::new();
        conductor.hear(record, 0, &mut orders);
        orders
    }

    fn conductor() -> Conductor {
        Conductor::new(Parameters::refined(8), 0)
    }

    #[test]
    fn who_waits_too_much_is_sent_to_the_set_and_forgotten_when_it_ends() {
        let mut all = conductor();
        let first = all.bound();
        assert_eq!(hear(&mut all, slice(1, 5, 0.05, first, false)), []);
        assert_eq!(all.tasks().count(), 0);
        let orders = hear(&mut all, slice(1, 5, 0.5, first, false));
        assert_eq!(orders, [tell(1, true)]);
        assert_eq!((all.policy().tasks(), all.tasks().count()), (1, 1));
        hear(&mut all, event(1, Event::Exit));
        assert_eq!((all.policy().tasks(), all.tasks().count()), (0, 0));
    }

    #[test]
    fn a_slice_of_another_bound_does_not_vote() {
        let mut all = conductor();
        let first = all.bound();
        hear(&mut all, slice(1, 5, 0.5, first, false));
        hear(&mut all, slice(1, 0, 0.5, Bound { serial: 7, ..first }, true));
        assert_eq!(all.policy().votes().count(), 0);
        hear(&mut all, slice(1, 0, 0.5, first, true));
        assert_ne!(all.policy().votes().share(), 0.0);
    }

    #[test]
    fn votes_move_the_bound_and_each_change_has_its_number() {
        let mut all = conductor();
        for task in 0..8 {
            let bound = all.bound();
            hear(&mut all, slice(task, 5, 0.5, bound, false));
        }
        let mut orders = Vec::new();
        for round in 0..100 {
            let bound = all.bound();
            all.hear(slice(round % 8, round as u32 % bound.cores, 0.0, bound, true), 0, &mut orders);
        }
        assert_eq!(all.bound().cores, 8, "what does not wait is given all cores");
        let bounds: Vec<_> = orders.iter().map(|order| matches!(order, Order::Rebound(_))).collect();
        assert_eq!(bounds.len() as u64, all.changes());
        assert_eq!(Bound::unpack(all.bound().pack()), all.bound());
    }

    #[test]
    fn children_belong_to_the_set_from_their_start() {
        let mut all = conductor();
        let first = all.bound();
        hear(&mut all, slice(1, 5, 0.5, first, false));
        let child = |task, parent| Record {
            parent: Some(Parent { task: parent, tid: parent as u32 + 100 }),
            ..event(task, Event::Child)
        };
        assert_eq!(hear(&mut all, child(2, 1)), []);
        assert_eq!(all.policy().tasks(), 2);
        // Of a parent that nobody knows: the kernel's side is put right.
        assert_eq!(hear(&mut all, child(4, 3)), [tell(4, false)]);
        assert_eq!(all.policy().tasks(), 2);
    }

    /// The same as the simulator's back end has a shell do: one child after the other.
    #[test]
    fn a_shell_that_never_waits_has_heirs_as_long_as_its_children_wait() {
        let mut all = conductor();
        let bound = all.bound();
        let mut same = Policy::new(Parameters::refined(8), 0);
        let mut shell = Task::default();
        // The first child is found to be lock-intensive; the next one is from its start, and found to be so, too.
        for task in 1..3 {
            let mut child = same.child(&shell);
            if task > 1 {
                assert_eq!(hear(&mut all, of_shell(event(task, Event::Child))), []);
                same.before_lock(&mut child);
            }
            assert_eq!(all.policy(), &same);
            let known = if task == 1 { vec![tell(1, true)] } else { vec![] };
            assert_eq!(hear(&mut all, of_shell(slice(task, 5, 0.5, bound, task > 1))), known);
            same.slice_begins(&mut child);
            same.slice_ends(&mut child, Slice { core: 5, ran_ns: 4 * MS, waited_ns: 2 * MS }, 0);
            same.before_lock(&mut child);
            let news = if task == 1 { vec![shell_has_heirs(true)] } else { vec![] };
            assert_eq!(hear(&mut all, of_shell(event(task, Event::Exit))), news);
            same.child_ends(&mut shell, &child);
            assert_eq!(all.policy(), &same);
        }
        assert_eq!(all.tasks().count(), 0, "the shell is not lock-intensive");

        // One that does not wait ends it.
        assert_eq!(hear(&mut all, of_shell(event(3, Event::Child))), []);
        assert_eq!(all.policy().tasks(), 1);
        assert_eq!(hear(&mut all, of_shell(slice(3, 0, 0.0, bound, true))), [tell(3, false)]);
        assert_eq!(hear(&mut all, of_shell(event(3, Event::Exit))), [shell_has_heirs(false)]);
        assert_eq!((all.policy().tasks(), all.all()), (0, vec![]));
    }

    #[test]
    fn heirs_that_end_before_their_first_slice_are_not_believed_for_ever() {
        let mut all = conductor();
        let bound = all.bound();
        hear(&mut all, of_shell(slice(1, 5, 0.5, bound, false)));
        assert_eq!(hear(&mut all, of_shell(event(1, Event::Exit))), [shell_has_heirs(true)]);
        let mut orders = Vec::new();
        for task in 2..2 + u64::from(HEIRS) {
            assert_eq!(orders, []);
            all.hear(of_shell(event(task, Event::Child)), 0, &mut orders);
            all.hear(of_shell(event(task, Event::Exit)), 0, &mut orders);
        }
        assert_eq!(orders, [shell_has_heirs(false)]);
        // One that the kernel's side has begun before it knew.
        assert_eq!(hear(&mut all, of_shell(event(50, Event::Child))), [tell(50, false)]);
        assert_eq!((all.policy().tasks(), all.all()), (0, vec![]));
    }

    #[test]
    fn a_parent_that_is_gone_is_forgotten() {
        let mut all = conductor();
        let bound = all.bound();
        hear(&mut all, of_shell(slice(1, 5, 0.5, bound, false)));
        assert_eq!(hear(&mut all, of_shell(event(1, Event::Exit))), [shell_has_heirs(true)]);
        let mut orders = Vec::new();
        all.ended(SHELL, &mut orders);
        assert_eq!((orders, all.all()), (vec![], vec![]));
    }

    #[test]
    fn a_task_whose_beginning_was_lost_is_met_at_its_next_slice() {
        let mut all = conductor();
        let first = all.bound();
        assert_eq!(hear(&mut all, slice(1, 0, 0.5, first, true)), []);
        assert_eq!(all.policy().tasks(), 1);
        let orders = hear(&mut all, slice(2, 0, 0.0, first, true));
        assert_eq!(orders, [tell(2, false)]);
        assert_eq!(all.all(), [tell(1, true)]);
    }
}
