//! `unconvoy tune -- PROGRAM`: searches a strategy for a program, and proves what it recommends.
//!
//! [`Session`] runs the program: once, with a profile, in a race of candidates, and in a
//! confirmation, which gives the verdict. The [`Record`] has the result and is the state of an
//! interrupted search; [`file`] and [`page`] render it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use unconvoy::catalogue::environment;
use unconvoy_measure::context::{command_line, processors};
use unconvoy_measure::export::{Destination, Json};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::{complain, print_all, replace};
use unconvoy_measure::parts;
use unconvoy_measure::progress::Progress;
use unconvoy_measure::resume::quoted;

use super::budget::Overhead;
use super::candidates::LIBC;
use super::options::TuneArgs;
use super::record::{Plan, Record};
use super::session::{Session, Stop};
use super::{file, page, phases};
use crate::compare::context::Context;
use crate::compare::extract::Printed;
use crate::compare::plan::words;
use crate::compare::trial::Runner;
use crate::executable;
use crate::messages::predict::cannot_write;
use crate::messages::search as messages;
use crate::output_file::{distinct, writable};
use crate::refusal::Refusal;

/// Exit status if the runs do not decide.
const UNDECIDED: u8 = 3;

/// Thread counts per processor without `--threads`: full load and overload.
const LOADS: [u32; 2] = [1, 4];

/// Searches a strategy for a program, and returns the exit status.
///
/// # Errors
///
/// An error before the first run ends: wrong usage or an output that cannot be written (2), no
/// interposer (125), program not found (127) or not executable (126), nothing to resume (1).
pub fn search(args: &TuneArgs) -> anyhow::Result<u8> {
    let mut plan = plan(args)?;
    let program = &words(&args.program, plan.threads.first().copied().flatten())[0];
    if let Some(warning) = executable::warning(program) {
        return Err(Refusal::usage(warning).into());
    }
    let output = args.output.clone().unwrap_or_else(|| named_after(&args.program[0]));
    let state = args.json.clone().unwrap_or_else(|| file::state(&output));
    check_outputs(args, &output, &state)?;
    let library = parts::interposer(environment::LIBRARY.name).map_err(Refusal::installation)?;
    let files = [executable::resolve(program), Some(library.clone())];
    plan.files = files.iter().flatten().filter_map(|path| version(path)).collect();
    let interrupts = Interrupts::install()?;
    let mut record = Record::begin(plan, Context::capture());
    // The user can still act on it.
    if let Some(warning) = record.context.warning() {
        complain(&format!("warning: {warning}"));
        record.warnings.push(warning);
    }
    if let Some(file) = &args.resume {
        record = record.resumed(file)?;
    }
    let is_resumed = args.resume.as_ref().is_some_and(|file| is_same(file, &state));
    if args.json.is_none() && !is_resumed && state.exists() {
        return Err(Refusal::usage(messages::would_lose_search(&state)).into());
    }
    let shown = record.warnings.len();
    let budget = args.budget.as_secs();
    let quiet = args.measured.quiet;
    let mut session = Session {
        before_s: record.elapsed_s,
        record,
        runner: Runner {
            printed: Printed {
                metric: args.measured.metric.clone(),
                operations: None,
                fairness: None,
            },
            library: Some(library),
            interrupts: &interrupts,
        },
        program: args.program.clone(),
        timeout: args.measured.timeout,
        state: Destination::new(Json, &state),
        progress: Progress::within(budget, quiet),
        started: Instant::now(),
        configurations: BTreeMap::new(),
        overhead: Overhead::default(),
    };
    let ended = session.search();
    session.progress.finish();
    session.record.elapsed_s = session.elapsed();
    let record = session.record;
    conclude(args, record, shown, ended, &output, &state)
}

fn plan(args: &TuneArgs) -> Result<Plan, Refusal> {
    let counts = || LOADS.map(|load| load * processors()).to_vec();
    Ok(Plan {
        program: args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        files: Vec::new(),
        threads: args.measured.thread_counts(&args.program, counts)?,
        metric: args.measured.compared(),
        error_rate: args.error_rate,
        seed: args.measured.seed(),
        budget_s: args.budget.as_secs_f64(),
    })
}

/// `/usr/bin/server, 16280 bytes, changed at 1795859000 s`: another build differs.
fn version(path: &Path) -> Option<String> {
    let file = path.canonicalize().ok()?;
    let metadata = file.metadata().ok()?;
    Some(format!(
        "{}, {} bytes, changed at {} s",
        file.display(),
        metadata.len(),
        std::os::unix::fs::MetadataExt::mtime(&metadata)
    ))
}

/// `server.toml` for `/usr/bin/server`.
fn named_after(program: &std::ffi::OsStr) -> PathBuf {
    let name = Path::new(program).file_name().unwrap_or(program);
    unconvoy_measure::output::with_suffix(Path::new(name), ".toml")
}

