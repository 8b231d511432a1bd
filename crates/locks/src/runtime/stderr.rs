//! Lines on standard error, from inside a program that does not expect them.

use core::fmt::{self, Write as _};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use syscalls::{Sysno, syscall};

/// Capacity of a line, its break included.
const CAPACITY: usize = 512;

/// One line for standard error, cut at 511 bytes. It is a buffer on the stack: the library may
/// print it inside a program's malloc or with a lock held, so neither formatting nor printing
/// allocates or locks.
pub struct Line {
    bytes: [u8; CAPACITY],
    length: usize,
}

impl Line {
    /// A line that begins with the library's name.
    pub fn new(text: fmt::Arguments<'_>) -> Self {
        let mut line = Line { bytes: [0; CAPACITY], length: 0 };
        let _ = write!(line, "unconvoy: {text}"); // `write_str` never fails
        line
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    /// Prints the line, unless the program uses the descriptor of standard error for data.
    pub fn print(mut self) {
        let (text, rest) = self.bytes.split_at_mut(self.length);
        // A variable's value must not break the line.
        text.iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b'?');
        rest[0] = b'\n';
        if is_for_messages() && has_room() {
            let line = &self.bytes[..=self.length];
            // SAFETY: the line is valid for its length. A failed write cannot be reported.
            let write = || unsafe { syscall!(Sysno::write, 2, line.as_ptr(), line.len()) };
            let _ = without_signals(write);
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..CAPACITY - 1];
        let fits = text.len().min(room.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}

/// Device and inode of standard error at the start; the inode is 0 if not recorded, and [`NONE`] if
/// there was none.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
const NONE: u64 = u64::MAX;

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = remember_standard_error;

fn standard_error() -> BorrowedFd<'static> {
    // SAFETY: calls with this descriptor fail if it is closed.
    unsafe { BorrowedFd::borrow_raw(2) }
}

/// Records which file standard error is. Runs before `main`, or as the library is loaded: later, a
/// daemon may have given its descriptor to a client. A constructor that prints calls it first. Only
/// the first call has an effect.
pub extern "C" fn remember_standard_error() {
    if INODE.load(Relaxed) != 0 {
        return;
    }
    let (device, inode) = fstat(standard_error()).map_or((0, NONE), |it| (it.st_dev, it.st_ino));
    DEVICE.store(device, Relaxed);
    INODE.store(inode, Relaxed);
}

/// Whether descriptor 2 takes messages: it is the standard error of the start, a terminal, or a
/// file that lines are appended to. A daemon may have closed it, and opened a data file under its
/// number.
fn is_for_messages() -> bool {
    let Ok(file) = fstat(standard_error()) else { return false };
    (INODE.load(Relaxed), DEVICE.load(Relaxed)) == (file.st_ino, file.st_dev)
        || match FileType::from_raw_mode(file.st_mode) {
            FileType::CharacterDevice => true,
            FileType::RegularFile => {
                fcntl_getfl(standard_error()).is_ok_and(|flags| flags.contains(OFlags::APPEND))
            }
            _ => false,
        }
}

/// Whether a write does not wait: the reader of a full pipe may need a lock that the caller holds.
/// One that is only slow gets a moment. A regular file always has room.
fn has_room() -> bool {
    if fstat(standard_error()).is_ok_and(|it| FileType::from_raw_mode(it.st_mode).is_file()) {
        return true;
    }
    let moment = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    let stderr = standard_error();
    let mut set = [PollFd::new(&stderr, PollFlags::OUT)];
    poll(&mut set, Some(&moment)) != Ok(0)
}

/// Signals that a write raises in its thread: a pipe without a reader, a file beyond its limit.
const RAISED_BY_WRITES: u64 = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);

/// Calls `write`, and discards a signal that the write raises: the signal would end the program.
/// One that is pending already is the program's.
pub fn without_signals<T, E>(write: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    const SIZE: usize = size_of::<u64>();
    let at_once = [0_u64; 2];
    let (mut before, mut pending, mask) = (0_u64, 0_u64, RAISED_BY_WRITES);
    // SAFETY: the kernel's signal sets have 64 bits, and a time has two words.
    unsafe {
        let (block, old) = (libc::SIG_BLOCK, &raw mut before);
        let is_blocked = syscall!(Sysno::rt_sigprocmask, block, &raw const mask, old, SIZE).is_ok();
        // No call that filters of system calls may forbid, if none is needed.
        if is_blocked && before & mask != 0 {
            let _ = syscall!(Sysno::rt_sigpending, &raw mut pending, SIZE);
        }
        let result = write();
        if is_blocked {
            // Only a failed write raises a signal.
            let none = core::ptr::null_mut::<u8>();
            let (raised, time) = (mask & !pending, &raw const at_once);
            while result.is_err()
                && syscall!(Sysno::rt_sigtimedwait, &raw const raised, none, time, SIZE).is_ok()
            {
            }
            let _ = syscall!(Sysno::rt_sigprocmask, libc::SIG_SETMASK, old, none, SIZE);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn standard_error_is_known_before_the_first_use_of_a_lock() {
        assert_ne!(INODE.load(Relaxed), 0);
    }

    #[test]
    fn long_line_is_cut() {
        let line = Line::new(format_args!("{}", "x".repeat(600)));
        assert_eq!(line.text().len(), CAPACITY - 1);
        line.print();
    }

    #[test]
    fn signal_of_the_program_stays_pending() {
        // SAFETY: of this thread only; restored below.
        unsafe {
            let (mut pipe, mut before) = (core::mem::zeroed(), core::mem::zeroed());
            libc::sigemptyset(&raw mut pipe);
            libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
            libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE);
            assert!(without_signals(|| Err::<(), ()>(())).is_err());
            let time = core::mem::zeroed();
            let taken = libc::sigtimedwait(&raw const pipe, core::ptr::null_mut(), &raw const time);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
            assert_eq!(taken, libc::SIGPIPE);
        }
    }

    #[test]
    fn write_into_a_pipe_without_reader_only_fails() {
        // SAFETY: restores what the test harness's runtime has set for this signal.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        for _ in 0..2 {
            let error = without_signals(|| writer.write(b"x")).expect_err("nobody reads");
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        }
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
