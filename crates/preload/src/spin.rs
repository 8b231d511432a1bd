//! `pthread_spin_*`, in place, with libc's own four-byte protocol. So any code may initialise a
//! lock, and a process without this library may share it.
//!
//! A spin lock has no room for a queue, so its contention manager is always test-and-test-and-set
//! with backoff. The load manager is the chosen one.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::{EBUSY, pthread_spinlock_t};

use crate::chosen::pair;
use crate::config::{self, Service, is_default_for_spin_locks};
use crate::held;
use crate::object::InPlace;
use crate::profile::libcs::Observed;
use crate::profile::{self, Waited};
use crate::real;
use crate::stats::{self, Kind as Recorded};

/// glibc's values for a free and a held lock. On x86 a held lock may also be negative, because
/// glibc's waiters decrement it.
const FREE: u32 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };
const HELD: u32 = 1 - FREE;

// SAFETY: size and alignment are equal, and any bits are a valid word.
unsafe impl InPlace for AtomicU32 {
    type Libcs = pthread_spinlock_t;
}

#[inline(always)]
fn try_lock(word: &AtomicU32) -> bool {
    word.swap(HELD, Acquire) == FREE
}

/// A lock that libc serves.
fn observed(word: &AtomicU32) -> Observed {
    let address = core::ptr::from_ref(word).addr();
    Observed { kind: profile::Kind::Spin, address, is_read: false }
}

#[inline(always)]
fn record_acquisition(word: &AtomicU32, waited: Option<(u64, u32)>) {
    if !config::is_default() {
        stats::acquired(Recorded::Spin, core::ptr::from_ref(word).addr(), waited);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_spin_lock(word: &AtomicU32) -> c_int {
    if is_default_for_spin_locks() && try_lock(word) { 0 } else { spin(word) }
}

/// The slow path: contended locks, statistics, a profile, a watchdog, declined processes.
#[inline(never)]
extern "C" fn spin(word: &AtomicU32) -> c_int {
    if held::is_kept() {
        // SAFETY: a function of the same object.
        return unsafe { held::call_from_here(word, spin_here) };
    }
    spin_here(word)
}

#[inline(never)]
extern "C" fn spin_here(word: &AtomicU32) -> c_int {
    if config::service() == Service::Declined {
        return observed(word).spin(
            || real::pthread_spin_trylock(word.libcs()),
            || real::pthread_spin_lock(word.libcs()),
        );
    }
    if try_lock(word) {
        record_acquisition(word, None);
        return 0;
    }
    let begin = stats::now();
    // Load before swapping: a failed swap takes the cache line from the holder.
    let attempt = || word.load(Relaxed) == FREE && try_lock(word);
    let waited = Waited {
        kind: profile::Kind::Spin,
        address: core::ptr::from_ref(word).addr(),
        is_read: false,
        acquisitions: None,
        request: &|| {}, // a profiled process has no fast path here
    };
    let acquired = profile::wait(waited, || (pair().poll)(&attempt));
    record_acquisition(word, Some((begin, acquired.wait.sleeps)));
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
    record_acquisition(word, None);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_spin_unlock(word: &AtomicU32) -> c_int {
    if !is_default_for_spin_locks() {
        return unlock(word);
    }
    word.store(FREE, Release);
    0
}

/// Unlock with statistics or a profile, or in a declined process.
#[inline(never)]
extern "C" fn unlock(word: &AtomicU32) -> c_int {
    if config::service() == Service::Declined {
        return observed(word).unlock(|| real::pthread_spin_unlock(word.libcs()));
    }
    let address = core::ptr::from_ref(word).addr();
    stats::released(Recorded::Spin, address);
    let releasing = profile::releasing(profile::Kind::Spin, address);
    word.store(FREE, Release);
    if let Some(releasing) = releasing {
        releasing.released();
    }
    0
}
