//! The interface between the policy and the system that it schedules.
//!
//! | the system calls | when |
//! | --- | --- |
//! | [`Policy::slice_begins`], [`Policy::slice_ends`] | a task gets a core; the task's time slice ends |
//! | [`Policy::before_lock`] | a task is about to acquire a lock |
//! | [`Policy::begins`], [`Policy::ends`] | a task is created; a task ends |
//! | [`Policy::may_run`], [`Policy::may_move`] | the system itself chooses a core: on a wake-up, to balance load |
//!
//! | the policy calls | to |
//! | --- | --- |
//! | [`BackEnd::confine`] | move a lock-intensive task into the special set, or to a core of the resized set |
//! | [`BackEnd::release`] | free a task that is no longer lock-intensive |
//! | [`BackEnd::resize`] | report a new size of the set |
//! | [`BackEnd::pass_on`] | mark a task whose children start lock-intensive, or clear the mark |
//!
//! [`Policy::slice_begins`]: crate::Policy::slice_begins
//! [`Policy::slice_ends`]: crate::Policy::slice_ends
//! [`Policy::before_lock`]: crate::Policy::before_lock
//! [`Policy::begins`]: crate::Policy::begins
//! [`Policy::ends`]: crate::Policy::ends
//! [`Policy::may_run`]: crate::Policy::may_run
//! [`Policy::may_move`]: crate::Policy::may_move

use crate::task::Task;

/// A change of the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The bound before the change.
    pub from: u32,
    /// The bound after the change.
    pub to: u32,
    /// Whether the change starts a new search.
    pub restarts: bool,
}

/// A system with tasks and cores.
///
/// Cores are numbered from 0. Neighbours in this order share caches and memory, so the first
/// `bound` cores span as few nodes as possible. If the machine numbers its cores differently, the
/// back end translates the numbers: section 3.3 calls this an "extra core id mapping layer".
pub trait BackEnd {
    /// Identifies a task.
    type Id: Copy;

    /// The policy's state of a task, which the back end stores with the task.
    fn task(&mut self, id: Self::Id) -> Option<&mut Task>;

    /// The core that a task is on. A back end whose set has one queue for all its cores keeps the
    /// default.
    fn core(&self, _: Self::Id) -> u32 {
        0
    }

    /// Number of tasks that run or wait on `core`, not counting `id`. A back end whose set has one
    /// queue for all its cores keeps the default.
    fn load(&self, _core: u32, _id: Self::Id) -> u32 {
        0
    }

    /// Confines a task to the cores below `bound` and moves it to `core`, one of the least loaded.
    /// Returns false if the task cannot move now; the policy then retries before the task's next
    /// lock.
    fn confine(&mut self, id: Self::Id, core: u32, bound: u32) -> bool;

    /// Lets a task run on any core.
    fn release(&mut self, id: Self::Id);

    /// Reports that the size of the set changed at the time `now_ns`.
    fn resize(&mut self, change: Change, now_ns: u64);

    /// Reports whether the children of `id` start lock-intensive even while `id` itself does not
    /// wait. Only a back end whose tasks are created in another component, such as the kernel,
    /// needs this report.
    fn pass_on(&mut self, _id: Self::Id, _passes_on: bool) {}
}
