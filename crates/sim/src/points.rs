//! Simulates many points and saves the finished ones after each.

use std::path::Path;

use anyhow::bail;
use serde::Serialize;
use unconvoy_measure::export::json;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::{is_replaceable, write};
use unconvoy_measure::progress::Progress;

use crate::grid::{self, Cell, Ended};
use crate::messages;

/// The results, and whether the last `write` succeeded. A caller first shows the results.
pub struct Simulated {
    /// The results.
    pub ended: Ended,
    /// The error of the last `write`.
    pub written: anyhow::Result<()>,
}

/// Simulates the cells, with progress on standard error, and calls `write` after each and at the
/// end.
///
/// # Errors
///
/// Signals cannot be caught.
pub fn simulate(
    jobs: Option<u32>,
    cells: &[Cell],
    write: &dyn Fn(&Ended, Write) -> anyhow::Result<()>,
) -> anyhow::Result<Simulated> {
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
            let _ = write(&so_far, Write::SoFar);
            progress.now_and_then(done);
        }
        interrupts.check().is_ok()
    });
    progress.finish();
    let written = write(&ended, Write::Last);
    Ok(Simulated { ended, written })
}

/// When a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// After a point, in case the rest is interrupted.
    SoFar,
    /// After all points.
    Last,
}

/// Writes `record` to `path` as JSON. A pipe gets the last one only.
///
/// # Errors
///
/// The file cannot be written.
pub fn write_json(path: &Path, when: Write, record: &impl Serialize) -> anyhow::Result<()> {
    if when == Write::SoFar && !is_replaceable(path) {
        return Ok(());
    }
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
