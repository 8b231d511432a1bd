//! `unconvoy profile`: which locks a program waits for, where it waits, and which places hold them.
//!
//! The interposer records the waits into a file, which [`recording`] reads. The [`report`] sums
//! them up and takes the names of locks and places from [`names`]. [`text`], [`page`] and the other
//! modules present the report.

mod continuous;
mod ended;
mod export;
mod firefox;
pub(crate) mod flame;
mod glibc;
mod intervals;
pub(crate) mod kernel;
pub(crate) mod names;
mod observer;
pub mod options;
pub mod outside;
pub(crate) mod page;
mod pprof;
mod recording;
pub(crate) mod remarks;
pub(crate) mod report;
pub(crate) mod rows;
mod samples;
pub(crate) mod sources;
pub(crate) mod text;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use unconvoy_measure::child::Outcome;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::{complain, print};
use unconvoy_profile::Recorded;
use unconvoy_syncchar::Report as Prediction;

use crate::advice;
use crate::advice::entry::Entries;
use crate::child::Why;
use crate::messages::predict::cannot_write;
use crate::messages::profile as messages;
use crate::output_file::{distinct, writable, writable_by_library};
use crate::paragraph::{COLUMNS, columns_of_report};
use crate::refusal::Refusal;

use kernel::Whose;
use names::Names;
use options::{LIBC, ProfileArgs, Sort};
use report::Report;

/// Runs the program or reads a profile, reports, and returns the exit status.
///
/// # Errors
///
/// Wrong usage or an output that cannot be written (2), the interposer missing (125), the program
/// missing (127) or not executable (126), or no profile (1).
pub fn profile(args: &ProfileArgs) -> anyhow::Result<u8> {
    if args.load.is_some() && args.lock == LIBC {
        return Err(Refusal::usage(messages::load_without_lock()).into());
    }
    check_outputs(args)?;
    if let Some(folder) = &args.to {
        let is_other = folder.exists() && !folder.is_dir();
        let created = match is_other {
            true => Err(std::io::ErrorKind::NotADirectory.into()),
            false => std::fs::create_dir_all(folder),
        };
        created
            .and_then(|()| tempfile::tempfile_in(folder))
            .map_err(|why| Refusal::usage(messages::output_rejected("--to", folder, why)))?;
    }
    let period_ns = (args.period * 1e6) as u64;
    if let Some(file) = &args.read {
        let recorded = recording::read(file)?;
        return present(args, &evaluated(&recorded, args.sort));
    }
    if args.kernel {
        let whose = match (&args.program[..], args.pid) {
            ([], None) => Whose::Machine(args.seconds),
            ([], Some(pid)) => Whose::Process(pid, args.seconds),
            (program, _) => Whose::Program(program),
        };
        let recording = kernel::record(&whose, period_ns, args.output.as_deref())?;
        let mut report = evaluated(&recording.recorded, args.sort);
        report.remarks.extend(recording.remarks);
        return Ok(present(args, &report)?.max(recording.status));
    }
    if let Some(pid) = args.pid {
        let recording = outside::record(pid, args.seconds, period_ns, args.output.as_deref())?;
        let mut report = evaluated(&recording.recorded, args.sort);
        report.remarks.extend(recording.remarks);
        let written = present(args, &report)?.max(u8::from(!recording.is_written));
        return Ok(recording.signal.map_or(written, |signal| 128 + signal as u8));
    }
    let recording = recording::run(args)?;
    let mut report = evaluated(&recording.main, args.sort);
    report.remarks.extend(recording.remarks());
    let written = present(args, &report)?;
    Ok(match recording.ended.why {
        Some(Why::Interrupted(signal)) => 128 + signal as u8,
        _ => recording.status().max(written),
    })
}

/// Returns the report of a profile.
fn evaluated(recorded: &Recorded, sort: Sort) -> Report {
    with_predictions(recorded, sort, &[])
}

fn with_predictions(recorded: &Recorded, sort: Sort, predictions: &[Prediction]) -> Report {
    let names = Names::new(recorded);
    let mut report = Report::named(recorded, sort, &names);
    report.remarks = remarks::of(recorded, &report);
    if let Some(names) = names.of_files() {
        let entries = Entries::new(recorded, names);
        for row in report.classes.iter_mut().chain(&mut report.locks) {
            row.entries = entries.of(&row.indices);
        }
    }
    report.advice = advice::advise(recorded, &report, predictions);
    report
}

