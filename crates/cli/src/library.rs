//! Finds libunconvoy.so and puts it in front of what `LD_PRELOAD` already holds.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::refusal::Refusal;

/// File name of the interposer.
const NAME: &str = "libunconvoy.so";
/// Names the interposer's file when it lies elsewhere than beside the command.
const VARIABLE: &str = "UNCONVOY_LIBRARY";
/// Directories to look in, relative to that of the command: a build tree, then installations.
const PLACES: [&str; 3] = ["", "../lib", "../lib/unconvoy"];

/// The absolute path of the interposer.
///
/// # Errors
///
/// Says where it looked and what to do, with status 125.
pub fn find() -> Result<PathBuf, Refusal> {
    let candidates = match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => beside_the_command(),
    };
    let Some(path) = candidates.iter().find(|path| path.is_file()) else {
        return Err(missing(&candidates));
    };
    // Not `/proc/self/exe`-like names: the program resolves the path in its own directory.
    let path = path.canonicalize().unwrap_or_else(|_| path.clone());
    if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(Refusal {
            status: 125,
            message: format!(
                "the dynamic loader splits LD_PRELOAD at spaces and colons, so it cannot load {}: \
                 copy the file to a path without them and set {VARIABLE} to it",
                path.display()
            ),
        });
    }
    Ok(path)
}

/// `LD_PRELOAD` with the interposer first, so that its symbols win.
pub fn preload(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_os_string();
    if let Some(existing) = existing.filter(|existing| !existing.is_empty()) {
        value.push(":");
        value.push(existing);
    }
    value
}

/// `LD_PRELOAD` without the interposer, for a run under libc; `None` when nothing else is left.
pub fn without_preload(existing: &OsStr) -> Option<OsString> {
    let kept: Vec<&[u8]> = existing
        .as_bytes()
        .split(|byte| b" :".contains(byte))
        .filter(|entry| !entry.is_empty())
        .filter(|entry| Path::new(OsStr::from_bytes(entry)).file_name() != Some(OsStr::new(NAME)))
        .collect();
    (!kept.is_empty()).then(|| OsStr::from_bytes(&kept.join(&b':')).to_os_string())
}

fn beside_the_command() -> Vec<PathBuf> {
    let Ok(command) = std::env::current_exe() else {
        return Vec::new();
    };
    let directory = command.parent().unwrap_or(Path::new("/"));
    PLACES.iter().map(|place| directory.join(place).join(NAME)).collect()
}

fn missing(candidates: &[PathBuf]) -> Refusal {
    let places: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
    Refusal {
        status: 125,
        message: format!(
            "{NAME} is missing; looked for {}. Build it (cargo build --release -p unconvoy-preload) \
             or set {VARIABLE} to its path",
            places.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interposer_comes_first() {
        let library = Path::new("/lib/libunconvoy.so");
        assert_eq!(preload(library, None), "/lib/libunconvoy.so");
        assert_eq!(preload(library, Some(OsStr::new(""))), "/lib/libunconvoy.so");
        assert_eq!(preload(library, Some(OsStr::new("/a.so b.so"))), "/lib/libunconvoy.so:/a.so b.so");
    }

    #[test]
    fn a_libc_run_keeps_other_preloads() {
        assert_eq!(without_preload(OsStr::new("/x/libunconvoy.so")), None);
        assert_eq!(without_preload(OsStr::new("/x/libunconvoy.so:/a.so b.so")).unwrap(), "/a.so:b.so");
    }
}
