//! The locks that each thread holds, and the calls that acquired them, for the watchdog's report.
//!
//! Only a process that the user watches keeps them, in a table of its own: an entry for each thread
//! that holds a lock. The layout is [`Held`].
//!
//! **Invariant 1.** Only the thread that claimed an entry writes to it.
//!
//! *Not guaranteed*: if a thread releases a lock that another thread acquired, the table keeps the
//! lock. A reader therefore believes the owner in a mutex rather than this table.
//!
//! **Memory orderings.** Fields are stored before the `what` that makes them valid, with release.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use unconvoy_locks::primitive::{Generation as _, Native};
use unconvoy_profile::live::{HOLDERS, Held, HeldLock, SHARED};
use unconvoy_profile::{Kind, mix};

use crate::identity::me;

/// Number of entries in which a thread may be.
const PROBES: usize = 16;

static TABLE: AtomicPtr<Held> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" {
    /// See `boundary.c`.
    fn unconvoy_call_from_here(
        object: *const c_void,
        call: unsafe extern "C" fn(*const c_void) -> c_int,
    ) -> c_int;

    /// See `boundary.c`.
    safe fn unconvoy_caller() -> *const c_void;
}

/// Calls `call` with `object`, and meanwhile keeps the caller's return address as the place that
/// acquires a lock. Call this in tail position, from an exported function.
///
/// # Safety
///
/// `call` accepts a pointer to a `T`.
#[inline(always)]
pub(crate) unsafe fn call_from_here<T>(object: &T, call: extern "C" fn(&T) -> c_int) -> c_int {
    // SAFETY: a reference and a pointer are passed alike, and the caller vouches for the type.
    unsafe {
        let call = core::mem::transmute::<
            extern "C" fn(&T) -> c_int,
            unsafe extern "C" fn(*const c_void) -> c_int,
        >(call);
        unconvoy_call_from_here(ptr::from_ref(object).cast(), call)
    }
}

/// Whether this process keeps held locks.
#[inline]
pub(crate) fn is_kept() -> bool {
    !TABLE.load(Relaxed).is_null()
}

/// Creates the table, and returns its address; 0 if there is no memory.
pub(crate) fn begin() -> usize {
    // SAFETY: a fresh anonymous mapping.
    let table = unsafe {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        mmap_anonymous(
            ptr::null_mut(),
            HOLDERS * size_of::<Held>(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let table = table.unwrap_or(ptr::null_mut());
    TABLE.store(table.cast(), Release);
    table.addr()
}

/// The calling thread's entry, or a free one that it claims if `claims`.
fn entry(claims: bool) -> Option<&'static Held> {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return None;
    }
    // SAFETY: the mapping from `begin`, which stays; zeroes are free entries.
    let table = unsafe { core::slice::from_raw_parts(table, HOLDERS) };
    let (me, generation) = (me(), Native::generation());
    let home = mix(u64::from(me)) as usize;
    let mut entries = (0..PROBES).map(|probe| &table[home.wrapping_add(probe) % HOLDERS]);
    let is_mine = |entry: &&Held| {
        entry.thread.load(Relaxed) == me && entry.generation.load(Relaxed) == generation
    };
    if let Some(entry) = entries.clone().find(is_mine) {
        return Some(entry);
    }
    let claimed = entries.find(|entry| {
        let owner = entry.thread.load(Acquire);
        let is_free = owner == 0 || entry.generation.load(Relaxed) != generation;
        claims && is_free && {
            // Before the claim, so that no other thread takes the entry for another process's.
            entry.generation.store(generation, Relaxed);
            entry.thread.compare_exchange(owner, me, AcqRel, Relaxed).is_ok()
        }
    })?;
    claimed.locks.iter().for_each(|lock| lock.what.store(0, Relaxed));
    claimed.used.store(0, Relaxed);
    Some(claimed)
}

/// Records that the calling thread has acquired a lock.
#[cold]
pub(crate) fn acquired(kind: Kind, address: usize, is_shared: bool) {
    let Some(entry) = entry(true) else { return };
    if let Some(lock) = find(entry, address) {
        lock.count.store(lock.count.load(Relaxed) + 1, Relaxed);
        return;
    }
    // A thread that holds more locks than fit loses the rest.
    let Some(lock) = entry.locks.iter().find(|lock| lock.what.load(Relaxed) == 0) else { return };
    lock.lock.store(address as u64, Relaxed);
    lock.place.store(unconvoy_caller().addr() as u64, Relaxed);
    lock.count.store(1, Relaxed);
    lock.what.store(kind as u32 | if is_shared { SHARED } else { 0 }, Release);
    entry.used.store(entry.used.load(Relaxed) + 1, Relaxed);
}

/// Records that the calling thread releases a lock.
#[cold]
pub(crate) fn released(address: usize) {
    let Some(entry) = entry(false) else { return };
    let Some(lock) = find(entry, address) else { return };
    let count = lock.count.load(Relaxed);
    if count > 1 {
        return lock.count.store(count - 1, Relaxed);
    }
    lock.what.store(0, Relaxed);
    let used = entry.used.load(Relaxed) - 1;
    entry.used.store(used, Relaxed);
    if used == 0 {
        entry.thread.store(0, Release);
    }
}

fn find(entry: &'static Held, address: usize) -> Option<&'static HeldLock> {
    entry
        .locks
        .iter()
        .find(|lock| lock.what.load(Relaxed) != 0 && lock.lock.load(Relaxed) == address as u64)
}
