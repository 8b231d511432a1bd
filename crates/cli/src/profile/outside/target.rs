//! The process to profile, as `/proc` shows it.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use crate::debug_files;
use crate::live_thread::live_thread;
use crate::messages::outside as messages;
use crate::process_file::{self, MappedFile};
use crate::profile::glibc::OWNER;

/// A running process.
pub struct Target {
    /// Process id, as this command sees it.
    pub pid: u32,
    /// Process id in the process's own PID namespace.
    pub own_id: u32,
    /// Inode of that namespace.
    pub namespace: u32,
    /// Path of the program, as the process sees it.
    pub program: PathBuf,
    /// Root directory of the process, if it has another than this command. The descriptor keeps
    /// the process's files reachable after its end.
    root: Option<File>,
    /// Becomes readable when the process ends.
    handle: OwnedFd,
    memory: Option<File>,
}

/// Device and inode of a file that are unknown.
pub const UNKNOWN_FILE: &str = "00:00 0";

/// A mapping of a part of a file that contains code, or the file's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub is_code: bool,
    /// Path of the file, as the process sees it.
    pub path: PathBuf,
    /// The file's device and inode, as in the list of mappings; 0 as the inode if it is unknown.
    pub file: String,
}

impl Target {
    /// Opens a process.
    ///
    /// # Errors
    ///
    /// There is no such process, it is no process that can be profiled, or this command may not
    /// look into it.
    pub fn open(pid: u32) -> anyhow::Result<Self> {
        let Some(handle) = open_handle(pid) else {
            match status_of(pid) {
                Some(status) if status.process != pid => {
                    bail!(messages::is_thread(pid, status.process))
                }
                _ => bail!(messages::no_such_process(pid)),
            }
        };
        let Some(status) = status_of(pid) else { bail!(messages::no_such_process(pid)) };
        let at = |name: &str| PathBuf::from(format!("/proc/{}/{name}", live_thread(pid)));
        let program = match std::fs::read_link(at("exe")) {
            Ok(program) => program,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                bail!(messages::not_permitted(pid))
            }
            // Neither has a program.
            Err(_) if status.is_zombie => bail!(messages::has_ended(pid)),
            Err(_) => bail!(messages::is_kernel_thread(pid)),
        };
        ensure!(std::fs::read(at("maps")).is_ok(), messages::not_permitted(pid));
        ensure!(!is_32_bit(&at("exe")), messages::is_32_bit(pid));
        let namespace = std::fs::metadata(at("ns/pid")).map_or(0, |metadata| metadata.ino() as u32);
        let is_own = |name: &str| {
            let inode = |path: PathBuf| std::fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
            inode(at(name)) == inode(PathBuf::from(format!("/proc/self/{name}")))
        };
        let root = (!is_own("root") || !is_own("ns/mnt"))
            .then(|| {
                let flags = libc::O_PATH | libc::O_CLOEXEC;
                File::options().read(true).custom_flags(flags).open(at("root")).ok()
            })
            .flatten();
        let memory = File::open(at("mem")).ok();
        Ok(Target { pid, own_id: status.own_id, namespace, program, root, handle, memory })
    }

    /// A descriptor that becomes readable when the process ends.
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// The mappings of files; none after the process's end.
    pub fn mapped_files(&self) -> Vec<MappedFile> {
        let maps = std::fs::read(format!("/proc/{}/maps", live_thread(self.pid)));
        MappedFile::of_list(&maps.unwrap_or_default()).collect()
    }

    /// The mappings that contain code or the start of a file.
    pub fn mappings(&self) -> Vec<Mapping> {
        self.mapped_files().into_iter().filter_map(mapping).collect()
    }

    /// Opens a mapped file, also if it has been deleted or replaced since.
    pub fn open_mapped(&self, mapping: &Mapping) -> Option<File> {
        let Mapping { start, end, .. } = mapping;
        let process = format!("/proc/{}", live_thread(self.pid));
        let mapped = format!("{process}/map_files/{start:x}-{end:x}");
        let at_path = || debug_files::open(&self.lasting(mapping)?);
        let program = || {
            let file = debug_files::open(format!("{process}/exe").as_ref())?;
            (mapping.file == file_of(&file.metadata().ok()?)).then_some(file)
        };
        debug_files::open(mapped.as_ref()).or_else(at_path).or_else(program)
    }

    /// The path at which this command reads a mapped file, also after the process's end. For a file
    /// that has been deleted or replaced since, a path in /proc while the process runs.
    pub fn lasting(&self, mapping: &Mapping) -> Option<PathBuf> {
        let Mapping { start, end, .. } = mapping;
        let path = self.readable(&mapping.path);
        if std::fs::metadata(&path).is_ok_and(|it| mapping.may_be(&it)) {
            return Some(path);
        }
        let mapped = format!("/proc/{}/map_files/{start:x}-{end:x}", live_thread(self.pid));
        Some(PathBuf::from(mapped)).filter(|path| path.exists())
    }

    /// The path at which this command reads a file of the process, also after the process's end.
    pub fn readable(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => below(format!("/proc/self/fd/{}", root.as_raw_fd()), path),
            None => path.into(),
        }
    }

    /// The path at which any command reads a file of the process while that runs.
    pub fn public(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(_) => below(format!("/proc/{}/root", live_thread(self.pid)), path),
            None => path.into(),
        }
    }

    /// The ids of the threads: in the process's own PID namespace, and for this command.
    pub fn threads(&self) -> Vec<(u32, u32)> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        let ids = tasks.into_iter().flatten().flatten().filter_map(|task| {
            let id = task.file_name().to_str()?.parse().ok()?;
            let own = if self.own_id == self.pid { id } else { status_of(id)?.own_id };
            Some((own, id))
        });
        ids.collect()
    }

    /// Whether a thread is in the futex system call with this address.
    pub fn waits_at(&self, thread: u32, address: u64) -> bool {
        let call = format!("/proc/{}/task/{thread}/syscall", self.pid);
        let call = std::fs::read_to_string(call).unwrap_or_default();
        let mut fields = call.split_whitespace();
        let number = fields.next().and_then(|number| number.parse().ok());
        number == Some(libc::SYS_futex) && fields.next() == Some(&format!("{address:#x}"))
    }

    /// The thread that owns a mutex of glibc whose futex is at this address, by its id in the
    /// process's own PID namespace; 0 if unknown.
    pub fn owner(&self, address: u64) -> u32 {
        let mut owner = [0; 4];
        let length = self.read(address + OWNER, &mut owner);
        if length == owner.len() { u32::from_ne_bytes(owner) } else { 0 }
    }

    /// Whether this command may read the process's memory. Where Yama restricts that, the process's
    /// user may not.
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Reads memory of the process; returns the number of bytes.
    pub fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let memory = self.memory.as_ref();
        memory.and_then(|memory| memory.read_at(to, address).ok()).unwrap_or(0)
    }
}

