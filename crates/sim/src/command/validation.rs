//! `unconvoy sim --validate`.

use std::path::Path;

use unconvoy_measure::output::{can_write, complain, print, write};

use crate::grid::{Cell, Ended};
use crate::messages;
use crate::points::{Simulated, finish, simulate, write_json};
use crate::validate::{Options, Report, Validation};

/// Simulates the recorded rows, restricted to `threads` unless that is empty, and prints the
/// report.
pub(super) fn run(
    validation: &Validation,
    options: Options,
    threads: &[u32],
    jobs: Option<u32>,
    json: Option<&Path>,
    markdown: Option<&Path>,
) -> anyhow::Result<()> {
    for file in [json, markdown].into_iter().flatten() {
        can_write(file)?;
    }
    for warning in validation.warnings() {
        complain(&warning);
    }
    let is_asked = |cell: &Cell| threads.is_empty() || threads.contains(&(cell.x as u32));
    let cells: Vec<Cell> = validation.cells(options).into_iter().filter(is_asked).collect();
    let keep = |ended: &Ended, when| {
        let report = reported(validation, ended, options, threads);
        json.map_or(Ok(()), |path| write_json(path, when, &report))
    };
    let Simulated { ended, written } = simulate(jobs, &cells, &keep)?;
    let text = reported(validation, &ended, options, threads).markdown();
    print(&text)?;
    if let Some(path) = markdown {
        write(path, &text)?;
    }
    written?;
    finish(&ended)
}

fn reported<'a>(
    validation: &'a Validation,
    ended: &'a Ended,
    options: Options,
    threads: &[u32],
) -> Report<'a> {
    let mut report = validation.report(ended, options);
    report.left_out.extend((!threads.is_empty()).then(|| messages::other_thread_counts().into()));
    report
}
