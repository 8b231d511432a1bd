//! Thread identity, as stored in the owner fields of locks: the kernel's thread id, as in libc. So
//! the child of a fork does not own what its parent locked, and a thread does not own what an ended
//! thread left locked.

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::primitive::{Native, Threads as _};

unsafe extern "C" {
    /// glibc's, since 2.32: not 0 only if the process has one thread.
    static __libc_single_threaded: AtomicU8;
}

/// Whether the calling thread is the only one of the process. If so, no other begins before it
/// calls libc. Unlike this library's `pthread_create`, glibc also knows the threads that it starts
/// itself, for timers for example.
#[inline(always)]
pub(crate) fn is_alone() -> bool {
    // SAFETY: a `char` of glibc's, which glibc writes as atomically.
    unsafe { __libc_single_threaded.load(Relaxed) != 0 }
}

/// The id of the process, from the kernel. `getpid` may be another library's, which takes locks or
/// invents an id.
pub(crate) fn process() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}

/// Offset of the thread id in glibc's thread control block (`struct pthread`, member `tid`). It is
/// the same in all x86-64 versions so far; [`tcb_has_id`] checks it before use.
#[cfg(target_arch = "x86_64")]
const TID_OFFSET: usize = 720;

#[cfg(target_arch = "x86_64")]
static TCB_HAS_ID: AtomicBool = AtomicBool::new(false);

/// Whether [`me_from_tcb`] works in this process. One thread must call this before any thread calls
/// [`me`].
#[cfg(target_arch = "x86_64")]
pub(crate) fn tcb_has_id() -> bool {
    let found = me_from_tcb() == Native::thread_id();
    TCB_HAS_ID.store(found, Relaxed);
    found
}

/// What [`tcb_has_id`] has found.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_in_tcb() -> bool {
    TCB_HAS_ID.load(Relaxed)
}

/// The calling thread's id, read from its control block in one instruction.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn me_from_tcb() -> u32 {
    let id: u32;
    // SAFETY: reads a word of this thread's control block, which extends beyond that word in every
    // glibc.
    unsafe {
        core::arch::asm!(
            "mov {:e}, dword ptr fs:[{}]",
            out(reg) id,
            const TID_OFFSET,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    id
}

/// The calling thread's id.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn me() -> u32 {
    if TCB_HAS_ID.load(Relaxed) { me_from_tcb() } else { Native::thread_id() }
}

/// The kernel's id of `thread`; 0 if it has ended, `None` where the id cannot be found.
///
/// # Safety
///
/// `thread` exists: it was neither joined, nor detached and ended.
pub(crate) unsafe fn of(thread: libc::pthread_t) -> Option<u32> {
    // SAFETY: no preconditions.
    if thread == unsafe { libc::pthread_self() } {
        return Some(Native::thread_id());
    }
    #[cfg(target_arch = "x86_64")]
    if TCB_HAS_ID.load(Relaxed) {
        // SAFETY: glibc's handle is the address of the control block, which lives until the thread
        // is joined.
        return Some(unsafe {
            core::ptr::with_exposed_provenance::<u32>(thread as usize + TID_OFFSET).read_volatile()
        });
    }
    None
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn tcb_has_id() -> bool {
    true
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn is_in_tcb() -> bool {
    true
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn me_from_tcb() -> u32 {
    me()
}

/// The calling thread's id, cached from its first request in this process.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn me() -> u32 {
    use core::cell::Cell;

    use unconvoy_locks::primitive::Generation as _;

    thread_local! {
        // The process's generation and the thread id. Constant and without a destructor, so access
        // neither allocates nor registers anything.
        static ID: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }
    let generation = Native::generation();
    match ID.get() {
        (known, id) if known == generation => id,
        _ => {
            let id = Native::thread_id();
            ID.set((generation, id));
            id
        }
    }
}
