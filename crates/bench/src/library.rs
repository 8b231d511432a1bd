//! Finds libunconvoy.so and puts it in front of what `LD_PRELOAD` already holds.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use unconvoy::catalogue::environment;

/// What the interposer reads; their defaults and ranges are its own.
pub mod variable {
    use unconvoy::catalogue::environment;

    /// Contention manager, a name of the catalogue.
    pub const LOCK: &str = environment::LOCK.name;
    /// Load manager, a name of the catalogue.
    pub const LOAD: &str = environment::LOAD_MANAGER.name;
    /// Absolute path of the JSON file.
    pub const STATS: &str = environment::STATS.name;
    /// Controller's interval, milliseconds.
    pub const INTERVAL: &str = environment::INTERVAL.name;
    /// Longest sleep of a waiter, milliseconds.
    pub const SLEEP: &str = environment::SLEEP.name;
    /// Sensor, a name of the catalogue.
    pub const SENSOR: &str = environment::LOAD_SENSOR.name;
    /// The kernel's count for the `bpf` sensor: which process's, and where it has it.
    pub const BPF: &str = environment::BPF.name;
    /// How the controller sets the sleep target, a name of the catalogue.
    pub const POLICY: &str = environment::CONTROL_POLICY.name;
    /// Mean sleep under load-triggered backoff, milliseconds.
    pub const BACKOFF: &str = environment::BACKOFF.name;
    /// `0`: waiters do not wake their lock's holder.
    pub const NESTED: &str = environment::NESTED.name;
    /// A special set of cores, by the name of its search; `0`: none.
    pub const SSC: &str = environment::SPECIAL_SET.name;
    /// `0`: programs that the program starts are left alone.
    pub const CHILDREN: &str = environment::CHILDREN.name;
    /// The dynamic loader's list of libraries to load first.
    pub const PRELOAD: &str = environment::PRELOAD.name;
}

/// File name of the interposer.
const NAME: &str = "libunconvoy.so";
/// Names the interposer's file when it lies elsewhere than beside the command.
const LIBRARY: &str = environment::LIBRARY.name;

/// A file that the command has others load, or executes.
struct Part {
    name: &'static str,
    /// Names the file when it lies elsewhere than beside the command.
    variable: &'static str,
    /// What to build.
    package: &'static str,
}

const INTERPOSER: Part = Part { name: NAME, variable: LIBRARY, package: "unconvoy-preload" };
const PLUGIN: Part =
    Part { name: "libunconvoy_plugin_user.so", variable: environment::PLUGIN.name, package: "unconvoy-plugin-user" };
const SYSTEM_PLUGIN: Part = Part {
    name: "libunconvoy_plugin_system.so",
    variable: environment::PLUGIN_SYSTEM.name,
    package: "unconvoy-plugin-system",
};
const SCHEDULER: Part =
    Part { name: "unconvoy-sched-ext", variable: environment::SCHED_EXT.name, package: "unconvoy-sched-ext" };

/// The same for a kernel: beside a build's directory, in an installation.
const KERNEL_PLACES: [&str; 2] = ["../kernel", "../lib/unconvoy/kernel"];

/// Directories to look in, relative to that of the command: a build tree, then installations.
const PLACES: [&str; 3] = ["", "../lib", "../lib/unconvoy"];

/// The absolute path of the interposer.
///
/// # Errors
///
/// Says where it looked and what to do.
pub fn find() -> Result<PathBuf, String> {
    let path = find_part(&INTERPOSER)?;
    // Not `/proc/self/exe`-like names: the program resolves the path in its own directory.
    let path = path.canonicalize().unwrap_or(path);
    if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(format!(
            "the dynamic loader splits LD_PRELOAD at spaces and colons, so it cannot load {}: \
             copy the file to a path without them and set {LIBRARY} to it",
            path.display()
        ));
    }
    Ok(path)
}

/// The path of QEMU's plug-in that samples address sets.
///
/// # Errors
///
/// As [`find`].
pub fn find_plugin() -> Result<PathBuf, String> {
    find_part(&PLUGIN)
}

/// The path of the same for a whole machine under QEMU: of kernels.
///
/// # Errors
///
/// As [`find`].
pub fn find_system_plugin() -> Result<PathBuf, String> {
    find_part(&SYSTEM_PLUGIN)
}

/// The path of the sched_ext scheduler, a program of its own.
///
/// # Errors
///
/// As [`find`].
pub fn find_scheduler() -> Result<PathBuf, String> {
    find_part(&SCHEDULER)
}

/// Where a kernel and QEMU's system mode may lie, as `make kernel` leaves them or an installation has them; `variable` names the directory when it is elsewhere.
pub fn kernel_directories(variable: &str) -> Vec<PathBuf> {
    match std::env::var_os(variable).filter(|value| !value.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => beside_the_command(&KERNEL_PLACES),
    }
}

fn find_part(part: &Part) -> Result<PathBuf, String> {
    let candidates = match std::env::var_os(part.variable).filter(|value| !value.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => beside_the_command(&PLACES).into_iter().map(|place| place.join(part.name)).collect(),
    };
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| part.missing(&candidates))
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
        .filter(|entry| Path::new(OsStr::from_bytes(entry)).file_name() != Some(OsStr::new(NAME)))
        .collect();
    (!kept.is_empty()).then(|| OsStr::from_bytes(&kept.join(&b':')).to_os_string())
}

impl Part {
    fn missing(&self, candidates: &[PathBuf]) -> String {
        let Self { name, variable, package } = self;
        let places: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        format!(
            "{name} is missing; looked for {}. Build it (cargo build --release -p {package}) or set {variable} to its path",
            places.join(", ")
        )
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
