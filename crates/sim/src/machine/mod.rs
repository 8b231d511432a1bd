//! The machine: simulated time, and who does what in it.
//!
//! | part | idea |
//! | --- | --- |
//! | `clock` | what is going to happen when |
//! | `memory` | lines, caches, store buffers; who polls what |
//! | `scheduler` | run queues, slices, balance, the special set; where threads' time goes |
//! | `transactions` | who has read and written what; what an abort takes back |
//! | `futexes` | who sleeps where, and until when |
//! | `interplay` | the machine, which owns these and passes one to the other |
//! | `running` | how it runs its threads |
//! | `access`, `calls`, `abort`, `retry` | what a thread does to the machine that it runs on |
//! | `cell`, `data` | what programs are written with |
//!
//! Accesses take effect one at a time in the order of simulated time, so that the machine is
//! sequentially consistent whatever the orderings say: it finds no missing fence. That is loom's
//! part.

mod abort;
mod access;
mod calls;
mod cell;
mod clock;
mod data;
mod futexes;
mod interplay;
mod memory;
mod retry;
mod running;
mod scheduler;
mod thread;
mod transactions;
mod zeroes;

pub(crate) use abort::leave_transaction;
pub use abort::{abort_transaction, in_transaction};
pub(crate) use access::{fence, load, store};
pub use calls::*;
pub use cell::{Simulated, SimulatedCell};
pub(crate) use data::Lines;
pub use data::{Word, wait_for_word};
pub use interplay::{Counts, Hang, Machine};
pub use retry::{Refusal, has_transactions, recorded, transaction};
pub(crate) use retry::{begin_transaction, end_transaction, restartable};
pub(crate) use running::{is_inside, run, spawn, with};
pub use scheduler::{Activity, Split};
pub use transactions::{AddressSet, Cause, TransactionCounts};
