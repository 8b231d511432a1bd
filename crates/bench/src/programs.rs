//! Paths of the workload programs and the interposer.

use std::path::{Path, PathBuf};

use anyhow::bail;

use unconvoy::catalogue::environment;
use unconvoy_measure::parts::{self, beside_the_command};

use crate::messages;

/// Directories of the workload programs, relative to this binary's: a build tree, then an
/// installation.
const PLACES: [&str; 2] = ["../workloads", "workloads"];

/// A directory of workload programs, and the interposer.
#[derive(Debug, Clone)]
pub struct Programs {
    workloads: PathBuf,
    library: PathBuf,
}

impl Programs {
    /// Finds a directory with all `needed` programs, which need `packages` to be built, and the
    /// interposer.
    ///
    /// # Errors
    ///
    /// A file is missing; the message says how to build it.
    pub fn find(
        directory: Option<&Path>,
        needed: &[&str],
        packages: &[&str],
    ) -> anyhow::Result<Self> {
        let candidates = match directory {
            Some(named) => vec![named.to_path_buf()],
            None => beside_the_command(&PLACES),
        };
        let first_missing = |directory: &PathBuf| {
            needed.iter().map(|name| directory.join(name)).find(|path| !path.is_file())
        };
        let Some(workloads) =
            candidates.iter().find(|directory| first_missing(directory).is_none())
        else {
            let missing: Vec<String> = candidates
                .iter()
                .filter_map(first_missing)
                .map(|path| path.display().to_string())
                .collect();
            bail!(messages::program_missing(&missing.join(" or "), packages));
        };
        Ok(Self {
            workloads: workloads.clone(),
            library: parts::interposer(environment::LIBRARY.name).map_err(anyhow::Error::msg)?,
        })
    }

    /// Returns the path of a program.
    pub fn workload(&self, name: &str) -> PathBuf {
        self.workloads.join(name)
    }

    /// Returns the absolute path of the interposer, without characters at which the dynamic loader
    /// splits LD_PRELOAD.
    pub fn library(&self) -> &Path {
        &self.library
    }
}
