//! Files with the debug information of stripped programs and libraries.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use object::{Object, ReadCache};
use unconvoy::catalogue::environment::{self, Variable};

/// Opens a file whose name somebody else chose: a mapped file of a profile, or a debug file. A pipe
/// or a device under that name would block the command, or never end.
pub fn open(path: &Path) -> Option<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|it| it.is_file()).then_some(file)
}

/// Finds a file's separate debug file by build id, as gdb does ("Separate Debug Files" in its
/// manual), or in the cache of `debuginfod-find`.
pub fn separate(file: &ReadCache<File>) -> Option<PathBuf> {
    by_build_id(object::File::parse(file).ok()?.build_id().ok()??)
}

/// Finds the file that has the information which several debug files share (`dwz -m`).
pub fn supplement(debug_file: &Path) -> Option<PathBuf> {
    let cache = ReadCache::new(open(debug_file)?);
    let (name, id) = object::File::parse(&cache).ok()?.gnu_debugaltlink().ok()??;
    let beside = debug_file.parent()?.join(OsStr::from_bytes(name));
    by_build_id(id).or_else(|| Some(beside).filter(|path| is_there(path)))
}

fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = id.split_at_checked(2)?;
    let installed = PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"));
    let fetched = debuginfod_cache().map(|cache| cache.join(&id).join("debuginfo"));
    [Some(installed), fetched].into_iter().flatten().find(|path| is_there(path))
}

/// Whether a file has content. `debuginfod-find` remembers by an empty file that no server has it.
fn is_there(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.is_file() && it.len() > 0)
}

/// The cache of `debuginfod-find` (debuginfod_find_debuginfo(3), "Environment variables").
fn debuginfod_cache() -> Option<PathBuf> {
    let named = |variable: Variable| {
        std::env::var_os(variable.name).filter(|it| !it.is_empty()).map(PathBuf::from)
    };
    named(environment::DEBUG_FILES)
        .or_else(|| Some(named(environment::CACHE)?.join("debuginfod_client")))
        .or_else(|| Some(named(environment::HOME)?.join(".cache/debuginfod_client")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_refuses_pipes_and_devices() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(open(&pipe).is_none() && open(Path::new("/dev/zero")).is_none());
        assert!(open(directory.path()).is_none());
        assert!(open(&std::env::current_exe().unwrap()).is_some());
    }
}
