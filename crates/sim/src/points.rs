//! Simulates many points, and keeps what there is after each.

use std::path::Path;

use anyhow::bail;
use serde::Serialize;
use unconvoy_measure::export::json;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::write;
use unconvoy_measure::progress::Progress;

use crate::grid::{self, Cell, Ended};

/// Simulates the cells, with progress on standard error; has what there is written after each.
///
/// # Errors
///
/// The last writing failed.
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
            // A disk that is full now may have room at the end, where failing is an error.
            let _ = write(&so_far);
            progress.now_and_then(done);
        }
        interrupts.check().is_ok()
    });
    progress.finish();
    write(&ended)?;
    Ok(ended)
}

/// Writes a record.
///
/// # Errors
///
/// The file cannot be written.
pub fn write_json(path: &Path, record: &impl Serialize) -> anyhow::Result<()> {
    write(path, json(record)?)
}

/// What did not go well is an error at the end.
///
/// # Errors
///
/// A point failed, or a signal came.
pub fn finish(ended: &Ended) -> anyhow::Result<()> {
    Interrupts::of_process()?.check()?;
    match ended.failures.as_slice() {
        [] => Ok(()),
        [failure] => bail!("{failure}"),
        [failure, others @ ..] => bail!("{failure}\nand {} more points failed", others.len()),
    }
}
