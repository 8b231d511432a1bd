//! Where the built workloads and the interposer lie.

use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::cli::Places;

/// Names the interposer's file when it does not lie beside this command.
const VARIABLE: &str = "UNCONVOY_LIBRARY";
const LIBRARY: &str = "libunconvoy.so";

/// What is measured.
#[derive(Debug, Clone)]
pub struct Programs {
    workloads: PathBuf,
    library: PathBuf,
}

impl Programs {
    /// Looks for the programs `needed` and for the interposer.
    ///
    /// # Errors
    ///
    /// Says what is missing where, and how to build it.
    pub fn find(places: &Places, needed: &[&str]) -> anyhow::Result<Self> {
        let workloads = places.workloads.clone().unwrap_or_else(|| beside_executable("../workloads"));
        for name in needed {
            let program = workloads.join(name);
            if !program.is_file() {
                bail!(
                    "{} is missing: build it with `make -C crates/bench/workloads`, or say where it is with --workloads DIR",
                    program.display()
                );
            }
        }
        Ok(Self { workloads, library: library()? })
    }

    /// The program's path.
    pub fn workload(&self, name: &str) -> PathBuf {
        self.workloads.join(name)
    }

    /// The interposer's absolute path, without a character that the dynamic loader would split it at.
    pub fn library(&self) -> &Path {
        &self.library
    }
}

fn beside_executable(name: &str) -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    executable.parent().unwrap_or(Path::new(".")).join(name)
}

fn library() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let path = named.map_or_else(|| beside_executable(LIBRARY), PathBuf::from);
    let Ok(path) = path.canonicalize() else {
        bail!(
            "{} is missing: build it with `cargo build --release -p unconvoy-preload`, or set {VARIABLE} to its path",
            path.display()
        );
    };
    if path.to_string_lossy().contains([' ', ':']) {
        bail!(
            "the dynamic loader splits LD_PRELOAD at spaces and colons, so it cannot load {}: copy the file elsewhere and set {VARIABLE}",
            path.display()
        );
    }
    Ok(path)
}
