//! What a plug-in keeps of each virtual processor, which in user mode is a thread of the program.

use std::ffi::c_uint;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// By QEMU's numbers. Each is used by its own thread alone.
pub struct Vcpus<T: 'static, const N: usize>([AtomicPtr<T>; N]);

impl<T, const N: usize> Vcpus<T, N> {
    /// None yet.
    ///
    /// # Safety
    ///
    /// Whoever has it asks for a number in callbacks that its own processor makes alone, which do
    /// not nest; for [all](Self::all), while none is in a callback. In [`take`](Self::take)'s
    /// callback the number is another processor's from then on.
    pub const unsafe fn new() -> Self {
        Vcpus([const { AtomicPtr::new(ptr::null_mut()) }; N])
    }

    /// What was put there.
    #[inline]
    pub fn get(&self, number: c_uint) -> Option<&'static mut T> {
        let slot = self.0.get(number as usize)?;
        // SAFETY: it is null or from `put`, and by `new` nobody else has it.
        unsafe { slot.load(Ordering::Relaxed).as_mut() }
    }

    /// Puts it there; nothing if the number is too large.
    pub fn put(&self, number: c_uint, value: T) -> Option<&'static mut T> {
        self.0.get(number as usize)?.store(Box::into_raw(Box::new(value)), Ordering::Relaxed);
        self.get(number)
    }

    /// Takes it away.
    pub fn take(&self, number: c_uint) -> Option<Box<T>> {
        let taken = self.0.get(number as usize)?.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: it is from `put`, and by `new` nobody has it any more.
        (!taken.is_null()).then(|| unsafe { Box::from_raw(taken) })
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &'static mut T> {
        (0..N as c_uint).filter_map(|number| self.get(number))
    }
}
