//! Contention managers: which thread acquires the lock next.
//!
//! A contention manager decides this within nanoseconds, for the threads that want one lock. It
//! knows nothing of load. Once per turn of a waiter's loop it asks, through [`Turn`]: *keep
//! spinning, or leave?* Waiters of a mutex never block in the kernel but for those of [`futex`],
//! the blocking baseline. [`Class`](crate::catalogue::Class) lists which system calls each manager
//! makes by design.

#[doc(hidden)]
pub mod bias;
#[doc(hidden)]
pub mod biased_rw;
pub mod clh;
mod drain;
pub mod elided;
#[doc(hidden)]
pub mod elided_rw;
mod elision;
pub mod futex;
#[doc(hidden)]
pub mod give_way;
mod learning;
pub mod loiter;
pub mod mcs;
pub mod requester;
#[doc(hidden)]
pub mod rw;
pub mod tas;
pub mod ticket;
pub mod tpmcs;
pub mod ttas;
#[doc(hidden)]
pub mod visible;
mod word;

use crate::primitive::turn::{Outcome, Turn};

/// A mutual-exclusion algorithm in at most 16 bytes of state.
///
/// The state includes a *parked bit*: the next release must wake a thread that sleeps on the load
/// manager's [`Eventcount`](crate::parking::eventcount::Eventcount). The bit is part of this state
/// because the access that releases the lock must also read it. After the release, the next holder
/// may free the lock's memory, so the releaser cannot read the state a second time.
///
/// In the child of a `fork`, the state still names the parent's waiters, which do not exist there.
/// No thread of the child may wait for one of them. A thread recognises them by their
/// [generation](crate::primitive::Generation), or waits for a bounded time only. A lock held by the
/// forking thread stays held.
///
/// # Safety
///
/// All zeroes are a valid value, which means unlocked.
///
/// Between an acquisition (`try_lock` returns true, `attempt` returns `Acquired`) and its release
/// no other thread acquires the lock. An acquisition sees every write before the preceding release.
/// A release accesses no memory of the lock after freeing it.
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
///
/// use unconvoy::contention::Contention;
/// use unconvoy::load::control::Control;
/// use unconvoy::primitive::turn::{Outcome, Turn, Verdict};
/// use unconvoy::primitive::{Clock, Native};
/// use unconvoy::raw::RawLock;
///
/// const HELD: u32 = 1;
/// const PARKED: u32 = 2;
///
/// /// A lock of one word, whose waiters poll.
/// struct Polling(AtomicU32);
///
/// // SAFETY: only `try_lock` acquires, and only from 0; `unlock` stores 0 last.
/// unsafe impl Contention for Polling {
///     fn unlocked() -> Self {
///         Polling(AtomicU32::new(0))
///     }
///
///     fn try_lock(&self) -> bool {
///         self.0.compare_exchange(0, HELD, Acquire, Relaxed).is_ok()
///     }
///
///     fn attempt(&self, turn: &mut impl Turn) -> Outcome {
///         loop {
///             if self.try_lock() {
///                 return Outcome::Acquired;
///             }
///             if turn.turn(Native::now()) == Verdict::Leave {
///                 return Outcome::Abandoned;
///             }
///             std::hint::spin_loop();
///         }
///     }
///
///     unsafe fn unlock(&self) -> bool {
///         self.0.compare_exchange(HELD, 0, Release, Relaxed).is_ok()
///     }
///
///     unsafe fn clear_parked_bit(&self) {
///         self.0.swap(HELD, Relaxed);
///     }
///
///     fn set_parked_bit(&self) -> bool {
///         let held = |word| (word & HELD != 0).then_some(HELD | PARKED);
///         self.0.fetch_update(Relaxed, Relaxed, held).is_ok()
///     }
///
///     fn is_locked(&self) -> bool {
///         self.0.load(Relaxed) & HELD != 0
///     }
/// }
///
/// static HITS: lock_api::Mutex<RawLock<Polling, Control>, u64> = lock_api::Mutex::new(0);
///
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *HITS.lock() += 1);
///     }
/// });
/// assert_eq!(*HITS.lock(), 4);
/// ```
pub unsafe trait Contention: Send + Sync {
    /// Returns an unlocked lock.
    fn unlocked() -> Self
    where
        Self: Sized;

    /// Acquires the lock if it is free.
    fn try_lock(&self) -> bool;

    /// Makes the first try of a `lock`: like [`try_lock`](Self::try_lock), but fails if a waiter is
    /// entitled to the lock.
    #[inline]
    fn try_lock_without_barging(&self) -> bool {
        self.try_lock()
    }

    /// As [`try_lock_without_barging`](Self::try_lock_without_barging), without elision.
    #[inline]
    fn take_without_barging(&self) -> bool {
        self.try_lock_without_barging()
    }

    /// Whether [`elide`](Self::elide) can ever return true.
    const ELIDES: bool = false;

    /// Enters a critical section without acquiring the lock. If another thread acquires the lock
    /// before the section ends, the section is undone.
    ///
    /// Returns false if the algorithm has no elision or expects it to fail; the caller must then
    /// acquire the lock. An undone section resumes inside this call, which then returns false.
    #[inline]
    fn elide(&self) -> bool {
        false
    }

    /// Ends a section that [`elide`](Self::elide) entered. Returns false, with no effect, if the
    /// caller holds the lock instead.
    ///
    /// # Safety
    ///
    /// The calling context is in a critical section of this lock.
    #[inline]
    unsafe fn end_elided(&self) -> bool {
        false
    }

    /// Aborts the elided section that the calling thread is in, if any. For a caller that must not
    /// enter a section of a lock that its thread has already elided.
    #[doc(hidden)]
    #[inline]
    fn abort_section(&self) {}

    /// Contends for the lock until it is acquired, or until `turn` says to leave and the waiter has
    /// abandoned the lock.
    fn attempt(&self, turn: &mut impl Turn) -> Outcome;

    /// Releases the lock or ends an elided section. If the parked bit is set, the lock stays held
    /// and the result is false.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock or is in an elided section of it.
    unsafe fn unlock(&self) -> bool;

    /// Clears the parked bit; the lock stays held.
    ///
    /// # Safety
    ///
    /// The calling context holds the lock.
    unsafe fn clear_parked_bit(&self);

    /// Sets the parked bit if any thread holds the lock at this moment; returns false if the lock
    /// is free.
    fn set_parked_bit(&self) -> bool;

    /// Whether a lock can be [reserved](Self::reserve).
    const RESERVES: bool = false;

    /// Makes the release of a held lock reserve it for a parked waiter, for a bounded time.
    fn reserve(&self) {}

    /// Acquires the lock if it is reserved. For a thread that was parked.
    fn take_reserved(&self) -> bool {
        false
    }

    /// Whether any thread holds the lock at this moment. The result may be stale on return.
    fn is_locked(&self) -> bool;

    /// Whether the algorithm knows of a thread that contends for the lock at this moment and would
    /// acquire it on release. The caller is not such a thread. Algorithms that cannot tell return
    /// true.
    fn has_contender(&self) -> bool {
        true
    }

    /// Whether a waiter counts on [`Turn::acquisitions`] at this moment.
    #[inline]
    fn is_watched(&self) -> bool {
        false
    }

    /// Makes [`is_watched`](Self::is_watched) true until a waiter stops watching. Most algorithms
    /// are never watched.
    fn watch(&self) {}
}
