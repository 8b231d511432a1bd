//! cpio archives in the "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst
//! of the kernel's source): the initramfs for the guest, and the results that the guest writes to a
//! raw disk.

/// Identifies the format.
const MAGIC: &[u8; 6] = b"070701";
/// The magic and thirteen numbers of eight hexadecimal digits.
const HEAD: usize = 6 + 13 * 8;
/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// Bits of `mode`, as in stat(2).
const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive under construction.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

impl Archive {
    /// Adds a directory. Its parents must be in the archive already.
    pub fn directory(&mut self, path: &str) {
        self.add(path, DIRECTORY | 0o755, &[], (0, 0));
    }

    /// Adds an executable file.
    pub fn program(&mut self, path: &str, contents: &[u8]) {
        self.add(path, FILE | 0o755, contents, (0, 0));
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, to: &str) {
        self.add(path, LINK | 0o777, to.as_bytes(), (0, 0));
    }

    /// Adds a character device with the given major and minor number.
    pub fn device(&mut self, path: &str, number: (u32, u32)) {
        self.add(path, CHARACTER_DEVICE | 0o600, &[], number);
    }

    /// Ends the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.add(TRAILER, 0, &[], (0, 0));
        self.bytes
    }

    fn add(&mut self, path: &str, mode: u32, contents: &[u8], (major, minor): (u32, u32)) {
        self.files += 1;
        let size = u32::try_from(contents.len()).expect("files in an initramfs are below 4 GiB");
        let name = u32::try_from(path.len() + 1).expect("paths are short");
        self.bytes.extend_from_slice(MAGIC);
        // Inode, mode, owner, group, links, time, size, device (major, minor), device file's number
        // (major, minor), length of the name with its terminator, checksum.
        for number in [self.files, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name, 0] {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Returns the complete files of an archive. A file that the guest did not finish is left out.
pub fn files(mut archive: &[u8]) -> Vec<(&str, &[u8])> {
    let mut files = Vec::new();
    while let Some((name, contents, rest)) = first(archive) {
        if name == TRAILER {
            break;
        }
        files.push((name, contents));
        archive = rest;
    }
    files
}

/// Returns the first file's name and contents, and the rest of the archive.
fn first(archive: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let head = archive.get(..HEAD)?;
    let number = |index: usize| {
        let digits = std::str::from_utf8(&head[6 + 8 * index..][..8]).ok()?;
        usize::from_str_radix(digits, 16).ok()
    };
    let (size, name) = (number(6)?, number(11)?);
    if &head[..6] != MAGIC || name == 0 {
        return None;
    }
    let contents = (HEAD + name).next_multiple_of(4);
    let end = contents.checked_add(size)?;
    let name = std::str::from_utf8(archive.get(HEAD..HEAD + name - 1)?).ok()?;
    Some((
        name,
        archive.get(contents..end)?,
        archive.get(end.next_multiple_of(4)..).unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Vec<u8> {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.program("bin/a", b"contents");
        archive.link("bin/b", "a");
        archive.device("console", (5, 1));
        archive.finish()
    }

    #[test]
    fn files_returns_what_was_added() {
        let archive = archive();
        assert_eq!(archive.len() % 4, 0);
        let files = files(&archive);
        assert_eq!(
            files,
            [("bin", &b""[..]), ("bin/a", b"contents"), ("bin/b", b"a"), ("console", b"")]
        );
    }

    #[test]
    fn files_of_truncated_archive_returns_complete_ones() {
        let archive = archive();
        for length in 0..archive.len() {
            let files = files(&archive[..length]);
            assert!(files.len() <= 4 && files.iter().all(|(name, _)| name.starts_with(['b', 'c'])));
        }
        assert!(files(b"no archive at all").is_empty());
        assert!(files(&[0; 4096]).is_empty());
    }

    #[test]
    #[ignore = "make test-all: needs busybox"]
    fn busybox_lists_archive() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let unpack = Command::new("busybox")
            .args(["cpio", "-t"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut unpack) = unpack else {
            eprintln!("missing: busybox is not installed (apt-get install busybox-static)");
            return;
        };
        unpack.stdin.take().unwrap().write_all(&archive()).unwrap();
        let listed = unpack.wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8(listed).unwrap(), "bin\nbin/a\nbin/b\nconsole\n");
    }
}
