//! The policy of a lock-contention-aware scheduler, after Cui, Wang, Chen and Shi,
//! *Lock-Contention-Aware Scheduler: A Scalable and Energy-Efficient Method for Addressing
//! Scalability Collapse on Multicore Systems*, ACM TACO 9(4), January 2013.
//!
//! Adding processors can slow a contended lock down: the cost of a hand-over grows with the number
//! of waiters, until waiting takes nearly all time (*scalability collapse*). A task that spends too
//! much of its time waiting for locks is *lock-intensive*. The scheduler confines lock-intensive
//! tasks to a *special set of cores* and searches for the best size of that set.
//!
//! | module | subject | in the paper |
//! | --- | --- | --- |
//! | [`parameters`] | constants, choice of the search | sections 3.2 to 3.5, 4.1 |
//! | [`task`] | task states: ordinary, qualified, migrated | section 3.2, Algorithms 1 and 2 |
//! | [`votes`] | the waiting share p(n), as voted by the tasks in the set | section 3.3, Algorithm 3 |
//! | [`search`] | the bound that maximizes T(n) = n (1 - p(n)) | section 3.3, Algorithm 4 |
//! | `bracket` | the interval that contains the best bound; comparison of two bounds | ours; improves on section 4.6 |
//! | [`BackEnd`] | interface to the scheduled system | |
//! | [`policy`] | actions at the ends of a time slice and before a lock | Algorithms 2 and 3 |
//! | [`set`] | choice of a core in the set; which cores balance their load | sections 3.3 and 3.4 |
//! | [`topology`] | an order of cores that keeps neighbours together | section 3.3 |
//!
//! This crate contains no clock, thread, file or lock. A [`BackEnd`] (`sched_setaffinity`,
//! `sched_ext`, the simulator) measures slices and waits, calls [`Policy`], and moves tasks as
//! [`Policy`] asks.
//!
//! ```
//! use unconvoy_sched::{BackEnd, Change, Parameters, Policy, Slice, State, Task};
//!
//! /// One task, and the number of cores it may use.
//! struct SingleTask(Task, u32);
//!
//! impl BackEnd for SingleTask {
//!     type Id = ();
//!     fn task(&mut self, _: ()) -> Option<&mut Task> { Some(&mut self.0) }
//!     fn confine(&mut self, _: (), _: u32, bound: u32) -> bool { self.1 = bound; true }
//!     fn release(&mut self, _: ()) { self.1 = 32; }
//!     fn resize(&mut self, _: Change, _: u64) {}
//! }
//!
//! let mut policy = Policy::new(Parameters::published(32), 0);
//! let mut machine = SingleTask(Task::default(), 32);
//! // The task ran on core 20 for 6 ms, and spent 2 ms of that time waiting for locks: above 10 %.
//! let slice = Slice { core: 20, ran_ns: 6_000_000, waited_ns: 2_000_000 };
//! policy.slice_ends(&mut machine, (), slice, 6_000_000);
//! assert_eq!(machine.0.state(), State::Qualified);
//! // The task moves to the special set before it acquires its next lock.
//! assert!(policy.before_lock(&mut machine, ()));
//! assert_eq!((machine.0.state(), machine.1), (State::Migrated, 1));
//! ```

#![forbid(unsafe_code)]

mod back_end;
mod bracket;
pub mod parameters;
pub mod policy;
pub mod search;
pub mod set;
pub mod task;
pub mod topology;
pub mod votes;

pub use back_end::{BackEnd, Change};
pub use parameters::{Parameters, Search};
pub use policy::Policy;
pub use task::{Slice, State, Task, Totals};
