//! What the rules read: numbers of a profile and, if there is one, of a prediction.

use syscalls::Sysno;
use unconvoy_profile::layout::RUNNABLE;
use unconvoy_profile::observation::{LockSpan, Usage};
use unconvoy_profile::read::LongWait;
use unconvoy_profile::{Kind, Recorded, Source};
use unconvoy_syncchar::{Advice as Predicted, Projection, Report as Prediction};

use super::entry::Entry;
use super::finding::SpanEvidence;
use crate::profile::options::LIBC;
use crate::profile::remarks::OWN;
use crate::profile::report::Report;
use crate::profile::rows::{Quantiles, Row};

/// System calls in which a thread waits for a device, another process or the time. A thread that
/// holds a lock meanwhile makes the lock's waiters wait for the same. Waits for futexes are not
/// among them: they are nested locks, which have rows of their own.
const WAITING_CALLS: [&str; 58] = [
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "sendfile",
    "splice",
    "copy_file_range",
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "sync_file_range",
    "msync",
    "fallocate",
    "ftruncate",
    "open",
    "openat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "flock",
    "fcntl",
    "ioctl",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "connect",
    "accept",
    "accept4",
    "select",
    "pselect6",
    "poll",
    "ppoll",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "nanosleep",
    "clock_nanosleep",
    "pause",
    "wait4",
    "waitid",
    "semop",
    "semtimedop",
    "io_getevents",
    "io_uring_enter",
];

/// A program and its locks.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Length of the recording.
    pub seconds: f64,
    /// Whether the locks were those of the program without unconvoy.
    pub is_libcs: bool,
    /// Whether the profile is of the kernel's locks, which no strategy serves.
    pub is_kernels: bool,
    /// Number of processors and threads; 0 if they were not observed.
    pub processors: f64,
    pub threads: f64,
    /// Whether a prediction was given.
    pub is_predicted: bool,
    /// Whether this machine can elide locks.
    pub may_elide: bool,
    /// Number of waits for locks and signals.
    pub all_waits: u64,
    /// Waits at condition variables.
    pub signals: LockEvidence,
    /// The locks with the most time waited first.
    pub locks: Vec<LockEvidence>,
}

/// A lock, or the locks of one name.
#[derive(Debug, Clone, Default)]
pub struct LockEvidence {
    pub name: String,
    pub kind: &'static str,
    /// Whether it may be no lock.
    pub is_unknown: bool,
    pub locks: usize,
    pub entries: Vec<Entry>,
    /// Places that hold the lock, or else places that wait for it.
    pub places: Vec<String>,
    /// Whether these places hold the lock.
    pub are_holders: bool,
    pub waits: u64,
    pub waited_seconds: f64,
    /// Share of the time waited for all locks.
    pub share: f64,
    /// Share of this lock's time waited that readers waited.
    pub read_share: f64,
    pub wait_p50_ns: Option<u64>,
    /// The waits that had not ended at the end of the recording, if they are known.
    pub unended: Option<Unended>,
    pub hold_p50_ns: Option<u64>,
    pub hold_p99_ns: Option<u64>,
    /// Half of the waits take this long, which no hold of a writer explains: of a reader-writer
    /// lock whose holds are therefore not known.
    pub behind_readers_ns: Option<u64>,
    /// The time in which threads waited for the lock, if it was observed.
    pub span: Option<SpanEvidence>,
    /// The system call in which most holders waited, and its share of the samples of holders.
    pub call: Option<(&'static str, f64)>,
    /// Share of the samples of holders in which the holder ran or waited for a processor.
    pub runnable: Option<f64>,
    pub predicted: Option<PredictedLock>,
}

/// Waits that had not ended at the end of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unended {
    pub waits: u64,
    /// The longest of them so far.
    pub longest_ns: u64,
}

/// A prediction of Syncchar's model for a lock.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PredictedLock {
    /// Number of processors of the prediction.
    pub processors: u32,
    /// The program's speed-up with optimistic sections, by cache line.
    pub program: Option<f64>,
    /// The sections' speed-up, by cache line.
    pub sections: f64,
    /// Share of sections that write nothing.
    pub read_only: f64,
    /// Share of sections with I/O.
    pub io: f64,
    /// The word that shares its line with data of other threads.
    pub shared_line: Option<String>,
}

