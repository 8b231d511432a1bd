//! Where the built workloads and the interposer lie.

use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::cli::Places;
use crate::library;

/// Directories of the workload programs, relative to that of the command: a build tree, then an installation.
const PLACES: [&str; 2] = ["../workloads", "../lib/unconvoy/workloads"];

/// What is measured.
#[derive(Debug, Clone)]
pub struct Programs {
    workloads: PathBuf,
    library: PathBuf,
}

impl Programs {
    /// Looks for the programs `needed`, all in one directory, and for the interposer.
    ///
    /// # Errors
    ///
    /// Says what is missing where, and how to build it.
    pub fn find(places: &Places, needed: &[&str]) -> anyhow::Result<Self> {
        Self::find_with(places, needed, &[])
    }

    /// As [`find`](Self::find), for programs that are built against some Debian packages.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find); names the packages too.
    pub fn find_with(places: &Places, needed: &[&str], packages: &[&str]) -> anyhow::Result<Self> {
        let candidates = match &places.workloads {
            Some(named) => vec![named.clone()],
            None => beside_the_command(&PLACES),
        };
        let first_missing =
            |directory: &PathBuf| needed.iter().map(|name| directory.join(name)).find(|path| !path.is_file());
        let Some(workloads) = candidates.iter().find(|directory| first_missing(directory).is_none()) else {
            let missing: Vec<String> =
                candidates.iter().filter_map(first_missing).map(|path| path.display().to_string()).collect();
            let install = match packages {
                [] => String::new(),
                some => format!(" after `apt-get install {}`", some.join(" ")),
            };
            bail!(
                "{} is missing: build it with `make -C crates/bench/workloads`{install}, or say where it is with --workloads DIR",
                missing.join(" or ")
            );
        };
        Ok(Self { workloads: workloads.clone(), library: library::find().map_err(anyhow::Error::msg)? })
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

/// `places`, relative to the directory of this command.
pub(crate) fn beside_the_command(places: &[&str]) -> Vec<PathBuf> {
    let Ok(command) = std::env::current_exe() else {
        return Vec::new();
    };
    let directory = command.parent().unwrap_or(Path::new("/"));
    places.iter().map(|place| directory.join(place)).collect()
}
