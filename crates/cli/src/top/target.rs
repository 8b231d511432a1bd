//! Finds the page of a process, and the processes that have one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use anyhow::bail;
use object::{Object, ObjectSymbol, ReadCache};
use unconvoy::catalogue::environment;
use unconvoy_profile::Profile;
use unconvoy_profile::page::{MAGIC, Page, SIZE, VERSION};

use super::maps::{self, Mapped};
use super::segment::{self, Shared};
use crate::debug_files;
use crate::live_thread::{has_ended, live_thread};
use crate::messages::{outside, top as messages};
use crate::process_file;

/// A process that shows itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publishing {
    /// Process id.
    pub pid: u32,
    /// Program and arguments.
    pub command: String,
    /// Number of threads.
    pub threads: u32,
    /// Contention manager and load manager.
    pub served: String,
}

/// A running process.
pub(super) struct Target {
    pub pid: u32,
    /// Becomes readable when the process ends.
    handle: OwnedFd,
    /// Whether the process has the same root directory as this command.
    has_own_root: bool,
}

impl Target {
    /// Opens a process that this command may look into.
    pub fn open(pid: u32) -> anyhow::Result<Self> {
        // SAFETY: the call has no pointers.
        let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if handle < 0 {
            match number(pid, "Tgid") {
                Some(process) if process != pid => bail!(messages::is_thread(pid, process)),
                _ => bail!(outside::no_such_process(pid)),
            }
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let handle = unsafe { OwnedFd::from_raw_fd(handle as i32) };
        let mapped = match maps::read(pid) {
            Ok(mapped) => mapped,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!(not_permitted(pid))
            }
            Err(_) => bail!(outside::no_such_process(pid)),
        };
        if mapped.is_empty() {
            bail!(match has_ended(pid) {
                true => outside::has_ended(pid),
                false => outside::is_kernel_thread(pid),
            });
        }
        if !mapped.iter().any(Mapped::is_interposer) {
            bail!(messages::is_not_under_unconvoy(pid));
        }
        enter_ipc_namespace(pid)?;
        let at = |name: &str| PathBuf::from(format!("/proc/{}/{name}", live_thread(pid)));
        let is_own = |name: &str| {
            let inode = |path: PathBuf| std::fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
            inode(at(name)) == inode(PathBuf::from(format!("/proc/self/{name}")))
        };
        let has_own_root = is_own("root") && is_own("ns/mnt");
        Ok(Target { pid, handle, has_own_root })
    }

