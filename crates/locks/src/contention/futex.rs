//! The blocking baseline: a futex mutex that spins briefly, then sleeps in the kernel.
//!
//! After Drepper, *Futexes Are Tricky* (2011), section 6, with the bounded spin of libc's adaptive
//! mutex. A waiter decides to block from the length of its own wait alone. This couples contention
//! with scheduling, which the ASPLOS 2010 paper (section 2.2) argues against; the lock is included
//! for comparison.
//!
//! | `HELD` | `SLEPT_ON` | `PARKED` | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 0 | 0 | no holder |
//! | 1 | 0 | 0 | held, no thread sleeps |
//! | 1 | 1 | any | held, a thread may sleep on the word: the release wakes one |
//! | 1 | any | 1 | held, a thread may be parked at the eventcount |
//!
//! **Invariant 1.** A thread that may leave sleepers behind sets `SLEPT_ON` when it acquires or
//! retries the lock.
//!
//! **Memory orderings.** Acquiring read-modify-writes pair with the releasing ones; the kernel
//! orders the word and its own queue.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Contention;
use crate::primitive::turn::{Outcome, Turn, Verdict};
use crate::primitive::{Atomic, AtomicInt, Primitive};

const FREE: u32 = 0;
const HELD: u32 = 1;
const SLEPT_ON: u32 = 2;
const PARKED: u32 = 4;

/// Polls before sleeping: the maximum of glibc's adaptive mutex (`glibc.pthread.mutex_spin_count`,
/// 100).
const SPIN_POLLS: u32 = 100;

/// A spin-then-block mutex.
///
#[doc = example_of_pair!("futex::Futex", "control::Control")]
#[repr(C)]
pub struct Futex<P: Primitive> {
    word: P::U32,
}

// SAFETY: only one thread's compare-and-swap or fetch-or changes the word from `FREE`, and only the
// holder restores `FREE`.
unsafe impl<P: Primitive> Contention for Futex<P> {
    fn unlocked() -> Self {
        Futex { word: P::U32::new(FREE) }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        for _ in 0..SPIN_POLLS {
            if self.word.load(Relaxed) == FREE && self.try_lock() {
                return Outcome::Acquired;
            }
            if turn.turn(P::now()) == Verdict::Leave {
                return Outcome::Abandoned;
            }
            P::pause_counted();
        }
        loop {
            // Set `SLEPT_ON` before asking whether to leave: if this thread was woken and now
            // leaves, the bit makes the next release wake another sleeper (Invariant 1).
            let before = self.word.fetch_or(HELD | SLEPT_ON, Acquire);
            if before == FREE {
                return Outcome::Acquired;
            }
            if turn.turn(P::now()) == Verdict::Leave {
                return Outcome::Abandoned;
            }
            P::park(&self.word, before | SLEPT_ON, turn.deadline());
        }
    }

    #[inline]
    unsafe fn unlock(&self) -> bool {
        let word = ptr::from_ref(&self.word);
        match self.word.compare_exchange(HELD, FREE, Release, Relaxed) {
            Ok(_) => true,
            Err(seen) if seen & PARKED != 0 => false,
            Err(seen) => {
                let released = self.word.compare_exchange(seen, FREE, Release, Relaxed).is_ok();
                if released {
                    P::unpark(word, 1); // by address only: the lock may already be freed
                }
                released
            }
        }
    }

    unsafe fn clear_parked_bit(&self) {
        self.word.fetch_and(!PARKED, Relaxed);
    }

    fn set_parked_bit(&self) -> bool {
        self.word.modify(Relaxed, Relaxed, |seen| (seen != FREE).then_some(seen | PARKED)).is_ok()
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::Native;

    #[test]
    fn only_a_held_lock_takes_the_parked_bit() {
        let lock = Futex::<Native>::unlocked();
        assert!(!lock.set_parked_bit() && lock.try_lock() && lock.set_parked_bit());
        // SAFETY: locked above.
        unsafe {
            assert!(!lock.unlock());
            lock.clear_parked_bit();
            assert!(lock.unlock() && !lock.is_locked());
        }
    }
}