/// An absolute path, taken to begin at `root`.
fn below(root: String, path: &Path) -> PathBuf {
    let mut whole = OsString::from(root);
    whole.push(path);
    whole.into()
}

fn open_handle(pid: u32) -> Option<OwnedFd> {
    // SAFETY: the call has no pointers.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: the descriptor is new, and nothing else owns it.
    (handle >= 0).then(|| unsafe { OwnedFd::from_raw_fd(handle as i32) })
}

struct Status {
    process: u32,
    own_id: u32,
    is_zombie: bool,
}

fn status_of(thread: u32) -> Option<Status> {
    let status = process_file::text(format!("/proc/{thread}/status")).ok()?;
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let process = field("Tgid")?.parse().ok()?;
    let own_id = process_file::innermost_id(&status).unwrap_or(thread);
    let is_zombie = field("State").is_some_and(|state| state.starts_with(['Z', 'X']));
    Some(Status { process, own_id, is_zombie })
}

fn is_32_bit(program: &Path) -> bool {
    let mut start = [0; 5];
    File::open(program).and_then(|file| file.read_exact_at(&mut start, 0)).is_ok()
        && start == *b"\x7fELF\x01"
}

/// The mapping of a line of `/proc/PID/maps`; `None` if it is of no use here.
fn mapping(line: MappedFile) -> Option<Mapping> {
    let MappedFile { start, end, access, offset, device, inode, path } = line;
    let is_code = access.contains('x');
    let file = format!("{device} {inode}");
    (is_code || offset == 0).then_some(Mapping { start, end, offset, is_code, path, file })
}

