//! How models are explored, and a lock that checks its own exclusion.

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use unconvoy::contention::Contention;
use unconvoy::primitive::Clock as _;
use unconvoy::primitive::checked::{Checked, set_hurried};
use unconvoy::primitive::turn::{Outcome, Verdict};
use unconvoy::queue::checked::nodes_out;

/// Sets how time passes, and excludes the other tests of this process until the guard is dropped:
/// they share the model's clock.
pub(crate) fn set_time(hurried: bool) -> std::sync::MutexGuard<'static, ()> {
    static CLOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let guard = CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    set_hurried(hurried);
    guard
}

/// Explores `body` with at most `preemptions` forced switches per execution. Bugs in locks need few
/// (CHESS, Musuvathi and Qadeer 2007).
pub(crate) fn explore(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    explore_for(None, preemptions, body);
}

/// Like [`explore`], stopped after `length`.
pub(crate) fn explore_for(
    length: Option<Duration>,
    preemptions: usize,
    body: impl Fn() + Sync + Send + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    if length.is_some() {
        builder.max_duration = length;
    }
    builder.check(body);
}

/// A lock and the cell that it guards. Loom reports unordered accesses to the cell.
pub(crate) struct Guarded<C> {
    pub(crate) lock: C,
    pub(crate) cell: UnsafeCell<u32>,
}

// SAFETY: the cell is accessed under the lock under test.
unsafe impl<C: Sync> Sync for Guarded<C> {}

impl<C: Contention> Guarded<C> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Guarded { lock: C::unlocked(), cell: UnsafeCell::new(0) })
    }

    pub(crate) fn section(&self) {
        // SAFETY: under the lock.
        self.cell.with_mut(|cell| unsafe { *cell += 1 });
        self.release();
    }

    /// Releases a lock that the caller holds, even if other threads set the parked bit meanwhile.
    pub(crate) fn release(&self) {
        // SAFETY: held by the caller, also after an `unlock` that returned false.
        unsafe {
            while !self.lock.unlock() {
                self.lock.clear_parked_bit();
            }
        }
    }

    /// Contends for the lock for at most `bound` turns; returns whether the thread acquired it.
    pub(crate) fn visit(&self, bound: u32) -> bool {
        let mut turns = 0;
        let outcome = self.lock.attempt(&mut |_| {
            turns += 1;
            if turns > bound { Verdict::Leave } else { Verdict::Spin }
        });
        if outcome == Outcome::Acquired {
            self.section();
        }
        outcome == Outcome::Acquired
    }

    /// Asserts that every node was returned, after all threads have ended. Visits once more first,
    /// since a CLH lock may keep a node for its next waiter to reclaim.
    pub(crate) fn assert_no_node_is_out(&self) {
        assert!(self.visit(u32::MAX));
        assert_eq!(nodes_out(), 0);
    }
}

/// A deadline that passes after a few looks at a hurried clock, late enough for a thread to park
/// first.
pub(crate) fn soon() -> u64 {
    Checked::now() + 3_000_000_000
}
