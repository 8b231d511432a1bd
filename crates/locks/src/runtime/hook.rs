//! What else the controller's thread does, for whoever builds on this library: something that has to know how long
//! threads wait for locks, and is of use only while they do.
//!
//! Installed once, before the process has threads. All of it but [`ControllerHook::waited`] and [`ControllerHook::forked`] runs on the
//! controller's thread, where nothing may allocate, panic or use thread-local storage.

use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use crate::load::sensor::Reading;

/// Called by the controller's thread, and by waiters.
pub struct ControllerHook {
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

static HOOK: AtomicPtr<ControllerHook> = AtomicPtr::new(ptr::null_mut());

/// Has controllers that begin from now on call `hook`.
pub fn install(hook: &'static ControllerHook) {
    HOOK.store(ptr::from_ref(hook).cast_mut(), Release);
}

/// Calls no hook from now on; a call that has begun is finished.
pub fn remove() {
    HOOK.store(ptr::null_mut(), Release);
}

#[inline(always)]
pub(super) fn is_installed() -> bool {
    !HOOK.load(Acquire).is_null()
}

#[inline]
pub(super) fn get() -> Option<&'static ControllerHook> {
    // SAFETY: null, or from `install`.
    unsafe { HOOK.load(Acquire).as_ref() }
}
