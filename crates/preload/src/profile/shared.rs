//! Shared memory without a name, a file or a descriptor: a System V segment that is marked for
//! removal as soon as this process has attached it.
//!
//! Linux lets a process of the same user attach such a segment by its identifier, which
//! `/proc/PID/maps` shows as the inode. The kernel frees the segment with the last process that has
//! it attached. A process that is killed between the first call and the last leaves the segment
//! behind.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use syscalls::{Errno, Sysno, syscall};

const IPC_PRIVATE: usize = 0;
const IPC_RMID: usize = 0;
const SHM_INFO: usize = 14;
/// Memory is accounted for when it is touched.
const SHM_NORESERVE: i32 = 0o10000;

/// Most segments in the IPC namespace with which another is created. The kernel's default limit is
/// 4096, and the program may need some.
const MOST_SEGMENTS: c_int = 2048;

/// The kernel's `struct shm_info`.
#[repr(C)]
struct Usage {
    used_ids: c_int,
    pages: [u64; 5],
}

/// Attaches a new segment of zeroes that only this user can attach. Returns its address.
pub(super) fn create(size: usize) -> Result<usize, Errno> {
    let mut usage = MaybeUninit::<Usage>::zeroed();
    let flags = libc::IPC_CREAT | SHM_NORESERVE | 0o600;
    // SAFETY: the kernel fills `usage`, for which zeroes are valid. The calls concern a new
    // segment, and a new mapping.
    unsafe {
        syscall!(Sysno::shmctl, 0, SHM_INFO, usage.as_mut_ptr())?;
        if usage.assume_init().used_ids > MOST_SEGMENTS {
            return Err(Errno::ENOSPC);
        }
        let id = syscall!(Sysno::shmget, IPC_PRIVATE, size, flags)?;
        let at = syscall!(Sysno::shmat, id, 0, 0);
        let _ = syscall!(Sysno::shmctl, id, IPC_RMID, 0);
        at
    }
}

/// Maps memory of zeroes that no other process can attach. Returns its address.
pub(super) fn create_private(size: usize) -> Result<usize, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    unsafe { syscall!(Sysno::mmap, 0, size, protection, flags, usize::MAX, 0) }
}

/// Replaces a mapping by private memory of zeroes, in the child of a `fork`. Code that a signal
/// handler's fork interrupted may still write there.
pub(super) fn detach(at: usize, size: usize) {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the mapping is of that size, and consists of atomics, for which zeroes are valid.
    let _ = unsafe { syscall!(Sysno::mmap, at, size, protection, flags, usize::MAX, 0) };
}
