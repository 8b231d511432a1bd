//! `unconvoy inspect`: what the threads of a hung process wait for, and who holds it.
//!
//! The library keeps a table of waits in its memory ([`table`]), which this command reads from a
//! running process ([`process`]) or a core dump ([`core`]). Together with the owners in the lock
//! objects, and the futexes at which threads sleep in libc ([`collect`]), the table gives the graph
//! of waits ([`graph`]), and the [`report`] shows it. [`watch`] does the same for `run --watchdog`.

mod collect;
pub(crate) mod core;
mod graph;
pub mod options;
pub(crate) mod process;
mod report;
mod subject;
mod table;
pub mod watch;

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use unconvoy_measure::output::print;

use crate::images::{Images, Mapping};
use crate::messages::inspect as messages;
use crate::names::Names;
use crate::refusal::Refusal;
use graph::{Cycle, Graph, Holders, Lock, Wait};
use options::InspectArgs;
use process::Process;
use report::{Progress, Report};
use subject::{Region, Subject};
use table::{Tables, Waiting};

/// Time between two readings of a running process's locks.
const BETWEEN: Duration = Duration::from_millis(100);

/// Inspects a process or a core dump, and prints the report.
///
/// # Errors
///
/// The process or the core cannot be read, or has no library of this version.
pub fn inspect(args: &InspectArgs) -> anyhow::Result<()> {
    if let Some(folder) = args.files.as_deref().filter(|folder| !folder.is_dir()) {
        return Err(Refusal::usage(messages::no_folder(folder)).into());
    }
    let pid = args.target.to_str().and_then(|text| text.parse::<u32>().ok());
    let subject: Box<dyn Subject> = match pid {
        Some(pid) => Box::new(Process::open(pid)?),
        None => Box::new(core::Core::open(&args.target, args.files.as_deref())?),
    };
    print(&describe(subject.as_ref())?)?;
    Ok(())
}

/// Returns the report on a subject.
fn describe(subject: &dyn Subject) -> anyhow::Result<String> {
    let descriptor = table::find(subject)?;
    let tables = table::tables(subject, descriptor)?;
    // The report is on the waits of this moment.
    let now = subject.now();
    let images = images(subject);
    let graph = collect::collect(subject, &tables, &library(subject, descriptor), &images);
    let begin = Instant::now();
    let again = match now {
        None => None,
        Some(_) => {
            std::thread::sleep(BETWEEN);
            Some(table::tables(subject, descriptor)?.waits)
        }
    };
    let cycles = match &again {
        None => graph.cycles(),
        Some(again) => lasting_cycles(subject, &graph, again),
    };
    let progress = |address: u64| match (&again, graph.locks.get(&address)) {
        (Some(_), Some(lock)) => progress(subject, lock),
        _ => Progress::Unknown,
    };
    let lasts = |wait: &Wait| again.as_ref().is_none_or(|again| lasts(subject, wait, again));
    let names = Names::new(images);
    let report = Report {
        title: subject.title(),
        tables: &tables,
        graph: &graph,
        cycles: &cycles,
        threads: subject.threads(),
        names: &names,
        labels: &report::labels(&graph, &names),
        now,
        between_s: begin.elapsed().as_secs_f64(),
        progress: &progress,
        lasts: &lasts,
        remarks: &subject.remarks(),
    };
    Ok(report.render())
}

/// The files of a subject, for names.
fn images(subject: &dyn Subject) -> Images {
    let is_of_use = |region: &&Region| region.is_code || region.offset == 0;
    let mapping = |region: &Region| {
        let name = region.path.file_name().unwrap_or_default();
        Mapping {
            base: region.start,
            end: region.end,
            offset: region.offset,
            // A file that is missing has no names, but addresses in it have offsets.
            path: subject.file(region).unwrap_or_else(|| Path::new("missing").join(name)),
        }
    };
    let mappings: Vec<_> = subject.regions().iter().filter(is_of_use).map(mapping).collect();
    Images::new(&mappings)
}

