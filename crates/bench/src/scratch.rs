//! A directory for temporary files: those of a kernel workload, or the results that a run passes to
//! this process. It is removed when the benchmark ends, even if a killed program left files in it.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::statvfs::statvfs;
use unconvoy_measure::interrupt::Interrupts;

use crate::messages;

/// File system in memory, because the benchmarks measure the kernel and not a disk.
const MEMORY: &str = "/dev/shm";

/// Attempts at removal, about a second's worth, because killed programs may still be writing.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// A temporary directory, removed with its contents when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates the directory in `directory`; by default in memory if possible, else in the
    /// temporary directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be created, or less than `bytes` is free.
    pub fn make(directory: Option<&Path>, bytes: u64) -> anyhow::Result<Self> {
        // Install the handlers now: from here on a signal must not end the process without cleanup.
        Interrupts::of_process()?;
        let memory = Path::new(MEMORY);
        let below = match directory {
            Some(named) => named.to_path_buf(),
            None if memory.is_dir() => memory.to_path_buf(),
            None => std::env::temp_dir(),
        };
        let space = statvfs(&below).with_context(|| messages::cannot_read_free_space(&below))?;
        let free = space.blocks_available() * space.fragment_size();
        ensure!(free >= bytes, messages::no_space(&below, bytes.div_ceil(1 << 20), free >> 20));
        let path =
            below.join(format!("unconvoy-bench-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        fs::create_dir(&path).with_context(|| messages::cannot_create_directory(&below))?;
        Ok(Self { path })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A program killed a moment ago may still be writing. If removal fails for good, leave the
        // directory: the results matter more.
        for _ in 0..TRIES {
            match fs::remove_dir_all(&self.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => thread::sleep(BETWEEN_TRIES),
                _ => break,
            }
        }
    }
}

/// Checks that `program` is an existing path or a name in `PATH`. `package` is the package to
/// install.
///
/// # Errors
///
/// The program does not exist.
pub fn installed(program: &str, package: &str) -> anyhow::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ensure!(is_found(program, &path), messages::not_installed(program, package));
    Ok(())
}

fn is_found(program: &str, path: &OsStr) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    std::env::split_paths(path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_removes_directory_with_contents() {
        let directory = tempfile::tempdir().expect("a directory");
        let scratch = Scratch::make(Some(directory.path()), 1).expect("made");
        fs::create_dir(scratch.path().join("left")).expect("made");
        fs::write(scratch.path().join("left/file"), "x").expect("written");
        drop(scratch);
        assert_eq!(fs::read_dir(directory.path()).expect("read").count(), 0);
    }

    #[test]
    fn make_names_missing_space_or_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let full =
            Scratch::make(Some(directory.path()), u64::MAX).expect_err("too much").to_string();
        assert!(full.contains("no space") && full.contains("--directory"), "{full}");
        let missing =
            Scratch::make(Some(&directory.path().join("nosuch")), 0).expect_err("not there");
        assert!(format!("{missing:#}").contains("nosuch"), "{missing:#}");
    }

    #[test]
    fn is_found_accepts_names_and_paths() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("tool");
        fs::write(&file, "").expect("written");
        assert!(
            is_found("tool", directory.path().as_os_str())
                && is_found(&file.display().to_string(), OsStr::new(""))
        );
        assert!(
            !is_found("tool", OsStr::new("/nosuch"))
                && !is_found("/nosuch/tool", directory.path().as_os_str())
        );
    }
}
