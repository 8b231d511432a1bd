//! The lock word of the algorithms that have just one: held or not, and the mark.
//!
//! | word | meaning |
//! | --- | --- |
//! | `FREE` | nobody holds it |
//! | `HELD` | held |
//! | `HELD + MARK` | held, and its release must wake a parked waiter |

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::primitive::{Atomic, AtomicInt, Primitive};

const FREE: u32 = 0;
const HELD: u32 = 1;
const MARK: u32 = 2;

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

    /// Writes to the word whether it is free or not; a mark stays.
    #[inline]
    pub(super) fn test_and_set(&self) -> bool {
        self.0.fetch_or(HELD, Acquire) & HELD == 0
    }

    /// Releases an unmarked word; false, and still held, if it is marked.
    #[inline]
    pub(super) fn unlock(&self) -> bool {
        self.0.compare_exchange(HELD, FREE, Release, Relaxed).is_ok()
    }

    /// Clears the mark of a held word. (A store would do: nobody but markers writes to a held word.
    /// But the model checker cannot tell in which order a store and a marker's access take effect.)
    /// A free word becomes a held one: to unlock one is a program's mistake, which libc bears, and
    /// with this the release that follows bears it, too.
    pub(super) fn clear_mark(&self) {
        self.0.swap(HELD, Relaxed);
    }

    /// Marks a held word; false if it is free.
    pub(super) fn mark(&self) -> bool {
        let mut seen = self.0.load(Relaxed);
        while seen & HELD != 0 {
            match self.0.compare_exchange(seen, HELD | MARK, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }
}

/// The methods of [`Contention`](super::Contention) that are those of a field `word`.
macro_rules! by_its_word {
    () => {
        #[inline]
        unsafe fn unlock(&self) -> bool {
            self.word.unlock()
        }

        unsafe fn clear_mark(&self) {
            self.word.clear_mark();
        }

        fn mark(&self) -> bool {
            self.word.mark()
        }

        fn is_locked(&self) -> bool {
            !self.word.is_free()
        }
    };
}

pub(super) use by_its_word;
