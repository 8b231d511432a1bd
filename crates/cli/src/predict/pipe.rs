//! The stream's way from the emulator: a named pipe, so that a trace takes no space and the analysis runs along.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

/// How long we wait between looks for somebody who writes, or for an end that no writer tells.
const NAP: Duration = Duration::from_millis(20);

/// The end that is read. It has ended when the writer's process has ended and nothing is left, whether or not somebody still has the other end open, as the
/// program's children may, and whether or not anybody ever had.
pub struct Pipe<'a> {
    file: File,
    writer_has_ended: &'a AtomicBool,
}

impl<'a> Pipe<'a> {
    /// Makes the pipe.
    ///
    /// # Errors
    ///
    /// The file system has no such pipes, or no space.
    pub fn make(path: &Path, writer_has_ended: &'a AtomicBool) -> io::Result<Self> {
        nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Else opening would wait for a writer, who may never come.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok(Self { file, writer_has_ended })
    }
}

impl Read for Pipe<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // Asked before reading: what was written before the end is there then.
            let ended = self.writer_has_ended.load(Ordering::Acquire);
            match self.file.read(into) {
                Ok(0) if ended => return Ok(0),
                // Nobody writes yet.
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
    fn it_ends_with_its_writer() {
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
        // Somebody else still has it open.
        let mut rest = Vec::new();
        pipe.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"left");
    }

    #[test]
    fn nobody_ever_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let ended = AtomicBool::new(true);
        let mut pipe = Pipe::make(&folder.path().join("pipe"), &ended).unwrap();
        assert_eq!(pipe.read(&mut [0; 8]).unwrap(), 0);
    }
}
