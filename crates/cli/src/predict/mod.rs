//! `unconvoy predict`: what would optimistic concurrency gain, lock by lock?
//!
//! The program runs twice: natively under the interposer, for times ([`native`]), then under QEMU with the plug-in, for address sets ([`emulated`]), which come
//! through a [`pipe`], are read ([`trace`]) into the analysis and perhaps kept. [`join`] says which lock is which in both runs, [`names`] what they are called. `--analyse` starts
//! from a kept trace instead, which has all of that in it ([`kept`]). `--kernel` asks the same of a kernel in a guest ([`kernel`]).

mod child;
mod conditional;
mod emulated;
mod ending;
mod images;
mod join;
mod kept;
mod kernel;
mod messages;
mod names;
mod native;
pub mod options;
mod outputs;
mod page;
mod parquet;
mod pipe;
mod remarks;
mod trace;

use std::collections::HashMap;

use unconvoy::catalogue::environment;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::parts::{self, Part};
use unconvoy_syncchar::{Analysis, Clock, LockTimes, Options, Report, Run};

use crate::inspect;
use crate::refusal::Refusal;

use child::Why;
use emulated::Emulator;
use ending::keep;
use images::Images;
use kept::Kept;
use messages::say;
use names::Namer;
use native::Native;
use options::PredictArgs;
use outputs::Outputs;
use trace::{Context, Trace};

/// QEMU's plug-in that samples address sets.
const PLUGIN: Part = Part {
    name: "libunconvoy_plugin_user.so",
    variable: Some(environment::PLUGIN.name),
    package: "unconvoy-plugin-user",
};

/// Runs the program twice or reads a trace, reports, and returns the exit status: 0, 1 if nothing could be collected or a file could not be written, 128 plus the
/// signal's number after Ctrl-C.
///
/// # Errors
///
/// Wrong usage or an output that cannot be written (2), a part of unconvoy or QEMU missing (125), the program missing (127) or not
/// executable (126): whatever is wrong before the first run. A trace that cannot be analysed (1).
pub fn predict(args: &PredictArgs) -> anyhow::Result<u8> {
    let mut processors = args.processors.clone();
    processors.sort_unstable();
    processors.dedup();
    let options = Options { processors, window: args.window, seed: args.seed, ..Options::default() };
    let analysis = Analysis::new(options.clone()).map_err(|error| Refusal::usage(error.to_string()))?;
    let mut outputs = Outputs::check(args)?;
    match &args.analyse {
        Some(file) => {
            let trace = Trace::read(trace::open(file)?, analysis, None);
            if let Some(why) = &trace.cut_off {
                // What came before would be half of a trace that somebody believes to be whole.
                anyhow::bail!("{}: {why}", file.display());
            }
            let images = Images::new(&trace.mappings);
            let report = analysed(&trace, &images, &options);
            outputs.write(&report, args.top)
        }
        None if args.guest.kernel.is_some() => kernel::profile(args, analysis, &options, outputs),
        None => run_twice(args, analysis, &options, outputs),
    }
}

/// The report of a kept trace.
fn analysed(trace: &Trace, images: &Images, options: &Options) -> Report {
    let kept = trace.end.as_ref().and_then(|end| end.kept.clone()).unwrap_or_default();
    let times = kept.times.into_iter().collect();
    let mut run = Run { clock: kept.clock, ..run(trace, &[], kept.seconds) };
    if !kept.program.is_empty() {
        (run.program, run.source) = (kept.program, kept.source);
    }
    let mut report = Report::new(run, options, trace.analyses.clone(), times, &Namer::new(trace, images));
    report.remarks.splice(0..0, kept.remarks);
    report
}

fn run_twice(args: &PredictArgs, analysis: Analysis, options: &Options, mut outputs: Outputs) -> anyhow::Result<u8> {
    let program = &args.program[0];
    let path = inspect::resolve(program);
    let path = path.ok_or_else(|| Refusal::not_started(program, &std::io::ErrorKind::NotFound.into()))?;
    // As execve(2) says of directories, too.
    if !path.is_file() || nix::unistd::access(&path, nix::unistd::AccessFlags::X_OK).is_err() {
        return Err(Refusal::not_started(program, &nix::errno::Errno::EACCES.into()).into());
    }
    let interposer = parts::interposer(environment::LIBRARY.name).map_err(Refusal::installation)?;
    let plugin = PLUGIN.find().map_err(Refusal::installation)?;
    let emulator = Emulator::find(plugin)?;
    let interrupts = Interrupts::install()?;
    let folder = tempfile::Builder::new().prefix("unconvoy-syncchar-").tempdir()?;

    let input = native::Input::remember();
    say("unconvoy: the program runs natively, for times");
    let native = Native::run(args, &path, &interposer, folder.path(), &interrupts)?;
    let mut remarks = native.remarks.clone();
    let interrupted = |why: Option<Why>| match why {
        Some(Why::Interrupted(signal)) => Some(signal),
        _ => None,
    };
    let mut stopped = interrupted(native.ended.why);
    let mut status = 0;
    let trace = if stopped.is_some() {
        remarks.push("The native run was interrupted, so the program was not emulated: no address sets.".into());
        Trace::default()
    } else {
        input.rewind();
        say("unconvoy: the program runs emulated, for address sets");
        let keep = outputs.trace();
        let (ended, trace) = emulator.run(args, &path, folder.path(), analysis, keep, &interrupts)?;
        stopped = interrupted(ended.why);
        remarks.extend(remarks::of_emulated(&ended, &trace, &native));
        if trace.context.is_none() && stopped.is_none() {
            status = 1;
        }
        trace
    };
    let images = Images::new(&trace.mappings);
    let mut times: HashMap<u32, LockTimes> = HashMap::new();
    if let Some(record) = &native.record {
        let joined = join::join(record, trace.locks.values(), &images);
        times = joined.times;
        if trace.context.is_some() {
            remarks.extend(joined.remarks);
        }
    }
    let seconds = native.seconds();
    let names = Namer::new(&trace, &images);
    let mut report =
        Report::new(run(&trace, &args.program, seconds), options, trace.analyses.clone(), times.clone(), &names);
    let kept = || Kept { seconds, times: times.into_iter().collect(), remarks: remarks.clone(), ..names.keep() };
    status = status.max(keep(&trace, &mut outputs, kept)?);
    report.remarks.splice(0..0, remarks);
    let written = outputs.write(&report, args.top)?;
    Ok(stopped.map_or(status.max(written), |signal| 128 + signal as u8))
}

/// What ran.
fn run(trace: &Trace, program: &[std::ffi::OsString], seconds: Option<f64>) -> Run {
    let told = || program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match &trace.context {
        Some(Context { source, program: emulated, .. }) => {
            let program = if program.is_empty() { emulated.clone() } else { told() };
            Run { source: source.clone(), program, seconds, clock: Clock::Native }
        }
        None => Run { source: "qemu-user".into(), program: told(), seconds, clock: Clock::Native },
    }
}
