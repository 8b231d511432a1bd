//! The lock word of the algorithms that have just one: held or not, and the mark.
//!
//! | word | meaning |
//! | --- | --- |
//! | `FREE` | nobody holds it |
//! | `HELD` | held |
//! | `HELD + MARK` | held, and its release must wake a parked waiter |

use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::platform::{Atomic, Platform};

pub(super) const FREE: u32 = 0;
pub(super) const HELD: u32 = 1;
const MARK: u32 = 2;

/// Releases an unmarked word; false, and still held, if it is marked.
#[inline]
pub(super) fn unlock<P: Platform>(word: &P::U32) -> bool {
    word.compare_exchange(HELD, FREE, Release, Relaxed).is_ok()
}

/// Clears the mark of a held word.
pub(super) fn clear_mark<P: Platform>(word: &P::U32) {
    word.store(HELD, Relaxed); // held, so nobody but markers writes to it, and their marks are what this clears
}

/// Marks a held word; false if it is free.
pub(super) fn mark<P: Platform>(word: &P::U32) -> bool {
    let mut seen = word.load(Relaxed);
    while seen & HELD != 0 {
        match word.compare_exchange(seen, HELD | MARK, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}
