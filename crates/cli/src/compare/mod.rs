//! `unconvoy compare`: measures one program under several locks, interleaved.
//!
//! [`options`] is the command line, [`plan`] the list of runs. [`session`] measures them,
//! [`summary`] condenses them, and the exporters of [`export`] render the [`record`].

pub mod command;
pub mod configuration;
pub mod context;
mod export;
pub mod extract;
pub mod failure;
pub mod options;
pub mod plan;
mod ratio;
pub mod record;
mod run;
mod session;
mod summary;
pub mod trial;

use std::path::Path;

use unconvoy::catalogue::environment;
use unconvoy_measure::chart::PNG;
use unconvoy_measure::context::processors;
use unconvoy_measure::export::{Destination, Json};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::{complain, free_name, print_all};
use unconvoy_measure::parts;

use crate::executable;
use crate::messages::compare as messages;
use crate::output_file::distinct;
use crate::refusal::Refusal;
use context::Context;
use options::CompareArgs;
use record::Record;
use session::{Ending, Session};
use trial::Runner;

/// File for the results of an incomplete comparison without `--json`.
const PARTIAL: &str = "unconvoy-compare-partial.json";

/// Runs the comparison and returns the exit status: 0, 1 after a failed run or export, 128 plus the
/// signal's number after Ctrl-C.
///
/// # Errors
///
/// An error before the first run ends: wrong usage (2), no interposer or rasteriser (125), program
/// not found (127) or not executable (126).
pub fn compare(args: &CompareArgs) -> anyhow::Result<u8> {
    let mut plan = args.plan(processors())?;
    let first = plan.threads.first().copied().flatten();
    let program = plan::words(&plan.program, first).swap_remove(0);
    let mut without_effect = Vec::new();
    for configuration in &mut plan.configurations {
        without_effect.extend(configuration.resolve(&program)?);
    }
    let destinations =
        export::destinations(args.json.as_deref(), args.csv.as_deref(), args.plot.as_deref());
    let figures = args.plot.as_deref().map(export::figures).unwrap_or_default();
    let mut outputs = vec![("--json", args.json.as_deref()), ("--csv", args.csv.as_deref())];
    outputs.extend(figures.iter().map(|figure| ("--plot", Some(figure.as_path()))));
    distinct(&outputs)?;
    if let [only] = &figures[..]
        && export::is_png(only)
    {
        PNG.find().map_err(Refusal::installation)?;
    }
    for destination in &destinations {
        destination.check().map_err(Refusal::usage)?;
    }
    let replaces = plan.configurations.iter().any(|configuration| configuration.lock.is_some());
    let library = if replaces {
        Some(parts::interposer(environment::LIBRARY.name).map_err(Refusal::installation)?)
    } else {
        None
    };
    if executable::resolve(&program).is_none() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(Refusal::not_started(&program, &error).into());
    }
    let interrupts = Interrupts::install()?;
    let context = Context::capture();
    let mut warnings: Vec<String> = context.warning().into_iter().collect();
    warnings.extend(without_effect);
    warnings.extend(executable::warning(&program).filter(|_| replaces));
    let mut session = Session {
        plan,
        title: args.title.clone(),
        metric: args.measured.compared(),
        runner: Runner { printed: args.printed(), library, interrupts: &interrupts },
        timeout: args.measured.timeout,
        kept: args.json.as_ref().map(|path| Destination::new(Json, path)),
        context,
        warnings,
        runs: Vec::new(),
    };

    let ending = session.run(args.measured.quiet)?;
    let record = session.record(&ending);
    let mut status = ending.status();
    if let Ending::Failed(failure) = &ending {
        complain(&failure.to_string());
    }
    let mut is_kept = args.json.is_some() || matches!(ending, Ending::Complete);
    for (index, destination) in destinations.iter().enumerate() {
        // A record without runs does not replace an earlier result. The other exporters report it.
        if index == 0 && record.runs.is_empty() && args.json.as_deref().is_some_and(Path::exists) {
            continue;
        }
        if let Err(error) = destination.write(&record) {
            complain(&format!("{error:#}"));
            status = status.max(1);
            // The JSON file is the first.
            is_kept &= args.json.is_some() && index > 0;
        }
    }
    if !is_kept && !record.runs.is_empty() {
        keep_partial(&record);
    }
    let text = if args.measured.quiet {
        format!("{}\n", record.conclusion)
    } else {
        export::table::render(&record)
    };
    for warning in &record.warnings {
        complain(&format!("warning: {warning}"));
    }
    if let Err(error) = print_all(text) {
        complain(&error.to_string());
        status = status.max(1);
    }
    Ok(status)
}

/// Saves the runs to the current directory, or to the temporary directory, where only a new file is
/// safe: another user may have placed a link there.
fn keep_partial(record: &Record) {
    let write = |path: &Path| Destination::new(Json, path).write(record);
    let free = free_name(Path::new(PARTIAL), |path| !path.exists());
    let here = || write(&free).ok().map(|()| free.clone());
    let elsewhere = || {
        let folder = tempfile::Builder::new().prefix("unconvoy-").tempdir().ok()?;
        let path = folder.path().join(PARTIAL);
        write(&path).ok()?;
        let _ = folder.keep();
        Some(path)
    };
    match here().or_else(elsewhere) {
        Some(path) => complain(&messages::runs_saved(
            record.runs.len(),
            &std::path::absolute(&path).unwrap_or(path),
        )),
        None => complain(&messages::cannot_save_runs(Path::new(PARTIAL), &std::env::temp_dir())),
    }
}
