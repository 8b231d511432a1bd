//! The kernel side as a [back end](BackEnd) of the policy in crates/sched. This module translates
//! records of the kernel side into calls of [`Policy`], and the policy's decisions into orders.
//!
//! | record | calls of the policy | possible orders |
//! | --- | --- | --- |
//! | a slice | `slice_begins`, `slice_ends`, `before_lock` | confine or release the task; resize the set |
//! | a child | `begins`, `before_lock` | release the child if it did not inherit |
//! | an end | `ends` | let the parent's later children start in the set, or no longer |
//!
//! The table of tasks keeps a parent as long as its children inherit, even a parent that never
//! waits itself, such as a shell. A child whose record names no parent inherits nothing.
//!
//! A slice counts as a vote on the *bound*, the size of the set, only if it began under the present
//! bound (Algorithm 3, line 14). Lost records are harmless: an unknown task is added at its next
//! slice, and [`Scheduler::all`] finds tasks whose end was lost.
//!
//! `before_lock` is called as soon as a task becomes lock-intensive, without waiting for its next
//! lock; see main.bpf.c, 5. The choice of a core does not matter, since the set has one queue.

use std::collections::HashMap;

use unconvoy_sched::{BackEnd, Change, Parameters, Policy, Slice, State, Task, Totals};

/// A record from the kernel side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The task's unique number; unlike a thread id, never reused.
    pub task: u64,
    pub tid: u32,
    /// Whether the kernel side counts the task as part of the set.
    pub is_special: bool,
    /// The task that created it, if known.
    pub parent: Option<Parent>,
    pub event: Event,
}

/// The task that created another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    pub task: u64,
    pub tid: u32,
}

/// An event in the life of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Slice {
        /// Core, length and waiting time.
        slice: Slice,
        /// [`Scheduler::bound`] at the start of the slice.
        bound: Bound,
    },
    /// The task has begun. It may have inherited its place in the set.
    Child,
    Exit,
}

/// A size of the set with a serial number, which distinguishes two periods with the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    pub cores: u32,
    /// Number of changes before this one; wraps around.
    pub serial: u32,
}

impl Bound {
    /// The representation on the kernel side: serial number in the high, cores in the low 32 bits.
    pub fn pack(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.cores)
    }

    pub fn unpack(packed: u64) -> Self {
        Bound { cores: packed as u32, serial: (packed >> 32) as u32 }
    }
}

/// An order to the kernel side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Update {
        task: u64,
        tid: u32,
        is_special: bool,
        /// Whether the task's children start in the set even though the task itself does not wait.
        passes_on: bool,
    },
    Resize(Bound),
}

/// See [`Known::share`].
const MEAN_OF: u32 = 8;

/// A lock-intensive task, or a task whose children inherit.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub tid: u32,
    /// The waiting share of its last slices, 0 to 1: the mean of the first [`MEAN_OF`]. Each later
    /// slice has the weight 1 / `MEAN_OF`.
    pub share: f64,
    /// Number of slices in `share`, at most [`MEAN_OF`].
    slices: u32,
    pub core: u32,
    task: Task,
    parent: Option<Parent>,
    /// The kernel side's view of whether the task is part of the set, as far as known.
    is_special: bool,
}

impl Known {
    fn new(tid: u32, core: u32, parent: Option<Parent>) -> Self {
        let task = Task::default();
        Known { tid, share: 0.0, slices: 0, core, task, parent, is_special: false }
    }

    fn add_slice(&mut self, slice: Slice) {
        let share = slice.waited_ns.min(slice.ran_ns) as f64 / slice.ran_ns.max(1) as f64;
        self.slices = (self.slices + 1).min(MEAN_OF);
        self.share += (share - self.share) / f64::from(self.slices);
        self.core = slice.core;
    }

    fn is_confined(&self) -> bool {
        self.task.state() == State::Migrated
    }

    fn order(&self, task: u64, is_special: bool) -> Order {
        Order::Update { task, tid: self.tid, is_special, passes_on: self.task.passes_on() }
    }
}

/// The known tasks, and pending orders to the kernel side.
#[derive(Debug)]
struct Tasks {
    known: HashMap<u64, Known>,
    bound: Bound,
    changes: u64,
    orders: Vec<Order>,
}

