//! Files that a command reads: up to a limit, so that a device that never ends takes no memory.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};
use std::path::Path;

use crate::messages;

/// Largest file that a command wrote, such as a record, in bytes.
pub const RECORD: u64 = 64 << 20;

/// Largest file that a person wrote, such as a strategy, in bytes.
pub const TEXT: u64 = 1 << 20;

/// Reads a file or a pipe of at most `most` bytes.
///
/// # Errors
///
/// It cannot be read, or has more bytes.
pub fn read(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::other(messages::file_too_long(most)));
    }
    Ok(bytes)
}

/// As [`read`], for UTF-8.
///
/// # Errors
///
/// As [`read`], and for other bytes.
pub fn read_text(path: &Path, most: u64) -> std::io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, messages::not_utf_8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_up_to_the_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        std::fs::write(&file, "four").expect("written");
        assert_eq!(read_text(&file, 4).expect("short enough"), "four");
        assert!(read(&file, 3).is_err() && read(directory.path(), 3).is_err());
        std::fs::write(&file, b"\xff").expect("written");
        assert!(read_text(&file, 4).expect_err("no text").to_string().contains("UTF-8"));
    }

    #[test]
    fn endless_device_is_an_error_with_the_limit() {
        let error = read(Path::new("/dev/zero"), TEXT).expect_err("it has no end");
        assert_eq!(error.to_string(), "it is longer than 1 MiB, the most that is read");
    }
}
