//! `unconvoy sim --validate`.

use std::io::Write as _;
use std::path::PathBuf;

use unconvoy_bench::output::{can_write, print, write};

use super::{SimArgs, finish, simulate, write_json};
use crate::grid::{Cell, Ended};
use crate::parameters::Parameters;
use crate::validate::{How, Validation};

/// Simulates what was measured, and reports.
pub(super) fn run(args: &SimArgs, machine: Parameters, records: &[PathBuf]) -> anyhow::Result<()> {
    let validation = Validation::of(machine, records)?;
    for file in [&args.json, &args.markdown].into_iter().flatten() {
        can_write(file)?;
    }
    for warning in validation.warnings() {
        // Standard error may be closed, and nobody else is there to be told.
        let _ = writeln!(std::io::stderr(), "unconvoy: {warning}");
    }
    let how = How { seconds: args.seconds, seed: args.seed };
    let is_asked = |cell: &Cell| args.threads.is_empty() || args.threads.contains(&(cell.x as u32));
    let cells: Vec<Cell> = validation.cells(how).into_iter().filter(is_asked).collect();
    let keep = |ended: &Ended| {
        let report = validation.report(ended, how);
        match &args.json {
            Some(path) => write_json(path, &report),
            None => Ok(()),
        }
    };
    let ended = simulate(args, &cells, &keep)?;
    let text = validation.report(&ended, how).markdown();
    if let Some(path) = &args.markdown {
        write(path, &text)?;
    }
    print(&text)?;
    finish(&ended)
}
