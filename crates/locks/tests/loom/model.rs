//! How a model is explored, and a lock that checks itself.

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use unconvoy::contention::Contention;
use unconvoy::primitive::Clock as _;
use unconvoy::primitive::checked::{Checked, set_hurried};
use unconvoy::primitive::turn::{Outcome, Verdict};
use unconvoy::queue::checked::nodes_out;

/// Sets how time passes, and keeps the other tests of this process out until the guard goes: the
/// model's clock is one.
pub(crate) fn time_that(hurries: bool) -> std::sync::MutexGuard<'static, ()> {
    static CLOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let guard = CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    set_hurried(hurries);
    guard
}

/// Explores `body` with at most `preemptions` forced switches per execution: bugs of locks need few
/// (CHESS, Musuvathi and Qadeer 2007).
pub(crate) fn explore(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(body);
}

/// As [`explore`], of what comes first in `length`.
pub(crate) fn explore_for(length: Duration, preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.max_duration = Some(length);
    builder.check(body);
}

/// A lock and the cell that it guards; loom reports two accesses to the cell that nothing orders.
pub(crate) struct Guarded<C> {
    pub(crate) lock: C,
    pub(crate) cell: UnsafeCell<u32>,
}

// SAFETY: the cell is accessed under the lock, which is what is tested.
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

    /// Releases a lock that the caller holds, whoever marks it meanwhile.
    pub(crate) fn release(&self) {
        // SAFETY: held by the caller, also after an `unlock` that found parked waiters.
        unsafe {
            while !self.lock.unlock() {
                self.lock.clear_parked_bit();
            }
        }
    }

    /// Locks with a waiter that leaves after `bound` turns; whether it ever held the lock.
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

    /// All threads have ended: every node has been given back. (After one more visit, since a CLH
    /// lock may keep what was left behind its last holder for the next to find.)
    pub(crate) fn leaves_no_node(&self) {
        assert!(self.visit(u32::MAX));
        assert_eq!(nodes_out(), 0);
    }
}

/// A deadline that passes after a few looks at a clock that hurries: a thread has time to park
/// before it.
pub(crate) fn soon() -> u64 {
    Checked::now() + 3_000_000_000
}
