//! The locks of C and C++ users: `unconvoy.h`, and `libunconvoy.a` built with the feature `capi`.
//!
//! The header is generated from this file (`make header`); a test fails when the two differ.

use core::ptr;

use crate::contention::Contention as _;
use crate::contention::loiter::Loiter;
use crate::contention::rw::{RwWord, Share};
use crate::load::control::Control;
use crate::lock;
use crate::parking::eventcount::Eventcount;
use crate::primitive::Native;

/// A mutex under load control. All zeroes is an unlocked one: `unconvoy_mutex_t lock =
/// UNCONVOY_MUTEX_INIT;`, static memory, or `memset`. There is nothing to destroy. It may
/// be unlocked by another thread than the one that locked it. It must not be moved while in use,
/// nor shared between processes.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct unconvoy_mutex_t {
    words: [u64; 3],
}

/// A reader-writer lock under load control. All zeroes is a free one. A thread may hold it for
/// reading more than once.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct unconvoy_rwlock_t {
    words: [u64; 2],
}

#[repr(C)]
struct Mutex {
    eventcount: Eventcount<Native>,
    state: Loiter<Native>,
}

#[repr(C)]
struct RwLock {
    eventcount: Eventcount<Native>,
    state: RwWord<Native>,
}

const _: () = assert!(size_of::<Mutex>() <= size_of::<unconvoy_mutex_t>());
const _: () = assert!(align_of::<Mutex>() <= align_of::<unconvoy_mutex_t>());
const _: () = assert!(size_of::<RwLock>() <= size_of::<unconvoy_rwlock_t>());

/// # Safety
///
/// `mutex` points to a mutex that lives as long as it is used.
unsafe fn mutex<'a>(mutex: *mut unconvoy_mutex_t) -> &'a Mutex {
    // SAFETY: large enough (above), and only atomics inside.
    unsafe { &*ptr::from_ref(&*mutex).cast() }
}

/// # Safety
///
/// `lock` points to a reader-writer lock that lives as long as it is used.
unsafe fn rwlock<'a>(lock: *mut unconvoy_rwlock_t) -> &'a RwLock {
    // SAFETY: large enough (above), and only atomics inside.
    unsafe { &*ptr::from_ref(&*lock).cast() }
}

fn acquire(mutex: &Mutex, deadline: Option<u64>) -> bool {
    mutex.state.try_lock_politely()
        || lock::acquire::<Native, _, Control>(&mutex.state, &mutex.eventcount, None, deadline).held
}

fn acquire_shared(lock: &RwLock, share: Share) {
    if !lock.state.try_acquire(share) {
        lock::acquire_shared::<Native, Control>(&lock.state, share, &lock.eventcount, None);
    }
}

/// Locks, waiting as long as it takes.
///
/// # Safety
///
/// `lock` points to a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_mutex_lock(lock: *mut unconvoy_mutex_t) {
    // SAFETY: passed on from the caller.
    acquire(unsafe { mutex(lock) }, None);
}

/// Locks if that is possible at once; whether it did.
///
/// # Safety
///
/// `lock` points to a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_mutex_trylock(lock: *mut unconvoy_mutex_t) -> bool {
    // SAFETY: passed on from the caller.
    unsafe { mutex(lock) }.state.try_lock()
}

/// Locks, waiting until `deadline_ns` on `CLOCK_MONOTONIC` at most; whether it did.
///
/// # Safety
///
/// `lock` points to a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_mutex_lock_until(lock: *mut unconvoy_mutex_t, deadline_ns: u64) -> bool {
    // SAFETY: passed on from the caller.
    acquire(unsafe { mutex(lock) }, Some(deadline_ns))
}

/// Unlocks.
///
/// # Safety
///
/// `lock` points to a mutex that is locked, on behalf of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_mutex_unlock(lock: *mut unconvoy_mutex_t) {
    // SAFETY: passed on from the caller.
    unsafe {
        let mutex = mutex(lock);
        lock::release::<Native, _>(&mutex.state, &mutex.eventcount);
    }
}

/// Locks for reading, together with other readers.
///
/// # Safety
///
/// `lock` points to a reader-writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_rdlock(lock: *mut unconvoy_rwlock_t) {
    // SAFETY: passed on from the caller.
    acquire_shared(unsafe { rwlock(lock) }, Share::Read);
}

/// Locks for reading if that is possible at once; whether it did.
///
/// # Safety
///
/// `lock` points to a reader-writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_tryrdlock(lock: *mut unconvoy_rwlock_t) -> bool {
    // SAFETY: passed on from the caller.
    unsafe { rwlock(lock) }.state.try_acquire(Share::Read)
}

/// Locks for writing, alone.
///
/// # Safety
///
/// `lock` points to a reader-writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_wrlock(lock: *mut unconvoy_rwlock_t) {
    // SAFETY: passed on from the caller.
    acquire_shared(unsafe { rwlock(lock) }, Share::Write);
}

/// Locks for writing if that is possible at once; whether it did.
///
/// # Safety
///
/// `lock` points to a reader-writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_trywrlock(lock: *mut unconvoy_rwlock_t) -> bool {
    // SAFETY: passed on from the caller.
    unsafe { rwlock(lock) }.state.try_acquire(Share::Write)
}

/// Unlocks what the caller holds, for reading or for writing.
///
/// # Safety
///
/// `lock` points to a reader-writer lock that the caller holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_unlock(lock: *mut unconvoy_rwlock_t) {
    // SAFETY: passed on from the caller.
    unsafe {
        let lock = rwlock(lock);
        lock::release_shared(&lock.state, &lock.eventcount);
    }
}
