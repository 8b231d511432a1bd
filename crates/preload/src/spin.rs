//! `pthread_spin_*`, in place: four bytes, no initialiser but `pthread_spin_init`.
//!
//! | word | meaning |
//! | --- | --- |
//! | `FREE` | one of this library's, free |
//! | `HELD` | one of this library's, held |
//! | anything else | process-shared, or initialised by other means: libc's |
//!
//! A spin lock has no room for a queue, so that the contention manager is always
//! test-and-test-and-set with backoff; the load manager is the chosen one.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::{EBUSY, pthread_spinlock_t};

use crate::config::{self, Service};
use crate::dispatch::pair;
use crate::real;
use crate::stats::{self, Kind as Recorded};

/// libc's words are 1, 0 and small negative numbers.
const FREE: u32 = 0x5075_6e00;
const HELD: u32 = FREE + 1;

/// # Safety
///
/// `lock` points to a spin lock that lives as long as the caller's use of it.
unsafe fn at<'a>(lock: *mut pthread_spinlock_t) -> &'a AtomicU32 {
    const { assert!(size_of::<pthread_spinlock_t>() == 4) };
    // SAFETY: the same size and alignment.
    unsafe { &*lock.cast() }
}

fn is_own(word: &AtomicU32) -> bool {
    matches!(word.load(Relaxed), FREE | HELD)
}

#[inline(always)]
fn try_lock(word: &AtomicU32) -> bool {
    word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
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
pub unsafe extern "C" fn pthread_spin_init(lock: *mut pthread_spinlock_t, shared: c_int) -> c_int {
    if shared == libc::PTHREAD_PROCESS_SHARED || config::service() == Service::Declined {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_spin_init(lock, shared) };
    }
    // SAFETY: passed on from the caller.
    unsafe { at(lock) }.store(FREE, Release);
    0
}

/// # Safety
///
/// See [`pthread_spin_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_destroy(_lock: *mut pthread_spinlock_t) -> c_int {
    0
}

/// # Safety
///
/// See [`pthread_spin_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: passed on from the caller.
    let word = unsafe { at(lock) };
    if try_lock(word) {
        note(word, None);
        return 0;
    }
    if !is_own(word) {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_spin_lock(lock) };
    }
    let begin = stats::now();
    // Looks before it swaps: a failed swap takes the line from the holder.
    let acquired = (pair().poll)(&|| word.load(Relaxed) == FREE && try_lock(word));
    note(word, Some((begin, acquired.departure.sleeps)));
    0
}

/// # Safety
///
/// See [`pthread_spin_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: passed on from the caller.
    let word = unsafe { at(lock) };
    if try_lock(word) {
        note(word, None);
        return 0;
    }
    // SAFETY: passed on from the caller.
    if is_own(word) { EBUSY } else { unsafe { real::pthread_spin_trylock(lock) } }
}

/// # Safety
///
/// See [`pthread_spin_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_unlock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: passed on from the caller.
    let word = unsafe { at(lock) };
    if !is_own(word) {
        // SAFETY: passed on from the caller.
        return unsafe { real::pthread_spin_unlock(lock) };
    }
    if !config::is_default() {
        stats::released(core::ptr::from_ref(word).addr());
    }
    word.store(FREE, Release);
    0
}
