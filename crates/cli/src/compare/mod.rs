//! `unconvoy compare`: the same program under several locks, interleaved, with everything kept.
//!
//! [`options`] is what a user may write; [`plan`] says what runs, [`session`] measures it,
//! [`summary`] condenses, and the exporters of [`export`] render the [`record`].

mod command;
mod configuration;
mod context;
mod export;
mod extract;
mod failure;
pub mod options;
mod plan;
mod record;
mod run;
mod session;
mod summary;

use std::path::{Path, PathBuf};

use unconvoy::catalogue::environment;
use unconvoy_measure::context::processors;
use unconvoy_measure::export::{Destination, Json};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::{complain, print_all};
use unconvoy_measure::parts;

use crate::inspect;
use crate::refusal::Refusal;
use context::Context;
use options::CompareArgs;
use record::Record;
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
    let plan = args.plan(processors())?;
    let destinations = export::destinations(args.json.as_deref(), args.csv.as_deref(), args.plot.as_deref());
    for destination in &destinations {
        destination.check().map_err(Refusal::usage)?;
    }
    let replaces = plan.configurations.iter().any(|configuration| configuration.lock.is_some());
    let library = if replaces {
        Some(parts::interposer(environment::LIBRARY.name).map_err(Refusal::installation)?)
    } else {
        None
    };
    if inspect::resolve(&plan.program[0]).is_none() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(Refusal::not_started(&plan.program[0], &error).into());
    }
    let interrupts = Interrupts::install()?;
    let context = Context::capture();
    let mut warnings: Vec<String> = context.warning().into_iter().collect();
    warnings.extend(inspect::warning(&args.program[0]).filter(|_| replaces));
    let mut session = Session {
        plan,
        title: args.title.clone(),
        metric: args.compared(),
        printed: args.printed(),
        timeout: args.timeout,
        library,
        kept: args.json.as_ref().map(|path| Destination::new(Json, path)),
        interrupts: &interrupts,
        context,
        warnings,
        runs: Vec::new(),
    };

    let ending = session.run(args.quiet)?;
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
    if let Err(error) = print_all(text) {
        complain(&format!("cannot print the results: {error}"));
        status = status.max(1);
    }
    Ok(status)
}

/// Saves what was measured to the current directory, or where temporary files go.
fn keep_partial(record: &Record) {
    let places = [PathBuf::from(PARTIAL), std::env::temp_dir().join(PARTIAL)];
    let write = |path: &Path| Destination::new(Json, path).write(record);
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
