//! Earlier records of a simulated figure, and whether their results can be used again.

use std::path::{Path, PathBuf};

use unconvoy_measure::output::complain;

use crate::figure::{self, Figure};
use crate::messages;
use crate::seeds::Stored;

/// The figure's name in records, which are all of simulated figures.
pub fn short_name(figure: &Figure) -> &'static str {
    figure.name.trim_start_matches("sim-")
}

/// The first of the earlier records whose results can be used, and its path.
pub fn usable(
    figure: &Figure,
    records: &[&Path],
    plan: &str,
    seeds: &[u64],
) -> Option<(PathBuf, Stored)> {
    let read = |path: &&Path| Some((path.to_path_buf(), Stored::read(path).ok()?));
    let known: Vec<_> = records.iter().filter_map(read).collect();
    let found = known.iter().position(|(_, stored)| is_usable(figure, stored, plan, seeds));
    if let (None, Some((path, _))) = (found, known.last()) {
        complain(&messages::record_of_another_plan(figure.name, path));
    }
    known.into_iter().nth(found?)
}

/// Whether a record is of the same plan and version, and of this build if something is missing:
/// another build may have other locks. A record from before records named plan and build cannot be
/// extended, but is kept if nothing is missing.
pub fn is_usable(figure: &Figure, stored: &Stored, plan: &str, seeds: &[u64]) -> bool {
    let is_of_build = || figure::build().is_ok_and(|build| stored.build == Some(build));
    stored.figure == short_name(figure)
        && stored.unconvoy == env!("CARGO_PKG_VERSION")
        && stored.plan.as_ref().is_none_or(|known| known == plan)
        && (stored.has_all(seeds) || stored.plan.is_some() && is_of_build())
}
