//! Files that a command is asked to write: whether they can be written, before a program runs.

use std::error::Error as _;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use unconvoy_measure::output::{self, directory_of, followed, is_open_file};

use crate::messages::command as messages;
use crate::refusal::Refusal;

/// Returns the absolute path of a file that this command will write, or why it cannot.
pub fn writable(file: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(file).map_err(|error| error.to_string())?;
    let Err(error) = output::check(&path) else { return Ok(path) };
    let text = |code| Errno::from_raw(code).desc().to_string();
    let why = error.raw_os_error().map_or_else(|| error.to_string(), text);
    Err(match error.kind() {
        ErrorKind::IsADirectory => messages::is_directory().to_string(),
        _ if path.exists() => messages::cannot_write_to_file(&why),
        _ => messages::cannot_write_to_directory(directory_of(&path), &why),
    })
}

/// As [`writable`], for a file that the library creates in the program's process.
pub fn writable_by_library(file: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(file).map_err(|error| error.to_string())?;
    if path.to_str().is_none() {
        let is_name = path.file_name().is_some_and(|name| name.to_str().is_none());
        return Err(match is_name {
            true => messages::name_not_utf_8().to_string(),
            false => messages::directory_not_utf_8(directory_of(&path)),
        });
    }
    if path.is_dir() {
        return Err(messages::is_directory().to_string());
    }
    let directory = directory_of(&path);
    access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|error| messages::cannot_write_to_directory(directory, error.desc()))?;
    if path.exists() {
        access(&path, AccessFlags::W_OK)
            .map_err(|error| messages::cannot_write_to_file(error.desc()))?;
    }
    Ok(path)
}

/// Rejects two options that name one file: the second would replace the first one's output. Devices
/// and pipes take both.
pub fn distinct(outputs: &[(&str, Option<&Path>)]) -> Result<(), Refusal> {
    let mut known: Vec<(&str, PathBuf)> = Vec::new();
    for &(option, file) in outputs {
        let Some(file) = file.filter(|file| file.is_file() || !file.exists()) else { continue };
        let identity = identity(file);
        if let Some((other, _)) = known.iter().find(|(_, it)| *it == identity) {
            return Err(Refusal::usage(messages::same_file(other, option, file)));
        }
        known.push((option, identity));
    }
    Ok(())
}

/// The path, without links, of a file that may not exist yet.
fn identity(file: &Path) -> PathBuf {
    let path = file.canonicalize().or_else(|_| {
        let directory = directory_of(file).canonicalize()?;
        Ok::<_, std::io::Error>(directory.join(file.file_name().unwrap_or_default()))
    });
    path.unwrap_or_else(|_| file.to_path_buf())
}

/// As [`writable`], for a file that is written under another name and then renamed. Returns the
/// file that a link leads to; a rename would destroy the link, a device or a pipe.
pub fn replaceable(file: &Path) -> Result<PathBuf, String> {
    writable(&regular(file)?)
}

/// As [`writable_by_library`] and [`replaceable`].
pub fn replaceable_by_library(file: &Path) -> Result<PathBuf, String> {
    writable_by_library(&regular(file)?)
}

/// The file that a link leads to. Rejects devices, pipes and open files.
fn regular(file: &Path) -> Result<PathBuf, String> {
    match file.metadata() {
        Ok(found) if is_open_file(file) || !found.is_file() && !found.is_dir() => {
            Err(messages::not_a_regular_file().to_string())
        }
        _ => Ok(followed(file)),
    }
}

/// The files that the library wrote for one run: FILE, and FILE.PID of child processes.
///
/// # Errors
///
/// The directory cannot be read.
pub fn of_processes(file: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = directory_of(file);
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_ours = |other: &OsStr| {
        let other = other.to_string_lossy();
        other.strip_prefix(&name).is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('.').is_some_and(|pid| pid.parse::<u32>().is_ok())
        })
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| messages::cannot_read(folder))? {
        let entry = entry.with_context(|| messages::cannot_read(folder))?;
        if is_ours(&entry.file_name()) {
            found.push(file.with_file_name(entry.file_name()));
        }
    }
    Ok(found)
}

/// Creates a directory for temporary files.
///
/// # Errors
///
/// It cannot be created; the error has the remedy.
pub fn temporary(prefix: &str) -> anyhow::Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir();
    made.map_err(|error| {
        // The error's own text has the random name of the directory.
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        anyhow!(messages::no_temporary_directory(&std::env::temp_dir(), &cause))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn directories_and_missing_parents_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stats.json");
        for check in [writable, writable_by_library] {
            assert_eq!(check(&file), Ok(file.clone()));
            assert!(check(&directory.path().join("missing/stats.json")).is_err());
            assert!(check(directory.path()).unwrap_err().contains("directory"));
        }
    }

    #[test]
    fn library_takes_no_path_that_is_not_utf_8() {
        let path = std::env::temp_dir().join(OsStr::from_bytes(b"\xff.json"));
        assert!(writable(&path).is_ok());
        let name = writable_by_library(&path).unwrap_err();
        assert!(name.contains("choose another name"), "{name}");
        let directory = writable_by_library(&path.join("stats.json")).unwrap_err();
        assert!(directory.contains("another directory"), "{directory}");
    }

    #[test]
    fn one_file_under_two_names_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("old"), "").unwrap();
        std::os::unix::fs::symlink(at("old"), at("link")).unwrap();
        let check = |one: &str, two: &str| {
            distinct(&[("--a", Some(&at(one))), ("--none", None), ("--b", Some(&at(two)))])
        };
        assert!(check("new", "newer").is_ok() && check("old", "new").is_ok());
        for (one, two) in [("new", "./new"), ("old", "old"), ("link", "old")] {
            let refusal = check(one, two).unwrap_err();
            assert!(refusal.status == 2 && refusal.message.contains("--a and --b"), "{refusal}");
        }
        let null = Some(Path::new("/dev/null"));
        assert!(distinct(&[("--a", null), ("--b", null)]).is_ok());
    }

    #[test]
    fn replaceable_file_is_a_links_target_and_no_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| directory.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for check in [replaceable, replaceable_by_library] {
            assert_eq!(check(&link), Ok(file.canonicalize().unwrap()));
            assert_eq!(check(&directory.path().join("new")), Ok(directory.path().join("new")));
            assert!(check(&pipe).unwrap_err().contains("regular"));
            assert!(check(directory.path()).unwrap_err().contains("directory"));
        }
    }
}
