//! Where the built workloads and the interposer lie.

use std::path::{Path, PathBuf};

use anyhow::bail;

use unconvoy::catalogue::environment;
use unconvoy_measure::parts::{self, beside_the_command};

/// Directories of the workload programs, relative to that of this binary: a build tree, then an
/// installation.
const PLACES: [&str; 2] = ["../workloads", "workloads"];

/// What is measured.
#[derive(Debug, Clone)]
pub struct Programs {
    workloads: PathBuf,
    library: PathBuf,
}

impl Programs {
    /// Looks for the programs `needed`, all in one directory, and for the interposer; they are
    /// built against `packages`.
    ///
    /// # Errors
    ///
    /// Says what is missing where, and how to build it.
    pub fn find(directory: Option<&Path>, needed: &[&str], packages: &[&str]) -> anyhow::Result<Self> {
        let candidates = match directory {
            Some(named) => vec![named.to_path_buf()],
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
                "{} is missing: build it with `make workloads`{install}, or say where it is with --workloads DIR",
                missing.join(" or ")
            );
        };
        Ok(Self {
            workloads: workloads.clone(),
            library: parts::interposer(environment::LIBRARY.name).map_err(anyhow::Error::msg)?,
        })
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
