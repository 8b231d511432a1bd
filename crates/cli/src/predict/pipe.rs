//! The stream from the emulator: a named pipe, so that the trace takes no disk space and the
//! analysis runs concurrently.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

/// Interval of polling for a writer, and for the end of a writer that left the pipe open.
const NAP: Duration = Duration::from_millis(20);

/// The pipe's reading end. The stream ends when the writer's process has ended and the pipe is
/// empty. Other processes, such as the program's children, may still have the writing end open, and
/// a writer may never have opened it.
pub struct Pipe<'a> {
    file: File,
    writer_has_ended: &'a AtomicBool,
}

impl<'a> Pipe<'a> {
    /// Creates the pipe.
    ///
    /// # Errors
    ///
    /// The file system does not support named pipes, or no space is left.
    pub fn make(path: &Path, writer_has_ended: &'a AtomicBool) -> io::Result<Self> {
        nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Open without blocking: a writer may never come.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok(Self { file, writer_has_ended })
    }
}

impl Read for Pipe<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // Read the flag before the pipe, so that everything written before the end is seen.
            let ended = self.writer_has_ended.load(Ordering::Acquire);
            match self.file.read(into) {
                Ok(0) if ended => return Ok(0),
                // No writer has opened the pipe yet.
                Ok(0) => std::thread::sleep(NAP),
                Err(error) if error.kind() == ErrorKind::WouldBlock && ended => return Ok(0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let nap = PollTimeout::try_from(NAP).unwrap_or(PollTimeout::ZERO);
                    let _ = poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], nap);
                }
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn read_ends_with_writer_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let ended = AtomicBool::new(false);
        let mut pipe = Pipe::make(&path, &ended).unwrap();
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"all").unwrap();
        let mut got = [0; 3];
        pipe.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"all");
        writer.write_all(b"left").unwrap();
        ended.store(true, Ordering::Release);
        // `writer` is still open.
        let mut rest = Vec::new();
        pipe.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"left");
    }

    #[test]
    fn read_without_writer_ends() {
        let folder = tempfile::tempdir().unwrap();
        let ended = AtomicBool::new(true);
        let mut pipe = Pipe::make(&folder.path().join("pipe"), &ended).unwrap();
        assert_eq!(pipe.read(&mut [0; 8]).unwrap(), 0);
    }
}
