//! The program's own objects. Exported functions take them as references; a function's signature
//! says which type the caller's pointer refers to.
//!
//! **Why this is sound.** POSIX makes the caller promise that the object exists, is aligned for its
//! type, initialised and not destroyed. The object lives for as long as POSIX lets a thread use it:
//! a mutex until its last unlock, a condition variable until `destroy` returns. A release may end
//! the object's life while the function still runs. The function does not access the object after
//! that, and a reference to cells does not promise that unaccessed memory stays valid. Only these
//! functions and libc's change the object's bytes.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

use libc::timespec;

/// An object of libc's type `T`, as libc's functions take it.
#[repr(transparent)]
pub(crate) struct Libcs<T>(UnsafeCell<MaybeUninit<T>>);

/// This library's view of a libc object.
///
/// # Safety
///
/// Every state that libc's initialisers, libc's functions and this library's functions leave in the
/// object is a valid value of this type. Several threads may read and write its fields: each is an
/// atomic, a cell under a guard, or not accessed.
pub(crate) unsafe trait InPlace: Sized {
    type Libcs;

    #[inline(always)]
    fn libcs(&self) -> &Libcs<Self::Libcs> {
        const {
            assert!(size_of::<Self>() == size_of::<Self::Libcs>());
            assert!(align_of::<Self>() == align_of::<Self::Libcs>());
        };
        // SAFETY: size and alignment are equal, and any bytes are a valid `Libcs`.
        unsafe { &*ptr::from_ref(self).cast() }
    }
}

/// A caller's deadline. POSIX allows any pointer, valid or not, if the function need not wait.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Until<'a>(*const timespec, PhantomData<&'a timespec>);

impl Until<'_> {
    pub(crate) fn address(self) -> usize {
        self.0.addr()
    }

    /// Reads the deadline. Call only from a function that may have to wait.
    pub(crate) fn read(self) -> timespec {
        // SAFETY: POSIX requires a valid pointer when the function may wait.
        unsafe { *self.0 }
    }
}

impl<'a> From<&'a timespec> for Until<'a> {
    fn from(time: &'a timespec) -> Self {
        Until(time, PhantomData)
    }
}
