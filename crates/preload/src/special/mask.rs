//! Sets of processors, as `sched_setaffinity` takes them.
//!
//! System calls are made directly: this code also runs on the controller's thread, and must leave
//! `errno` alone.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use syscalls::{Errno, Sysno, syscall};

const WORDS: usize = 16;

/// Processors that a mask has room for. On a machine with more, the kernel refuses to fill a mask.
pub(crate) const MAX: usize = WORDS * 64;

/// A set of processors, by the kernel's numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Mask([u64; WORDS]);

impl Mask {
    pub(crate) const EMPTY: Mask = Mask([0; WORDS]);
    /// Every possible processor. The kernel reduces it to the thread's cpuset.
    pub(crate) const ALL: Mask = Mask([u64::MAX; WORDS]);

    pub(crate) fn of(processors: impl IntoIterator<Item = u16>) -> Self {
        let mut mask = Mask::EMPTY;
        processors.into_iter().for_each(|processor| mask.insert(processor));
        mask
    }

    pub(crate) fn insert(&mut self, processor: u16) {
        if let Some(word) = self.0.get_mut(usize::from(processor) / 64) {
            *word |= 1 << (processor % 64);
        }
    }

    pub(crate) fn has(&self, processor: u16) -> bool {
        self.0
            .get(usize::from(processor) / 64)
            .is_some_and(|word| word & (1 << (processor % 64)) != 0)
    }

    pub(crate) fn and(&self, other: &Mask) -> Mask {
        let mut both = *self;
        both.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        both
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// A hash of the mask (FNV-1a over its words): almost certainly different for different masks.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.0
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x100_0000_01b3))
    }

    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes())
    }

    /// The mask of `thread`, 0 being the caller, without processors that are offline.
    pub(crate) fn get(thread: u32) -> Result<Mask, Errno> {
        let mut mask = Mask::EMPTY;
        // SAFETY: writes at most the size of `mask`.
        unsafe { syscall!(Sysno::sched_getaffinity, thread, size_of::<Mask>(), &raw mut mask) }?;
        Ok(mask)
    }

    /// Sets the mask of `thread`, 0 being the caller.
    pub(crate) fn set(&self, thread: u32) -> Result<(), Errno> {
        // SAFETY: only reads `self`.
        unsafe {
            syscall!(Sysno::sched_setaffinity, thread, size_of::<Mask>(), core::ptr::from_ref(self))
        }?;
        Ok(())
    }
}

impl core::fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_set()
            .entries((0..MAX as u16).filter(|&processor| self.has(processor)))
            .finish()
    }
}

/// A mask that threads share. A load during a store may mix the old and the new mask.
pub(crate) struct SharedMask([AtomicU64; WORDS]);

impl SharedMask {
    pub(crate) const fn empty() -> Self {
        SharedMask([const { AtomicU64::new(0) }; WORDS])
    }

    pub(crate) fn load(&self) -> Mask {
        let mut mask = Mask::EMPTY;
        mask.0.iter_mut().zip(&self.0).for_each(|(word, shared)| *word = shared.load(Relaxed));
        mask
    }

    pub(crate) fn store(&self, mask: &Mask) {
        mask.0.iter().zip(&self.0).for_each(|(word, shared)| shared.store(*word, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_behaves_as_set() {
        let mask = Mask::of([0, 63, 64, 1023, 1024]);
        assert_eq!(mask.count(), 4, "a processor beyond the capacity is left out");
        assert!(mask.has(64) && !mask.has(65) && !mask.has(1024));
        assert!(mask.and(&Mask::of([64, 65])) == Mask::of([64]));
        assert_eq!(mask.bytes().nth(7), Some(0x80));
        assert_eq!(mask.bytes().count() * 8, MAX);
    }

    #[test]
    fn mask_read_from_kernel_can_be_set() {
        let mask = Mask::get(0).expect("the caller has a mask");
        assert!(mask.count() > 0);
        assert_eq!(mask.set(0), Ok(()));
        assert!(Mask::get(0) == Ok(mask));
        assert_eq!(Mask::get(u32::MAX >> 1).err(), Some(Errno::ESRCH));
    }
}
