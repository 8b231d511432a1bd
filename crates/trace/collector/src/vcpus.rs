//! A plug-in's state for each virtual processor, which in user mode is a thread of the program.

use std::ffi::c_uint;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A table indexed by QEMU's numbers. Only the processor's own thread uses its entry.
pub struct Vcpus<T: 'static, const N: usize>([AtomicPtr<T>; N]);

impl<T, const N: usize> Vcpus<T, N> {
    /// An empty table.
    ///
    /// # Safety
    ///
    /// Callers pass a number to [`get`](Self::get), [`put`](Self::put) and [`take`](Self::take)
    /// only in callbacks on that processor's own thread; callbacks do not nest. After
    /// [`take`](Self::take) the number may belong to another processor. Callers use
    /// [`all`](Self::all) only while no processor is in a callback.
    pub const unsafe fn new() -> Self {
        Vcpus([const { AtomicPtr::new(ptr::null_mut()) }; N])
    }

    /// The entry, if there is one.
    #[inline]
    pub fn get(&self, number: c_uint) -> Option<&'static mut T> {
        let slot = self.0.get(number as usize)?;
        // SAFETY: null or from `put`; by `new`, no other reference exists.
        unsafe { slot.load(Ordering::Relaxed).as_mut() }
    }

    /// Stores an entry. `None` if the number is too large.
    pub fn put(&self, number: c_uint, value: T) -> Option<&'static mut T> {
        self.0.get(number as usize)?.store(Box::into_raw(Box::new(value)), Ordering::Relaxed);
        self.get(number)
    }

    /// Removes an entry.
    pub fn take(&self, number: c_uint) -> Option<Box<T>> {
        let taken = self.0.get(number as usize)?.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: from `put`; by `new`, no other reference exists.
        (!taken.is_null()).then(|| unsafe { Box::from_raw(taken) })
    }

    /// All entries.
    pub fn all(&self) -> impl Iterator<Item = &'static mut T> {
        (0..N as c_uint).filter_map(|number| self.get(number))
    }
}
