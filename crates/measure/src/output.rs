//! Results on standard output and in files. A failed write, such as on a full disk, is an error and
//! not a panic as with `print!`.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::messages;

/// Writes `text` to standard output. A closed pipe is an error.
///
/// # Errors
///
/// The text cannot be written completely.
pub fn print_all(text: impl AsRef<[u8]>) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_ref())?;
    stdout.flush()
}

/// Writes `text` to standard output and ignores a closed pipe (`| head`).
///
/// # Errors
///
/// The text cannot be written.
pub fn print(text: &str) -> std::io::Result<()> {
    match print_all(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints a line to standard error. A closed standard error is ignored, so that the results are not
/// lost.
pub fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "unconvoy: {line}");
}

/// Appends a suffix. `Path::with_extension` would turn `figure-0.5` into `figure-0.json`.
pub fn with_suffix(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// Writes a file atomically: it appears under its name once complete.
///
/// # Errors
///
/// The file cannot be written; an existing file is unchanged.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // Follow a link instead of replacing it, and write to a device or pipe directly.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if target.exists() && !target.is_file() {
        return fs::write(target, bytes);
    }
    let unfinished = with_suffix(&target, ".unfinished");
    let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, &target));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// As [`replace`], and creates the file's directory.
///
/// # Errors
///
/// As [`replace`], with the file's name.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory)
            .with_context(|| messages::cannot_make_directory(directory))?;
    }
    replace(path, text.as_ref()).with_context(|| messages::cannot_write(path))
}

/// Checks that a file beside `path` can be created, and creates its directory. Long measurements
/// call this first, so that their results are not lost.
///
/// # Errors
///
/// As [`write`].
pub fn can_write(path: &Path) -> anyhow::Result<()> {
    let trial = with_suffix(path, ".unfinished");
    write(&trial, "")?;
    fs::remove_file(&trial).with_context(|| messages::cannot_remove(&trial))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_suffix_keeps_dots_in_the_name() {
        assert_eq!(with_suffix(Path::new("a/run.1"), ".json"), Path::new("a/run.1.json"));
    }

    #[test]
    fn can_write_leaves_only_the_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("sub/r.1");
        can_write(&file).expect("it can");
        let made = fs::read_dir(directory.path().join("sub")).expect("made").count();
        fs::write(&file, "").expect("written");
        assert!(made == 0 && can_write(&file.join("below")).is_err());
    }

    #[test]
    fn failed_write_keeps_former_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("sub/file");
        write(&file, "one").expect("made with its directory");
        assert!(write(&file.join("below"), "two").is_err());
        assert_eq!(fs::read_to_string(&file).expect("still there"), "one");
    }
}
