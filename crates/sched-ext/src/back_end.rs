//! The kernel's side as a [back end](BackEnd) of the policy of crates/sched: turns what that side records into calls of
//! [`Policy`], and what the policy asks for into orders.
//!
//! | record | the policy is told | orders |
//! | --- | --- | --- |
//! | a slice of a task | `slice_begins`, `slice_ends`, `before_lock` | the task is confined to the set, or released; the set has another size |
//! | a child | `begins`, `before_lock` | the child is released, if it has not inherited |
//! | an end | `ends` | what the parent begins is of the set from its start, or is not any more |
//!
//! A parent is kept as long as its children inherit, though it never waits itself: a shell. Of one that the kernel's side does not name
//! there is nobody to inherit from.
//!
//! A slice that began under another bound may not vote (Algorithm 3, line 14). What was lost on the way is no harm: a task that the policy
//! does not know is met at its next slice, and ends that were lost are asked for ([`Scheduler::all`]).
//!
//! `before_lock` is called as soon as a task is found to be lock-intensive, and not before its next lock: main.bpf.c, 5, says why. Which
//! core of the set it goes to is no question: the set has one queue.

use std::collections::HashMap;

use unconvoy_sched::{BackEnd, Change, Parameters, Policy, Slice, State, Task, Totals};

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
        /// [`Scheduler::bound`] when it began.
        bound: Bound,
    },
    /// The task has begun, and may have inherited.
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
        passes_on: bool,
    },
    /// The set has another size.
    Rebound(Bound),
}

/// A lock-intensive task, or one whose children inherit.
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
    /// Whether the kernel's side takes it for one of the set, as far as that is known.
    is_special: bool,
}

impl Known {
    fn new(tid: u32, core: u32, parent: Option<Parent>) -> Self {
        Known { tid, share: 0.0, core, task: Task::default(), parent, is_special: false }
    }

    fn is_confined(&self) -> bool {
        self.task.state() == State::Migrated
    }

    fn order(&self, task: u64, is_special: bool) -> Order {
        Order::Tell { task, tid: self.tid, is_special, passes_on: self.task.passes_on() }
    }
}

/// The tasks, and what the kernel's side is to do with them.
#[derive(Debug)]
struct Tasks {
    known: HashMap<u64, Known>,
    bound: Bound,
    changes: u64,
    orders: Vec<Order>,
}

impl Tasks {
    /// Sees that the kernel's side takes a task for one of the set, or does not.
    fn tell(&mut self, id: u64, is_special: bool) {
        let Some(known) = self.known.get_mut(&id) else { return };
        if std::mem::replace(&mut known.is_special, is_special) != is_special {
            self.orders.push(known.order(id, is_special));
        }
    }

    fn forget_if_ordinary(&mut self, id: u64) {
        // The end of a task that inherited says something of its parent's next children, and most of all if it was nothing special.
        let matters = |task: &Task| task.is_lock_intensive() || task.waits() || task.passes_on() || task.is_inherited();
        if self.known.get(&id).is_some_and(|known| !matters(&known.task)) {
            self.known.remove(&id);
        }
    }
}

impl BackEnd for Tasks {
    type Id = u64;

    fn task(&mut self, id: u64) -> Option<&mut Task> {
        self.known.get_mut(&id).map(|known| &mut known.task)
    }

    fn confine(&mut self, id: u64, _: u32, _: u32) -> bool {
        self.tell(id, true);
        true
    }

    fn release(&mut self, id: u64) {
        self.tell(id, false);
    }

    fn resize(&mut self, change: Change, _: u64) {
        self.changes += u64::from(change.from != change.to);
        self.bound = Bound { cores: change.to, serial: self.bound.serial.wrapping_add(1) };
        self.orders.push(Order::Rebound(self.bound));
    }

    fn pass_on(&mut self, id: u64, _: bool) {
        self.orders.extend(self.known.get(&id).map(|known| known.order(id, known.is_confined())));
    }
}

/// The policy with the tasks that it has found.
#[derive(Debug)]
pub struct Scheduler {
    policy: Policy,
    tasks: Tasks,
}

impl Scheduler {
    /// Without tasks, at the time `now_ns`.
    pub fn new(parameters: Parameters, now_ns: u64) -> Self {
        let policy = Policy::new(parameters, now_ns);
        let bound = Bound { cores: policy.bound(), serial: 0 };
        Scheduler { policy, tasks: Tasks { known: HashMap::new(), bound, changes: 0, orders: Vec::new() } }
    }

    /// The policy, to look at.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The set's present size.
    pub fn bound(&self) -> Bound {
        self.tasks.bound
    }

    /// How often that changed.
    pub fn changes(&self) -> u64 {
        self.tasks.changes
    }

    /// The lock-intensive tasks, in no order.
    pub fn tasks(&self) -> impl Iterator<Item = &Known> {
        self.tasks.known.values().filter(|known| known.task.is_lock_intensive())
    }

    /// What the kernel's side has to do, and has not been told.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.tasks.orders)
    }

    /// Takes in a record, at the time `now_ns`.
    pub fn record(&mut self, record: Record, now_ns: u64) {
        let Record { task, tid, parent, .. } = record;
        if let Some(known) = self.tasks.known.get_mut(&task) {
            (known.parent, known.is_special) = (parent, record.is_special);
        }
        match record.event {
            Event::Exit => return self.ended(task),
            Event::Child => {
                self.tasks.known.insert(task, Known { is_special: record.is_special, ..Known::new(tid, 0, parent) });
                self.policy.begins(&mut self.tasks, task, parent.map(|parent| parent.task));
            }
            Event::Slice { slice, bound } => {
                let new = || Known { is_special: record.is_special, ..Known::new(tid, slice.core, parent) };
                let known = self.tasks.known.entry(task).or_insert_with(new);
                let share = slice.waited_ns.min(slice.ran_ns) as f64 / slice.ran_ns.max(1) as f64;
                known.share += (share - known.share) / 8.0;
                known.core = slice.core;
                self.policy.slice_begins(&mut known.task, Totals::default());
                let core = if bound == self.tasks.bound { slice.core } else { Slice::ELSEWHERE };
                self.policy.slice_ends(&mut self.tasks, task, Slice { core, ..slice }, now_ns);
            }
        }
        self.policy.before_lock(&mut self.tasks, task);
        // Whatever was lost on the way, both sides think the same of the task from here on.
        let is_confined = self.tasks.known.get(&task).is_some_and(Known::is_confined);
        self.tasks.tell(task, is_confined);
        self.tasks.forget_if_ordinary(task);
    }

    /// The task with this number has ended.
    pub fn ended(&mut self, id: u64) {
        let Some(child) = self.tasks.known.get(&id) else { return };
        if let Some(Parent { task, tid }) = child.parent {
            self.tasks.known.entry(task).or_insert_with(|| Known::new(tid, 0, None));
            self.policy.ends(&mut self.tasks, id, Some(task));
            self.tasks.forget_if_ordinary(task);
        } else {
            self.policy.ends(&mut self.tasks, id, None);
        }
        self.tasks.known.remove(&id);
    }

    /// Orders that tell all tasks again what they are: whoever has ended unheard is found so.
    pub fn all(&self) -> Vec<Order> {
        self.tasks.known.iter().map(|(&task, known)| known.order(task, known.is_confined())).collect()
    }
}

#[cfg(test)]
mod tests;
