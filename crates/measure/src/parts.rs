//! The parts of an installation that a command has others load, or executes: where each lies. And
//! `LD_PRELOAD`, with the interposer in front of what it already holds.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// File name of the interposer.
const INTERPOSER: &str = "libunconvoy.so";

/// A file that the command has others load, or executes.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The file.
    pub name: &'static str,
    /// The variable that may name another place than beside the command.
    pub variable: Option<&'static str>,
    /// What to build.
    pub package: &'static str,
}

/// The same for a kernel: beside a build's directory, in an installation.
const KERNEL_PLACES: [&str; 2] = ["../kernel", "../lib/unconvoy/kernel"];

/// Directories to look in, relative to that of the command: a build tree, then installations.
const PLACES: [&str; 3] = ["", "../lib", "../lib/unconvoy"];

/// The absolute path of the interposer; `variable` names the file when it is elsewhere.
///
/// # Errors
///
/// As [`Part::find`]; or the dynamic loader cannot be given the path.
pub fn interposer(variable: &'static str) -> Result<PathBuf, String> {
    let path = Part { name: INTERPOSER, variable: Some(variable), package: "unconvoy-preload" }.find()?;
    // Not `/proc/self/exe`-like names: the program resolves the path in its own directory.
    let path = path.canonicalize().unwrap_or(path);
    if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(format!(
            "the dynamic loader splits LD_PRELOAD at spaces and colons, so it cannot load {}: \
             copy the file to a path without them and set {variable} to it",
            path.display()
        ));
    }
    Ok(path)
}

/// Where a kernel and QEMU's system mode may lie, as `make kernel` leaves them or an installation
/// has them; `variable` names the directory when it is elsewhere.
pub fn kernel_directories(variable: &str) -> Vec<PathBuf> {
    named_by(variable).map_or_else(|| beside_the_command(&KERNEL_PLACES), |path| vec![path])
}

/// The path in an environment variable that is set.
fn named_by(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// `places`, relative to the directory of this command.
pub fn beside_the_command(places: &[&str]) -> Vec<PathBuf> {
    let Ok(command) = std::env::current_exe() else {
        return Vec::new();
    };
    let directory = command.parent().unwrap_or(Path::new("/"));
    places.iter().map(|place| directory.join(place)).collect()
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
        .filter(|entry| Path::new(OsStr::from_bytes(entry)).file_name() != Some(OsStr::new(INTERPOSER)))
        .collect();
    (!kept.is_empty()).then(|| OsStr::from_bytes(&kept.join(&b':')).to_os_string())
}

impl Part {
    /// Its path.
    ///
    /// # Errors
    ///
    /// Says where it looked and what to do.
    pub fn find(&self) -> Result<PathBuf, String> {
        let Self { name, variable, package } = self;
        let beside = || beside_the_command(&PLACES).iter().map(|place| place.join(name)).collect();
        let candidates: Vec<PathBuf> = variable.and_then(named_by).map_or_else(beside, |path| vec![path]);
        candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
            let places: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
            let places = places.join(", ");
            let or_set = variable.map_or_else(String::new, |variable| format!(" or set {variable} to its path"));
            format!("{name} is missing; looked for {places}. Build it (cargo build --release -p {package}){or_set}")
        })
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
