//! Where results go: looked at before anything runs, written when all has been seen.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use unconvoy_measure::output::{print, replace, with_suffix};
use unconvoy_syncchar::Report;

use super::messages::complain;
use super::page;
use super::parquet::{self, Keeper};
use crate::predict::options::PredictArgs;
use crate::refusal::Refusal;
use crate::run::writable;

/// Locks that the tables of the text and of the page have at most, of a program and of a kernel, where most locks are members of thousands of objects.
const LISTED: usize = 100;
const LISTED_OF_KERNEL: usize = 40;
/// Locks that a kernel's JSON has at most: it has their kinds.
const KEPT_OF_KERNEL: usize = 400;

/// The files that were asked for.
pub struct Outputs {
    json: Option<PathBuf>,
    html: Option<PathBuf>,
    trace: Option<Unfinished>,
}

/// A trace that is being kept, under another name until it is whole.
struct Unfinished {
    path: PathBuf,
    beside: PathBuf,
    program: PathBuf,
    keeper: Option<Keeper>,
}

impl Outputs {
    /// Looks whether they can be written; the trace is begun.
    ///
    /// # Errors
    ///
    /// One cannot be (2), or `unconvoy-parquet` is missing (125).
    pub fn check(args: &PredictArgs) -> Result<Self, Refusal> {
        let check = |option: &str, file: &Option<PathBuf>| {
            let file = file.as_ref().map(|file| writable(file).map_err(|why| refused(option, file, &why)));
            file.transpose()
        };
        let (json, html) = (check("--json", &args.json)?, check("--html", &args.html)?);
        let trace = check("--keep-trace", &args.keep_trace)?.map(|path| {
            let program = parquet::find().map_err(Refusal::installation)?;
            Unfinished::begin(&path, program).map_err(|error| refused("--keep-trace", &path, &error.to_string()))
        });
        Ok(Self { json, html, trace: trace.transpose()? })
    }

    /// The trace that is being kept, if one is.
    pub fn trace(&mut self) -> Option<&mut Keeper> {
        self.trace.as_mut()?.keeper.as_mut()
    }

    /// Forgets what has been kept of the trace: what was run begins anew.
    ///
    /// # Errors
    ///
    /// It cannot be begun.
    pub fn begin_trace_again(&mut self) -> io::Result<()> {
        if let Some(trace) = &mut self.trace {
            // Ends first: two programs would write one file.
            trace.keeper = None;
            trace.keeper = Some(Keeper::begin(&trace.program, File::create(&trace.beside)?)?);
        }
        Ok(())
    }

    /// Writes what was asked for and prints the report of the `top` locks; 1 if something could not be written, which costs nothing else.
    ///
    /// # Errors
    ///
    /// It cannot be printed.
    pub fn write(&mut self, report: &Report, top: usize) -> anyhow::Result<u8> {
        let report = &told(report);
        let listed_locks = listed_of(report);
        let mut status = 0;
        let mut note = |written: anyhow::Result<()>| {
            if let Err(error) = written {
                complain(&format!("{error:#}"));
                status = 1;
            }
        };
        let write = |path: &Path, bytes: anyhow::Result<Vec<u8>>| {
            bytes
                .and_then(|bytes| Ok(replace(path, &bytes)?))
                .with_context(|| format!("cannot write {}", path.display()))
        };
        if let Some(path) = &self.json {
            let json = serde_json::to_string_pretty(report).map_err(anyhow::Error::from);
            note(write(path, json.map(|json| format!("{json}\n").into_bytes())));
        }
        if let Some(path) = &self.html {
            note(write(path, page::render(report, listed_locks, top)));
        }
        if let Some(trace) = &mut self.trace {
            note(trace.finish());
        }
        print(&listed(report).text(top))?;
        Ok(status)
    }
}

impl Unfinished {
    fn begin(path: &Path, program: PathBuf) -> io::Result<Self> {
        let beside = with_suffix(path, ".unfinished");
        let keeper = Some(Keeper::begin(&program, File::create(&beside)?)?);
        Ok(Self { path: path.to_path_buf(), beside, program, keeper })
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let Some(keeper) = self.keeper.take() else { return Ok(()) };
        let finished = keeper.finish().and_then(|()| std::fs::rename(&self.beside, &self.path));
        finished.with_context(|| format!("cannot keep the trace in {}", self.path.display()))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Gone under this name if all went well.
        let _ = std::fs::remove_file(&self.beside);
    }
}

/// The report with as many locks as one can read.
fn listed(report: &Report) -> Cow<'_, Report> {
    let most = listed_of(report);
    if report.locks.len() <= most {
        return Cow::Borrowed(report);
    }
    let mut listed = report.clone();
    listed.locks.truncate(most);
    listed.remarks.push(format!("{} more locks are in the JSON report only.", report.locks.len() - most));
    Cow::Owned(listed)
}

fn listed_of(report: &Report) -> usize {
    if report.classes.is_empty() { LISTED } else { LISTED_OF_KERNEL }
}

/// The report as any output has it.
fn told(report: &Report) -> Cow<'_, Report> {
    if report.classes.is_empty() || report.locks.len() <= KEPT_OF_KERNEL {
        return Cow::Borrowed(report);
    }
    let mut told = report.clone();
    told.locks.truncate(KEPT_OF_KERNEL);
    let hidden = report.locks.len() - KEPT_OF_KERNEL;
    told.remarks.push(format!("{hidden} more locks, held for less, are told by their kind only."));
    Cow::Owned(told)
}

fn refused(option: &str, file: &Path, why: &str) -> Refusal {
    Refusal::usage(format!("{option} {}: {why}", file.display()))
}
