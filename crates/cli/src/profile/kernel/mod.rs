//! `unconvoy profile --kernel`: records waits for the kernel's own locks, of the whole machine or
//! of a program.
//!
//! BPF programs at the tracepoints of lock contention count the waits and send the stacks of some
//! of them ([`collector`]). The command adds the kernel's names ([`symbols`]) and fills the same
//! profile as the interposer does ([`fill`]).

mod collector;
pub(crate) mod event;
mod fill;
pub mod names;
pub(crate) mod symbols;

use std::ffi::{OsString, c_int};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use unconvoy_measure::child::describe;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::complain;
use unconvoy_profile::Recorded;

use crate::child::{self, Ended, Why};
use crate::executable;
use crate::messages::outside as messages;
use crate::messages::predict::cannot_write;
use crate::profile::outside::target::Target;
use crate::refusal::Refusal;
pub use collector::check;
use collector::{Collected, Collector, Scope};
use fill::{Recorder, Subject};
use symbols::Symbols;

/// Time between two readings of the BPF programs' events. The ring has room for 25,000 events.
const READ_EVERY: Duration = Duration::from_millis(10);

/// Whose waits to record.
pub enum Whose<'a> {
    /// All tasks of the machine, for some seconds.
    Machine(f64),
    /// A process and its children, for some seconds.
    Process(u32, f64),
    /// A program and its children, until the program ends.
    Program(&'a [OsString]),
}

/// A finished recording.
pub struct Recording {
    pub recorded: Recorded,
    /// The command's exit status.
    pub status: u8,
    /// What the report does not cover.
    pub remarks: Vec<String>,
}

/// How a recording ended.
struct End {
    collected: Collected,
    recorder: Recorder,
    signal: Option<c_int>,
    program: Option<Ended>,
    pid: u32,
    has_ended: bool,
    span: Span,
}

/// The time of a recording.
struct Span {
    since_1970: Duration,
    begin_ns: u64,
    end_ns: u64,
}

impl Span {
    fn begin() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Span { since_1970, begin_ns: monotonic_ns(), end_ns: 0 }
    }

    fn end(self) -> Self {
        Span { end_ns: monotonic_ns(), ..self }
    }
}

/// Records the waits for the kernel's locks.
///
/// # Errors
///
/// The kernel, the privilege or the process is missing, or the profile cannot be written to
/// `output`.
pub fn record(
    whose: &Whose<'_>,
    period_ns: u64,
    output: Option<&Path>,
) -> anyhow::Result<Recording> {
    let interrupts = Interrupts::install()?;
    let mut name = String::new();
    let end = match whose {
        Whose::Machine(seconds) => {
            let collector = Collector::start(Scope::Machine, period_ns)?;
            complain(&messages::recording_kernel(*seconds));
            record_for(collector, period_ns, None, *seconds, &interrupts)?
        }
        Whose::Process(pid, seconds) => {
            let target = Target::open(*pid)?;
            name = target.program.to_string_lossy().into_owned();
            let scope = Scope::Process { id: target.own_id, namespace: target.namespace };
            let collector = Collector::start(scope, period_ns)?;
            complain(&messages::recording(*pid, *seconds));
            record_for(collector, period_ns, Some(&target), *seconds, &interrupts)?
        }
        Whose::Program(program) => {
            name = program[0].to_string_lossy().into_owned();
            record_program(program, period_ns, &interrupts)?
        }
    };
    let symbols = Symbols::read();
    let subject = Subject {
        program: &name,
        pid: end.pid,
        begin_ns: end.span.begin_ns,
        begin_unix_ns: end.span.since_1970.as_nanos() as u64,
        end_ns: end.span.end_ns,
    };
    let bytes = fill::fill(&subject, &end.recorder, &end.collected, &symbols).to_bytes();
    // Without the file, there is still the report.
    let written = output.map_or(Ok(()), |output| unconvoy_measure::output::replace(output, &bytes));
    if let (Err(why), Some(output)) = (&written, output) {
        complain(&format!("{}: {why:#}", cannot_write(output)));
    }
    let recorded = Recorded::parse(&bytes)?;
    let remarks = remarks(&end, &symbols);
    let status = status(&end).max(u8::from(written.is_err()));
    Ok(Recording { recorded, status, remarks })
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

fn status(end: &End) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match (&end.program, end.signal) {
        (_, Some(signal)) => 128 + signal as u8,
        (Some(ended), _) => {
            let status = ended.status;
            status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1) as u8
        }
        (None, None) => 0,
    }
}

