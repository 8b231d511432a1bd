//! A thread that the C library knows nothing of.
//!
//! The controller is started from inside `pthread_mutex_lock`, where nothing may allocate (a
//! malloc's own lock may be the one being waited for) and no lock of the C library may be taken. So
//! it is a bare `clone`: a stack and a small block where thread-local storage would be, mapped once
//! and used again, every signal blocked, and a file-descriptor table of its own, so that no program
//! ever sees, inherits or closes one of its descriptors.
//!
//! What runs on it uses no thread-local storage, does not unwind, and calls the C library for
//! nothing but `memcpy` and its kin; the kernel is called through `rustix`, whose Linux back end
//! does not touch `errno`.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use rustix::mm::{MapFlags, ProtFlags};

const GUARD: usize = 4096;
const STACK: usize = 128 * 1024;
/// Where thread-local storage would be: variables below, the control block above. Nothing here is
/// meant to be used; it is there so that a stray access meets zeroes instead of another thread's
/// variables.
const LOCAL: usize = 16 * 1024;
const CONTROL_BLOCK: usize = 4096;

/// One bare thread at a time, on memory that is mapped once.
pub(super) struct BareThread {
    memory: core::sync::atomic::AtomicPtr<u8>,
    /// The kernel's id of the running thread; the kernel clears it when the thread no longer uses
    /// its stack.
    id: AtomicI32,
}

/// Why no thread was started.
#[cfg_attr(tsan, allow(dead_code))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotStarted {
    /// The previous one is still on its way out; try later.
    Leaving,
    /// The kernel refuses, with this error number.
    Refused(i32),
}

impl BareThread {
    pub(super) const fn new() -> Self {
        BareThread { memory: core::sync::atomic::AtomicPtr::new(ptr::null_mut()), id: AtomicI32::new(0) }
    }

    /// The kernel's id of the thread, 0 if none runs.
    pub(super) fn id(&self) -> i32 {
        self.id.load(Acquire)
    }

    /// Forgets a thread that did not come along through a `fork`. Its memory did, and is used
    /// again.
    pub(super) fn forget(&self) {
        self.id.store(0, Relaxed);
    }

    /// Runs `body` on a bare thread. The caller sees to it that only one thread calls at a time.
    #[cfg_attr(tsan, allow(dead_code))]
    pub(super) fn start(&'static self, body: extern "C" fn(*mut c_void) -> c_int) -> Result<(), NotStarted> {
        if self.id() != 0 {
            return Err(NotStarted::Leaving);
        }
        let memory = self.map()?;
        // SAFETY: offsets within the mapping.
        let (stack_top, thread_pointer) = unsafe { (memory.add(GUARD + STACK), memory.add(GUARD + STACK + LOCAL)) };
        let words = thread_pointer.cast::<*mut u8>();
        // SAFETY: as above. x86-64 finds its thread pointer by reading the word that it points to (System V
        // TLS ABI, variant 2), glibc its control block by the third.
        unsafe { [0, 2].into_iter().for_each(|place| words.add(place).write(thread_pointer)) };
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_SETTLS
            | libc::CLONE_PARENT_SETTID
            | libc::CLONE_CHILD_CLEARTID;
        let all = rustix_sigset_full();
        let mut before = all;
        let id = self.id.as_ptr();
        // SAFETY: a full set in, the old one out. The new thread inherits the mask, so that no signal is
        // ever handled on it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        // SAFETY: this thread's `errno`, which locking leaves alone.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let errno_before = unsafe { *errno };
        // SAFETY: glibc's wrapper runs `body` on our stack; flags and arguments are those of an ordinary
        // thread (so that a seccomp filter that lets threads through lets this one through), with a
        // control block of our own.
        let started = unsafe { libc::clone(body, stack_top.cast(), flags, ptr::null_mut(), id, thread_pointer, id) };
        // SAFETY: as above.
        let error = unsafe { errno.replace(errno_before) };
        // SAFETY: restores the caller's mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
        if started == -1 { Err(NotStarted::Refused(error)) } else { Ok(()) }
    }

    /// The thread's memory: guard page, stack, local storage, control block.
    fn map(&self) -> Result<*mut u8, NotStarted> {
        let known = self.memory.load(Acquire);
        if !known.is_null() {
            return Ok(known);
        }
        let refused = |error: rustix::io::Errno| NotStarted::Refused(error.raw_os_error());
        let size = GUARD + STACK + LOCAL + CONTROL_BLOCK;
        // SAFETY: a fresh anonymous mapping, of which the lowest page is then made inaccessible.
        unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let memory = rustix::mm::mmap_anonymous(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags)
                .map_err(refused)?;
            rustix::mm::mprotect(memory, GUARD, rustix::mm::MprotectFlags::empty()).map_err(refused)?;
            self.memory.store(memory.cast(), core::sync::atomic::Ordering::Release);
            Ok(memory.cast())
        }
    }
}

fn rustix_sigset_full() -> libc::sigset_t {
    let mut set = core::mem::MaybeUninit::uninit();
    // SAFETY: sigfillset writes the whole set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}
