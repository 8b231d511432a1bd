//! The checkpoint of a Rust or C program that uses this library's own locks.

use crate::load::control::Control;
use crate::load::{Holds, LoadManager};
use crate::lock::Process as _;
use crate::primitive::Native;

/// A point between two units of work, such as requests or transactions, at which the calling thread
/// may sleep for load. Call it where the thread holds no lock and waits for none, for example at
/// the end of a request loop's body.
///
/// While load control is idle, the call costs one load. While threads outnumber processors and
/// contend for locks, surplus threads sleep here instead of in the queue of the next lock. A
/// sleeper returns when load drops, when its turn comes, or after 100 ms. Returns whether the
/// thread slept.
///
/// A thread that has parked at a lock does not sleep here until it has released that lock, or 100
/// ms have passed. Other locks are not counted, since that would lengthen every acquisition:
/// a thread that sleeps here with a [`Mutex`](crate::Mutex) delays that mutex's waiters until it
/// returns.
///
/// ```
/// # let requests = [1, 2, 3];
/// for request in requests {
///     // ... serve the request: lock, work, unlock
///     # let _ = request;
///     unconvoy::checkpoint();
/// }
/// ```
#[inline]
pub fn checkpoint() -> bool {
    Control::checkpoint(Native::context(), || Holds::Unknown)
}
