//! Atomic cells in the machine's memory.
//!
//! A cell has the size and alignment of the native atomic, so that the same fields share a cache
//! line.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering;

use unconvoy::primitive::{Atomic, AtomicInt};

use super::abort::will_change;
use super::access::{changed, load, read_modify_write, store};

/// The simulated machine as a type parameter of the algorithms.
#[derive(Debug, Clone, Copy)]
pub struct Simulated;

/// An atomic cell of the simulated machine.
#[repr(transparent)]
pub struct SimulatedCell<T>(UnsafeCell<T>);

// SAFETY: all threads of a machine are coroutines on one host thread. None is suspended between
// reading a cell and changing it.
unsafe impl<T> Sync for SimulatedCell<T> {}
// SAFETY: see `Sync`.
unsafe impl<T> Send for SimulatedCell<T> {}

impl<T: Copy + PartialEq> SimulatedCell<T> {
    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> T {
        // SAFETY: see `Sync`.
        unsafe { *self.0.get() }
    }

    #[inline(always)]
    fn set(&self, value: T) {
        if self.get() != value {
            // SAFETY: see `Sync`.
            unsafe {
                will_change(self.0.get());
                *self.0.get() = value;
            }
            changed(self.address());
        }
    }

    #[inline(always)]
    fn update(&self, change: impl FnOnce(T) -> T) -> T {
        read_modify_write(self.address());
        let before = self.get();
        self.set(change(before));
        before
    }
}

impl<T: Copy + PartialEq> Atomic<T> for SimulatedCell<T> {
    #[inline(always)]
    fn new(value: T) -> Self {
        SimulatedCell(UnsafeCell::new(value))
    }

    #[inline(always)]
    fn load(&self, _: Ordering) -> T {
        load(self.address());
        self.get()
    }

    #[inline(always)]
    fn store(&self, value: T, _: Ordering) {
        store(self.address());
        self.set(value);
    }

    #[inline(always)]
    fn swap(&self, value: T, _: Ordering) -> T {
        self.update(|_| value)
    }

    #[inline(always)]
    fn compare_exchange(&self, current: T, new: T, _: Ordering, _: Ordering) -> Result<T, T> {
        let before = self.update(|before| if before == current { new } else { before });
        if before == current { Ok(before) } else { Err(before) }
    }
}

macro_rules! arithmetic {
    ($value:ty) => {
        impl AtomicInt<$value> for SimulatedCell<$value> {
            fn fetch_add(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| before.wrapping_add(value))
            }
            fn fetch_sub(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| before.wrapping_sub(value))
            }
            fn fetch_or(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| before | value)
            }
            fn fetch_and(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| before & value)
            }
        }
    };
}

arithmetic!(u32);
arithmetic!(u64);
