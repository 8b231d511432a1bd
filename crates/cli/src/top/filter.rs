//! Whether the program may show itself under a filter of its system calls.
//!
//! A filter may kill a process for a call that it does not allow, so a child tries the calls. The
//! program inherits this command's filter.

use std::io;
use std::ptr;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::process_file;

/// Whether a filter checks this process's system calls and allows shared memory.
pub fn allows_shared_memory() -> bool {
    let status = process_file::text("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0") && child_can_share()
}

fn child_can_share() -> bool {
    // SAFETY: the child makes system calls only.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            // SAFETY: no preconditions.
            unsafe { libc::_exit(i32::from(share().is_err())) }
        }
        Ok(ForkResult::Parent { child }) => {
            waitpid(child, None) == Ok(WaitStatus::Exited(child, 0))
        }
        Err(_) => false,
    }
}

/// Makes the calls with which a process creates its page.
fn share() -> io::Result<()> {
    const SHM_INFO: i32 = 14;
    let check = |result: libc::c_int| match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    };
    let mut usage = [0_u64; 8];
    // SAFETY: the kernel fills at most 48 bytes of `usage`. The other calls concern a new segment.
    unsafe {
        check(libc::shmctl(0, SHM_INFO, usage.as_mut_ptr().cast()))?;
        let id = check(libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600))?;
        let at = libc::shmat(id, ptr::null(), 0);
        check(libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()))?;
        if at.addr() == usize::MAX { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
