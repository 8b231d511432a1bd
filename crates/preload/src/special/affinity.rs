//! The program asks for masks of its threads, and sets them.
//!
//! It is told of the mask that it gave, or was given, and not of the special set's. A thread for which it sets one is left
//! alone from then on. Not answered for: who asks by a system call of its own, `pthread_getattr_np`, and other processes.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use libc::{cpu_set_t, pid_t, pthread_t, size_t};

use super::threads::{self, IS_ON};
use crate::{identity, real};

/// # Safety
///
/// As libc says of the function of this name; so for all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setaffinity(thread: pid_t, size: size_t, mask: *const cpu_set_t) -> c_int {
    if IS_ON.load(Relaxed) {
        threads::leave_alone(thread.cast_unsigned());
    }
    // SAFETY: passed on from the caller.
    unsafe { real::sched_setaffinity(thread, size, mask) }
}

/// # Safety
///
/// See [`sched_setaffinity`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(thread: pid_t, size: size_t, mask: *mut cpu_set_t) -> c_int {
    // SAFETY: passed on from the caller.
    let result = unsafe { real::sched_getaffinity(thread, size, mask) };
    if result == 0 && IS_ON.load(Relaxed) && threads::is_placed(thread.cast_unsigned()) {
        // SAFETY: libc has filled so much.
        unsafe { show(mask, size) };
    }
    result
}

/// # Safety
///
/// See [`sched_setaffinity`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setaffinity_np(thread: pthread_t, size: size_t, mask: *const cpu_set_t) -> c_int {
    if IS_ON.load(Relaxed)
        // SAFETY: the caller's word that the thread exists.
        && let Some(id) = unsafe { identity::of(thread) }
    {
        threads::leave_alone(id);
    }
    // SAFETY: passed on from the caller.
    unsafe { real::pthread_setaffinity_np(thread, size, mask) }
}

/// # Safety
///
/// See [`sched_setaffinity`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getaffinity_np(thread: pthread_t, size: size_t, mask: *mut cpu_set_t) -> c_int {
    // SAFETY: passed on from the caller.
    let result = unsafe { real::pthread_getaffinity_np(thread, size, mask) };
    if result == 0
        && IS_ON.load(Relaxed)
        // SAFETY: the caller's word that the thread exists.
        && unsafe { identity::of(thread) }.is_some_and(threads::is_placed)
    {
        // SAFETY: libc has filled so much.
        unsafe { show(mask, size) };
    }
    result
}

/// Replaces what libc said.
///
/// # Safety
///
/// `mask` points to `size` bytes.
unsafe fn show(mask: *mut cpu_set_t, size: size_t) {
    let bytes = threads::SHOWN.load();
    let bytes = bytes.bytes().chain(core::iter::repeat(0)).take(size);
    // SAFETY: within the caller's bytes.
    bytes.enumerate().for_each(|(place, byte)| unsafe { mask.cast::<u8>().add(place).write(byte) });
}
