//! The simulated machine.
//!
//! | part | contents |
//! | --- | --- |
//! | `clock` | future events in order of time |
//! | `memory` | lines, caches and store buffers; which threads poll which lines |
//! | `scheduler` | run queues, slices, balancing and the special set; where threads spend their time |
//! | `transactions` | which threads have read and written which lines; what an abort undoes |
//! | `futexes` | which threads sleep on which address, and until when |
//! | `interplay` | the machine, which owns these parts and passes data between them |
//! | `running` | the main loop, which runs the threads |
//! | `access`, `calls`, `mwait`, `abort`, `retry` | operations of a thread on its machine |
//! | `interruptions` | threads that take contexts from the program at random times |
//! | `totals` | counts and times of the run so far |
//! | `cell`, `data` | shared data of programs |
//!
//! Memory accesses take effect one at a time, in order of simulated time. The machine is therefore
//! sequentially consistent, whatever memory orderings the code names, and never reveals a missing
//! fence. Loom checks the fences.

mod abort;
mod access;
mod calls;
mod cell;
mod clock;
mod data;
mod futexes;
mod interplay;
mod interruptions;
mod memory;
mod mwait;
mod retry;
mod running;
mod scheduler;
mod thread;
mod totals;
mod transactions;
mod zeroes;

pub use abort::{abort_transaction, in_transaction};
pub(crate) use abort::{elided_lock, leave_transaction, set_elided_lock};
pub(crate) use access::{fence, load, read_modify_write, store, synchronise};
pub use calls::*;
pub use cell::{Simulated, SimulatedCell};
pub(crate) use data::Lines;
pub use data::{Word, wait_for_word};
pub use interplay::{Hang, Machine};
pub(crate) use mwait::{has_mwait, mwait};
pub use retry::{Refusal, has_transactions, recorded, transaction};
pub(crate) use retry::{begin_transaction, end_transaction, restartable};
pub(crate) use running::{is_inside, run, spawn, with};
pub(crate) use scheduler::Waits;
pub use scheduler::{Activity, Interruptions, LongWait, Seen, Split, Violation};
pub use totals::Counts;
pub use transactions::{AddressSet, Cause, TransactionCounts};
