//! The lock word of the algorithms that need no other state: a held bit, the parked bit, and a bit
//! that asks for a reservation.
//!
//! | word | meaning |
//! | --- | --- |
//! | `FREE` | no holder |
//! | `HELD` | held |
//! | `HELD + PARKED` | held, and the release must wake a parked waiter |
//! | `HELD + RESERVED` | held; the release reserves the lock, and wakes nobody |
//! | `HELD + PARKED + RESERVED` | held; the release reserves the lock for the waiter it wakes |
//! | `RESERVED` | no holder, reserved for a waiter that was parked |

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::primitive::{Atomic, AtomicInt, Primitive};

const FREE: u32 = 0;
const HELD: u32 = 1;
const PARKED: u32 = 2;
const RESERVED: u32 = 4;

/// A lock word. The methods mirror those of [`Contention`](super::Contention).
#[repr(transparent)]
pub(super) struct Word<P: Primitive>(P::U32);

impl<P: Primitive> Word<P> {
    pub(super) fn unlocked() -> Self {
        Word(P::U32::new(FREE))
    }

    /// Whether the lock has no holder.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.0.load(Relaxed) & HELD == 0
    }

    /// Whether the lock has no holder and is reserved.
    #[inline]
    pub(super) fn is_reserved(&self) -> bool {
        self.0.load(Relaxed) == RESERVED
    }

    /// Acquires the lock if it is free and not reserved.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Acquires the lock if it is reserved.
    #[cold]
    pub(super) fn take_reserved(&self) -> bool {
        self.is_reserved() && self.0.compare_exchange(RESERVED, HELD, Acquire, Relaxed).is_ok()
    }

    /// Makes the release of a held lock reserve it.
    pub(super) fn reserve(&self) {
        let held = |seen: u32| (seen & HELD != 0).then_some(seen | RESERVED);
        let _ = self.0.modify(Relaxed, Relaxed, held);
    }

    /// Acquires the lock if it has no holder, without an atomic read-modify-write, for the only
    /// thread of a process.
    #[inline]
    pub(super) fn try_lock_alone(&self) -> bool {
        let is_free = self.is_free();
        if is_free {
            self.0.store(HELD, Relaxed);
        }
        is_free
    }

    /// Sets the held bit unconditionally and keeps the parked bit; true if the word was free.
    /// Writes to the cache line even when the lock is held.
    #[inline]
    pub(super) fn test_and_set(&self) -> bool {
        self.0.fetch_or(HELD, Acquire) & HELD == 0
    }

    /// Releases the word. Returns false, with the lock still held, if the parked bit is set.
    #[inline]
    pub(super) fn unlock(&self) -> bool {
        self.0.compare_exchange(HELD, FREE, Release, Relaxed).is_ok() || self.unlock_reserving()
    }

    #[cold]
    fn unlock_reserving(&self) -> bool {
        self.0.compare_exchange(HELD | RESERVED, RESERVED, Release, Relaxed).is_ok()
    }

    /// As [`unlock`](Self::unlock), without an atomic read-modify-write, for the only thread of a
    /// process. Also returns false if the lock is to be reserved.
    #[inline]
    pub(super) fn unlock_alone(&self) -> bool {
        let is_released = self.0.load(Relaxed) == HELD;
        if is_released {
            self.0.store(FREE, Relaxed);
        }
        is_released
    }

    /// Clears the parked bit of a held word.
    ///
    /// A plain store would do, since only parkers write to a held word, but the model checker
    /// cannot order a store against a parker's access. If the word is free, it becomes held. That
    /// happens when a program unlocks a free lock, a bug that libc tolerates; the release that
    /// follows then succeeds here too.
    pub(super) fn clear_parked_bit(&self) {
        let cleared = |seen: u32| Some(HELD | seen & RESERVED);
        let _ = self.0.modify(Relaxed, Relaxed, cleared);
    }

    /// Sets the parked bit of a held word; returns false if the word is free.
    pub(super) fn set_parked_bit(&self) -> bool {
        let held = |seen: u32| (seen & HELD != 0).then_some(seen | PARKED);
        self.0.modify(Relaxed, Relaxed, held).is_ok()
    }
}

/// Implements the methods of [`Contention`](super::Contention) that forward to a field `word`.
macro_rules! by_its_word {
    () => {
        #[inline]
        unsafe fn unlock(&self) -> bool {
            self.word.unlock()
        }

        unsafe fn clear_parked_bit(&self) {
            self.word.clear_parked_bit();
        }

        fn set_parked_bit(&self) -> bool {
            self.word.set_parked_bit()
        }

        fn is_locked(&self) -> bool {
            !self.word.is_free()
        }
    };
}

pub(super) use by_its_word;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::Native;

    #[test]
    fn held_word_stays_reserved() {
        let word = Word::<Native>::unlocked();
        assert!(word.try_lock());
        word.reserve();
        word.reserve();
        assert!(word.unlock() && word.is_reserved());
    }
}
