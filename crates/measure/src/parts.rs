//! Paths of the installed files that the command executes or that other programs load, and
//! `LD_PRELOAD` with the interposer.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::messages;

/// File name of the interposer.
const INTERPOSER: &str = "libunconvoy.so";

/// A file that the command executes or that another program loads.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// File name.
    pub name: &'static str,
    /// Variable that names another path.
    pub variable: Option<&'static str>,
    /// Package that builds the file.
    pub package: &'static str,
}

/// Directories of a kernel, relative to the command's: a build tree, then an installation.
const KERNEL_PLACES: [&str; 2] = ["../kernel", "../lib/unconvoy/kernel"];

/// Directories searched, relative to the command's: a build tree, then installations.
const PLACES: [&str; 3] = ["", "../lib", "../lib/unconvoy"];

/// Returns the absolute path of the interposer. `variable` may name another path.
///
/// # Errors
///
/// As [`Part::find`]; or the dynamic loader cannot take the path.
pub fn interposer(variable: &'static str) -> Result<PathBuf, String> {
    let path =
        Part { name: INTERPOSER, variable: Some(variable), package: "unconvoy-preload" }.find()?;
    // Resolve the path here, because the program may run in another directory.
    let path = path.canonicalize().unwrap_or(path);
    if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(messages::path_splits_preload(&path, variable));
    }
    Ok(path)
}

/// Returns the directories that may contain a kernel and QEMU's system mode, from `make kernel` or
/// an installation. `variable` may name another directory.
pub fn kernel_directories(variable: &str) -> Vec<PathBuf> {
    named_by(variable).map_or_else(|| beside_the_command(&KERNEL_PLACES), |path| vec![path])
}

