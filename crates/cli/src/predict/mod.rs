//! `unconvoy predict`: what would optimistic concurrency gain, lock by lock?
//!
//! The program runs twice: natively under the interposer, for times ([`native`]), then under QEMU
//! with the plug-in, for address sets ([`emulated`]). A [`pipe`] carries the address sets to the
//! analysis ([`trace`]) and, on request, to a kept trace. [`join`] matches the locks of both runs
//! and [`names`] names them. `--analyse` starts from a kept trace, which contains all of this
//! ([`kept`]). [`recorded`] reads one lock's sections from it for the study. `--kernel` profiles a
//! kernel in a guest ([`kernel`]).

mod conditional;
mod costs;
mod emulated;
mod ending;
mod join;
mod kept;
pub(crate) mod kernel;
mod names;
mod native;
pub mod options;
mod outputs;
mod page;
pub mod parquet;
mod pipe;
mod progress;
pub mod recorded;
mod remarks;
pub(crate) mod trace;

use std::collections::HashMap;
use std::path::PathBuf;

use unconvoy::catalogue::environment;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::parts::{self, Part};
use unconvoy_syncchar::{Analysis, LockTimes, Options, Report, Run};

use crate::executable;
use crate::output_file;
use crate::refusal::Refusal;

use crate::child::Why;
use crate::images::Images;
use crate::names::Names;
use emulated::Emulator;
use ending::keep;
use kept::{Kept, Version};
use names::Namer;
use native::Native;
use options::PredictArgs;
use outputs::Outputs;
use progress::report_progress;
use trace::{Context, Trace};

/// QEMU's plug-in that samples address sets.
const PLUGIN: Part = Part {
    name: "libunconvoy_plugin_user.so",
    variable: Some(environment::PLUGIN.name),
    package: "unconvoy-plugin-user",
};

/// Runs the program twice or reads a trace, reports, and returns the exit status: 0, 1 if nothing
/// was collected or a file could not be written, 128 plus the signal's number after Ctrl-C.
///
/// # Errors
///
/// An error before the first run: wrong usage or an output that cannot be written (2), a part of
/// unconvoy or QEMU missing (125), the program missing (127) or not executable (126). A trace that
/// cannot be analysed (1).
pub fn predict(args: &PredictArgs) -> anyhow::Result<u8> {
    let mut processors = args.processors.clone();
    processors.sort_unstable();
    processors.dedup();
    let options = Options {
        processors,
        window: args.window,
        widest: args.widen,
        seed: args.seed,
        ..Options::default()
    };
    let analysis =
        Analysis::new(options.clone()).map_err(|error| Refusal::usage(error.to_string()))?;
    let Some(file) = &args.analyse else {
        // Before the outputs: an interrupt must not leave their unfinished files.
        let interrupts = Interrupts::install()?;
        let outputs = Outputs::check(args)?;
        return if args.guest.kernel.is_some() {
            kernel::profile(args, analysis, &options, outputs, &interrupts)
        } else {
            run_twice(args, analysis, &options, outputs, &interrupts)
        };
    };
    let mut outputs = Outputs::check(args)?;
    let trace = Trace::read(trace::open(file)?, analysis, None);
    if let Some(why) = &trace.cut_off {
        // A report of the part before the error would look like a report of the whole trace.
        anyhow::bail!("{}: {why}", file.display());
    }
    let kept = trace.end.as_ref().and_then(|end| end.kept.as_ref());
    let is_unchanged =
        |path: &PathBuf| kept.is_none_or(|kept| kept.files.get(path).copied() == Version::of(path));
    let unchanged = |index: usize| {
        let path = &trace.mappings[index].path;
        is_unchanged(path).then(|| path.clone())
    };
    let names = Names::new(Images::located(&trace.mappings, unchanged));
    let report = analysed(&trace, &names, &options);
    outputs.write(&report, args.top)
}

/// Returns the report of a kept trace.
fn analysed(trace: &Trace, names: &Names, options: &Options) -> Report {
    let kept = trace.end.as_ref().and_then(|end| end.kept.clone()).unwrap_or_default();
    let times = kept.times.into_iter().collect();
    let mut run = Run { clock: kept.clock, costs: kept.costs, ..run(trace, &[], kept.seconds) };
    if !kept.program.is_empty() {
        (run.program, run.source) = (kept.program, kept.source);
    }
    let mut report =
        Report::new(run, options, trace.analyses.clone(), times, &Namer::new(trace, names));
    report.remarks.splice(0..0, kept.remarks);
    report
}

