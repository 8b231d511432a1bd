//! `pthread_spin_*`, in place, with libc's own four-byte protocol: so a lock may be initialised by
//! whatever means, and may be shared with a process that does not have this library.
//!
//! A spin lock has no room for a queue, so that the contention manager is always
//! test-and-test-and-set with backoff; the load manager is the chosen one.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::{EBUSY, pthread_spinlock_t};

use crate::chosen::pair;
use crate::config::{self, Service};
use crate::real;
use crate::stats::{self, Kind as Recorded};

/// glibc's word of a free lock and one of a held lock. On x86 a lock that is held may also be
/// negative, since waiters there decrement it.
const FREE: u32 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };
const HELD: u32 = 1 - FREE;

/// # Safety
///
/// `lock` points to a spin lock that lives as long as the caller's use of it.
unsafe fn at<'a>(lock: *mut pthread_spinlock_t) -> &'a AtomicU32 {
    const { assert!(size_of::<pthread_spinlock_t>() == 4) };
    // SAFETY: the same size and alignment.
    unsafe { &*lock.cast() }
}

#[inline(always)]
fn try_lock(word: &AtomicU32) -> bool {
    word.swap(HELD, Acquire) == FREE
}

#[inline(always)]
fn note(word: &AtomicU32, waited: Option<(u64, u32)>) {
    if !config::is_default() {
        stats::acquired(Recorded::Spin, core::ptr::from_ref(word).addr(), waited);
    }
}

/// # Safety
///
/// As POSIX says of the function of this name; so for all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: passed on from the caller.
    if config::is_default() && try_lock(unsafe { at(lock) }) {
        return 0;
    }
    // SAFETY: passed on from the caller.
    unsafe { spin(lock) }
}

/// All that is not a free lock without statistics.
#[inline(never)]
unsafe extern "C" fn spin(lock: *mut pthread_spinlock_t) -> c_int {
    if config::service() == Service::Declined {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_spin_lock(lock) };
    }
    // SAFETY: passed on from the caller.
    let word = unsafe { at(lock) };
    if try_lock(word) {
        note(word, None);
        return 0;
    }
    let begin = stats::now();
    // Looks before it swaps: a failed swap takes the line from the holder.
    let acquired = (pair().poll)(&|| word.load(Relaxed) == FREE && try_lock(word));
    note(word, Some((begin, acquired.departure.sleeps)));
    0
}

/// # Safety
///
/// See [`pthread_spin_lock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int {
    if config::service() == Service::Declined {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_spin_trylock(lock) };
    }
    // SAFETY: passed on from the caller.
    let word = unsafe { at(lock) };
    if !try_lock(word) {
        return EBUSY;
    }
    note(word, None);
    0
}

/// # Safety
///
/// See [`pthread_spin_lock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_unlock(lock: *mut pthread_spinlock_t) -> c_int {
    if !config::is_default() {
        // SAFETY: passed on from the caller.
        return unsafe { unlock(lock) };
    }
    // SAFETY: passed on from the caller.
    unsafe { at(lock) }.store(FREE, Release);
    0
}

/// Unlock where there are statistics, or nothing is served.
#[inline(never)]
unsafe extern "C" fn unlock(lock: *mut pthread_spinlock_t) -> c_int {
    if config::service() == Service::Declined {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_spin_unlock(lock) };
    }
    stats::released(lock.addr());
    // SAFETY: passed on from the caller.
    unsafe { at(lock) }.store(FREE, Release);
    0
}
