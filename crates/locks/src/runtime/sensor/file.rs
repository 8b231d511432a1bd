//! A file descriptor that the controller's thread may close: the standard library closes through
//! libc, whose `close` is a cancellation point and looks at a thread control block that this thread
//! has not got.

use core::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags};

/// The decimal number that is all of `digits`, as `/proc` writes them; what exceeds 64 bits is lost.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        byte.is_ascii_digit().then(|| number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')))
    })
}

/// An open file or directory, for reading.
pub(crate) struct File(RawFd);

impl File {
    pub(crate) fn open(path: &CStr) -> Option<Self> {
        Self::open_in(CWD, path, OFlags::empty())
    }

    pub(super) fn open_directory(path: &CStr) -> Option<Self> {
        Self::open_in(CWD, path, OFlags::DIRECTORY)
    }

    /// Opens a file below `self`, which is a directory.
    pub(super) fn open_below(&self, path: &CStr) -> Option<Self> {
        Self::open_in(self.borrow(), path, OFlags::empty())
    }

    fn open_in(directory: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> Option<Self> {
        let file = rustix::fs::openat(directory, path, flags | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some(File(file.into_raw_fd()))
    }

    pub(super) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: open until dropped.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    /// Reads from the beginning; how much of `buffer` was filled.
    pub(crate) fn read_into(&self, buffer: &mut [u8]) -> Option<usize> {
        rustix::io::pread(self.borrow(), buffer, 0).ok()
    }
}

/// A file that is read again and again.
pub(super) struct Source {
    open: fn() -> Option<File>,
    /// The descriptor, if it may be kept.
    kept: Option<File>,
}

impl Source {
    /// What `open` opens, if it can; with `keep_open` once, else for each reading.
    pub(super) fn new(open: fn() -> Option<File>, keep_open: bool) -> Option<Self> {
        let file = open()?;
        Some(Source { open, kept: keep_open.then_some(file) })
    }

    /// As [`File::read_into`].
    pub(super) fn read_into(&self, buffer: &mut [u8]) -> Option<usize> {
        match &self.kept {
            Some(file) => file.read_into(buffer),
            None => (self.open)()?.read_into(buffer),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: ours, and not used again. Closing a file that was only read cannot lose anything.
        let _ = unsafe { syscalls::syscall!(syscalls::Sysno::close, self.borrow().as_raw_fd()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_nothing_else() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"1234567890123"), Some(1_234_567_890_123));
        for wrong in [&b""[..], b"12 ", b"-1", b".."] {
            assert_eq!(decimal(wrong), None);
        }
    }
}
