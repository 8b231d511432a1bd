//! Creates the file with all its blocks, so that a full disk is an error here and not a fault when
//! a thread writes to the mapping.
//!
//! This code may run inside a lock operation of a child process, so it neither allocates nor
//! changes `errno`.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{Relaxed, Release};

use syscalls::{Errno, Sysno, syscall};
use unconvoy_locks::primitive::{Clock as _, Native, native};
use unconvoy_profile::Profile;
use unconvoy_profile::layout::{MAGIC, VERSION};

use crate::chosen::pair;
use crate::{identity, output};

use super::{shared, stack};

/// Longest path, with its terminating zero, as in the kernel.
const PATH_MAX: usize = 4096;

const SIZE: usize = size_of::<Profile>();

/// Number of files of other processes to remove, which may appear as fast as they are removed.
const MOST_TRIES: u32 = 10_000;

/// Room for the file's path, and then for the program's. A signal handler's stack may be too short
/// for it.
struct Room(UnsafeCell<[u8; PATH_MAX]>);

// SAFETY: only `create` uses it, and only one thread at a time calls `create`.
unsafe impl Sync for Room {}

static ROOM: Room = Room(UnsafeCell::new([0; PATH_MAX]));

/// A path that ends in a zero.
struct Path<'a>(&'a [u8; PATH_MAX]);

impl<'a> Path<'a> {
    /// The file of this process: `path`, or `path.PID`. `None` if it is too long.
    fn of_process(path: &str, bytes: &'a mut [u8; PATH_MAX]) -> Option<Self> {
        let mut number = itoa::Buffer::new();
        bytes.fill(0);
        let mut length = 0;
        let mut append = |text: &str| {
            bytes.get_mut(length..length + text.len())?.copy_from_slice(text.as_bytes());
            length += text.len();
            Some(())
        };
        append(path)?;
        if output::is_descendant() {
            append(".")?;
            append(number.format(identity::process()))?;
        }
        (length < PATH_MAX).then_some(Path(bytes))
    }
}

/// Creates the file of this process, with its header. `is_of_libc` says that libc serves the locks.
/// An error is the kernel's error number.
///
/// # Safety
///
/// Only one thread calls this at a time.
pub(super) unsafe fn create(path: &str, is_of_libc: bool) -> Result<&'static Profile, c_int> {
    // SAFETY: as the caller promises.
    let room = unsafe { &mut *ROOM.0.get() };
    let path = Path::of_process(path, room).ok_or(libc::ENAMETOOLONG)?;
    let profile = map(&path).map_err(Errno::into_raw)?;
    fill_header(profile, room, is_of_libc);
    Ok(profile)
}

/// Fills the header of a table in memory.
///
/// # Safety
///
/// Only one thread calls this or [`create`] at a time.
pub(super) unsafe fn describe(profile: &Profile, is_of_libc: bool) {
    // SAFETY: as the caller promises.
    fill_header(profile, unsafe { &mut *ROOM.0.get() }, is_of_libc);
}

/// Replaces the mapping of the parent's profile by memory, in the child of a `fork`.
pub(super) fn detach(profile: &'static Profile) {
    shared::detach(core::ptr::from_ref(profile).expose_provenance(), SIZE);
}

/// Opens a new, empty file. An old file of that name is removed and not truncated: after a
/// truncation, `SIGBUS` would kill a process that has mapped it. Where the old file cannot be
/// removed, it is truncated only if no other process records into it, which would hold its lock.
fn open(path: &Path<'_>) -> Result<usize, Errno> {
    let path = path.0.as_ptr();
    let create = |more| {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | more;
        // SAFETY: the path ends in a zero.
        unsafe { syscall!(Sysno::openat, libc::AT_FDCWD, path, flags, 0o666) }
    };
    for _ in 0..MOST_TRIES {
        match create(libc::O_EXCL).and_then(lock_new) {
            Err(Errno::EEXIST | Errno::EWOULDBLOCK) => {}
            result => return result,
        }
        match remove(path) {
            Ok(()) | Err(Errno::ENOENT) => {} // removed here or by another process
            Err(_) => break,
        }
    }
    let file = create(0)?;
    // SAFETY: this module owns the descriptor.
    let emptied = lock(file).and_then(|()| unsafe { syscall!(Sysno::ftruncate, file, 0) });
    emptied.map(|_| file).inspect_err(|_| close(file))
}

/// Removes a regular file; refuses everything else.
fn remove(path: *const u8) -> Result<(), Errno> {
    let mut old = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path ends in a zero, and the kernel fills `old`.
    let kind = unsafe {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        syscall!(Sysno::newfstatat, libc::AT_FDCWD, path, old.as_mut_ptr(), flags)?;
        old.assume_init().st_mode & libc::S_IFMT
    };
    if kind != libc::S_IFREG {
        return Err(Errno::EPERM);
    }
    // SAFETY: as before.
    unsafe { syscall!(Sysno::unlinkat, libc::AT_FDCWD, path, 0) }.map(|_| ())
}

/// Locks the file for as long as this process has mapped it.
fn lock(file: usize) -> Result<(), Errno> {
    // SAFETY: this module owns the descriptor.
    let locked = unsafe { syscall!(Sysno::flock, file, libc::LOCK_EX | libc::LOCK_NB) };
    locked.map(|_| ())
}

