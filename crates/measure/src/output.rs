//! Results on standard output and in files. A failed write, such as on a full disk, is an error and
//! not a panic as with `print!`.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nix::unistd::{AccessFlags, access};
use tempfile::NamedTempFile;

use crate::messages;

/// Writes [`legible`] text to standard output. A closed pipe is an error.
///
/// # Errors
///
/// The text cannot be written completely. The error says so, and has the kind of its cause.
pub fn print_all(text: impl AsRef<[u8]>) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(legible(&String::from_utf8_lossy(text.as_ref())).as_bytes());
    written.and_then(|()| stdout.flush()).map_err(not_printed)
}

/// Describes the error of a write to standard output.
pub fn not_printed(error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), messages::cannot_print(&error))
}

/// Replaces control characters other than line ends and tabs: other people's programs choose the
/// names of symbols, files and threads, and a terminal obeys control characters.
pub fn legible(text: &str) -> Cow<'_, str> {
    let is_harmful = |it: char| it.is_control() && !matches!(it, '\n' | '\t');
    if text.contains(is_harmful) { text.replace(is_harmful, "?").into() } else { text.into() }
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
    let _ = writeln!(std::io::stderr(), "unconvoy: {}", legible(line));
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
    if is_open_file(path) {
        return opened(path)?.write_all(bytes);
    }
    let target = followed(path);
    if !is_replaceable(&target) {
        return fs::write(target, bytes);
    }
    let mut unfinished = beside(&target)?;
    if let Ok(existing) = fs::metadata(&target) {
        unfinished.as_file().set_permissions(existing.permissions())?;
    }
    unfinished.as_file_mut().write_all(bytes)?;
    unfinished.persist(&target)?;
    Ok(())
}

/// Checks that [`replace`] can write a file, which need not exist. Long measurements call this
/// first, so that their results are not lost.
///
/// # Errors
///
/// It cannot, or the file is a directory.
pub fn check(path: &Path) -> std::io::Result<()> {
    let target = followed(path);
    if target.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    // The name of an open pipe leads to no path.
    if is_open_file(path) {
        return Ok(access(path, AccessFlags::W_OK)?);
    }
    if target.exists() {
        access(&target, AccessFlags::W_OK)?;
        if !target.is_file() {
            return Ok(());
        }
    }
    access(directory_of(&target), AccessFlags::W_OK | AccessFlags::X_OK)?;
    // The file system may refuse what the permissions allow.
    beside(&target).map(drop)
}

/// Whether the path stands for a file that a process has opened, such as `/dev/stderr`. To replace
/// the file itself would discard what was written there.
pub fn is_open_file(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"].iter().any(|it| path.starts_with(it))
}

/// An open file for writing after what is there. This command goes on writing to its own standard
/// streams, at one place in the file.
fn opened(path: &Path) -> std::io::Result<File> {
    let own = match path.to_str() {
        Some("/dev/stdout" | "/dev/fd/1") => std::io::stdout().as_fd().try_clone_to_owned(),
        Some("/dev/stderr" | "/dev/fd/2") => std::io::stderr().as_fd().try_clone_to_owned(),
        _ => return File::options().append(true).open(path),
    };
    own.map(File::from)
}

/// Whether [`replace`] replaces what was written to this path before. It does not for open files,
/// devices and pipes, whose reader would get all versions of a file.
pub fn is_replaceable(path: &Path) -> bool {
    let target = followed(path);
    !is_open_file(path) && (!target.exists() || target.is_file())
}

/// The file that a link leads to, even if it does not exist yet: a link is not replaced.
pub fn followed(path: &Path) -> PathBuf {
    const MOST_LINKS: usize = 40;
    let mut at = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match (fs::canonicalize(&at), fs::read_link(&at)) {
            (Ok(found), _) => return found,
            (_, Ok(next)) => at = directory_of(&at).join(next),
            _ => break,
        }
    }
    at
}

/// The first of `NAME.EXTENSION`, `NAME-2.EXTENSION`, … for which `is_free` holds.
pub fn free_name(path: &Path, is_free: impl Fn(&Path) -> bool) -> PathBuf {
    let numbered = |number: u32| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let extension =
            path.extension().map_or_else(String::new, |it| format!(".{}", it.to_string_lossy()));
        path.with_file_name(format!("{stem}-{number}{extension}"))
    };
    let names = std::iter::once(path.to_path_buf()).chain((2..1000).map(numbered));
    names.into_iter().find(|name| is_free(name)).unwrap_or_else(|| path.to_path_buf())
}

