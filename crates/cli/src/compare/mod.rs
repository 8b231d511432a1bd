//! `unconvoy compare`: the same program under several locks, interleaved, with everything kept.
//!
//! [`plan`] says what runs in which order, [`session`] goes through the plan, [`summary`] condenses; the exporters of [`crate::export`] render the [`record`].

mod command;
pub mod context;
mod extract;
mod failure;
pub mod plan;
pub mod record;
mod session;
pub mod summary;

use std::io::Write;
use std::path::{Path, PathBuf};

use unconvoy_bench::context::processors;
use unconvoy_bench::interrupt::Interrupts;
use unconvoy_bench::library;

use crate::cli::CompareArgs;
use crate::export::{self, Destination};
use crate::inspect;
use crate::refusal::Refusal;

use plan::Plan;
use session::{Ending, Session};

/// Where results go that the user did not ask for but must not lose.
const PARTIAL: &str = "unconvoy-compare-partial.json";

/// Runs the comparison and returns the exit status: 0, 1 after a failed run or export, 128 plus
/// the signal's number after Ctrl-C.
///
/// # Errors
///
/// Wrong usage (2), the interposer missing (125), the program missing (127) or not executable
/// (126): whatever is wrong before the first run has ended.
pub fn compare(args: &CompareArgs) -> anyhow::Result<u8> {
    let plan = Plan::new(args, processors())?;
    let destinations = export::destinations(args);
    for destination in &destinations {
        destination.check()?;
    }
    let replaces = plan.configurations.iter().any(|configuration| configuration.lock.is_some());
    let library = if replaces { Some(library::find().map_err(Refusal::installation)?) } else { None };
    if inspect::resolve(&plan.program[0]).is_none() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(Refusal::not_started(&plan.program[0], &error).into());
    }
    let interrupts = Interrupts::install()?;
    let mut session = Session::new(args, plan, library, &interrupts);
    if let Some(warning) = inspect::warning(&args.program[0]).filter(|_| replaces) {
        session.warn(warning);
    }

    let ending = session.run(args.json.as_deref())?;
    let record = session.record(&ending);
    let mut status = ending.status();
    if let Ending::Failed(failure) = &ending {
        complain(&failure.to_string());
    }
    for destination in &destinations {
        // Without a run there is nothing to draw, and the format says so itself.
        if let Err(error) = destination.write(&record) {
            complain(&format!("{error:#}"));
            status = status.max(1);
        }
    }
    if !matches!(ending, Ending::Complete) && args.json.is_none() && !record.runs.is_empty() {
        keep_partial(&record);
    }
    let text = if args.quiet { format!("{}\n", record.conclusion) } else { export::table::render(&record) };
    for warning in &record.warnings {
        complain(&format!("warning: {warning}"));
    }
    if let Err(error) = crate::print(text) {
        complain(&format!("cannot print the results: {error}"));
        status = status.max(1);
    }
    Ok(status)
}

/// Saves what was measured to the current directory, or where temporary files go.
fn keep_partial(record: &record::Record) {
    let places = [PathBuf::from(PARTIAL), std::env::temp_dir().join(PARTIAL)];
    let write = |path: &Path| Destination::json(path).write(record);
    match places.iter().find(|path| write(path).is_ok()) {
        Some(path) => complain(&format!(
            "the {} finished runs are kept in {}",
            record.runs.len(),
            std::path::absolute(path).unwrap_or_else(|_| path.clone()).display()
        )),
        None => complain(&format!(
            "the finished runs could not be kept: neither {} nor {} can be written; use --json",
            places[0].display(),
            places[1].display()
        )),
    }
}

/// Standard error may be closed, which must not cost the results.
fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "unconvoy: {line}");
}
