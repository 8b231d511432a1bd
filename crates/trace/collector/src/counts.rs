//! What one thread has counted of locks, before it adds that to their totals: several threads may
//! use one lock, and adding is a shared write.

use crate::locks::{Lock, Totals};

/// Locks by a hash of their addresses, one each; another one that comes to a place sends the former
/// away.
pub struct Counts {
    slots: Box<[Slot]>,
    /// Places with something that the locks' totals lack.
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
    /// Of so many locks at a time, a power of two up to 65536.
    pub fn new(locks: usize) -> Self {
        assert!(locks.is_power_of_two() && locks <= 1 << 16, "{locks}");
        Counts { slots: vec![Slot::default(); locks].into_boxed_slice(), pending: Vec::with_capacity(locks) }
    }

    /// The lock at `address` and what is counted of it: that which was counted last if it `fits`,
    /// else what `find` finds.
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

    /// Adds all to the locks' totals.
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
