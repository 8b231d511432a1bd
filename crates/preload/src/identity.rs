//! Who a thread is, as the owner fields of locks name it: by the kernel's id of the thread, as with
//! libc. So the child of a fork is not the owner of what its parent locked, and a thread is not the
//! owner of what one that has ended left locked.

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::AtomicBool;
#[cfg(target_arch = "x86_64")]
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::primitive::{Native, Threads as _};

/// Where glibc keeps the id in a thread's control block (`struct pthread`, member `tid`): the same
/// in all its versions for x86-64 so far. Looked at before it is relied on.
#[cfg(target_arch = "x86_64")]
const PLACE: usize = 720;

#[cfg(target_arch = "x86_64")]
static IS_AT_HAND: AtomicBool = AtomicBool::new(false);

/// Whether [`me_at_hand`] answers in this process. Asked by one thread, before others ask [`me`].
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_at_hand() -> bool {
    let found = me_at_hand() == Native::thread_id();
    IS_AT_HAND.store(found, Relaxed);
    found
}

/// This thread, from its control block: in one instruction.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn me_at_hand() -> u32 {
    let id: u32;
    // SAFETY: reads a word of this thread's control block, which is longer than that in every glibc.
    unsafe {
        core::arch::asm!(
            "mov {:e}, dword ptr fs:[{}]",
            out(reg) id,
            const PLACE,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    id
}

/// This thread.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn me() -> u32 {
    if IS_AT_HAND.load(Relaxed) { me_at_hand() } else { Native::thread_id() }
}

/// The kernel's id of `thread`, where that can be told; 0 if it has ended.
///
/// # Safety
///
/// `thread` has not been joined or detached and gone.
pub(crate) unsafe fn of(thread: libc::pthread_t) -> Option<u32> {
    // SAFETY: no preconditions.
    if thread == unsafe { libc::pthread_self() } {
        return Some(Native::thread_id());
    }
    #[cfg(target_arch = "x86_64")]
    if IS_AT_HAND.load(Relaxed) {
        // SAFETY: glibc's handle is the address of the control block, which is there until the thread is joined.
        return Some(unsafe { core::ptr::with_exposed_provenance::<u32>(thread as usize + PLACE).read_volatile() });
    }
    None
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn is_at_hand() -> bool {
    true
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn me_at_hand() -> u32 {
    me()
}

/// This thread, by what the kernel said when it was asked first in this process.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn me() -> u32 {
    use core::cell::Cell;

    use unconvoy_locks::primitive::Generation as _;

    thread_local! {
        // The process's generation and the id. Constant and without a destructor: nothing to allocate,
        // nothing to register.
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