/// Returns the path in an environment variable that is set and not empty.
fn named_by(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns `places` relative to the directory of this command.
pub fn beside_the_command(places: &[&str]) -> Vec<PathBuf> {
    let Ok(command) = std::env::current_exe() else {
        return Vec::new();
    };
    let directory = command.parent().unwrap_or(Path::new("/"));
    places.iter().map(|place| directory.join(place)).collect()
}

/// Exists while Debian's package of the command is installed (dpkg-query(1)).
const DEBIANS_LIST: &str = "/var/lib/dpkg/info/unconvoy.list";

/// Exists below the prefix of an installation by the tarball's install.sh.
const TARBALLS_LIST: &str = "lib/unconvoy/installed.txt";

/// Returns the directory below which `command` is installed, in `bin`; `None` in a build tree.
fn installation(command: &Path) -> Option<&Path> {
    let directory = command.parent()?;
    (directory.file_name()? == "bin").then(|| directory.parent())?
}

/// Returns `LD_PRELOAD` with the interposer first, so that its symbols take precedence.
pub fn preload(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_os_string();
    if let Some(existing) = existing.filter(|existing| !existing.is_empty()) {
        value.push(":");
        value.push(existing);
    }
    value
}

/// Returns `LD_PRELOAD` without the interposer, for a run under libc; `None` if it is then empty.
pub fn without_preload(existing: &OsStr) -> Option<OsString> {
    let kept: Vec<&[u8]> = existing
        .as_bytes()
        .split(|byte| b" :".contains(byte))
        .filter(|entry| !entry.is_empty())
        .filter(|entry| {
            Path::new(OsStr::from_bytes(entry)).file_name() != Some(OsStr::new(INTERPOSER))
        })
        .collect();
    (!kept.is_empty()).then(|| OsStr::from_bytes(&kept.join(&b':')).to_os_string())
}

impl Part {
    /// Returns the path of the file.
    ///
    /// # Errors
    ///
    /// The message lists the paths tried and the remedy.
    pub fn find(&self) -> Result<PathBuf, String> {
        let beside = || {
            let places = beside_the_command(&PLACES);
            places.iter().map(|place| place.join(self.name)).collect()
        };
        let candidates: Vec<PathBuf> =
            self.variable.and_then(named_by).map_or_else(beside, |path| vec![path]);
        self.first(&candidates)
    }

    /// Returns the first of `candidates` that is a file.
    fn first(&self, candidates: &[PathBuf]) -> Result<PathBuf, String> {
        let Self { name, variable, .. } = self;
        if candidates.is_empty() {
            return Err(messages::command_not_located(name, *variable));
        }
        candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
            let places: Vec<String> =
                candidates.iter().map(|path| path.display().to_string()).collect();
            let command = std::env::current_exe().unwrap_or_default();
            let way = self.way(installation(&command), Path::new(DEBIANS_LIST).exists());
            messages::part_missing(name, &places.join(", "), &way, *variable)
        })
    }

    /// Returns how to get the file, for a command that is installed below `prefix`, or that is in a
    /// build tree. `has_package`: Debian's package of the command is installed.
    fn way(&self, prefix: Option<&Path>, has_package: bool) -> String {
        let Some(prefix) = prefix else { return messages::build_part(self.package) };
        let is_debians = prefix == Path::new("/usr") && has_package;
        if is_debians && let Some(package) = self.debian_package() {
            return messages::install_package(package);
        }
        if is_debians || prefix.join(TARBALLS_LIST).exists() {
            return messages::use_checkout();
        }
        // `cargo install` brings the command alone, and make installs the library alone.
        let target = if self.name == INTERPOSER { "install-library" } else { "install" };
        messages::install_part(target, prefix)
    }

    /// Returns the package of `make deb` that has the file (`package.metadata.deb` in Cargo.toml
    /// files); `None` for the study.
    fn debian_package(&self) -> Option<&'static str> {
        match self.name {
            "unconvoy-study" => None,
            "unconvoy-parquet" => Some("unconvoy-predict"),
            "unconvoy-sched-ext" => Some("unconvoy-sched-ext"),
            name if name.starts_with("libunconvoy_plugin_") => Some("unconvoy-predict"),
            _ => Some("unconvoy"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preload_puts_interposer_first() {
        let library = Path::new("/lib/libunconvoy.so");
        assert_eq!(preload(library, None), "/lib/libunconvoy.so");
        assert_eq!(preload(library, Some(OsStr::new(""))), "/lib/libunconvoy.so");
        assert_eq!(
            preload(library, Some(OsStr::new("/a.so b.so"))),
            "/lib/libunconvoy.so:/a.so b.so"
        );
    }

    #[test]
    fn missing_library_is_installed_beside_an_installed_command() {
        let library = Part { name: INTERPOSER, variable: None, package: "unconvoy-preload" };
        let way = |part: Part, command| part.way(installation(Path::new(command)), false);
        let installed = way(library, "/home/user/.cargo/bin/unconvoy");
        assert!(installed.ends_with("(make install-library PREFIX=/home/user/.cargo)"));
        let screen = Part { name: "unconvoy-top", variable: None, package: "unconvoy-top" };
        assert!(
            way(screen, "/usr/local/bin/unconvoy").ends_with("(make install PREFIX=/usr/local)")
        );
        let built = way(library, "/src/target/release/unconvoy");
        assert_eq!(built, "Build it (cargo build --release -p unconvoy-preload)");
    }

    #[test]
    fn missing_part_of_debian_package_is_in_a_package() {
        for (name, package) in [
            (INTERPOSER, "unconvoy"),
            ("unconvoy-top", "unconvoy"),
            ("unconvoy-png", "unconvoy"),
            ("unconvoy-sched-ext", "unconvoy-sched-ext"),
            ("unconvoy-parquet", "unconvoy-predict"),
            ("libunconvoy_plugin_user.so", "unconvoy-predict"),
            ("libunconvoy_plugin_system.so", "unconvoy-predict"),
        ] {
            let way = Part { name, variable: None, package: "" }.way(Some(Path::new("/usr")), true);
            assert_eq!(way, format!("Install the package {package}"));
        }
        let study = Part { name: "unconvoy-study", variable: None, package: "unconvoy-papers" };
        assert_eq!(study.way(Some(Path::new("/usr")), true), messages::use_checkout());
    }

    /// `make install` added files that the tarball's `install.sh --uninstall` left.
    #[test]
    fn installation_from_tarball_is_not_mixed_with_another() {
        let prefix = tempfile::tempdir().expect("a temporary directory");
        let list = prefix.path().join(TARBALLS_LIST);
        std::fs::create_dir_all(list.parent().expect("a directory")).expect("a directory");
        std::fs::write(list, "").expect("a list");
        let study = Part { name: "unconvoy-study", variable: None, package: "unconvoy-papers" };
        assert_eq!(study.way(Some(prefix.path()), false), messages::use_checkout());
    }

    #[test]
    fn part_of_a_command_without_a_path_needs_proc() {
        let library = Part { name: INTERPOSER, variable: Some("UNCONVOY_LIBRARY"), package: "" };
        let complaint = library.first(&[]).unwrap_err();
        assert!(complaint.contains("mount /proc or set UNCONVOY_LIBRARY"), "{complaint}");
        assert!(!complaint.contains("Build it"), "{complaint}");
        let complaint = library.first(&[PathBuf::from("/nowhere")]).unwrap_err();
        assert!(complaint.contains("looked for /nowhere."), "{complaint}");
    }

    #[test]
    fn without_preload_keeps_other_libraries() {
        assert_eq!(without_preload(OsStr::new("/x/libunconvoy.so")), None);
        assert_eq!(
            without_preload(OsStr::new("/x/libunconvoy.so:/a.so b.so")).unwrap(),
            "/a.so:b.so"
        );
    }
}
