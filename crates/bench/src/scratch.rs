//! A directory for files that nobody wants to keep: those of a load on the kernel, or what a run leaves for this process to read. It goes when the benchmark ends, whatever a program that had to be killed left in it.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::statvfs::statvfs;
use unconvoy_measure::interrupt::Interrupts;

/// Memory: what is measured is the kernel, not a disk.
const MEMORY: &str = "/dev/shm";

/// Tries to remove what others may still be filling: a second's worth.
const TRIES: u32 = 50;
/// Between two of them.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// A directory of its own; dropped, it is removed with all that is in it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes it in `directory`; without one in memory where there is a file system for that, else where temporary files go.
    ///
    /// # Errors
    ///
    /// It cannot be made there, or there is less room than `bytes`.
    pub fn make(directory: Option<&Path>, bytes: u64) -> anyhow::Result<Self> {
        // From here on a signal must not end this process where it stands.
        Interrupts::of_process()?;
        let memory = Path::new(MEMORY);
        let below = match directory {
            Some(named) => named.to_path_buf(),
            None if memory.is_dir() => memory.to_path_buf(),
            None => std::env::temp_dir(),
        };
        let shown = below.display();
        let space = statvfs(&below).with_context(|| format!("cannot look at the directory {shown}"))?;
        let free = space.blocks_available() * space.fragment_size();
        ensure!(
            free >= bytes,
            "no space: {} MB are needed in {shown}, which has {}; --directory names another, and other options or fewer --tasks make it less",
            bytes.div_ceil(1 << 20),
            free >> 20
        );
        let path = below.join(format!("unconvoy-bench-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        fs::create_dir(&path)
            .with_context(|| format!("cannot make a directory in {shown} (--directory names another)"))?;
        Ok(Self { path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whoever was killed a moment ago may still be writing. What cannot be removed at all stays: results are worth more than an exit status that says so.
        for _ in 0..TRIES {
            match fs::remove_dir_all(&self.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => thread::sleep(BETWEEN_TRIES),
                _ => break,
            }
        }
    }
}

/// Fails unless `program` is a path of a file or a name that `PATH` finds; `package` is what to install.
///
/// # Errors
///
/// It is not there.
pub fn installed(program: &str, package: &str) -> anyhow::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ensure!(is_found(program, &path), "{program} is not installed: apt-get install {package}");
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
    fn nothing_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let scratch = Scratch::make(Some(directory.path()), 1).expect("made");
        fs::create_dir(scratch.path().join("left")).expect("made");
        fs::write(scratch.path().join("left/file"), "x").expect("written");
        drop(scratch);
        assert_eq!(fs::read_dir(directory.path()).expect("read").count(), 0);
    }

    #[test]
    fn too_small_or_missing_is_said() {
        let directory = tempfile::tempdir().expect("a directory");
        let full = Scratch::make(Some(directory.path()), u64::MAX).expect_err("too much").to_string();
        assert!(full.contains("no space") && full.contains("--directory"), "{full}");
        let missing = Scratch::make(Some(&directory.path().join("nosuch")), 0).expect_err("not there");
        assert!(format!("{missing:#}").contains("nosuch"), "{missing:#}");
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("tool");
        fs::write(&file, "").expect("written");
        assert!(
            is_found("tool", directory.path().as_os_str()) && is_found(&file.display().to_string(), OsStr::new(""))
        );
        assert!(!is_found("tool", OsStr::new("/nosuch")) && !is_found("/nosuch/tool", directory.path().as_os_str()));
    }
}
