//! Programs that the simulator runs: repeated transactions of work, critical sections and waits.

mod bench;
mod guarded;
mod kernel;
mod lookup;
mod mixes;
pub mod profile;
mod program;
pub mod red_black;
pub mod replay;
mod running;
mod step;
pub(crate) mod table;
pub mod validation;

pub(crate) use bench::USUAL;
pub use bench::{bench_counter, bench_nested, hashtable, rwlock};
pub use kernel::user_part;
pub use mixes::{WORKLOADS, counter, named, on};
pub use running::{Running, start, start_staggered};
pub use step::{Others, Step, Workload};
