//! One thread's counts of lock acquisitions. Threads that share a lock would contend for its
//! totals, so each thread counts here and adds to the totals later.

use crate::locks::{Lock, Totals};

/// A direct-mapped cache of locks, indexed by a hash of the address. A collision evicts the older
/// lock, whose counts are then added to its totals.
pub struct Counts {
    slots: Box<[Slot]>,
    /// Slots with counts that are not in the locks' totals yet.
    pending: Vec<u16>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    address: u64,
    lock: Option<&'static Lock>,
    totals: Totals,
    is_pending: bool,
}

impl Counts {
    /// A cache of `locks` slots, a power of two up to 65536.
    pub fn new(locks: usize) -> Self {
        assert!(locks.is_power_of_two() && locks <= 1 << 16, "{locks}");
        Counts {
            slots: vec![Slot::default(); locks].into_boxed_slice(),
            pending: Vec::with_capacity(locks),
        }
    }

    /// Returns the lock at `address` with this thread's counts of it. The lock is the cached one if
    /// `fits` accepts it, and otherwise the result of `find`.
    #[inline]
    pub fn of(
        &mut self,
        address: u64,
        fits: impl FnOnce(&'static Lock) -> bool,
        find: impl FnOnce() -> Option<&'static Lock>,
    ) -> Option<(&'static Lock, &mut Totals)> {
        let hash = (address >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let index = hash as usize & (self.slots.len() - 1);
        let slot = &mut self.slots[index];
        let lock = match slot.lock {
            Some(lock) if slot.address == address && fits(lock) => lock,
            _ => slot.replace(find()?),
        };
        if !slot.is_pending {
            slot.is_pending = true;
            self.pending.push(index as u16);
        }
        Some((lock, &mut slot.totals))
    }

    /// Adds all counts to the locks' totals.
    pub fn publish(&mut self) {
        for index in self.pending.drain(..) {
            let slot = &mut self.slots[usize::from(index)];
            slot.publish();
            slot.is_pending = false;
        }
    }
}

impl Slot {
    #[cold]
    fn replace(&mut self, lock: &'static Lock) -> &'static Lock {
        self.publish();
        (self.address, self.lock) = (lock.region.address, Some(lock));
        lock
    }

    fn publish(&mut self) {
        let totals = std::mem::take(&mut self.totals);
        if let Some(lock) = self.lock {
            lock.add(&totals);
        }
    }
}