impl Evidence {
    /// Collects the numbers of a profile, its report and predictions for the same program.
    pub fn of(recorded: &Recorded, report: &Report, predictions: &[Prediction]) -> Self {
        let observed = &recorded.observed;
        let rows = report.classes.iter().filter(|row| !row.is_cond());
        let locks = rows.map(|row| {
            let usage = usage_of(recorded, row);
            let [call, runnable] = holders(recorded, row);
            let calls = call.map(|(call, share)| (name_of(call), share));
            // Of a reader-writer lock only writers' holds are measured, and threads may wait for
            // readers.
            let is_of_readers =
                row.kind == Kind::RwLock.name() && row.wait.p50_ns > row.hold.p99_ns;
            let hold = if is_of_readers { Quantiles::default() } else { row.hold };
            LockEvidence {
                name: row.name.clone(),
                kind: row.kind,
                is_unknown: row.is_unknown,
                locks: row.locks,
                entries: row.entries.clone(),
                places: places(row),
                are_holders: !row.holders.is_empty(),
                waits: row.waits,
                waited_seconds: row.waited_ns as f64 * 1e-9,
                share: row.share,
                read_share: row.read_waited_ns as f64 / (row.waited_ns as f64).max(1.0),
                wait_p50_ns: row.wait.p50_ns,
                unended: unended(recorded, row),
                hold_p50_ns: hold.p50_ns,
                hold_p99_ns: hold.p99_ns,
                behind_readers_ns: row
                    .wait
                    .p50_ns
                    .filter(|_| is_of_readers && row.hold.p99_ns.is_some()),
                span: usage.map(|(usage, held)| span_evidence(&usage, held, row.waited_ns)),
                call: calls.and_then(|(name, share)| Some((name?, share))),
                runnable: runnable.map(|(_, share)| share),
                predicted: predictions.iter().find_map(|it| predicted(it, &row.name)),
            }
        });
        let mut locks: Vec<LockEvidence> = locks.collect();
        // Not semaphores and other events, which no strategy serves.
        let conds = || report.classes.iter().filter(|row| row.kind == Kind::Cond.name());
        let signals = LockEvidence {
            kind: "cond",
            waits: conds().map(|row| row.waits).sum(),
            waited_seconds: conds().map(|row| row.waited_ns).sum::<u64>() as f64 * 1e-9,
            places: conds().take(1).flat_map(places).collect(),
            span: Some(observed.whole).filter(|whole| whole.wall_ns > 0).map(|whole| {
                let waited = conds().map(|row| row.waited_ns).sum();
                span_evidence(&whole, None, waited)
            }),
            ..LockEvidence::default()
        };
        locks.sort_by(|one, other| other.waited_seconds.total_cmp(&one.waited_seconds));
        Evidence {
            seconds: report.seconds,
            is_libcs: [LIBC, OWN].contains(&&*report.lock),
            is_kernels: recorded.source == Source::Kernel,
            processors: observed.processors as f64,
            threads: observed.threads as f64,
            is_predicted: !predictions.is_empty(),
            may_elide: may_elide(),
            all_waits: report.classes.iter().map(|row| row.waits).sum(),
            signals,
            locks,
        }
    }
}

fn may_elide() -> bool {
    use unconvoy::catalogue::{Availability, availability};
    matches!(availability("elided"), Availability::Full)
}

fn places(row: &Row) -> Vec<String> {
    let places = if row.holders.is_empty() { &row.waiters } else { &row.holders };
    places.iter().take(2).map(|place| place.place.clone()).collect()
}

/// Waits that end with the recording had not ended. Only a recording from outside has them.
fn unended(recorded: &Recorded, row: &Row) -> Option<Unended> {
    let is_unended =
        |wait: &&LongWait| wait.at_ns >= recorded.wall_ns && row.indices.contains(&wait.lock);
    let waits = recorded.longest.iter().filter(is_unended).map(|wait| wait.ns);
    let is_outside = recorded.source == Source::Outside;
    let longest_ns = waits.clone().max().filter(|_| is_outside)?;
    Some(Unended { waits: waits.count() as u64, longest_ns })
}

