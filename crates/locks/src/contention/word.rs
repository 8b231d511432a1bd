//! The lock word of the algorithms that have just one: held or not, and the parked bit.
//!
//! | word | meaning |
//! | --- | --- |
//! | `FREE` | nobody holds it |
//! | `HELD` | held |
//! | `HELD + PARKED` | held, and its release must wake a parked waiter |

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::primitive::{Atomic, AtomicInt, Primitive};

const FREE: u32 = 0;
const HELD: u32 = 1;
const PARKED: u32 = 2;

/// A lock word. Its methods are those of [`Contention`](super::Contention).
#[repr(transparent)]
pub(super) struct Word<P: Primitive>(P::U32);

impl<P: Primitive> Word<P> {
    pub(super) fn unlocked() -> Self {
        Word(P::U32::new(FREE))
    }

    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.0.load(Relaxed) == FREE
    }

    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Writes to the word whether it is free or not; the parked bit stays.
    #[inline]
    pub(super) fn test_and_set(&self) -> bool {
        self.0.fetch_or(HELD, Acquire) & HELD == 0
    }

    /// Releases a word without the parked bit; false, and still held, if the bit is set.
    #[inline]
    pub(super) fn unlock(&self) -> bool {
        self.0.compare_exchange(HELD, FREE, Release, Relaxed).is_ok()
    }

    /// Clears the parked bit of a held word. (A store would do: nobody but parkers writes to a held
    /// word. But the model checker cannot tell in which order a store and a parker's access take effect.)
    /// A free word becomes a held one: to unlock one is a program's mistake, which libc bears, and
    /// with this the release that follows bears it, too.
    pub(super) fn clear_parked_bit(&self) {
        self.0.swap(HELD, Relaxed);
    }

    /// Sets the parked bit of a held word; false if it is free.
    pub(super) fn set_parked_bit(&self) -> bool {
        let held = |seen: u32| (seen & HELD != 0).then_some(HELD | PARKED);
        self.0.modify(Relaxed, Relaxed, held).is_ok()
    }
}

/// The methods of [`Contention`](super::Contention) that are those of a field `word`.
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
