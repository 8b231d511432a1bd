//! Checksums of row groups.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// A row group's byte range and the CRC-32 of its bytes, stored as text in the table of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    pub start: u64,
    pub end: u64,
    pub crc: u32,
}

impl Checksum {
    /// The metadata key of a row group's checksum.
    pub fn key(group: usize) -> String {
        format!("unconvoy.group.{group}")
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let (start, end) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let crc = u32::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(Checksum { start, end, crc })
    }

    /// Whether the file's bytes in the range have this checksum.
    pub fn holds(&self, file: &File) -> io::Result<bool> {
        let mut hasher = crc32fast::Hasher::new();
        let mut piece = vec![0; PIECE];
        let mut at = self.start;
        while at < self.end {
            let length = usize::try_from(self.end - at).unwrap_or(PIECE).min(PIECE);
            match file.read_exact_at(&mut piece[..length], at) {
                Ok(()) => hasher.update(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                Err(error) => return Err(error),
            }
            at += length as u64;
        }
        Ok(hasher.finalize() == self.crc)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        write!(to, "{} {} {:08x}", self.start, self.end, self.crc)
    }
}

/// A writer that computes the checksum of the bytes written through it.
pub(crate) struct Summed<W> {
    pub to: W,
    written: u64,
    start: u64,
    hasher: crc32fast::Hasher,
}

impl<W> Summed<W> {
    pub fn new(to: W) -> Self {
        Summed { to, written: 0, start: 0, hasher: crc32fast::Hasher::new() }
    }

    /// Starts a new checksum.
    pub fn start(&mut self) {
        self.start = self.written;
        self.hasher.reset();
    }

    /// The checksum of the bytes since [`start`](Summed::start).
    pub fn checksum(&self) -> Checksum {
        Checksum { start: self.start, end: self.written, crc: self.hasher.clone().finalize() }
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
