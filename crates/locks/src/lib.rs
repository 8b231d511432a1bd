//! Locks that keep their speed when threads outnumber processors.
//!
//! *Contention* and *load* are different problems:
//!
//! - A [contention manager](contention) decides, within nanoseconds, which of the threads that want
//!   one lock acquires it next. It makes no system calls, except in locks that are included for
//!   comparison ([`catalogue::Class`]).
//! - A [load manager](load) decides, within milliseconds, which waiting threads should leave the
//!   processor. It knows nothing of queues.
//!
//! The two meet at one question, asked once per turn of a waiter's loop: *keep spinning, or leave?*
//! Every pair of a contention manager and a load manager is a lock.
//!
//! The default pair is [`Mutex`]: a lock word open to barging with a time-published queue behind it
//! ([`contention::loiter`]), under load control ([`load::control`]; Johnson, Stoica, Ailamaki and
//! Mowry, *Decoupling Contention Management from Scheduling*, ASPLOS 2010).
//!
//! Linux only. The first long wait starts the controller thread, which exits when long waits cease;
//! nothing runs without contention.

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

#[cfg(not(loom))]
pub use runtime::checkpoint;

#[cfg(all(feature = "lock_api", not(loom)))]
pub use raw::{Mutex, MutexGuard, RwLock};
