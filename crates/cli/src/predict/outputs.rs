//! The outputs of `predict`: checked before anything runs, written at the end.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use unconvoy_measure::output::{complain, print, replace, with_suffix};
use unconvoy_syncchar::Report;

use super::page;
use super::parquet::{self, Keeper};
use crate::messages::predict as messages;
use crate::output_file::{distinct, replaceable, writable};
use crate::predict::options::PredictArgs;
use crate::refusal::Refusal;

/// Largest number of locks in the tables of the text and the page.
const LISTED: usize = 100;
/// The same for a kernel, where thousands of objects each have a lock of the same kind. The table
/// of kinds covers all of them.
const LISTED_OF_KERNEL: usize = 40;
/// Largest number of locks in a kernel's JSON, which also has the kinds of locks.
const KEPT_OF_KERNEL: usize = 400;

/// The requested files.
pub struct Outputs {
    json: Option<PathBuf>,
    html: Option<PathBuf>,
    trace: Option<Unfinished>,
}

/// A trace being kept, under a temporary name until it is complete.
struct Unfinished {
    path: PathBuf,
    beside: PathBuf,
    program: PathBuf,
    keeper: Option<Keeper>,
}

impl Outputs {
    /// Checks that the files can be written, and starts the trace.
    ///
    /// # Errors
    ///
    /// A file cannot be written (2), or `unconvoy-parquet` is missing (125).
    pub fn check(args: &PredictArgs) -> Result<Self, Refusal> {
        distinct(&[
            ("--analyse", args.analyse.as_deref()),
            ("--json", args.json.as_deref()),
            ("--html", args.html.as_deref()),
            ("--keep-trace", args.keep_trace.as_deref()),
        ])?;
        let check = |option: &str, file: &Option<PathBuf>| {
            let file =
                file.as_ref().map(|file| writable(file).map_err(|why| refused(option, file, &why)));
            file.transpose()
        };
        let (json, html) = (check("--json", &args.json)?, check("--html", &args.html)?);
        let trace = args.keep_trace.as_ref().map(|file| {
            let path = replaceable(file).map_err(|why| refused("--keep-trace", file, &why))?;
            let program = parquet::find().map_err(Refusal::installation)?;
            Unfinished::begin(&path, program)
                .map_err(|error| refused("--keep-trace", &path, &error.to_string()))
        });
        Ok(Self { json, html, trace: trace.transpose()? })
    }

    /// Returns the trace being kept, if there is one.
    pub fn trace(&mut self) -> Option<&mut Keeper> {
        self.trace.as_mut()?.keeper.as_mut()
    }

    /// Gives up the trace being kept: nothing is written in its name.
    pub fn discard_trace(&mut self) {
        self.trace = None;
    }

    /// Discards the records so far, because the run is repeated.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn restart_trace(&mut self) -> io::Result<()> {
        if let Some(trace) = &mut self.trace {
            // End the previous program first: two must not write one file.
            trace.keeper = None;
            trace.keeper = Some(Keeper::begin(&trace.program, File::create(&trace.beside)?)?);
        }
        Ok(())
    }

    /// Writes the files and prints the report of the `top` locks. Returns 1 if a file could not be
    /// written; the others are written anyway.
    ///
    /// # Errors
    ///
    /// The report cannot be printed.
    pub fn write(&mut self, report: &Report, top: usize) -> anyhow::Result<u8> {
        let report = &limited(report);
        let listed_locks = listed_of(report);
        let mut status = 0;
        let mut check_written = |written: anyhow::Result<()>| {
            if let Err(error) = written {
                complain(&format!("{error:#}"));
                status = 1;
            }
        };
        let write = |path: &Path, bytes: anyhow::Result<Vec<u8>>| {
            bytes
                .and_then(|bytes| Ok(replace(path, &bytes)?))
                .with_context(|| messages::cannot_write(path))
        };
        if let Some(path) = &self.json {
            let json = serde_json::to_string_pretty(report).map_err(anyhow::Error::from);
            check_written(write(path, json.map(|json| format!("{json}\n").into_bytes())));
        }
        if let Some(path) = &self.html {
            check_written(write(path, page::render(report, listed_locks, top)));
        }
        if let Some(trace) = &mut self.trace {
            check_written(trace.finish());
        }
        print(&listed(report).text(top))?;
        Ok(status)
    }
}

#[cfg(test)]
impl Outputs {
    /// Returns outputs that only keep a trace, which `program` packs.
    pub fn of_trace(path: &Path, program: PathBuf) -> io::Result<Self> {
        Ok(Self { json: None, html: None, trace: Some(Unfinished::begin(path, program)?) })
    }
}

impl Unfinished {
    fn begin(path: &Path, program: PathBuf) -> io::Result<Self> {
        let beside = with_suffix(path, ".unfinished");
        // The name is known, so somebody else may have placed a link there.
        let _ = std::fs::remove_file(&beside);
        let keeper = Some(Keeper::begin(&program, File::create_new(&beside)?)?);
        Ok(Self { path: path.to_path_buf(), beside, program, keeper })
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let Some(keeper) = self.keeper.take() else { return Ok(()) };
        let finished = keeper.finish().and_then(|()| std::fs::rename(&self.beside, &self.path));
        finished.with_context(|| messages::cannot_keep_trace_in(&self.path))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Removes an incomplete file; a complete one has been renamed.
        let _ = std::fs::remove_file(&self.beside);
    }
}

/// Limits the report to a readable number of locks.
fn listed(report: &Report) -> Cow<'_, Report> {
    let most = listed_of(report);
    if report.locks.len() <= most {
        return Cow::Borrowed(report);
    }
    let mut listed = report.clone();
    listed.locks.truncate(most);
    listed.remarks.push(format!("The JSON report lists {} more locks.", report.locks.len() - most));
    Cow::Owned(listed)
}

fn listed_of(report: &Report) -> usize {
    if report.classes.is_empty() { LISTED } else { LISTED_OF_KERNEL }
}

/// Limits a kernel's report for every output.
fn limited(report: &Report) -> Cow<'_, Report> {
    if report.classes.is_empty() || report.locks.len() <= KEPT_OF_KERNEL {
        return Cow::Borrowed(report);
    }
    let mut limited = report.clone();
    limited.locks.truncate(KEPT_OF_KERNEL);
    let hidden = report.locks.len() - KEPT_OF_KERNEL;
    limited.remarks.push(format!("{hidden} locks with less time held appear only by kind."));
    Cow::Owned(limited)
}

fn refused(option: &str, file: &Path, why: &str) -> Refusal {
    Refusal::usage(messages::option_rejected(option, file.display(), why))
}
