//! Simulates many points and saves the finished ones after each.

use std::path::Path;

use anyhow::bail;
use serde::Serialize;
use unconvoy_measure::export::json;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::write;
use unconvoy_measure::progress::Progress;

use crate::grid::{self, Cell, Ended};
use crate::messages;

/// Simulates the cells, with progress on standard error, and calls `write` after each.
///
/// # Errors
///
/// The final `write` failed.
pub fn simulate(
    jobs: Option<u32>,
    cells: &[Cell],
    write: &dyn Fn(&Ended) -> anyhow::Result<()>,
) -> anyhow::Result<Ended> {
    let interrupts = Interrupts::of_process()?;
    let jobs = jobs.map(|jobs| jobs as usize);
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut progress = Progress::of("point", cells.len() as u64, false);
    let ended = grid::run(cells, jobs, |results, is_news| {
        let done = results.len() as u64;
        progress.at(done);
        if is_news {
            let so_far = Ended { results: results.to_vec(), failures: Vec::new(), complete: false };
            // Ignore errors here: a disk that is full now may have room later. The final write
            // reports them.
            let _ = write(&so_far);
            progress.now_and_then(done);
        }
        interrupts.check().is_ok()
    });
    progress.finish();
    write(&ended)?;
    Ok(ended)
}

/// Writes `record` to `path` as JSON.
///
/// # Errors
///
/// The file cannot be written.
pub fn write_json(path: &Path, record: &impl Serialize) -> anyhow::Result<()> {
    write(path, json(record)?)
}

/// Reports an interrupt or the failed points as an error.
///
/// # Errors
///
/// A point failed, or a signal arrived.
pub fn finish(ended: &Ended) -> anyhow::Result<()> {
    Interrupts::of_process()?.check()?;
    match ended.failures.as_slice() {
        [] => Ok(()),
        [failure] => bail!("{failure}"),
        [failure, others @ ..] => bail!(messages::more_failures(failure, others.len())),
    }
}
