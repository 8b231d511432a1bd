//! Locks that keep their speed when threads outnumber processors.
//!
//! *Contention* and *load* are different problems. A [contention manager](contention) orders the
//! threads that want one lock, in nanoseconds, and does not call the operating system to do so
//! (those that do by design are comparisons: [`catalogue::Class`]); a [load manager](load) decides
//! which waiting threads should leave the processor, in milliseconds, and knows nothing of queues.
//! They meet where a waiter asks, once per turn of its loop: *keep
//! spinning, or leave?* Every pair of the two is a lock.
//!
//! The default pair is [`Mutex`]: a word open to barging with a time-published queue behind it
//! ([`contention::loiter`]), under load control ([`load::control`]) as in Johnson, Stoica, Ailamaki
//! and Mowry, *Decoupling Contention Management from Scheduling* (ASPLOS 2010).
//!
//! Linux only. While nobody contends nothing runs: the controller thread comes with the first long
//! wait and goes when there are none.

#[cfg(all(feature = "capi", not(loom)))]
pub mod capi;
pub mod catalogue;
pub mod contention;
pub mod load;
pub mod lock;
pub mod parking;
pub mod primitive;
pub mod queue;
#[cfg(all(feature = "lock_api", not(loom)))]
pub mod raw;
pub mod runtime;

#[cfg(all(feature = "lock_api", not(loom)))]
pub use raw::{Mutex, MutexGuard, RwLock};
