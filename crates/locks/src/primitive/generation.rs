//! The process generation of an object: for which process's threads its contents hold.
//!
//! A child of a `fork` inherits objects with waiters that exist in the parent only. At the first
//! use in the child, one thread *adopts* the object: it clears what the parent's threads left.
//!
//! | value | meaning |
//! | --- | --- |
//! | 0 | never used |
//! | g | used by the process of [generation](super::Generation::generation) g |
//! | `ADOPTING + g` | a thread of the process of generation g is clearing the object |
//!
//! **Invariant.** A thread waits only for an adoption by its own process. An adoption by a process
//! of another generation was interrupted by the `fork`: the thread does not exist here, and the
//! object is cleared from the start.
//!
//! **Memory orderings.** The releasing store of g pairs with the acquiring load of each use.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{Atomic, Primitive};

/// Never a bit of a generation: no process has as many ancestors.
const ADOPTING: u32 = 1 << 31;

/// Number of yields to the thread that adopts an object before a waiting thread sleeps.
const POLLS_BEFORE_SLEEP: u32 = if cfg!(loom) { u32::MAX } else { 100 };

/// The generation of one object; all zeroes before first use.
#[repr(transparent)]
pub struct ObjectGeneration<P: Primitive>(P::U32);

impl<P: Primitive> ObjectGeneration<P> {
    /// The generation of an object before its first use.
    pub fn unused() -> Self {
        ObjectGeneration(P::U32::new(0))
    }

    /// The generation in a word of an object with a layout of its own.
    pub fn of(word: &P::U32) -> &Self {
        // SAFETY: transparent.
        unsafe { &*core::ptr::from_ref(word).cast() }
    }

    /// Makes the object the calling process's own. Must run before any other access to the object.
    ///
    /// Calls `clear` at the first use in a process, also in the first process. No other thread uses
    /// the object meanwhile. `clear` must work on an object that was partly cleared before.
    #[inline]
    pub fn adopt(&self, clear: impl FnOnce()) {
        let current = P::generation();
        if self.0.load(Acquire) != current {
            self.adopt_as(current, clear);
        }
    }

    #[cold]
    #[inline(never)]
    fn adopt_as(&self, current: u32, clear: impl FnOnce()) {
        let adopting = ADOPTING | current;
        let seen = self.0.load(Acquire);
        if seen == current {
            return; // another thread has adopted and used the object since the caller looked
        }
        if seen != adopting && self.0.compare_exchange(seen, adopting, Acquire, Relaxed).is_ok() {
            clear();
            self.0.store(current, Release);
            return;
        }
        let mut polls = 0;
        while self.0.load(Acquire) == adopting {
            polls += 1;
            if polls < POLLS_BEFORE_SLEEP { P::yield_now() } else { P::sleep_shortly(&self.0) }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::cell::Cell;
    use core::sync::atomic::AtomicU32;

    use super::*;
    use crate::primitive::Native;

    /// Adopts as the process of generation `current`. Returns whether the object was cleared.
    fn adopt(object: &ObjectGeneration<Native>, current: u32) -> bool {
        let is_cleared = Cell::new(false);
        object.adopt_as(current, || is_cleared.set(true));
        is_cleared.get()
    }

    /// What the child of a `fork` at this moment inherits.
    fn inherited(object: &ObjectGeneration<Native>) -> ObjectGeneration<Native> {
        ObjectGeneration(AtomicU32::new(object.0.load(Relaxed)))
    }

    #[test]
    fn adoption_clears_once_per_process() {
        let object = ObjectGeneration::<Native>::unused();
        assert!(adopt(&object, 1));
        assert!(!adopt(&object, 1));
        let child = inherited(&object);
        assert!(adopt(&child, 2));
        assert!(!adopt(&child, 2));
    }

    /// The child used to wait forever for the parent's thread.
    #[test]
    fn adoption_interrupted_by_fork_is_repeated_in_child() {
        let object = ObjectGeneration::<Native>::unused();
        let child = Cell::new(None);
        object.adopt_as(1, || child.set(Some(inherited(&object))));
        let child = child.take().expect("cleared");
        let grandchild = Cell::new(None);
        child.adopt_as(2, || grandchild.set(Some(inherited(&child))));
        assert!(adopt(&grandchild.take().expect("cleared"), 3));
        assert!(!adopt(&child, 2));
        assert!(!adopt(&object, 1));
    }
}
