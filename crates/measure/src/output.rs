//! Results on standard output and in files, a failure (a full disk) being an error and not a panic as with `print!`.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Writes `text` to standard output, a reader that has gone being an error.
///
/// # Errors
///
/// It cannot be written to its end.
pub fn print_all(text: impl AsRef<[u8]>) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_ref())?;
    stdout.flush()
}

/// Writes `text` to standard output. A reader that has gone (`| head`) has seen enough.
///
/// # Errors
///
/// It cannot be written.
pub fn print(text: &str) -> std::io::Result<()> {
    match print_all(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// A line on standard error, which may be closed: that must not cost the results.
pub fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "unconvoy: {line}");
}

/// Appends, where `Path::with_extension` would cut `figure-0.5` short.
pub fn with_suffix(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// Writes a file of which a reader never sees half: it appears under its name when it is complete.
///
/// # Errors
///
/// The file cannot be written; what was there before is still there.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // Follow a link instead of replacing it, and write into a device or pipe itself.
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

/// As [`replace`], making the file's directory too.
///
/// # Errors
///
/// As [`replace`], naming the file.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory).with_context(|| format!("cannot make the directory {}", directory.display()))?;
    }
    replace(path, text.as_ref()).with_context(|| format!("cannot write {}", path.display()))
}

/// Fails if no file can be made beside `path`, making its directory: to be asked before hours of measuring, whose results would have nowhere to go.
///
/// # Errors
///
/// As [`write`].
pub fn can_write(path: &Path) -> anyhow::Result<()> {
    let trial = with_suffix(path, ".unfinished");
    write(&trial, "")?;
    fs::remove_file(&trial).with_context(|| format!("cannot remove {}", trial.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_in_the_name_stays() {
        assert_eq!(with_suffix(Path::new("a/run.1"), ".json"), Path::new("a/run.1.json"));
    }

    #[test]
    fn a_trial_leaves_nothing_but_the_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("sub/r.1");
        can_write(&file).expect("it can");
        let made = fs::read_dir(directory.path().join("sub")).expect("made").count();
        fs::write(&file, "").expect("written");
        assert!(made == 0 && can_write(&file.join("below")).is_err());
    }

    #[test]
    fn what_was_there_survives_a_failure() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("sub/file");
        write(&file, "one").expect("made with its directory");
        assert!(write(&file.join("below"), "two").is_err());
        assert_eq!(fs::read_to_string(&file).expect("still there"), "one");
    }
}
