//! What a policy asks of the system that it schedules for, and the words that both have in common.
//!
//! | the system calls | when |
//! | --- | --- |
//! | [`Policy::slice_begins`], [`Policy::slice_ends`] | a task gets a core; has run for a time slice, some of which it waited for locks |
//! | [`Policy::before_lock`] | a task is about to acquire a lock |
//! | [`Policy::begins`], [`Policy::ends`] | a task has begun another one; has ended |
//! | [`Policy::may_run`], [`Policy::may_move`] | it looks for a core by itself: for a task that wakes, to even out loads |
//!
//! | the policy calls | for |
//! | --- | --- |
//! | [`BackEnd::confine`] | a lock-intensive task goes to the special set, or to another place in a set of another size |
//! | [`BackEnd::release`] | a task is not lock-intensive after all |
//! | [`BackEnd::resize`] | the set has another number of cores |
//! | [`BackEnd::pass_on`] | what a task begins is lock-intensive from its start, or is not any more |
//!
//! [`Policy::slice_begins`]: crate::Policy::slice_begins
//! [`Policy::slice_ends`]: crate::Policy::slice_ends
//! [`Policy::before_lock`]: crate::Policy::before_lock
//! [`Policy::begins`]: crate::Policy::begins
//! [`Policy::ends`]: crate::Policy::ends
//! [`Policy::may_run`]: crate::Policy::may_run
//! [`Policy::may_move`]: crate::Policy::may_move

use crate::task::Task;

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

/// A system with tasks and cores.
///
/// Cores are counted from 0 in an order in which neighbours share caches and memory, so that a set of the first `bound`
/// cores spans as few nodes as possible. Where the machine's own numbers are not in such an order, the back end has a
/// table from one to the other: the paper's "extra core id mapping layer" (section 3.3).
pub trait BackEnd {
    /// Names a task.
    type Id: Copy;

    /// What the policy remembers of a task, which the back end keeps with it.
    fn task(&mut self, id: Self::Id) -> Option<&mut Task>;

    /// The core that a task is on. Of no consequence where the set has one queue for all its cores.
    fn core(&self, _: Self::Id) -> u32 {
        0
    }

    /// Tasks that run or wait on `core`, not counting `id`. As above.
    fn load(&self, _core: u32, _id: Self::Id) -> u32 {
        0
    }

    /// Keeps a task to the cores below `bound`, and moves it to `core`, one of them with the least load. False if that
    /// cannot be done now: the policy asks again before the task's next lock.
    fn confine(&mut self, id: Self::Id, core: u32, bound: u32) -> bool;

    /// Lets a task run on any core.
    fn release(&mut self, id: Self::Id);

    /// Notes at the time `now_ns` that the set has another size.
    fn resize(&mut self, change: Change, now_ns: u64);

    /// Notes whether the tasks that `id` begins are lock-intensive from their start though it does not wait itself:
    /// for a back end whose other half begins tasks.
    fn pass_on(&mut self, _id: Self::Id, _passes_on: bool) {}
}
