//! What else the controller's thread does, for whoever builds on this platform: something that has to know how long
//! threads wait for locks, and is of use only while they do.
//!
//! Set once, before the process has threads. All of it but [`Companion::waited`] and [`Companion::forked`] runs on the
//! controller's thread, where nothing may allocate, panic or use thread-local storage.

use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use crate::load::sensor::Reading;

/// What it is called for.
pub struct Companion {
    /// The calling thread waited for so many nanoseconds more. From within a lock operation: no allocation, no lock.
    pub waited: fn(u64),
    /// A controller begins, at this time.
    pub begin: fn(u64),
    /// An interval has ended, at this time, with this reading of the load. Returns what load control is to take for it.
    pub interval: fn(u64, Option<Reading>) -> Option<Reading>,
    /// The controller goes.
    pub end: fn(),
    /// This process is the child of a `fork`, which has no controller. From within a lock operation or a fork handler.
    pub forked: fn(),
}

static COMPANION: AtomicPtr<Companion> = AtomicPtr::new(ptr::null_mut());

/// Has controllers that begin from now on do this too.
pub fn accompany(companion: &'static Companion) {
    COMPANION.store(ptr::from_ref(companion).cast_mut(), Release);
}

/// Does without from now on; whoever is in the middle of it finishes that.
pub fn part() {
    COMPANION.store(ptr::null_mut(), Release);
}

#[inline(always)]
pub(super) fn is_there() -> bool {
    !COMPANION.load(Acquire).is_null()
}

#[inline]
pub(super) fn get() -> Option<&'static Companion> {
    // SAFETY: null, or from `accompany`.
    unsafe { COMPANION.load(Acquire).as_ref() }
}