/// A file's device and inode, as in the list of mappings.
fn file_of(found: &Metadata) -> String {
    let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
    format!("{major:02x}:{minor:02x} {}", found.ino())
}

impl Mapping {
    /// Whether the file found at the path may be the mapped one. Some file systems have another
    /// device in the list of mappings; then the inode may be another one too.
    fn may_be(&self, found: &Metadata) -> bool {
        let own = file_of(found);
        let device = |file: &str| file.split(' ').next().map(str::to_string);
        self.file == own || device(&self.file) != device(&own)
    }

    /// The line of `/proc/PID/maps` with another path.
    pub fn line(&self, path: &Path) -> Vec<u8> {
        let Mapping { start, end, offset, is_code, file, .. } = self;
        let access = if *is_code { "r-xp" } else { "r--p" };
        let fields = format!("{start:x}-{end:x} {access} {offset:08x} {file} ");
        [fields.as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::process::Command;

    use super::*;

    #[test]
    fn target_of_this_process_knows_its_program_and_threads() {
        let target = Target::open(std::process::id()).unwrap();
        let program = std::env::current_exe().unwrap();
        assert_eq!(target.program, program);
        let code = target_of as fn() -> u64 as usize as u64;
        let found = target.mappings().into_iter().find(|one| (one.start..one.end).contains(&code));
        let found = found.expect("this function is mapped");
        assert!(found.is_code && found.path == program);
        assert!(target.threads().iter().any(|(_, id)| *id == std::process::id()));
        let (value, mut read) = (target_of(), [0; 8]);
        assert_eq!(target.read((&raw const value).addr() as u64, &mut read), 8);
        assert_eq!(u64::from_ne_bytes(read), value);
    }

    fn target_of() -> u64 {
        0x0123_4567_89ab_cdef
    }

    /// The kernel names a process after its file.
    #[test]
    fn process_and_path_whose_names_are_not_utf_8_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().canonicalize().unwrap().join(OsStr::from_bytes(b"sleep\xff"));
        // Another process writes the file: a child of this one could still have it open.
        assert!(Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap().success());
        let mut child = Command::new(&program).arg("1000").spawn().unwrap();
        // `spawn` returns before the kernel has mapped the program, and that maps libc.
        let maps = format!("/proc/{}/maps", child.id());
        while !std::fs::read(&maps).unwrap().windows(6).any(|text| text == b"libc.s") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let target = Target::open(child.id());
        let found = target.map(|target| {
            let mapping = target.mappings().into_iter().find(|one| one.path == program);
            (target.program.clone(), mapping.and_then(|one| target.lasting(&one)))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.unwrap(), (program.clone(), Some(program)));
    }

    #[test]
    fn replaced_file_is_not_read() {
        let target = Target::open(std::process::id()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib.so");
        std::fs::write(&path, "").unwrap();
        let file = file_of(&path.metadata().unwrap());
        let line = |file: &str| format!("0-1000 r-xp 00000000 {file}    {}", path.display());
        let (device, inode) = file.split_once(' ').unwrap();
        let other = format!("{device} {}", inode.parse::<u64>().unwrap() + 1);
        for (file, expected) in [(&file, Some(path.clone())), (&other, None)] {
            let mapping = MappedFile::parse(line(file).as_bytes()).and_then(mapping).unwrap();
            assert_eq!(target.lasting(&mapping), expected);
            assert_eq!(target.open_mapped(&mapping).is_some(), expected.is_some());
        }
    }

    #[test]
    fn mapping_keeps_path_with_blanks() {
        let mapping = |line: &[u8]| MappedFile::parse(line).and_then(mapping);
        let line = b"7f00-8f00 r-xp 00001000 08:01 55    /opt/a b\xff/lib.so (deleted)";
        let found = mapping(line).unwrap();
        assert_eq!((found.start, found.offset, found.is_code), (0x7f00, 0x1000, true));
        assert_eq!(found.path.as_os_str().as_bytes(), b"/opt/a b\xff/lib.so (deleted)");
        assert_eq!(mapping(found.line(&found.path).trim_ascii()), Some(found));
        assert_eq!(mapping(b"7f00-8f00 rw-p 00000000 00:00 0 [heap]"), None);
        assert_eq!(mapping(b"7f00-8f00 rw-p 00002000 08:01 55 /lib.so"), None);
    }
}