fn remarks(end: &End, symbols: &Symbols) -> Vec<String> {
    let mut remarks = Vec::new();
    if end.has_ended {
        remarks.push("The process ended before the time had passed.".to_string());
    }
    if let Some(ended) = end.program.filter(|it| it.why.is_none() && !it.status.success()) {
        remarks.push(format!("The program: {}.", describe(ended.status)));
    }
    if symbols.is_empty() {
        remarks.push(messages::hidden_symbols().to_string());
    }
    remarks
}

/// Records for a time, or until the process ends or a signal arrives.
fn record_for(
    mut collector: Collector,
    period_ns: u64,
    target: Option<&Target>,
    seconds: f64,
    interrupts: &Interrupts,
) -> anyhow::Result<End> {
    let mut recorder = Recorder::new(period_ns);
    let span = Span::begin();
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut has_ended, mut signal) = (false, None);
    while !has_ended && signal.is_none() && Instant::now() < deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        let nap = PollTimeout::try_from(READ_EVERY.min(left)).unwrap_or(PollTimeout::ZERO);
        let mut wanted = vec![PollFd::new(interrupts.wake(), PollFlags::POLLIN)];
        wanted.extend(target.map(|target| PollFd::new(target.handle(), PollFlags::POLLIN)));
        // Ignore EINTR: a signal is one of the events that this waits for.
        let _ = poll(&mut wanted, nap);
        has_ended = wanted
            .get(1)
            .is_some_and(|handle| handle.revents().is_some_and(|events| !events.is_empty()));
        interrupts.drain();
        signal = interrupts.take();
        collector.read(|event| recorder.record(event));
    }
    let span = span.end();
    let collected = collector.finish(|event| recorder.record(event))?;
    let pid = target.map_or(0, |target| target.pid);
    Ok(End { collected, recorder, signal, program: None, pid, has_ended, span })
}

/// Runs the program, and records it until it ends. A thread reads the events meanwhile.
fn record_program(
    program: &[OsString],
    period_ns: u64,
    interrupts: &Interrupts,
) -> anyhow::Result<End> {
    let own = Target::open(std::process::id())?;
    let scope = Scope::Descendants { id: own.own_id, namespace: own.namespace };
    let mut collector = Collector::start(scope, period_ns)?;
    let (stop, stopped) = channel::<()>();
    let reader = std::thread::Builder::new().name("events".into()).spawn(move || {
        let mut recorder = Recorder::new(period_ns);
        while stopped.recv_timeout(READ_EVERY) == Err(RecvTimeoutError::Timeout) {
            collector.read(|event| recorder.record(event));
        }
        let collected = collector.finish(|event| recorder.record(event));
        collected.map(|collected| (collected, recorder))
    })?;
    let mut pid = 0;
    let span = Span::begin();
    let mut command = executable::command(program);
    let ended = child::run_observed(&mut command, None, interrupts, |child| pid = child);
    let span = span.end();
    drop(stop);
    let read = reader.join();
    let ended = ended.map_err(|error| Refusal::not_started(&program[0], &error))?;
    let (collected, recorder) = read.map_err(|_| anyhow::anyhow!(messages::lost_events()))??;
    let signal = match ended.why {
        Some(Why::Interrupted(signal)) => Some(signal),
        _ => None,
    };
    Ok(End { collected, recorder, signal, program: Some(ended), pid, has_ended: false, span })
}