    pub fn has_ended(&self) -> bool {
        let mut poll =
            libc::pollfd { fd: self.handle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    /// The place of a file of the process for this command.
    pub fn path(&self, path: &Path) -> PathBuf {
        if self.has_own_root {
            return path.to_path_buf();
        }
        let root = PathBuf::from(format!("/proc/{}/root", live_thread(self.pid)));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The process's page and the identifier of its segment; `None` if it has none yet.
    pub fn page(&self, mapped: &[Mapped]) -> anyhow::Result<Option<(i32, Shared<Page>)>> {
        for id in mapped.iter().filter_map(Mapped::segment) {
            match page_of(self.pid, id) {
                Ok(Some(page)) => return Ok(Some((id, page))),
                Ok(None) => {}
                Err(NotAttached::OtherVersion(version)) => {
                    bail!(messages::other_version(self.pid, version))
                }
                Err(NotAttached::Error(error)) => {
                    bail!(messages::cannot_attach(self.pid, &error))
                }
            }
        }
        Ok(None)
    }

    /// The table at an address in the process.
    pub fn table(&self, mapped: &[Mapped], address: u64) -> anyhow::Result<Shared<Profile>> {
        let found = mapped.iter().find(|one| (one.start..one.end).contains(&address));
        let Some(found) = found else { bail!(messages::has_no_table(self.pid)) };
        // SAFETY: a profile consists of atomics and numbers.
        let table = unsafe {
            match found.segment() {
                Some(id) => segment::facts(id).and_then(|it| segment::attach(id, it.size, false)),
                None => segment::map(&self.path(&found.path)),
            }
        };
        table.map_err(|error| anyhow::anyhow!(messages::cannot_attach(self.pid, &error)))
    }

    /// Whether the process's libgcc unwinds without the dynamic linker's lock.
    pub fn has_lock_free_unwinder(&self, mapped: &[Mapped]) -> bool {
        let libgcc = mapped.iter().find(|one| one.path.ends_with("libgcc_s.so.1"));
        let file = libgcc.and_then(|one| debug_files::open(&self.path(&one.path)));
        let file = file.map(ReadCache::new);
        let file = file.as_ref().and_then(|file| object::File::parse(file).ok());
        file.is_some_and(|file| {
            let mut symbols = file.dynamic_symbols();
            symbols.any(|it| it.is_undefined() && it.name() == Ok("_dl_find_object"))
        })
    }

    /// Whether the process was started with a request to be hidden.
    pub fn hides_itself(&self) -> bool {
        let hides = format!("{}=0", environment::TOP.name);
        let variables = std::fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        variables.split(|&byte| byte == 0).any(|variable| variable == hides.as_bytes())
    }

    /// Whether a filter checks the process's system calls.
    pub fn is_filtered(&self) -> bool {
        number(live_thread(self.pid), "Seccomp").is_some_and(|mode| mode != 0)
    }
}

/// Why a segment is not attached.
enum NotAttached {
    OtherVersion(u32),
    Error(io::Error),
}

/// The page in a segment that the process created; `None` if it is not a page of that process.
fn page_of(pid: u32, id: i32) -> Result<Option<Shared<Page>>, NotAttached> {
    let facts = match segment::facts(id) {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(NotAttached::Error(error));
        }
        Err(_) => return Ok(None),
    };
    if facts.size != SIZE || facts.creator != pid {
        return Ok(None);
    }
    // SAFETY: a page consists of atomics.
    let page: Shared<Page> =
        unsafe { segment::attach(id, facts.size, true) }.map_err(NotAttached::Error)?;
    if page.magic.load(Acquire) != MAGIC {
        return Ok(None);
    }
    match page.version.load(Relaxed) {
        VERSION => Ok(Some(page)),
        other => Err(NotAttached::OtherVersion(other)),
    }
}

fn not_permitted(pid: u32) -> String {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
    // The kernel gives the directory of a process that is not dumpable to root.
    let user = number(pid, "Uid");
    // SAFETY: no preconditions.
    let own = unsafe { libc::geteuid() };
    match user.or(owner.ok()) {
        Some(user) if user != own => messages::belongs_to_another_user(pid, user),
        _ => messages::is_not_dumpable(pid),
    }
}

/// A number in `/proc/PID/status`.
fn number(pid: u32, name: &str) -> Option<u32> {
    let status = process_file::text(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

/// Identifiers of segments belong to a namespace: enters that of the process.
fn enter_ipc_namespace(pid: u32) -> anyhow::Result<()> {
    let place = format!("/proc/{}/ns/ipc", live_thread(pid));
    let inode = |path: &str| std::fs::metadata(path).map(|it| it.ino()).ok();
    if inode(&place) == inode("/proc/self/ns/ipc") {
        return Ok(());
    }
    let entered = File::open(&place).and_then(|namespace| {
        // SAFETY: the descriptor is open.
        match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWIPC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    if entered.is_err() {
        bail!(messages::is_in_another_ipc_namespace(pid));
    }
    Ok(())
}

/// The processes that show themselves and that this user may watch. Only root sees those in other
/// IPC namespaces.
pub fn publishing() -> Vec<Publishing> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Publishing> =
        processes.filter_map(|entry| shown(entry.file_name().to_str()?.parse().ok()?)).collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn shown(pid: u32) -> Option<Publishing> {
    let mapped = maps::read(pid).ok()?;
    if !mapped.iter().any(Mapped::is_interposer) {
        return None;
    }
    enter_ipc_namespace(pid).ok()?;
    let mut ids = mapped.iter().filter_map(Mapped::segment);
    let page = ids.find_map(|id| page_of(pid, id).ok().flatten())?;
    let command = std::fs::read(format!("/proc/{}/cmdline", live_thread(pid))).unwrap_or_default();
    let command: String = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_string();
    Some(Publishing {
        pid,
        command: command.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        threads: number(pid, "Threads").unwrap_or(0),
        served: format!("{}+{}", text(&page.lock), text(&page.load)),
    })
}

/// A text that is padded with zeroes.
pub(super) fn text(bytes: &[AtomicU8]) -> String {
    let bytes = bytes.iter().map(|byte| byte.load(Relaxed)).take_while(|&byte| byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}
