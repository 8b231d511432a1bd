//! A file descriptor that the controller's thread can close. libc's `close`, which the standard
//! library calls, is a cancellation point and reads a thread control block that this thread lacks.

use core::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags};

/// Parses `digits` as a decimal number, as `/proc` writes it; `None` unless all bytes are digits.
/// Wraps beyond 64 bits.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        byte.is_ascii_digit().then(|| number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')))
    })
}

/// A file or directory opened for reading.
pub(crate) struct File(RawFd);

impl File {
    pub(crate) fn open(path: &CStr) -> Option<Self> {
        Self::open_in(CWD, path, OFlags::empty())
    }

    pub(super) fn open_directory(path: &CStr) -> Option<Self> {
        Self::open_in(CWD, path, OFlags::DIRECTORY)
    }

    /// Opens a file below the directory `self`.
    pub(super) fn open_below(&self, path: &CStr) -> Option<Self> {
        Self::open_in(self.borrow(), path, OFlags::empty())
    }

    fn open_in(directory: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> Option<Self> {
        let file = rustix::fs::openat(
            directory,
            path,
            flags | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        Some(File(file.into_raw_fd()))
    }

    pub(super) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open until `self` is dropped.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    /// Reads from the start of the file. Returns the number of bytes read.
    pub(crate) fn read_into(&self, buffer: &mut [u8]) -> Option<usize> {
        rustix::io::pread(self.borrow(), buffer, 0).ok()
    }

    /// The byte after the first occurrence of `text`, whose first byte occurs in it only once.
    /// Needs little stack, unlike a buffer for the file.
    pub(crate) fn byte_after(&self, text: &[u8]) -> Option<u8> {
        let (mut buffer, mut at, mut matched) = ([0; 128], 0, 0);
        loop {
            let length = rustix::io::pread(self.borrow(), &mut buffer, at).ok()?;
            if length == 0 {
                return None;
            }
            for &byte in &buffer[..length] {
                match text.get(matched) {
                    None => return Some(byte),
                    Some(&next) if next == byte => matched += 1,
                    Some(_) => matched = usize::from(byte == text[0]),
                }
            }
            at += length as u64;
        }
    }
}

/// A file that is read repeatedly.
pub(super) struct Source {
    open: fn() -> Option<File>,
    /// The descriptor, if it stays open between readings.
    kept: Option<File>,
}

impl Source {
    /// A source that `open` opens, once with `keep_open`, else for each reading. `None` if `open`
    /// fails now.
    pub(super) fn new(open: fn() -> Option<File>, keep_open: bool) -> Option<Self> {
        let file = open()?;
        Some(Source { open, kept: keep_open.then_some(file) })
    }

    /// See [`File::read_into`].
    pub(super) fn read_into(&self, buffer: &mut [u8]) -> Option<usize> {
        match &self.kept {
            Some(file) => file.read_into(buffer),
            None => (self.open)()?.read_into(buffer),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: `self` owns the descriptor and ends here. An error loses nothing on a file that
        // was only read.
        let _ = unsafe { syscalls::syscall!(syscalls::Sysno::close, self.borrow().as_raw_fd()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_with_other_characters_is_none() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"1234567890123"), Some(1_234_567_890_123));
        for wrong in [&b""[..], b"12 ", b"-1", b".."] {
            assert_eq!(decimal(wrong), None);
        }
    }
}
