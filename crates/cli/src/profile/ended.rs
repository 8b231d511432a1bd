//! The files of processes that have ended, 10 MB each. A program may start processes without end,
//! so only those stay that the report needs: those of the processes that waited longest.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

/// Time between two looks for ended processes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The files that stay.
pub struct Ended {
    /// By path, the inode and how long the process waited.
    files: BTreeMap<PathBuf, (u64, [u64; 2])>,
    most: usize,
}

impl Ended {
    /// No files yet; `most` are to stay.
    pub fn keeping(most: usize) -> Self {
        Ended { files: BTreeMap::new(), most }
    }

    /// The inode of the file at `path`, if it is known.
    pub fn inode(&self, path: &Path) -> Option<u64> {
        self.files.get(path).map(|(inode, _)| *inode)
    }

    /// Forgets the file at `path`, which another process has replaced.
    pub fn forget(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// Adds a file, and removes those of the processes that waited least.
    pub fn add(&mut self, path: PathBuf, inode: u64, waited_ns: [u64; 2]) {
        self.files.insert(path, (inode, waited_ns));
        while self.files.len() > self.most {
            let least = self.files.iter().min_by_key(|(_, (_, waited_ns))| waited_ns);
            let Some(path) = least.map(|(path, _)| path.clone()) else { break };
            self.files.remove(&path);
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Whether the process that recorded into FILE.PID has ended. A process locks its file for as long
/// as it has mapped it, but not at once, and its id may be of another PID namespace.
pub fn has_ended(path: &Path) -> bool {
    let pid = path.extension().unwrap_or_default();
    let file = File::open(path);
    let is_known = Path::new("/proc").join(pid).exists();
    !is_known && file.is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok())
}

/// A thread that removes files while the program runs.
pub struct Pruner {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Pruner {
    /// Starts to remove files. The process that the command starts records into `file`, which
    /// stays; `files` lists the files of all processes, and `waited_ns` says how long one waited.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        file: PathBuf,
        most: usize,
        files: impl Fn() -> Vec<PathBuf> + Send + 'static,
        waited_ns: fn(&Path) -> [u64; 2],
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let ended = Ended::keeping(most);
        let builder = std::thread::Builder::new().name("files".into());
        let thread = builder.spawn(move || prune(&file, ended, &stopped, files, waited_ns))?;
        Ok(Pruner { stop, thread })
    }

    /// Ends the thread.
    pub fn finish(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

fn prune(
    file: &Path,
    mut ended: Ended,
    stopped: &Receiver<()>,
    files: impl Fn() -> Vec<PathBuf>,
    waited_ns: fn(&Path) -> [u64; 2],
) {
    while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        for path in files() {
            let inode = path.metadata().map_or(0, |metadata| metadata.ino());
            if path != file && ended.inode(&path) != Some(inode) && has_ended(&path) {
                let waited_ns = waited_ns(&path);
                ended.add(path, inode, waited_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn files_of_processes_that_waited_least_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // No process has such an id.
        for (name, waited) in [("profile", "1"), ("profile.4200001", "3"), ("profile.4200002", "8")]
        {
            std::fs::write(path(name), waited).unwrap();
        }
        let at = folder.path().to_path_buf();
        let files =
            move || std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()).collect();
        let waited = |path: &Path| [std::fs::read_to_string(path).unwrap().parse().unwrap(), 0];
        let pruner = Pruner::start(path("profile"), 1, files, waited).unwrap();
        let begin = Instant::now();
        while path("profile.4200001").exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the file stays");
            std::thread::sleep(Duration::from_millis(10));
        }
        pruner.finish();
        assert!(path("profile").exists() && path("profile.4200002").exists());
    }
}
