//! Extra work on the controller's thread, for code that needs to know how long threads wait for
//! locks, and that has nothing to do while no thread waits.
//!
//! Install the hook before the process has threads. All functions except [`ControllerHook::waited`]
//! and [`ControllerHook::forked`] run on the controller's thread, where code must not allocate,
//! panic or use thread-local storage.

use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use crate::load::sensor::Reading;

/// Functions that the controller's thread and waiters call.
pub struct ControllerHook {
    /// The calling thread waited for this many nanoseconds. Called inside a lock operation, so it
    /// must not allocate or lock.
    pub waited: fn(u64),
    /// A controller starts at the given time.
    pub begin: fn(u64),
    /// An interval ended at the given time with the given load. Returns the load for the
    /// controller.
    pub interval: fn(u64, Option<Reading>) -> Option<Reading>,
    /// The controller exits.
    pub end: fn(),
    /// This process is the child of a `fork`, without a controller. Called inside a lock operation
    /// or a fork handler.
    pub forked: fn(),
}

/// Functions that only look at the process. They run on the controller's thread, under the rules
/// above. Waiters do not call them.
pub struct Observer {
    /// An interval ended at the given time.
    pub interval: fn(u64),
    /// The controller exits.
    pub end: fn(),
}

static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(ptr::null_mut());

/// Installs `observer` for controllers that start from now on.
pub fn observe(observer: &'static Observer) {
    OBSERVER.store(ptr::from_ref(observer).cast_mut(), Release);
}

#[inline]
pub(super) fn observer() -> Option<&'static Observer> {
    // SAFETY: null or from `observe`.
    unsafe { OBSERVER.load(Acquire).as_ref() }
}

static HOOK: AtomicPtr<ControllerHook> = AtomicPtr::new(ptr::null_mut());

/// Installs `hook` for controllers that start from now on.
pub fn install(hook: &'static ControllerHook) {
    HOOK.store(ptr::from_ref(hook).cast_mut(), Release);
}

/// Removes the hook. A call in progress still finishes.
pub fn remove() {
    HOOK.store(ptr::null_mut(), Release);
}

#[inline(always)]
pub(super) fn is_installed() -> bool {
    !HOOK.load(Acquire).is_null()
}

#[inline]
pub(super) fn get() -> Option<&'static ControllerHook> {
    // SAFETY: null or from `install`.
    unsafe { HOOK.load(Acquire).as_ref() }
}