/// Locks a new file, unless another process has locked it first. On a file system without locks, it
/// needs none.
fn lock_new(file: usize) -> Result<usize, Errno> {
    match lock(file) {
        Err(Errno::EWOULDBLOCK) => {
            close(file);
            Err(Errno::EWOULDBLOCK)
        }
        _ => Ok(file),
    }
}

fn close(file: usize) {
    // SAFETY: this module owns the descriptor, which is not used again.
    let _ = unsafe { syscall!(Sysno::close, file) };
}

fn map(path: &Path<'_>) -> Result<&'static Profile, Errno> {
    let file = open(path)?;
    let mapped = reserve(file).and_then(|()| {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, of a file of that size.
        unsafe { syscall!(Sysno::mmap, 0, SIZE, protection, libc::MAP_SHARED, file, 0) }
    });
    if mapped.is_err() {
        // SAFETY: this function owns the descriptor.
        let _ = unsafe { syscall!(Sysno::ftruncate, file, 0) };
    }
    close(file);
    // SAFETY: the mapping has the profile's size, reads as zeroes, and stays.
    mapped.map(|at| unsafe { &*core::ptr::with_exposed_provenance(at) })
}

/// Allocates the file's blocks, by writing zeroes if the file system cannot reserve them.
fn reserve(file: usize) -> Result<(), Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // Beyond the limit the kernel would also send a signal. SAFETY: the call writes `limit` only.
    let known = unsafe { syscall!(Sysno::prlimit64, 0, libc::RLIMIT_FSIZE, 0, &raw mut limit) };
    if known.is_ok() && limit.rlim_cur < SIZE as libc::rlim_t {
        return Err(Errno::EFBIG);
    }
    // A signal interrupts both calls on some file systems.
    loop {
        // SAFETY: this module owns the descriptor.
        match unsafe { syscall!(Sysno::fallocate, file, 0, 0, SIZE) } {
            Err(Errno::EINTR) => {}
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => break,
            result => return result.map(|_| ()),
        }
    }
    static ZEROES: [u8; 1 << 16] = [0; 1 << 16];
    let mut at = 0;
    while at < SIZE {
        let length = ZEROES.len().min(SIZE - at);
        // SAFETY: the buffer has `length` bytes.
        match unsafe { syscall!(Sysno::pwrite64, file, ZEROES.as_ptr(), length, at) } {
            Err(Errno::EINTR) => {}
            written => at += written?,
        }
    }
    Ok(())
}

fn fill_header(profile: &Profile, room: &mut [u8; PATH_MAX], is_of_libc: bool) {
    let header = &profile.header;
    let text = |to: &[AtomicU8], from: &[u8]| {
        to.iter().zip(from).for_each(|(to, &byte)| to.store(byte, Relaxed));
    };
    let program = &mut room[..profile.header.program.len() - 1];
    let path = c"/proc/thread-self/exe".as_ptr();
    // SAFETY: the kernel writes at most that many bytes.
    let length = unsafe {
        syscall!(Sysno::readlinkat, libc::AT_FDCWD, path, program.as_mut_ptr(), program.len())
    };
    text(&header.program, &program[..length.unwrap_or(0)]);
    if is_of_libc {
        text(&header.lock, b"libc");
    } else {
        text(&header.lock, pair().lock.as_bytes());
        text(&header.load, pair().load.as_bytes());
    }
    header.version.store(VERSION, Relaxed);
    header.pid.store(identity::process(), Relaxed);
    header.size.store(SIZE as u64, Relaxed);
    header.unwinds.store(u32::from(stack::unwinds()), Relaxed);
    header.begin_unix_ns.store(native::clock(libc::CLOCK_REALTIME), Relaxed);
    let now = Native::now();
    header.begin_ns.store(now, Relaxed);
    header.last_ns.store(now, Relaxed);
    header.magic.store(MAGIC, Release);
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _};
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    /// One process used to truncate the file that another had just mapped; others got no file.
    #[test]
    fn files_created_at_the_same_time_stay_whole() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("profile");
        let mut bytes = [0; PATH_MAX];
        bytes[..path.as_os_str().len()].copy_from_slice(path.as_os_str().as_bytes());
        let create = || {
            for _ in 0..2_000 {
                let file = open(&Path(&bytes)).expect("a file");
                reserve(file).expect("room on the disk");
                // SAFETY: opened above, and not used again.
                let file = unsafe { File::from_raw_fd(c_int::try_from(file).expect("small")) };
                assert_eq!(file.metadata().expect("an open file").len(), SIZE as u64);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(create))));
    }

    #[test]
    fn new_file_that_another_process_has_locked_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("profile");
        let file = |file: File| file.into_raw_fd() as usize;
        let new = file(File::create(&path).expect("a file"));
        let other = File::open(&path).expect("the same file");
        lock(other.as_raw_fd() as usize).expect("no other lock");
        assert_eq!(lock_new(new), Err(Errno::EWOULDBLOCK));
        drop(other);
        let new = file(File::open(&path).expect("the same file"));
        assert_eq!(lock_new(new), Ok(new));
        close(new);
    }
}
