//! Files below `/proc` that describe a process. The names in them, of the program, of its threads
//! and of the mapped files, need not be UTF-8.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Reads a file. Bytes that are not UTF-8 become U+FFFD.
///
/// # Errors
///
/// The process is gone, or this command may not look into it.
pub fn text(file: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(file)?).into_owned())
}

/// The id of a thread in its own PID namespace; `None` if the thread is gone, or if the kernel has
/// no such namespaces.
pub fn own_id(thread: u32) -> Option<u32> {
    innermost_id(&text(format!("/proc/{thread}/status")).ok()?)
}

/// The id in the innermost PID namespace, from a thread's `status`.
pub fn innermost_id(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().last()?.parse().ok()
}

/// The path that a process has for a file which this command reads below that process's root:
/// `/proc/self/fd/N` while the root is open, or `/proc/PID/root`.
pub fn own_path(path: &Path) -> PathBuf {
    let is_number = |name: &str| name.bytes().all(|digit| digit.is_ascii_digit());
    let parts: Vec<_> = path.iter().map(OsStr::to_string_lossy).take(5).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let root = match parts[..] {
        ["/", "proc", "self", "fd", number] if is_number(number) => 5,
        ["/", "proc", process, "root", ..] if is_number(process) => 4,
        _ => return path.into(),
    };
    Path::new("/").join(path.iter().skip(root).collect::<PathBuf>())
}

/// Whether a mapped file is the interposer. An upgrade replaces the file under a running program.
pub fn is_interposer(mapped: &Path) -> bool {
    let path = mapped.as_os_str().as_bytes();
    path.strip_suffix(b" (deleted)").unwrap_or(path).ends_with(b"/libunconvoy.so")
}

/// A line of `/proc/PID/maps` that has a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    pub start: u64,
    pub end: u64,
    /// Such as `r-xp`.
    pub access: String,
    pub offset: u64,
    /// Such as `08:01`.
    pub device: String,
    /// For a System V segment, its identifier.
    pub inode: String,
    /// As the process sees it.
    pub path: PathBuf,
}

impl MappedFile {
    /// Parses a line; `None` if it has no path.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let slash = line.iter().position(|&byte| byte == b'/')?;
        let (fields, path) = line.split_at(slash);
        let mut fields = str::from_utf8(fields).ok()?.split_whitespace();
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let (start, end) = fields.next()?.split_once('-')?;
        Some(MappedFile {
            start: number(start)?,
            end: number(end)?,
            access: fields.next()?.to_string(),
            offset: number(fields.next()?)?,
            device: fields.next()?.to_string(),
            inode: fields.next()?.to_string(),
            path: OsStr::from_bytes(path).into(),
        })
    }

    /// Parses each line of a list.
    pub fn of_list(maps: &[u8]) -> impl Iterator<Item = Self> {
        maps.split(|&byte| byte == b'\n').filter_map(Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_id_is_the_innermost() {
        let thread = nix::unistd::gettid().as_raw().cast_unsigned();
        assert_eq!(own_id(thread), Some(thread));
        let of_container = "Name:\tserver\nTgid:\t4711\nNSpid:\t4711\t12\t1\n";
        assert_eq!(innermost_id(of_container), Some(1));
        assert_eq!(innermost_id("Name:\tserver\n"), None);
    }

    #[test]
    fn own_path_has_no_root() {
        for (read, own) in [
            ("/proc/self/fd/4/usr/bin/server", "/usr/bin/server"),
            ("/proc/4711/root/usr/bin/server", "/usr/bin/server"),
            ("/proc/self/fd/x/server", "/proc/self/fd/x/server"),
            ("/proc/4711/exe", "/proc/4711/exe"),
            ("/usr/bin/server", "/usr/bin/server"),
            ("server", "server"),
        ] {
            assert_eq!(own_path(Path::new(read)), Path::new(own));
        }
    }

    #[test]
    fn path_keeps_blanks_and_bytes_that_are_not_utf_8() {
        let list = b"1000-2000 r-xp 00000200 08:01 55    /a b\xff/lib.so (deleted)\n\
                     7f00-8f00 rw-p 00000000 00:00 0 [heap]\n";
        let found: Vec<MappedFile> = MappedFile::of_list(list).collect();
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((one.start, one.end, one.offset), (0x1000, 0x2000, 0x200));
        assert_eq!((&*one.access, &*one.device, &*one.inode), ("r-xp", "08:01", "55"));
        assert_eq!(one.path.as_os_str().as_bytes(), b"/a b\xff/lib.so (deleted)");
    }
}
