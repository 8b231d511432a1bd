//! Finds the files that were mapped in a process.
//!
//! A file may have been replaced since: the new file has other names at the same addresses. While
//! the process lives, the kernel still has the old file.
//!
//! On some file systems the list of mappings and `stat` disagree on the device, and perhaps on the
//! inode (overlayfs before Linux 6.8, btrfs). There only the file's times show whether another file
//! has replaced it.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use unconvoy_profile::{Mapping, Recorded};

use crate::live_thread::live_thread;

/// The place at which the file of a mapping can be read; `None` if it is gone. `path` is the file's
/// path for this command.
pub fn locate(recorded: &Recorded, one: &Mapping, path: &Path) -> Option<PathBuf> {
    let is_there = !one.is_deleted
        && std::fs::metadata(path).is_ok_and(|found| {
            let begin_ns = recorded.begin_unix_ns;
            is_same(one, &found, (begin_ns, begin_ns + recorded.wall_ns))
        });
    if is_there {
        return Some(path.to_path_buf());
    }
    let kept = [format!("map_files/{:x}-{:x}", one.start, one.end), "exe".to_string()];
    let process = live_thread(recorded.pid);
    let mut kept = kept.into_iter().map(|name| format!("/proc/{process}/{name}").into());
    // The process's id may be another process's by now.
    let is_same = |path: &PathBuf| {
        let found = std::fs::metadata(path);
        found.is_ok_and(|it| (it.ino(), it.dev()) == (one.inode, one.device))
    };
    kept.find(|path| one.inode != 0 && is_same(path))
}

/// The names of the mapped files that are gone, or that other files have replaced.
pub fn gone(recorded: &Recorded, path: impl Fn(&Path) -> PathBuf) -> BTreeSet<String> {
    let starts = recorded.mappings.iter().filter(|one| one.offset == 0);
    let gone = starts.filter(|one| locate(recorded, one, &path(&one.path)).is_none());
    let names = gone.filter_map(|one| one.path.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// Whether the file of a mapping is still the one that was found at its path. The recording began
/// and ended at these times since 1970; the beginning is 0 if it is unknown.
fn is_same(one: &Mapping, found: &Metadata, (begin_ns, end_ns): (u64, u64)) -> bool {
    let at = |seconds: i64, ns: i64| (seconds * 1_000_000_000 + ns).cast_unsigned();
    let changed_by = |limit: u64| begin_ns == 0 || at(found.ctime(), found.ctime_nsec()) <= limit;
    let written_by = |limit: u64| begin_ns == 0 || at(found.mtime(), found.mtime_nsec()) <= limit;
    match (found.ino() == one.inode, found.dev() == one.device) {
        _ if one.inode == 0 => true, // unknown
        (true, _) => written_by(end_ns),
        (false, true) => false,
        (false, false) => changed_by(begin_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_file_is_not_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, "old").unwrap();
        let found = std::fs::metadata(&path).unwrap();
        let one = Mapping {
            start: 0x1000,
            end: 0x2000,
            offset: 0,
            path: path.clone(),
            device: found.dev(),
            inode: found.ino(),
            is_deleted: false,
        };
        let written = found.mtime() as u64 * 1_000_000_000 + found.mtime_nsec() as u64;
        let times = (written + 1, written + 2);
        assert!(is_same(&one, &found, times));
        assert!(!is_same(&one, &found, (written - 2, written - 1)), "written later");
        let other = Mapping { inode: one.inode + 1, ..one.clone() };
        assert!(!is_same(&other, &found, times));
        // Another device: the file's times decide.
        let other = Mapping { device: one.device + 1, ..other };
        assert!(is_same(&other, &found, times));
        assert!(!is_same(&other, &found, (written - 1, written + 2)));
        assert!(is_same(&Mapping { inode: 0, ..one }, &found, (1, 2)), "unknown");
    }
}
