//! A lock-contention-aware scheduler's policy, after Cui, Wang, Chen and Shi, *Lock-Contention-Aware Scheduler: A Scalable
//! and Energy-Efficient Method for Addressing Scalability Collapse on Multicore Systems*, ACM TACO 9(4), January 2013.
//!
//! More processors can make a contended lock slower: each hand-over costs more the more waiters there are, until nearly
//! all time goes into waiting (*scalability collapse*). A task that waits too much for locks is *lock-intensive*; such
//! tasks run on a *special set of cores* only, and a search finds how large that set has to be.
//!
//! | module | idea | in the paper |
//! | --- | --- | --- |
//! | [`parameters`] | constants, and which search | sections 3.2 to 3.5, 4.1 |
//! | [`task`] | not lock-intensive, qualified, migrated | section 3.2, Algorithms 1 and 2 |
//! | [`votes`] | the waiting share p(n), as the tasks in the set see it | section 3.3, Algorithm 3 |
//! | [`search`] | the bound that makes T(n) = n (1 - p(n)) largest | section 3.3, Algorithm 4 |
//! | `bracket` | between which bounds it is, and which of two is better | ours, for section 4.6 |
//! | [`BackEnd`] | what a policy asks of the system, and the words of both | |
//! | [`policy`] | what happens at the ends of a time slice and before a lock | Algorithms 2 and 3 |
//! | [`set`] | which core of the set, and who balances with whom | sections 3.3 and 3.4 |
//! | [`topology`] | which cores are neighbours | section 3.3 |
//!
//! There is no clock, thread, file or lock in here: a [`BackEnd`] (`sched_setaffinity`, `sched_ext`, the simulator) measures
//! slices and waits, calls [`Policy`], and moves tasks as it says.
//!
//! ```
//! use unconvoy_sched::{BackEnd, Change, Parameters, Policy, Slice, State, Task};
//!
//! /// One task, and the cores that it may run on.
//! struct Lonely(Task, u32);
//!
//! impl BackEnd for Lonely {
//!     type Id = ();
//!     fn task(&mut self, _: ()) -> Option<&mut Task> { Some(&mut self.0) }
//!     fn confine(&mut self, _: (), _: u32, bound: u32) -> bool { self.1 = bound; true }
//!     fn release(&mut self, _: ()) { self.1 = 32; }
//!     fn resize(&mut self, _: Change, _: u64) {}
//! }
//!
//! let mut policy = Policy::new(Parameters::published(32), 0);
//! let mut machine = Lonely(Task::default(), 32);
//! // 6 ms on core 20, of which the task waited 2 for locks: more than a tenth.
//! policy.slice_ends(&mut machine, (), Slice { core: 20, ran_ns: 6_000_000, waited_ns: 2_000_000 }, 6_000_000);
//! assert_eq!(machine.0.state(), State::Qualified);
//! // Before its next lock it goes to the special set.
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
