//! `unconvoy profile --pid`: records the futex waits of a running process from outside.
//!
//! BPF programs count the waits and copy the stacks of some of them ([`collector`]). The command
//! unwinds the stacks ([`unwind`]), keeps them ([`record`]), and fills the same profile as the
//! interposer does ([`fill`]).

mod collector;
pub(crate) mod event;
mod fill;
mod record;
pub mod target;
pub mod unwind;

use std::collections::HashMap;
use std::ffi::c_int;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::complain;
use unconvoy_profile::Recorded;
use unconvoy_profile::observation::Observation;

use super::observer::Observer;
use crate::messages::outside as messages;
use crate::messages::predict::cannot_write;
use crate::process_file::is_interposer;
use collector::Collector;
pub use collector::check;
use event::Wait;
use fill::{PLAIN_WAIT, Span};
use record::{Ended, Recorder};
use target::Target;
use unwind::Registers;

/// Time between two readings of the BPF programs' events. The ring has room for several times
/// more than a process records meanwhile.
const READ_EVERY: Duration = Duration::from_millis(10);

/// Bytes of a waiting thread's stack that are read at the end.
const STACK: usize = 32 << 10;

/// A finished recording.
pub struct Recording {
    pub recorded: Recorded,
    /// The signal that ended the recording early.
    pub signal: Option<c_int>,
    /// Whether the profile was written, if it was to be.
    pub is_written: bool,
    /// What the report does not cover.
    pub remarks: Vec<String>,
    /// Keeps the process's files reachable, whose names the report reads.
    _target: Target,
}

/// Records a process for a time, or until it ends or a signal arrives.
///
/// # Errors
///
/// The process cannot be recorded, or the profile cannot be written to `output`.
pub fn record(
    pid: u32,
    seconds: f64,
    period_ns: u64,
    output: Option<&Path>,
) -> anyhow::Result<Recording> {
    let target = Target::open(pid)?;
    let mapped = target.mapped_files();
    let has_interposer = mapped.iter().any(|file| is_interposer(&file.path));
    ensure!(!has_interposer, messages::runs_under_unconvoy(pid));
    let interrupts = Interrupts::install()?;
    let mut collector = Collector::start(&target, period_ns)?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begin_ns = monotonic_ns();
    let mut recorder = Recorder::new(&target, period_ns);
    complain(&messages::recording(pid, seconds));
    let observer = Observer::start(pid);
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut has_ended, mut signal) = (false, None);
    while !has_ended && signal.is_none() && Instant::now() < deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        let nap = PollTimeout::try_from(READ_EVERY.min(left)).unwrap_or(PollTimeout::ZERO);
        let mut wanted = [
            PollFd::new(interrupts.wake(), PollFlags::POLLIN),
            PollFd::new(target.handle(), PollFlags::POLLIN),
        ];
        // Ignore EINTR: a signal is one of the events that this waits for.
        let _ = poll(&mut wanted, nap);
        has_ended = wanted[1].revents().is_some_and(|events| !events.is_empty());
        interrupts.drain();
        signal = interrupts.take();
        collector.read(|event| recorder.record(&target, event));
    }
    // The rest takes longer than many recordings, and is no part of them.
    let observed = observer.map(Observer::finish);
    let collected = collector.finish(|event| recorder.record(&target, event))?;
    let begin_unix_ns = since_1970.as_nanos() as u64;
    let span = Span { begin_ns, begin_unix_ns, end_ns: monotonic_ns(), has_ended };
    record_unfinished(&mut recorder, &target, &collected.waiting, &span);
    let profile = fill::fill(&target, &recorder, &collected, span);
    if let Some(observed) = observed {
        // The profile has all futexes, so its coverage is no news.
        let observed = observed.of(&Recorded::of(&profile));
        Observation { futex_samples: [0; 2], ..observed }.store(&profile.header.observed);
    }
    let bytes = profile.to_bytes();
    // Without the file, there is still the report.
    let written = output.map_or(Ok(()), |output| unconvoy_measure::output::replace(output, &bytes));
    if let (Err(why), Some(output)) = (&written, output) {
        complain(&format!("{}: {why:#}", cannot_write(output)));
    }
    let mut recorded = Recorded::parse(&bytes)?;
    for mapping in &mut recorded.mappings {
        let public = target.public(Path::new(""));
        if let Ok(path) = mapping.path.strip_prefix(&public)
            && !public.as_os_str().is_empty()
        {
            mapping.path = target.readable(&Path::new("/").join(path));
        }
    }
    let mut remarks = Vec::new();
    if has_ended {
        remarks.push(format!("The process ended before {seconds} s had passed."));
    }
    let is_written = written.is_ok();
    Ok(Recording { recorded, signal, is_written, remarks, _target: target })
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

/// Records the waits that have not ended, from the beginning of the span: the collector starts
/// before it. If the owner of a mutex waits too, its stack is the holder's, which shows the two
/// sides of a deadlock.
fn record_unfinished(recorder: &mut Recorder, target: &Target, waiting: &[Wait], span: &Span) {
    let threads: HashMap<u32, u32> = target.threads().into_iter().collect();
    let is_waiting = |wait: &&Wait| {
        threads.get(&wait.thread).is_some_and(|&id| target.waits_at(id, wait.address))
    };
    let waiting: Vec<&Wait> = waiting.iter().filter(is_waiting).collect();
    let mut stacks: HashMap<u32, u32> = HashMap::new();
    for wait in &waiting {
        let mut stack = vec![0; STACK];
        let length = target.read(wait.sp, &mut stack);
        let registers = Registers { ip: wait.ip, sp: wait.sp, bp: wait.bp };
        stacks.insert(wait.thread, recorder.unwind(target, registers, &stack[..length]));
    }
    for wait in waiting {
        let owner = if wait.command == PLAIN_WAIT { target.owner(wait.address) } else { 0 };
        let begin = wait.begin.max(span.begin_ns);
        let ended = Ended {
            address: wait.address,
            thread: wait.thread,
            begin,
            due: wait.due,
            end: span.end_ns.max(begin),
            command: wait.command,
            is_first: false,
        };
        let holder = stacks.get(&owner).copied().unwrap_or(0);
        recorder.record_unfinished(ended, stacks[&wait.thread], holder);
    }
}
