//! The program's own objects. A pointer that a caller hands to an exported function is a reference
//! from there on: the function's signature says of what.
//!
//! **Why that is sound.** POSIX has the caller promise that the object is there, aligned as its type
//! is, initialised and not destroyed. It stays for as long as a thread may still use it by what POSIX
//! says of its kind: a mutex until it is unlocked for the last time, a condition variable until
//! `destroy` has returned. A release may be the end of the object while the function is still
//! running; nothing is read of it after that, and a reference to cells promises no memory that is
//! not looked at. Nobody but these functions and libc's changes the object's bytes.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

use libc::timespec;

/// An object of libc's type `T`, as libc's functions take it.
#[repr(transparent)]
pub(crate) struct Libcs<T>(UnsafeCell<MaybeUninit<T>>);

/// What this library makes of an object of libc's.
///
/// # Safety
///
/// Whatever libc's initialisers, libc's functions and those of this library leave in such an object
/// is a value of this type, and its fields may be read and written by several threads: they are
/// atomics, cells under a guard, or not accessed.
pub(crate) unsafe trait InPlace: Sized {
    type Libcs;

    /// The object, for libc.
    #[inline(always)]
    fn libcs(&self) -> &Libcs<Self::Libcs> {
        const {
            assert!(size_of::<Self>() == size_of::<Self::Libcs>());
            assert!(align_of::<Self>() == align_of::<Self::Libcs>());
        };
        // SAFETY: as large and as aligned, and any bytes are one.
        unsafe { &*ptr::from_ref(self).cast() }
    }
}

/// The time of a time-out. POSIX lets it be anything where the function need not wait.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Until<'a>(*const timespec, PhantomData<&'a timespec>);

impl Until<'_> {
    /// The time, for a function that may have to wait.
    pub(crate) fn read(self) -> timespec {
        // SAFETY: POSIX has the caller point to a time then.
        unsafe { *self.0 }
    }
}

#[cfg(test)]
impl<'a> From<&'a timespec> for Until<'a> {
    fn from(time: &'a timespec) -> Self {
        Until(time, PhantomData)
    }
}