/// The addresses of the library that has the descriptor.
fn library(subject: &dyn Subject, descriptor: u64) -> Vec<Range<u64>> {
    let regions = subject.regions();
    let own = regions.iter().find(|region| (region.start..region.end).contains(&descriptor));
    let is_own = |region: &&Region| own.is_some_and(|own| own.path == region.path);
    regions.iter().filter(is_own).map(|region| region.start..region.end).collect()
}

/// The deadlocks of a running process: cycles that are still there in a second reading. The
/// process goes on during a reading, so the first one may show waits that never coincided.
fn lasting_cycles(subject: &dyn Subject, graph: &Graph, again: &[Waiting]) -> Vec<Cycle> {
    let is_stuck = |&index: &usize| {
        let wait = &graph.waits[index];
        let lock = graph.locks.get(&wait.lock);
        lasts(subject, wait, again)
            && lock.is_some_and(|lock| progress(subject, lock) == Progress::None)
    };
    graph.cycles().into_iter().filter(|cycle| cycle.iter().all(is_stuck)).collect()
}

/// Whether a wait is still there in the second reading, whose table of waits is `again`.
fn lasts(subject: &dyn Subject, wait: &Wait, again: &[Waiting]) -> bool {
    match wait.begin {
        Some(begin) => {
            again.iter().any(|it| (it.thread, it.lock, it.begin) == (wait.thread, wait.lock, begin))
        }
        None => {
            let thread = subject.threads().iter().find(|thread| thread.id == wait.thread);
            thread.and_then(|thread| subject.sleeps(thread)) == wait.sleeps
        }
    }
}

/// Whether a lock was acquired since it was read.
fn progress(subject: &dyn Subject, lock: &Lock) -> Progress {
    let now = collect::reread(subject, lock);
    match (lock.acquisitions, now.acquisitions) {
        (Some(before), Some(after)) if before != after => {
            Progress::Acquisitions(after.wrapping_sub(before))
        }
        _ if now.holder == first_holder(lock) => Progress::None,
        _ => Progress::HolderChanged,
    }
}

fn first_holder(lock: &Lock) -> Option<u32> {
    match &lock.holders {
        Holders::Known(holders) => holders.first().map(|holder| holder.thread),
        _ => None,
    }
}

/// A process and the address of its library's descriptor, once found. Without its threads, which
/// come and go.
type Seen = Option<(Process, u64)>;

/// Number of threads of a process that have waited for a lock for at least this time. Of a wait,
/// only the part after `from` counts, a time of the monotonic clock.
///
/// # Errors
///
/// The process cannot be read, or has no library of this version.
fn long_waits(pid: u32, time: Duration, from: u64, seen: &mut Seen) -> anyhow::Result<usize> {
    let count = |tables: &Tables, process: &Process| {
        let now = process.now().unwrap_or_default();
        let waited =
            |wait: &Waiting| Duration::from_nanos(now.saturating_sub(wait.begin.max(from)));
        tables.waits.iter().filter(|wait| waited(wait) >= time).count()
    };
    if let Some((process, descriptor)) = seen
        && let Ok(tables) = table::tables(process, *descriptor)
        && count(&tables, process) == 0
    {
        return Ok(0);
    }
    // The first look, a new program after `exec`, or a long wait.
    *seen = None;
    let process = Process::open(pid)?;
    let descriptor = table::find(&process)?;
    let found = count(&table::tables(&process, descriptor)?, &process);
    *seen = Some((process.without_threads(), descriptor));
    Ok(found)
}

/// Counts the long waits of a process, again and again.
#[derive(Default)]
pub(crate) struct LongWaits(Seen);

impl LongWaits {
    /// Number of threads that have waited for a lock for at least this time; 0 if the process
    /// cannot be read.
    pub(crate) fn count(&mut self, pid: u32, time: Duration) -> usize {
        long_waits(pid, time, 0, &mut self.0).unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "describe_tests.rs"]
mod tests;
