//! The kernel's count of this process's runnable threads, for the `bpf` sensor. `unconvoy run` sets
//! the count up before it executes the program, and this module takes it over.
//!
//! `UNCONVOY_BPF=PROCESS:FIRST:COUNT` names the process that the kernel counts for, and the
//! descriptors that keep the count running: FIRST is the map that holds the count, the others are
//! links.
//!
//! The process keeps the descriptors across `exec`, because it may be a script that ends with an
//! `exec`. Children have no use for the descriptors, which would keep the kernel counting after the
//! process has ended. If this library runs in a child, it closes them: after the `fork`, or at the
//! start of the program that the child executes. If the library does not run there (a static
//! program), the descriptors stay open until that program ends.

use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::FdFlags;
use unconvoy_locks::catalogue::environment;
use unconvoy_locks::runtime::sensor::bpf;

use crate::variables::{is_on, variable};

/// The first of the descriptors, and their number; 0: none.
static FIRST: AtomicI32 = AtomicI32::new(0);
static NUMBER: AtomicI32 = AtomicI32::new(0);

/// The process that the variable names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Another,
}

/// Takes the count over, if there is one. Allocates nothing.
pub(crate) fn adopt() -> Option<Whose> {
    let mut fields = variable(&environment::BPF)?.split(':').map(str::parse::<RawFd>);
    let (process, first, number) =
        (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
    FIRST.store(first, Relaxed);
    NUMBER.store(number, Relaxed);
    if process != rustix::process::getpid().as_raw_nonzero().get() {
        close_inherited();
        return Some(Whose::Another);
    }
    if descriptors().all(is_bpf) {
        // SAFETY: open, as just checked.
        bpf::adopt(unsafe { BorrowedFd::borrow_raw(first) });
    }
    if !is_on(&environment::CHILDREN) {
        for descriptor in descriptors().filter(|&descriptor| is_bpf(descriptor)) {
            // SAFETY: as above.
            let _ = rustix::io::fcntl_setfd(
                unsafe { BorrowedFd::borrow_raw(descriptor) },
                FdFlags::CLOEXEC,
            );
        }
    }
    Some(Whose::Ours)
}

/// Closes the inherited descriptors. Call only in a process other than the counted one.
pub(crate) fn close_inherited() {
    for descriptor in descriptors().filter(|&descriptor| is_bpf(descriptor)) {
        // SAFETY: inherited from the counted process; no code in this process uses it.
        let _ = unsafe { syscalls::syscall!(syscalls::Sysno::close, descriptor) };
    }
    NUMBER.store(0, Relaxed);
}

fn descriptors() -> impl Iterator<Item = RawFd> {
    let first = FIRST.load(Relaxed);
    (0..NUMBER.load(Relaxed)).map(move |place| first + place).filter(|&descriptor| descriptor > 2)
}

/// Whether `descriptor` is a BPF map or link: the program may have closed it and reused the number.
fn is_bpf(descriptor: RawFd) -> bool {
    let mut path = [0u8; 32];
    let mut digits = itoa::Buffer::new();
    let bytes = b"/proc/thread-self/fd/".iter().copied().chain(digits.format(descriptor).bytes());
    path.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    let mut target = [0u8; 32];
    // SAFETY: the path ends in a zero, and the buffer has the given size.
    let read = unsafe {
        let (path, target_at) = (path.as_ptr(), target.as_mut_ptr());
        syscalls::syscall!(
            syscalls::Sysno::readlinkat,
            libc::AT_FDCWD,
            path,
            target_at,
            target.len()
        )
    };
    read.is_ok() && target.starts_with(b"anon_inode:bpf")
}