/// The directory of a file, `.` for a bare name.
pub fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

/// Creates a file in the directory of `path`. Its random name keeps other users from placing a
/// link there. An error omits that name.
fn beside(path: &Path) -> std::io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".unconvoy-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory_of(path))
        .map_err(|error| error.kind().into())
}

/// As [`replace`], and creates the file's directory.
///
/// # Errors
///
/// As [`replace`], with the file's name.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    make_directory(path)?;
    replace(path, text.as_ref()).with_context(|| messages::cannot_write(path))
}

/// As [`check`], and creates the file's directory.
///
/// # Errors
///
/// As [`write`].
pub fn can_write(path: &Path) -> anyhow::Result<()> {
    make_directory(path)?;
    check(path).with_context(|| messages::cannot_write(path))
}

fn make_directory(path: &Path) -> anyhow::Result<()> {
    match path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => fs::create_dir_all(directory)
            .with_context(|| messages::cannot_make_directory(directory)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_suffix_keeps_dots_in_the_name() {
        assert_eq!(with_suffix(Path::new("a/run.1"), ".json"), Path::new("a/run.1.json"));
    }

    #[test]
    fn open_pipe_is_written_to() {
        use std::io::Read as _;
        use std::os::fd::AsRawFd as _;
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let path = PathBuf::from(format!("/dev/fd/{}", writer.as_raw_fd()));
        check(&path).expect("it can be written");
        assert!(!is_replaceable(&path));
        replace(&path, b"all").expect("written");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, "all");
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
    fn an_open_file_is_appended_to_and_a_link_is_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        fs::write(&log, "before ").expect("written");
        let opened = File::options().append(true).open(&log).expect("opened");
        let number = std::os::fd::AsRawFd::as_raw_fd(&opened);
        let same = PathBuf::from(format!("/proc/self/fd/{number}"));
        check(&same).and_then(|()| replace(&same, b"after")).expect("written");
        assert_eq!(fs::read(&log).expect("read"), b"before after");

        let link = directory.path().join("link");
        std::os::unix::fs::symlink("target", &link).expect("a link to nothing yet");
        check(&link).and_then(|()| replace(&link, b"new")).expect("written");
        assert_eq!(fs::read(directory.path().join("target")).expect("read"), b"new");
        assert!(link.is_symlink());
        let free = free_name(&link.with_extension("json"), |path| !path.ends_with("link.json"));
        assert_eq!(free, directory.path().join("link-2.json"));
    }

    #[test]
    fn check_follows_links_and_accepts_devices() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        assert!(check(&file).is_ok() && check(&file.join("below")).is_err());
        assert!(check(directory.path()).is_err() && check(Path::new("/dev/null")).is_ok());
        assert!(check(Path::new("/proc/nosuch")).is_err());
        std::os::unix::fs::symlink("/proc/self/comm", &file).expect("linked");
        assert!(check(&file).is_err(), "its directory takes no file");
    }

    #[test]
    fn replace_ignores_link_beside_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let [file, other] = ["file", "other"].map(|name| directory.path().join(name));
        fs::write(&other, "kept").expect("written");
        for suffix in [".unfinished", ".new", ".tmp"] {
            std::os::unix::fs::symlink(&other, with_suffix(&file, suffix)).expect("linked");
        }
        replace(&file, b"new").expect("written");
        assert_eq!(fs::read_to_string(&other).expect("there"), "kept");
        assert_eq!(fs::read_to_string(&file).expect("there"), "new");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&file), mode(&other));
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
        replace(&file, b"newer").expect("written");
        assert_eq!(mode(&file), 0o600, "a private file became readable");
    }

    #[test]
    fn legible_text_has_no_escape_sequence() {
        assert_eq!(legible("a\tb\n"), "a\tb\n");
        assert_eq!(legible("\x1b[2J\u{9b}31mlock\r"), "?[2J?31mlock?");
    }

    #[test]
    fn failed_write_keeps_former_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("sub/file");
        write(&file, "one").expect("made with its directory");
        assert!(write(&file.join("below"), "two").is_err());
        let error = replace(Path::new("/proc/nosuch"), b"two").expect_err("no such folder");
        assert!(!error.to_string().contains(".unconvoy-"), "a name of the program's own: {error}");
        assert_eq!(fs::read_to_string(&file).expect("still there"), "one");
    }
}
