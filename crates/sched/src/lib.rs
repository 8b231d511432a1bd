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
//! | [`policy`] | what happens at the ends of a time slice and before a lock | Algorithms 2 and 3 |
//! | [`set`] | which core of the set, and who balances with whom | sections 3.3 and 3.4 |
//!
//! There is no clock, thread, file or lock in here: back ends (`sched_setaffinity`, `sched_ext`, the simulator) measure
//! slices and waits, call [`Policy`], and move tasks.
//!
//! ```
//! use unconvoy_sched::{Parameters, Policy, Slice, State, Task};
//!
//! let mut policy = Policy::new(Parameters::published(32), 0);
//! let mut task = Task::default();
//! policy.slice_begins(&mut task);
//! // 6 ms on core 20, of which the task waited 2 for locks: more than a tenth.
//! policy.slice_ends(&mut task, Slice { core: 20, ran_ns: 6_000_000, waited_ns: 2_000_000 }, 6_000_000);
//! assert_eq!(task.state(), State::Qualified);
//! // Before its next lock it goes to the special set.
//! assert_eq!(policy.before_lock(&mut task), Some(1));
//! assert_eq!(task.state(), State::Migrated);
//! ```
//!
//! # Cores
//!
//! Cores are counted from 0 in an order in which neighbours share caches and memory, so that a set of the first `bound`
//! cores spans as few nodes as possible. Where the machine's own numbers are not in such an order, the back end has a
//! table from one to the other: the paper's "extra core id mapping layer" (section 3.3).

#![forbid(unsafe_code)]

mod bracket;
pub mod parameters;
pub mod policy;
pub mod search;
pub mod set;
pub mod task;
pub mod votes;

pub use parameters::{Parameters, Search};
pub use policy::{Change, Policy};
pub use task::{Slice, State, Task};
