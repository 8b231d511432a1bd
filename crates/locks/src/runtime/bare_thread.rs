//! A thread unknown to the C library.
//!
//! The controller starts inside `pthread_mutex_lock`, where code must not allocate (the thread may
//! be waiting for malloc's lock) or take a lock of the C library. It is therefore created by a bare
//! `clone`. Its stack, and a block in place of thread-local storage, are mapped once and reused.
//! All signals are blocked. Its own file-descriptor table keeps its descriptors out of the
//! program's sight.
//!
//! Code on it uses no thread-local storage, does not unwind, and calls only `memcpy` and the like
//! from the C library. It calls the kernel through `rustix`, whose Linux back end does not touch
//! `errno`.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::mm::{MapFlags, ProtFlags};

const GUARD: usize = 4096;
const STACK: usize = 128 * 1024;
/// Block in place of thread-local storage: variables below, the control block above. A stray access
/// meets zeroes instead of another thread's variables.
const LOCAL: usize = 16 * 1024;
const CONTROL_BLOCK: usize = 4096;

/// At most one bare thread at a time, on memory that is mapped once.
pub(super) struct BareThread {
    memory: core::sync::atomic::AtomicPtr<u8>,
    /// The kernel's id of the running thread. The kernel clears it when the thread no longer uses
    /// its stack.
    id: AtomicI32,
    /// The id of the last thread that [entered](Self::enter). The kernel clears `id` shortly before
    /// it removes the thread.
    last: AtomicI32,
}

/// Why no thread started.
#[cfg_attr(tsan, allow(dead_code))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotStarted {
    /// The previous thread is still exiting; try later.
    Exiting,
    /// The kernel refused with this error number.
    Refused(i32),
}

impl BareThread {
    pub(super) const fn new() -> Self {
        BareThread {
            memory: core::sync::atomic::AtomicPtr::new(ptr::null_mut()),
            id: AtomicI32::new(0),
            last: AtomicI32::new(0),
        }
    }

    /// The kernel's id of the thread; 0 if none runs.
    pub(super) fn id(&self) -> i32 {
        self.id.load(Acquire)
    }

    /// Where the id is.
    pub(super) fn id_address(&self) -> usize {
        (&raw const self.id).addr()
    }

    /// The bare thread calls this first. Returns its id.
    #[cfg_attr(tsan, allow(dead_code))]
    pub(super) fn enter(&self) -> i32 {
        let id = self.id();
        self.last.store(id, Relaxed);
        id
    }

    /// Whether the thread runs, or the last one has ended but still exists for the kernel. Also
    /// true while another thread of the process has the last one's id.
    pub(super) fn exists(&self) -> bool {
        let last = self.last.load(Relaxed);
        // `std::process::id` calls libc's `getpid`, which may be another library's.
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let is_known = || {
            // SAFETY: signal 0 only checks that the thread exists.
            unsafe { syscalls::syscall!(syscalls::Sysno::tgkill, own, last, 0) }
        };
        self.id() != 0 || last != 0 && is_known().is_ok()
    }

    /// Clears the ids in the child of a `fork`, which reuses the thread's memory.
    pub(super) fn forget(&self) {
        self.id.store(0, Relaxed);
        self.last.store(0, Relaxed);
    }

    /// Runs `body` on a bare thread. The caller ensures that only one thread calls this at a time.
    #[cfg_attr(tsan, allow(dead_code))]
    pub(super) fn start(
        &'static self,
        body: extern "C" fn(*mut c_void) -> c_int,
    ) -> Result<(), NotStarted> {
        if self.id() != 0 {
            return Err(NotStarted::Exiting);
        }
        let memory = self.map()?;
        // SAFETY: the offsets are within the mapping.
        let (stack_top, thread_pointer) =
            unsafe { (memory.add(GUARD + STACK), memory.add(GUARD + STACK + LOCAL)) };
        let words = thread_pointer.cast::<*mut u8>();
        // SAFETY: as above. The first word of x86-64's control block holds the thread pointer
        // (System V TLS ABI, variant 2), the third is glibc's pointer to the block.
        unsafe { [0, 2].into_iter().for_each(|index| words.add(index).write(thread_pointer)) };
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
        // SAFETY: both sets are valid. The thread inherits the full mask and handles no signal.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        // SAFETY: this thread's `errno`, which a lock operation must preserve.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let errno_before = unsafe { *errno };
        // SAFETY: glibc's wrapper runs `body` on our stack, with our control block. The flags are
        // those of an ordinary thread, so that a seccomp filter for threads admits it.
        let started = unsafe {
            libc::clone(body, stack_top.cast(), flags, ptr::null_mut(), id, thread_pointer, id)
        };
        // SAFETY: as above.
        let error = unsafe { errno.replace(errno_before) };
        // SAFETY: restores the caller's mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
        if started == -1 { Err(NotStarted::Refused(error)) } else { Ok(()) }
    }

    /// Maps the thread's memory on first use: guard page, stack, local storage, control block.
    fn map(&self) -> Result<*mut u8, NotStarted> {
        let known = self.memory.load(Acquire);
        if !known.is_null() {
            return Ok(known);
        }
        let refused = |error: rustix::io::Errno| NotStarted::Refused(error.raw_os_error());
        let size = GUARD + STACK + LOCAL + CONTROL_BLOCK;
        // SAFETY: a fresh anonymous mapping, whose lowest page becomes inaccessible.
        unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let memory = rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
            .map_err(refused)?;
            if let Err(error) =
                rustix::mm::mprotect(memory, GUARD, rustix::mm::MprotectFlags::empty())
            {
                let _ = rustix::mm::munmap(memory, size);
                return Err(refused(error));
            }
            self.memory.store(memory.cast(), Release);
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
