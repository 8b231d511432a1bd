//! The kernel's count of this process's runnable threads, for the `bpf` sensor: taken over from `unconvoy run`,
//! which had it set up before it became this program.
//!
//! `UNCONVOY_BPF=PROCESS:FIRST:COUNT` says for which process the kernel counts, and which descriptors keep it
//! counting: FIRST is the map with the count, the others are links.
//!
//! The process keeps them also when it becomes another program (`exec`): what was started may be a script that
//! ends by that. Its children have no use for them and would keep the kernel counting when it is gone. They close
//! them where this library runs in them: after a `fork`, or as the program that they become. Where it does not
//! (a static program), the descriptors are left until that ends.

use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::FdFlags;
use unconvoy_locks::catalogue::environment;
use unconvoy_locks::runtime::sensor::bpf;

use crate::variables::{is_on, variable};

/// The first of the descriptors and how many they are; 0: none.
static FIRST: AtomicI32 = AtomicI32::new(0);
static NUMBER: AtomicI32 = AtomicI32::new(0);

/// Whom the variable speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Another,
}

/// Takes the count over, if there is one. Allocates nothing.
pub(crate) fn adopt() -> Option<Whose> {
    let mut fields = variable(&environment::BPF)?.split(':').map(str::parse::<RawFd>);
    let (process, first, number) = (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
    FIRST.store(first, Relaxed);
    NUMBER.store(number, Relaxed);
    if process != rustix::process::getpid().as_raw_nonzero().get() {
        leave();
        return Some(Whose::Another);
    }
    if descriptors().all(is_bpf) {
        // SAFETY: open, as was just seen.
        bpf::adopt(unsafe { BorrowedFd::borrow_raw(first) });
    }
    if !is_on(&environment::CHILDREN) {
        for descriptor in descriptors().filter(|&descriptor| is_bpf(descriptor)) {
            // SAFETY: as above.
            let _ = rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(descriptor) }, FdFlags::CLOEXEC);
        }
    }
    Some(Whose::Ours)
}

/// Closes what this process, which is not the one that is counted for, has of it.
pub(crate) fn leave() {
    for descriptor in descriptors().filter(|&descriptor| is_bpf(descriptor)) {
        // SAFETY: nobody here knows of it: it was inherited from the process that is counted for.
        let _ = unsafe { syscalls::syscall!(syscalls::Sysno::close, descriptor) };
    }
    NUMBER.store(0, Relaxed);
}

fn descriptors() -> impl Iterator<Item = RawFd> {
    let first = FIRST.load(Relaxed);
    (0..NUMBER.load(Relaxed)).map(move |place| first + place).filter(|&descriptor| descriptor > 2)
}

/// Whether that descriptor is the kernel's, of a map or a link: the program may have closed it and opened something
/// else.
fn is_bpf(descriptor: RawFd) -> bool {
    let mut path = [0u8; 32];
    let mut digits = itoa::Buffer::new();
    let bytes = b"/proc/self/fd/".iter().copied().chain(digits.format(descriptor).bytes());
    path.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    let mut target = [0u8; 32];
    // SAFETY: a path that ends in a zero, and a buffer of the size that is given.
    let read = unsafe {
        let (path, target_at) = (path.as_ptr(), target.as_mut_ptr());
        syscalls::syscall!(syscalls::Sysno::readlinkat, libc::AT_FDCWD, path, target_at, target.len())
    };
    read.is_ok() && target.starts_with(b"anon_inode:bpf")
}
