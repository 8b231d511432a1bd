//! `unconvoy sim --validate`.

use std::path::Path;

use unconvoy_measure::output::{can_write, complain, print, write};

use crate::grid::{Cell, Ended};
use crate::points::{finish, simulate, write_json};
use crate::validate::{How, Validation};

/// Simulates what was measured, at these thread counts if there are any, and reports.
pub(super) fn run(
    validation: &Validation,
    how: How,
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
    let cells: Vec<Cell> = validation.cells(how).into_iter().filter(is_asked).collect();
    let keep = |ended: &Ended| {
        let report = validation.report(ended, how);
        json.map_or(Ok(()), |path| write_json(path, &report))
    };
    let ended = simulate(jobs, &cells, &keep)?;
    let text = validation.report(&ended, how).markdown();
    if let Some(path) = markdown {
        write(path, &text)?;
    }
    print(&text)?;
    finish(&ended)
}
