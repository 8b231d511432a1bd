//! The visible readers of a process: a table in which readers of [biased](super::biased_rw) locks
//! publish their holds, instead of writing to the lock.
//!
//! The table is that of BRAVO (Dice and Kogan, USENIX ATC 2019, section 3), which hashes thread and
//! lock to a slot together. Here the thread chooses a row, which is one cache line, and the lock
//! chooses a column. So threads with rows of their own share no line, and a writer looks at one
//! slot of each row that a thread has used.
//!
//! | slot | meaning |
//! | --- | --- |
//! | 0 | empty |
//! | address | one hold of the lock at this address |
//! | address + `PARKED` | as above; a writer sleeps until the hold is withdrawn |
//!
//! **Invariant 1.** A hold is withdrawn once: by the compare-and-swap that empties its slot.
//!
//! **Invariant 2.** A sleeping writer is woken. It reads the row's count of withdrawals, finds the
//! bit `PARKED`, and sleeps while the count is unchanged. The thread that empties a slot with the
//! bit increments the count afterwards, and then wakes all sleepers of the row.
//!
//! **Invariant 3.** A withdrawal accesses the row only. The lock may no longer exist: a writer that
//! finds the slot empty may acquire, release and free it.
//!
//! **Memory orderings.** A withdrawal has release ordering, and each later write to the slot is a
//! read-modify-write. So a writer that finds the slot without the hold, with acquire ordering, sees
//! what the reader did before. [`biased_rw`](super::biased_rw) argues why publication and the
//! writer's look are `SeqCst`.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::primitive::{Atomic, AtomicInt, Primitive};

/// Slots of a row. With the two counts, they fill a cache line.
const COLUMNS: usize = 7;

/// Number of readings beside other readers, of any lock, after which a thread may set a bias: only
/// then does it read the clock. One in a model, which explores short executions.
const OVERLAPS: u32 = if cfg!(loom) { 1 } else { 16 };

/// Never a bit of a lock's address.
const PARKED: u64 = 1;

/// A hold of one lock: the lock's address, and its column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    address: u64,
    column: usize,
}

impl Hold {
    /// Whether a row can tell holds of the lock at `address` apart. A program may have packed the
    /// lock into a structure, to an odd address.
    pub(super) fn may_be_of(address: u64) -> bool {
        address & PARKED == 0
    }

    /// A hold of the lock at `address`, which is even and not 0.
    #[inline(always)]
    pub(super) fn of(address: u64) -> Self {
        // Fibonacci hashing: the upper half of the product, scaled to the number of columns.
        let hash = (address as u32).wrapping_mul(0x9E37_79B9);
        let column = (u64::from(hash) * COLUMNS as u64) >> 32;
        Hold { address, column: column as usize }
    }
}

/// The slots of a thread, or of several threads if there are more threads than rows. All zeroes if
/// empty.
#[repr(C, align(64))]
pub struct Row<P: Primitive> {
    slots: [P::U64; COLUMNS],
    withdrawals: P::U32,
    /// Readings beside other readers since the last look at the clock. Here, and not in the lock,
    /// since readers that overlap share the lock's line. Threads of one row may lose some.
    overlaps: P::U32,
}

impl<P: Primitive> Row<P> {
    /// An empty row.
    pub fn empty() -> Self {
        let slots = core::array::from_fn(|_| P::U64::new(0));
        let [withdrawals, overlaps] = [0, 0].map(P::U32::new);
        Row { slots, withdrawals, overlaps }
    }

    /// Publishes a hold; returns false if the slot is in use.
    #[inline(always)]
    pub(super) fn publish(&self, hold: Hold) -> bool {
        self.slots[hold.column].compare_exchange(0, hold.address, SeqCst, Relaxed).is_ok()
    }

    /// Withdraws a hold; returns false if the row has none of this lock. False has acquire
    /// ordering: the caller sees what the thread that withdrew the hold had done before.
    #[inline(always)]
    pub(super) fn withdraw(&self, hold: Hold) -> bool {
        match self.slots[hold.column].compare_exchange(hold.address, 0, Release, Acquire) {
            Ok(_) => true,
            Err(seen) => seen == hold.address | PARKED && self.withdraw_and_wake(hold),
        }
    }

    #[cold]
    fn withdraw_and_wake(&self, hold: Hold) -> bool {
        let parked = hold.address | PARKED;
        let is_withdrawn =
            self.slots[hold.column].compare_exchange(parked, 0, Release, Acquire).is_ok();
        if is_withdrawn {
            self.withdrawals.fetch_add(1, Release);
            P::unpark(ptr::from_ref(&self.withdrawals), u32::MAX);
        }
        is_withdrawn
    }

    /// Whether the row has a hold of this lock.
    #[inline]
    pub(super) fn has(&self, hold: Hold) -> bool {
        self.slots[hold.column].load(SeqCst) & !PARKED == hold.address
    }

    /// Sleeps until a hold of this lock is withdrawn from the row, or until `deadline`. May return
    /// at any time.
    pub(super) fn sleep_until_withdrawn(&self, hold: Hold, deadline: Option<u64>) {
        let withdrawals = self.withdrawals.load(Acquire); // pairs with `withdraw_and_wake`
        let parked = hold.address | PARKED;
        let seen = self.slots[hold.column].compare_exchange(hold.address, parked, Relaxed, Relaxed);
        if seen.is_ok() || seen == Err(parked) {
            P::park(&self.withdrawals, withdrawals, deadline);
        }
    }

    /// Counts a reading beside other readers. Returns whether the thread may set a bias.
    #[inline(always)]
    pub(super) fn count_overlap(&self) -> bool {
        let overlaps = self.overlaps.load(Relaxed) + 1;
        self.overlaps.store(overlaps % OVERLAPS, Relaxed);
        overlaps >= OVERLAPS
    }

    /// Drops all holds. No thread has any, and none sleeps.
    pub fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Relaxed));
    }
}

/// The table of a process, and the calling thread's place in it. By default there is none, and no
/// lock is biased.
pub trait VisibleReaders: Primitive {
    /// The calling thread's row. It stays the same for the thread's life, also in the thread that
    /// returns from a `fork` in the child.
    #[inline(always)]
    fn own_row() -> Option<&'static Row<Self>> {
        None
    }

    /// Every row that a thread has. If [`own_row`](Self::own_row) returned a row before a `SeqCst`
    /// operation, a call after this operation, in their total order, returns the row.
    fn rows() -> &'static [Row<Self>] {
        &[]
    }

    /// Whether threads of the process can run at the same time.
    fn runs_in_parallel() -> bool {
        false
    }

    /// Whether more threads than processors have used reader-writer locks. Then a thread that waits
    /// may lack a processor.
    fn is_crowded() -> bool {
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_locks_use_all_columns() {
        let mut used = [false; COLUMNS];
        for index in 0..64 {
            let address = 0x7f00_0000_1000 + 56 * index; // of an array of pthread locks
            used[Hold::of(address).column] = true;
        }
        assert_eq!(used, [true; COLUMNS]);
    }
}
