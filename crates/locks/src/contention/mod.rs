//! Contention managers: who gets the lock next.
//!
//! A contention manager orders the threads that want one lock, in nanoseconds. It knows nothing of
//! load, and asks one question per turn of a waiter's loop, through [`Turn`]: *keep spinning, or
//! leave?* It never sleeps on its own account; the one exception is [`futex`], the blocking
//! baseline. [`Class`](crate::catalogue::Class) says of each what it calls the system for.

pub mod clh;
pub mod elided;
pub mod futex;
pub mod loiter;
pub mod mcs;
pub mod requester;
pub mod rw;
pub mod tas;
pub mod ticket;
pub mod tpmcs;
pub mod ttas;
mod word;

use crate::primitive::turn::{Outcome, Turn};

/// A mutual-exclusion algorithm in 16 bytes of state, all zeroes when unlocked.
///
/// Beside who holds it, the state has room for one *parked bit*: threads wait off the processor until a
/// release, and the next release must wake one. What they wait on is the load manager's
/// ([`Eventcount`](crate::parking::eventcount::Eventcount)); the bit is here because it must be seen by the very access
/// that releases. A released lock may be freed by its next holder, so there is no looking at it
/// afterwards.
///
/// # Safety
///
/// Between an acquisition (`try_lock` true, `attempt` acquired) and the release that ends it there
/// is no other acquisition, and each sees the writes before the release that it follows. After the
/// release no memory of the lock is touched.
pub unsafe trait Contention: Send + Sync {
    /// The unlocked state.
    fn unlocked() -> Self
    where
        Self: Sized;

    /// Takes the lock if it is free.
    fn try_lock(&self) -> bool;

    /// The first try of a `lock`: as [`try_lock`](Self::try_lock), but a thread that is due is let
    /// through first.
    #[inline]
    fn try_lock_politely(&self) -> bool {
        self.try_lock()
    }

    /// Whether [`elide`](Self::elide) ever does anything.
    const ELIDES: bool = false;

    /// Enters a critical section without taking the lock, in such a way that whoever takes it undoes
    /// the section. False where the algorithm does not do that, or does not expect it to succeed:
    /// then the caller has to take the lock. A section that is undone comes back here, and gets
    /// false.
    #[inline]
    fn elide(&self) -> bool {
        false
    }

    /// Ends a section that [`elide`](Self::elide) let in; false, and nothing done, if the caller holds
    /// the lock instead.
    ///
    /// # Safety
    ///
    /// The calling context is in a critical section of this lock.
    #[inline]
    unsafe fn end_elided(&self) -> bool {
        false
    }

    /// Contends for the lock until it is acquired, or until `turn` says to leave and abandoning
    /// the lock succeeds.
    fn attempt(&self, turn: &mut impl Turn) -> Outcome;

    /// Releases the lock, unless the parked bit is set: then it stays held, and the answer is false. Ends an
    /// elided section too.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock.
    unsafe fn unlock(&self) -> bool;

    /// Clears the parked bit; the lock stays held.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock.
    unsafe fn clear_parked_bit(&self);

    /// Sets the parked bit if the lock is held at this moment, by anyone; false if it is free.
    fn set_parked_bit(&self) -> bool;

    /// Whether somebody holds the lock at this moment; stale as soon as it is known.
    fn is_locked(&self) -> bool;

    /// Whether, as far as the algorithm knows, a thread contends for the lock at this moment, and
    /// would take it if it were released. Asked by one that does not. True where nobody can tell.
    fn has_contender(&self) -> bool {
        true
    }
}