/// Finds QEMU's user mode and the plug-in.
///
/// # Errors
///
/// The message says what to install (status 125).
pub fn emulator() -> Result<Emulator, Refusal> {
    Emulator::find(PLUGIN.find().map_err(Refusal::installation)?)
}

fn run_twice(
    args: &PredictArgs,
    analysis: Analysis,
    options: &Options,
    mut outputs: Outputs,
    interrupts: &Interrupts,
) -> anyhow::Result<u8> {
    let program = &args.program[0];
    let path = executable::resolve(program);
    let path =
        path.ok_or_else(|| Refusal::not_started(program, &std::io::ErrorKind::NotFound.into()))?;
    // The same error as execve(2)'s, for directories too.
    if !path.is_file() || nix::unistd::access(&path, nix::unistd::AccessFlags::X_OK).is_err() {
        return Err(Refusal::not_started(program, &nix::errno::Errno::EACCES.into()).into());
    }
    let interposer = parts::interposer(environment::LIBRARY.name).map_err(Refusal::installation)?;
    let emulator = emulator()?;
    let folder = output_file::temporary("unconvoy-syncchar-")?;

    let input = native::Input::remember();
    report_progress("running the program natively, for times");
    let native = Native::run(args, &path, &interposer, folder.path(), interrupts)?;
    let mut remarks = native.remarks.clone();
    let interrupted = |why: Option<Why>| match why {
        Some(Why::Interrupted(signal)) => Some(signal),
        _ => None,
    };
    let mut stopped = interrupted(native.ended.why);
    let mut status = 0;
    let trace = if stopped.is_some() {
        remarks.push(
            "No address sets: the native run was interrupted, so the program was not emulated."
                .into(),
        );
        Trace::default()
    } else {
        input.rewind();
        report_progress("running the program emulated, for address sets");
        let keep = outputs.trace();
        let (ended, trace) =
            emulator.run(args, &path, folder.path(), analysis, keep, interrupts)?;
        stopped = interrupted(ended.why);
        remarks.extend(remarks::of_emulated(&ended, &trace, &native));
        if trace.context.is_none() && stopped.is_none() {
            status = 1;
        }
        trace
    };
    let names = Names::new(Images::new(&trace.mappings));
    let mut times: HashMap<u32, LockTimes> = HashMap::new();
    let is_of_another = trace.end.as_ref().is_some_and(|end| end.replaced_by_exec);
    if is_of_another && native.record.is_some() {
        remarks.push(
            "No lock times: the native run's are of the program that followed by exec.".into(),
        );
    }
    if let Some(record) = native.record.as_ref().filter(|_| !is_of_another) {
        let joined = join::join(record, trace.locks.values(), names.images());
        times = joined.times;
        if trace.context.is_some() {
            remarks.extend(joined.remarks);
        }
    }
    let seconds = native.seconds().filter(|_| !is_of_another);
    let names = Namer::new(&trace, &names);
    let costs = costs::measure();
    let run = Run { costs, ..run(&trace, &args.program, seconds) };
    let mut report = Report::new(run, options, trace.analyses.clone(), times.clone(), &names);
    let kept = || Kept {
        seconds,
        costs,
        times: times.into_iter().collect(),
        remarks: remarks.clone(),
        ..names.keep()
    };
    status = status.max(keep(&trace, &mut outputs, kept)?);
    report.remarks.splice(0..0, remarks);
    let written = outputs.write(&report, args.top)?;
    Ok(stopped.map_or(status.max(written), |signal| 128 + signal as u8))
}

fn run(trace: &Trace, program: &[std::ffi::OsString], seconds: Option<f64>) -> Run {
    let given = || program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match &trace.context {
        Some(Context { source, program: emulated, .. }) => {
            let program = if program.is_empty() { emulated.clone() } else { given() };
            Run { source: source.clone(), program, seconds, ..Run::default() }
        }
        None => Run { source: "qemu-user".into(), program: given(), seconds, ..Run::default() },
    }
}
