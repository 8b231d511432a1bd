//! System V shared memory of another process.
//!
//! The kernel says which process created a segment. A process that only inherited one is therefore
//! never taken for its creator, whatever its id was.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

use crate::debug_files;

/// Shared memory with a `T`, which consists of atomics.
pub struct Shared<T> {
    at: *mut libc::c_void,
    /// Whether the memory is a mapped file instead of a segment.
    is_file: bool,
    holds: PhantomData<T>,
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the memory has at least a `T`'s size, for which all bytes are valid, and stays
        // until this is dropped.
        unsafe { &*self.at.cast() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: this owns the mapping.
        unsafe {
            if self.is_file {
                libc::munmap(self.at, size_of::<T>());
            } else {
                libc::shmdt(self.at);
            }
        }
    }
}

/// What the kernel knows of a segment.
pub struct Facts {
    pub size: usize,
    pub creator: u32,
}

/// Looks a segment up.
pub fn facts(id: i32) -> io::Result<Facts> {
    let mut found = MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: the kernel fills `found`, for which zeroes are valid.
    unsafe {
        if libc::shmctl(id, libc::IPC_STAT, found.as_mut_ptr()) == -1 {
            return Err(io::Error::last_os_error());
        }
        let found = found.assume_init();
        Ok(Facts { size: found.shm_segsz, creator: found.shm_cpid.cast_unsigned() })
    }
}

/// Attaches a segment of at least `size` bytes. The caller may write to it only if `is_written`.
///
/// # Safety
///
/// All bytes are valid for `T`, which consists of atomics.
pub unsafe fn attach<T>(id: i32, size: usize, is_written: bool) -> io::Result<Shared<T>> {
    if size < size_of::<T>() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let flags = if is_written { 0 } else { libc::SHM_RDONLY };
    // SAFETY: the kernel chooses free addresses.
    let at = unsafe { libc::shmat(id, ptr::null(), flags) };
    if at.addr() == usize::MAX {
        return Err(io::Error::last_os_error());
    }
    Ok(Shared { at, is_file: false, holds: PhantomData })
}

/// Maps a file.
///
/// # Safety
///
/// As [`attach`].
pub unsafe fn map<T>(path: &Path) -> io::Result<Shared<T>> {
    let file = debug_files::open(path).ok_or(io::ErrorKind::InvalidInput)?;
    if file.metadata()?.len() < size_of::<T>() as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: a new mapping.
    let at = unsafe {
        let file = file.as_raw_fd();
        libc::mmap(ptr::null_mut(), size_of::<T>(), libc::PROT_READ, libc::MAP_SHARED, file, 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(Shared { at, is_file: true, holds: PhantomData })
}