impl Tasks {
    /// Orders the kernel side to add a task to the set or to remove it, unless the kernel side has
    /// done so already.
    fn update(&mut self, id: u64, is_special: bool) {
        let Some(known) = self.known.get_mut(&id) else { return };
        if std::mem::replace(&mut known.is_special, is_special) != is_special {
            self.orders.push(known.order(id, is_special));
        }
    }

    fn forget_if_ordinary(&mut self, id: u64) {
        // Keep a task that inherited and then became ordinary: when it ends, the policy stops the
        // inheritance of its siblings.
        let matters = |task: &Task| {
            task.is_lock_intensive() || task.waits() || task.passes_on() || task.is_inherited()
        };
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
        self.update(id, true);
        true
    }

    fn release(&mut self, id: u64) {
        self.update(id, false);
    }

    fn resize(&mut self, change: Change, _: u64) {
        self.changes += u64::from(change.from != change.to);
        self.bound = Bound { cores: change.to, serial: self.bound.serial.wrapping_add(1) };
        self.orders.push(Order::Resize(self.bound));
    }

    fn pass_on(&mut self, id: u64, _: bool) {
        self.orders.extend(self.known.get(&id).map(|known| known.order(id, known.is_confined())));
    }
}

/// The policy with the known tasks.
#[derive(Debug)]
pub struct Scheduler {
    policy: Policy,
    tasks: Tasks,
}

impl Scheduler {
    /// A scheduler without tasks at the time `now_ns`.
    pub fn new(parameters: Parameters, now_ns: u64) -> Self {
        let policy = Policy::new(parameters, now_ns);
        let bound = Bound { cores: policy.bound(), serial: 0 };
        Scheduler {
            policy,
            tasks: Tasks { known: HashMap::new(), bound, changes: 0, orders: Vec::new() },
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub fn bound(&self) -> Bound {
        self.tasks.bound
    }

    /// Number of times that the size of the set has changed.
    pub fn changes(&self) -> u64 {
        self.tasks.changes
    }

    /// The lock-intensive tasks, in no particular order.
    pub fn tasks(&self) -> impl Iterator<Item = &Known> {
        self.tasks.known.values().filter(|known| known.task.is_lock_intensive())
    }

    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.tasks.orders)
    }

    /// Processes a record at the time `now_ns`.
    pub fn record(&mut self, record: Record, now_ns: u64) {
        let Record { task, tid, parent, .. } = record;
        if let Some(known) = self.tasks.known.get_mut(&task) {
            // A thread that executes a program takes the thread id of its process.
            (known.tid, known.parent, known.is_special) = (tid, parent, record.is_special);
        }
        match record.event {
            Event::Exit => return self.ended(task),
            Event::Child => {
                self.tasks.known.insert(
                    task,
                    Known { is_special: record.is_special, ..Known::new(tid, 0, parent) },
                );
                self.policy.begins(&mut self.tasks, task, parent.map(|parent| parent.task));
            }
            Event::Slice { slice, bound } => {
                let new = || Known {
                    is_special: record.is_special,
                    ..Known::new(tid, slice.core, parent)
                };
                let known = self.tasks.known.entry(task).or_insert_with(new);
                known.add_slice(slice);
                self.policy.slice_begins(&mut known.task, Totals::default());
                let core = if bound == self.tasks.bound { slice.core } else { Slice::ELSEWHERE };
                self.policy.slice_ends(&mut self.tasks, task, Slice { core, ..slice }, now_ns);
            }
        }
        self.policy.before_lock(&mut self.tasks, task);
        // Align the kernel side with the policy, even if earlier records were lost.
        let is_confined = self.tasks.known.get(&task).is_some_and(Known::is_confined);
        self.tasks.update(task, is_confined);
        self.tasks.forget_if_ordinary(task);
    }

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

    /// Orders that repeat the state of every known task. An order fails if its task has ended and
    /// the record of the end was lost.
    pub fn all(&self) -> Vec<Order> {
        self.tasks
            .known
            .iter()
            .map(|(&task, known)| known.order(task, known.is_confined()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