/// What the process used while threads waited for the row's lock, and the share of the time in
/// which it was held. Of several locks, or a lock with few samples, the whole recording.
fn usage_of(recorded: &Recorded, row: &Row) -> Option<(Usage, Option<f64>)> {
    let observed = &recorded.observed;
    let span = observed.locks.iter().find(|span| is_of(recorded, row, span.address));
    let span = span.filter(|span| row.locks == 1 && span.waiting >= FEWEST_SAMPLES.into());
    let held = |span: &LockSpan| {
        let is_known = span.held > 0 && span.looks >= FEWEST_LOOKS;
        is_known.then(|| span.held as f64 / span.looks as f64)
    };
    let usage = span.map_or((observed.whole, None), |span| (span.usage, held(span)));
    Some(usage).filter(|(usage, _)| usage.wall_ns > 0)
}

fn is_of(recorded: &Recorded, row: &Row, address: u64) -> bool {
    row.indices.iter().any(|&index| recorded.locks[index].address == address)
}

/// The most frequent system call of holders, and the runnable holders: each with its share of all
/// samples of the row's holders.
fn holders(recorded: &Recorded, row: &Row) -> [Option<(u32, f64)>; 2] {
    let held = recorded.observed.holders.iter();
    let held = held.filter(|held| is_of(recorded, row, held.address));
    let (mut all, mut runnable) = (0, 0);
    let mut calls = std::collections::BTreeMap::<u32, u32>::new();
    for held in held {
        all += held.samples;
        if held.call == RUNNABLE {
            runnable += held.samples;
        } else if name_of(held.call).is_some() {
            *calls.entry(held.call).or_default() += held.samples;
        }
    }
    if all < FEWEST_SAMPLES {
        return [None, None];
    }
    let share = |count: u32| f64::from(count) / f64::from(all);
    let most = calls.into_iter().max_by_key(|(_, count)| *count);
    [most.map(|(call, count)| (call, share(count))), Some((RUNNABLE, share(runnable)))]
}

/// Fewer samples of holders say nothing: the share of one half has a standard deviation of 11 %
/// with 20.
const FEWEST_SAMPLES: u32 = 20;

/// Likewise, for the share of the time in which a lock is held, which is rough for a short program:
/// the share of one half has a standard deviation of 18 %.
const FEWEST_LOOKS: u64 = 8;

fn name_of(call: u32) -> Option<&'static str> {
    let name = Sysno::new(call as usize)?.name();
    WAITING_CALLS.contains(&name).then_some(name)
}

fn span_evidence(usage: &Usage, held: Option<f64>, waited_ns: u64) -> SpanEvidence {
    let wall = usage.wall_ns as f64;
    SpanEvidence {
        seconds: wall * 1e-9,
        running: usage.cpu_ns as f64 / wall,
        idle: usage.idle_ns as f64 / wall,
        delayed: usage.delay_ns as f64 / wall,
        system: (usage.system_ns as f64 / (usage.cpu_ns as f64).max(1.0)).min(1.0),
        held,
        waiting: waited_ns as f64 / wall,
    }
}

/// What a prediction says of the locks with a profile's name. A prediction knows where a lock was
/// taken first, and a profile where it was initialised or waited for.
fn predicted(prediction: &Prediction, name: &str) -> Option<PredictedLock> {
    let lock = prediction.locks.iter().find(|lock| lock.name == name)?;
    let estimate = lock.analysis.estimates.iter().rfind(|estimate| estimate.is_measured())?;
    let of_same = |gain: &&Projection| gain.processors == estimate.processors;
    let last = lock.projections.iter().find(of_same);
    let pad = lock.advice.iter().find_map(|advised| match advised.advice {
        Predicted::Pad { word, .. } => Some(word),
        _ => None,
    });
    let word = |address: u64| {
        let name = prediction.words.get(&address);
        name.cloned().unwrap_or_else(|| format!("{address:#x}"))
    };
    Some(PredictedLock {
        processors: estimate.processors,
        program: last.map(|projection| projection.program_by_line),
        sections: last.map_or(1.0, |projection| projection.sections_by_line),
        read_only: lock.analysis.read_only,
        io: lock.analysis.io,
        shared_line: pad.map(word),
    })
}