/// Checks the outputs before the search, which may take long.
fn check_outputs(args: &TuneArgs, output: &Path, state: &Path) -> Result<(), Refusal> {
    let named =
        [("--output", Some(output)), ("--json", Some(state)), ("--html", args.html.as_deref())];
    let outputs: Vec<(&str, &Path)> =
        named.into_iter().filter_map(|(option, path)| Some((option, path?))).collect();
    for (option, path) in &outputs {
        writable(path).map_err(|why| {
            Refusal::usage(match args.output {
                None if *option == "--output" => messages::default_output_rejected(path, why),
                _ => messages::output_rejected(option, path, why),
            })
        })?;
    }
    distinct(&named)?;
    if args.output.is_none() && !file::may_replace(output) {
        return Err(Refusal::usage(messages::not_ours(output)));
    }
    Ok(())
}

/// Writes and prints what was found, and returns the exit status. The first `shown`
/// warnings are on the user's screen.
fn conclude(
    args: &TuneArgs,
    mut record: Record,
    shown: usize,
    ended: Result<(), Stop>,
    output: &Path,
    state: &Path,
) -> anyhow::Result<u8> {
    record.complete = ended.is_ok();
    let mut status = match ended {
        Ok(()) => 0,
        Err(Stop::Refused(refusal)) if record.runs.is_empty() => return Err(refusal.into()),
        Err(Stop::Refused(refusal)) => {
            complain(&refusal.message);
            ended_by(&mut record, refusal.message, 1)
        }
        Err(Stop::Failed(failure)) => {
            complain(&failure.to_string());
            ended_by(&mut record, failure.brief(), 1)
        }
        Err(Stop::Interrupted(signal)) => {
            ended_by(&mut record, format!("signal {signal}"), 128 + signal as u8)
        }
        Err(Stop::Undecided(why)) => {
            record.sentence.clone_from(&why);
            ended_by(&mut record, why, UNDECIDED)
        }
    };
    if record.candidates.is_empty() && status != UNDECIDED {
        // Nothing was tried.
        if status > 1 {
            complain(messages::nothing_yet());
        }
        return Ok(status);
    }
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    if record.sentence.is_empty() {
        record.sentence = file::sentence(&record, &name);
    }
    file::remark_on_short_runs(&mut record);
    file::remark_on_open_trials(&mut record);
    let is_decided = file::remark_on_noise(&mut record);
    record.warnings.extend(phases::remark(&record).filter(|_| record.complete));
    if status == 0 && !is_decided {
        status = UNDECIDED;
    }
    let is_resumable = !record.complete && status != UNDECIDED;
    let mut is_whole = true;
    let mut write = |path: &Path, bytes: anyhow::Result<Vec<u8>>| {
        let written = bytes.and_then(|bytes| Ok(replace(path, &bytes)?));
        if let Err(error) = &written {
            complain(&format!("{}: {error:#}", cannot_write(path)));
            is_whole = false;
        }
        written.is_ok()
    };
    // A strategy that names libc still loads the library, whose condition variables would serve the
    // program: without a gain, the program should run as it is.
    let helps = record.verdict.as_ref().is_some_and(|verdict| verdict.recommended != LIBC);
    if record.complete && helps {
        let text = file::strategy(&record);
        write(output, Ok(text.clone().into_bytes()));
        record.strategy = Some(text);
    } else if record.complete && output.exists() {
        record.warnings.push(messages::earlier_strategy(output));
    }
    if let Some(html) = &args.html {
        write(html, page::render(&record, output).map(String::into_bytes));
    }
    let mut is_kept = false;
    if is_resumable || args.json.is_some() {
        is_kept = write(state, unconvoy_measure::export::json(&record));
    } else if record.complete || !args.resume.as_ref().is_some_and(|file| is_same(file, state)) {
        let _ = std::fs::remove_file(state);
    }
    for warning in &record.warnings[shown..] {
        complain(&format!("warning: {warning}"));
    }
    if is_resumable && is_kept {
        complain(&messages::kept(&resuming(state, &args.program)));
    }
    if let Err(error) = print_all(file::text(&record, args.measured.quiet)) {
        complain(&error.to_string());
        is_whole = false;
    }
    // After a signal, the status says so.
    Ok(if is_whole || status > UNDECIDED { status } else { 1 })
}

fn ended_by(record: &mut Record, why: String, status: u8) -> u8 {
    record.ended_by = Some(why);
    status
}

fn is_same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// This process's command line, with the file to resume from.
fn resuming(state: &Path, program: &[OsString]) -> String {
    let mut words = command_line();
    let mut options = words[..words.len() - program.len()].to_vec();
    let program = words.split_off(options.len());
    // The record has the seed.
    for option in ["--resume", "--seed"] {
        let is_it = |word: &String| word == option || word.starts_with(&format!("{option}="));
        if let Some(place) = options.iter().position(is_it) {
            let has_value_apart = options[place] == option;
            options.drain(place..=place + usize::from(has_value_apart));
        }
    }
    let place = options.iter().position(|word| word == "tune").map_or(1, |place| place + 1);
    options.splice(place..place, ["--resume".into(), state.display().to_string()]);
    quoted(&[options, program].concat())
}