/// Profiles a program under libc's locks, without its output and for at most `limit`. Returns how
/// it ended, and the report with the number of threads, 0 if unknown; `None` if the program
/// recorded nothing.
///
/// # Errors
///
/// The program cannot be started or watched.
pub fn profiled(
    program: &[OsString],
    interposer: &Path,
    limit: Duration,
    interrupts: &Interrupts,
) -> anyhow::Result<(Outcome, Option<(Report, u64)>)> {
    let (outcome, recorded) = recording::run_silently(program, interposer, limit, interrupts)?;
    let report = |(recorded, remarks): recording::Remarked| {
        let mut report = evaluated(&recorded, Sort::Waited);
        report.remarks.extend(remarks);
        (report, recorded.observed.threads)
    };
    Ok((outcome, recorded.map(report)))
}

/// The report on a kept profile, with advice that also uses predictions for the same program.
///
/// # Errors
///
/// The file cannot be read, or is not a profile of this version.
pub fn report_of(file: &Path, predictions: &[Prediction]) -> anyhow::Result<Report> {
    Ok(with_predictions(&recording::read(file)?, Sort::Waited, predictions))
}

/// Checks that the output files can be written, before the program runs.
fn check_outputs(args: &ProfileArgs) -> Result<(), Refusal> {
    let reports = [
        ("--text", &args.text),
        ("--json", &args.json),
        ("--csv", &args.csv),
        ("--pprof", &args.pprof),
        ("--folded", &args.folded),
        ("--folded-holders", &args.folded_holders),
        ("--flamegraph", &args.flamegraph),
        ("--firefox", &args.firefox),
        ("--html", &args.html),
    ];
    let rejected = |option, file, why| Refusal::usage(messages::output_rejected(option, file, why));
    if let Some(file) = &args.output {
        let by_library = args.pid.is_none() && !args.kernel;
        check_profile(file, by_library).map_err(|why| rejected("--output", file, why))?;
    }
    let files = reports.map(|(option, file)| (option, file.as_deref()));
    distinct(&[&files[..], &[("--output", args.output.as_deref())]].concat())?;
    for (option, file) in reports {
        let Some(file) = file else { continue };
        writable(file).map_err(|why| rejected(option, file, why))?;
    }
    Ok(())
}

/// Checks that a profile can be written, and loses no file that is not a profile. The library
/// replaces the file, which must then not be a device either.
fn check_profile(file: &Path, by_library: bool) -> Result<(), String> {
    if by_library {
        writable_by_library(file)?
    } else {
        writable(file)?
    };
    let would_replace = by_library || file.is_file();
    if would_replace && !recording::may_replace(file) {
        return Err(messages::not_replaced().to_string());
    }
    Ok(())
}

/// Encodes a report for one output file.
type Exporter = fn(&Report) -> anyhow::Result<Vec<u8>>;

/// Writes the output files and prints the report. Returns 1 if a file could not be written, or 0.
fn present(args: &ProfileArgs, report: &Report) -> anyhow::Result<u8> {
    let mut status = 0;
    let files: [(&Option<PathBuf>, Exporter); 8] = [
        (&args.json, |report| Ok(export::json(report)?.into_bytes())),
        (&args.csv, |report| Ok(export::csv(report)?.into_bytes())),
        (&args.pprof, |report| Ok(pprof::encode(report, &[]))),
        (&args.folded, |report| Ok(export::folded(&report.waiter_stacks).into_bytes())),
        (&args.folded_holders, |report| Ok(export::folded(&report.holder_stacks).into_bytes())),
        (&args.flamegraph, |report| Ok(flame::file(report).into_bytes())),
        (&args.firefox, |report| Ok(firefox::encode(report)?.into_bytes())),
        (&args.html, |report| Ok(page::render(report)?.into_bytes())),
    ];
    let mut write = |path: &Path, bytes: anyhow::Result<Vec<u8>>| {
        let written = bytes
            .and_then(|bytes| Ok(unconvoy_measure::output::replace(path, &bytes)?))
            .with_context(|| cannot_write(path));
        if let Err(error) = written {
            complain(&format!("{error:#}"));
            status = 1;
        }
    };
    for (path, exporter) in files {
        if let Some(path) = path {
            write(path, exporter(report));
        }
    }
    let columns = if args.text.is_some() { COLUMNS } else { columns_of_report() };
    let text = text::render(report, args.by, args.top, columns);
    match &args.text {
        Some(path) => write(path, Ok(text.into_bytes())),
        None => print(&text)?,
    }
    Ok(status)
}
