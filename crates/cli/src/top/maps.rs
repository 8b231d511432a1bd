//! What is mapped in a process.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::live_thread::live_thread;
use crate::process_file::{self, MappedFile};

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    pub start: u64,
    pub end: u64,
    /// For a System V segment, its identifier.
    pub inode: u64,
    pub path: PathBuf,
}

impl Mapped {
    pub fn of(line: MappedFile) -> Option<Self> {
        let MappedFile { start, end, inode, path, .. } = line;
        Some(Mapped { start, end, inode: inode.parse().ok()?, path })
    }

    /// The identifier of the System V segment that is mapped here.
    pub fn segment(&self) -> Option<i32> {
        let is_segment = self.path.as_os_str().as_bytes().starts_with(b"/SYSV");
        is_segment.then(|| i32::try_from(self.inode).ok()).flatten()
    }

    pub fn is_interposer(&self) -> bool {
        process_file::is_interposer(&self.path)
    }
}

/// The mappings of files and segments.
///
/// # Errors
///
/// The process is gone, or this command may not look into it.
pub fn read(pid: u32) -> std::io::Result<Vec<Mapped>> {
    let maps = std::fs::read(format!("/proc/{}/maps", live_thread(pid)))?;
    Ok(MappedFile::of_list(&maps).filter_map(Mapped::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_is_known_by_its_inode() {
        let mapped = |line: &[u8]| MappedFile::parse(line).and_then(Mapped::of);
        let line = b"7f00-8f00 rw-s 00000000 00:01 20     /SYSV00000000 (deleted)";
        assert_eq!(mapped(line).unwrap().segment(), Some(20));
        let line = b"7f00-8f00 r-xp 00001000 08:01 55    /opt/a b\xff/libunconvoy.so";
        let library = mapped(line).unwrap();
        assert!(library.is_interposer() && library.segment().is_none());
        let line = b"7f00-8f00 r-xp 00001000 08:01 55    /opt/libunconvoy.so (deleted)";
        assert!(mapped(line).unwrap().is_interposer());
        assert_eq!(mapped(b"7f00-8f00 rw-p 00000000 00:00 0 [heap]"), None);
    }
}
