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
use crate::object::InPlace;
use crate::real;
use crate::stats::{self, Kind as Recorded};

/// glibc's word of a free lock and one of a held lock. On x86 a lock that is held may also be
/// negative, since waiters there decrement it.
const FREE: u32 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };
const HELD: u32 = 1 - FREE;

// SAFETY: the same size and alignment, and any bits are a word.
unsafe impl InPlace for AtomicU32 {
    type Libcs = pthread_spinlock_t;
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

#[unsafe(no_mangle)]
pub extern "C" fn pthread_spin_lock(word: &AtomicU32) -> c_int {
    if config::is_default() && try_lock(word) { 0 } else { spin(word) }
}

/// All that is not a free lock without statistics.
#[inline(never)]
extern "C" fn spin(word: &AtomicU32) -> c_int {
    if config::service() == Service::Declined {
        return real::pthread_spin_lock(word.libcs());
    }
    if try_lock(word) {
        note(word, None);
        return 0;
    }
    let begin = stats::now();
    // Looks before it swaps: a failed swap takes the line from the holder.
    let acquired = (pair().poll)(&|| word.load(Relaxed) == FREE && try_lock(word));
    note(word, Some((begin, acquired.wait.sleeps)));
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_spin_trylock(word: &AtomicU32) -> c_int {
    if config::service() == Service::Declined {
        return real::pthread_spin_trylock(word.libcs());
    }
    if !try_lock(word) {
        return EBUSY;
    }
    note(word, None);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_spin_unlock(word: &AtomicU32) -> c_int {
    if !config::is_default() {
        return unlock(word);
    }
    word.store(FREE, Release);
    0
}

/// Unlock where there are statistics, or nothing is served.
#[inline(never)]
extern "C" fn unlock(word: &AtomicU32) -> c_int {
    if config::service() == Service::Declined {
        return real::pthread_spin_unlock(word.libcs());
    }
    stats::released(core::ptr::from_ref(word).addr());
    word.store(FREE, Release);
    0
}
