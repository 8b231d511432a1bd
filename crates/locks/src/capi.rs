//! The locks for C and C++: `unconvoy.h`, and `libunconvoy.a` built with the feature `capi`.
//!
//! `make header` generates the header from this file; a test compares the two.

use core::ffi::c_void;

use lock_api::{GuardSend, RawMutex as _};

use crate::contention::biased_rw::BiasedRw;
use crate::contention::loiter::Loiter;
use crate::contention::rw::{RwWord, Share};
use crate::load::control::Control;
use crate::lock;
use crate::parking::eventcount::Eventcount;
use crate::primitive::Native;
use crate::raw::{LATEST, RawLock, try_read};

/// A mutex under load control. All zeroes is an unlocked mutex: use `UNCONVOY_MUTEX_INIT`, static
/// storage, or `memset`. It needs no destruction. Any thread may unlock it. Do not move it while in
/// use, nor share it between processes.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct unconvoy_mutex_t {
    words: [u64; 3],
}

/// A reader-writer lock under load control. All zeroes is a free lock. A thread may hold it for
/// reading more than once.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct unconvoy_rwlock_t {
    words: [u64; 2],
}

type Mutex = RawLock<Loiter<Native>, Control>;

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
/// `mutex` points to a mutex that outlives the returned reference.
unsafe fn mutex<'a>(mutex: *mut unconvoy_mutex_t) -> &'a Mutex {
    // SAFETY: the C type is large enough (asserted above), and every field is atomic. No reference
    // to the C type exists: its words are not atomics, so they could not change under one.
    unsafe { &*mutex.cast::<Mutex>() }
}

/// # Safety
///
/// `lock` points to a reader-writer lock that outlives the returned reference.
unsafe fn rwlock<'a>(lock: *mut unconvoy_rwlock_t) -> &'a RwLock {
    // SAFETY: the C type is large enough (asserted above), and every field is atomic. No reference
    // to the C type exists: its words are not atomics, so they could not change under one.
    unsafe { &*lock.cast::<RwLock>() }
}

fn acquire_shared(lock: &RwLock, share: Share) {
    let lock = BiasedRw::unbiased(&lock.state, &lock.eventcount);
    if !lock.acquire_at_once(share) {
        lock.give_way(share);
        lock::acquire_shared::<Native, Control>(lock, share, None);
    }
}

/// Locks the mutex. Waits until it is free.
///
/// # Safety
///
/// `lock` points to a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_mutex_lock(lock: *mut unconvoy_mutex_t) {
    // SAFETY: by contract.
    unsafe { mutex(lock) }.acquire(None);
}

/// Locks the mutex if it is free. Returns whether the caller now holds it.
///
/// # Safety
///
/// `lock` points to a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_mutex_trylock(lock: *mut unconvoy_mutex_t) -> bool {
    // SAFETY: by contract.
    unsafe { mutex(lock) }.try_lock().is_some()
}

/// Locks the mutex, or gives up at `deadline_ns` on `CLOCK_MONOTONIC`. Returns whether the caller
/// now holds it.
///
/// # Safety
///
/// `lock` points to a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_mutex_lock_until(
    lock: *mut unconvoy_mutex_t,
    deadline_ns: u64,
) -> bool {
    // SAFETY: by contract.
    unsafe { mutex(lock) }.acquire(Some(deadline_ns.min(LATEST)))
}

/// Unlocks the mutex.
///
/// # Safety
///
/// `lock` points to a mutex that the caller holds, or unlocks on behalf of its holder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_mutex_unlock(lock: *mut unconvoy_mutex_t) {
    // SAFETY: by contract.
    unsafe { mutex(lock).unlock(GuardSend::new()) }
}

/// Locks for reading, shared with other readers. Waits while a writer holds the lock.
///
/// # Safety
///
/// `lock` points to a reader-writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_rdlock(lock: *mut unconvoy_rwlock_t) {
    // SAFETY: by contract.
    acquire_shared(unsafe { rwlock(lock) }, Share::Read);
}

/// Locks for reading if no wait is needed. Returns whether the caller now holds the lock.
///
/// # Safety
///
/// `lock` points to a reader-writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_tryrdlock(lock: *mut unconvoy_rwlock_t) -> bool {
    // SAFETY: by contract.
    try_read(&unsafe { rwlock(lock) }.state)
}

/// Locks for writing, exclusively. Waits until the lock is free.
///
/// # Safety
///
/// `lock` points to a reader-writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_wrlock(lock: *mut unconvoy_rwlock_t) {
    // SAFETY: by contract.
    acquire_shared(unsafe { rwlock(lock) }, Share::Write);
}

/// Locks for writing if the lock is free. Returns whether the caller now holds it.
///
/// # Safety
///
/// `lock` points to a reader-writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_trywrlock(lock: *mut unconvoy_rwlock_t) -> bool {
    // SAFETY: by contract.
    unsafe { rwlock(lock) }.state.try_acquire(Share::Write)
}

/// Releases a lock held for reading or for writing.
///
/// # Safety
///
/// `lock` points to a reader-writer lock that the caller holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_rwlock_unlock(lock: *mut unconvoy_rwlock_t) {
    // SAFETY: by contract.
    unsafe {
        let lock = rwlock(lock);
        lock::release_shared(BiasedRw::unbiased(&lock.state, &lock.eventcount));
    }
}

/// Announces that this process is the child of a fork. Call it in a fork handler (`pthread_atfork`)
/// before Linux 4.14, with pages larger than 4 KiB, or under an emulator: there the kernel does not
/// report forks. Elsewhere it has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn unconvoy_after_fork() {
    crate::after_fork();
}

/// Prevents load control in this process and its children, before the process installs a filter of
/// system calls (seccomp), which may end it for the controller's calls. Waiters spin and park from
/// then on. Returns false, without effect, in a child that shares its parent's memory.
#[unsafe(no_mangle)]
pub extern "C" fn unconvoy_confine() -> bool {
    crate::confine()
}

/// Calls `work(data)` while the process has no thread for load control. For calls that change its
/// credentials or its user namespace, such as setuid(2): the thread is unknown to libc, and would
/// keep what the process gives up.
///
/// # Safety
///
/// `work` may be called with `data`, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unconvoy_without_controller(
    work: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) {
    // SAFETY: as promised.
    crate::without_controller(|| unsafe { work(data) });
}

/// A point between two units of work, such as requests or transactions, at which the calling thread
/// may sleep for load. Call it where the thread holds no lock and waits for none, for example at
/// the end of a request loop's body. Returns whether the thread slept.
///
/// While threads outnumber processors and contend for locks, surplus threads sleep here until load
/// drops, their turn comes, or 100 ms have passed. Otherwise the call costs a few loads.
///
/// This function needs the library. `unconvoy_checkpoint_if_loaded` works with and without it.
#[unsafe(no_mangle)]
pub extern "C" fn unconvoy_checkpoint() -> bool {
    crate::runtime::checkpoint()
}
