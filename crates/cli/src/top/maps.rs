//! What is mapped in a process.

use std::path::PathBuf;

use crate::live_thread::live_thread;

/// File name of the interposer.
const INTERPOSER: &str = "/libunconvoy.so";

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
    pub fn parse(line: &str) -> Option<Self> {
        let path = &line[line.find('/')?..];
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        Some(Mapped {
            start: number(start)?,
            end: number(end)?,
            inode: fields.nth(3)?.parse().ok()?,
            path: path.into(),
        })
    }

    /// The identifier of the System V segment that is mapped here.
    pub fn segment(&self) -> Option<i32> {
        let is_segment = self.path.to_str().is_some_and(|path| path.starts_with("/SYSV"));
        is_segment.then(|| i32::try_from(self.inode).ok()).flatten()
    }

    pub fn is_interposer(&self) -> bool {
        self.path.to_str().is_some_and(|path| path.ends_with(INTERPOSER))
    }
}

/// The mappings of files and segments.
///
/// # Errors
///
/// The process is gone, or this command may not look into it.
pub fn read(pid: u32) -> std::io::Result<Vec<Mapped>> {
    let maps = std::fs::read(format!("/proc/{}/maps", live_thread(pid)))?;
    Ok(String::from_utf8_lossy(&maps).lines().filter_map(Mapped::parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_is_known_by_its_inode() {
        let line = "7f00-8f00 rw-s 00000000 00:01 20     /SYSV00000000 (deleted)";
        assert_eq!(Mapped::parse(line).unwrap().segment(), Some(20));
        let line = "7f00-8f00 r-xp 00001000 08:01 55    /opt/a b/libunconvoy.so";
        let mapped = Mapped::parse(line).unwrap();
        assert!(mapped.is_interposer() && mapped.segment().is_none());
        assert_eq!(Mapped::parse("7f00-8f00 rw-p 00000000 00:00 0 [heap]"), None);
    }
}
