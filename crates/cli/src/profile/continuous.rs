//! `profile --continuous`: one pprof profile per process and interval, while the program runs.
//!
//! The program records into one file as always, and knows nothing of intervals. A thread of the
//! command reads the file at the end of each interval. The profile of the interval is the
//! difference to the file's previous state, so every wait is in exactly one of them. A new file per
//! interval would lose waits that a thread is about to record into the old one.
//!
//! A descriptor of each file stays open: a process that replaces its program by `exec` removes its
//! file, whose last state is then read from there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use object::Object as _;
use unconvoy_measure::output::{complain, replace};
use unconvoy_profile::{Profile, Recorded};

use super::ended::{Ended, has_ended};
use super::intervals::{Intervals, file_name, rotate};
use super::options::Sort;
use super::pprof;
use super::report::Report;
use super::rows::StackSum;
use crate::debug_files;
use crate::messages::profile as messages;

/// The place of waits of which none was sampled in the interval.
const NO_SAMPLE: &str = "no sample";

/// A thread that writes the profiles.
pub struct Continuous {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Continuous {
    /// Starts to write profiles. The process that the command starts records into `file`; `files`
    /// lists the files of all processes. At most `most` files of ended processes stay.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        intervals: Intervals,
        (file, most): (PathBuf, usize),
        begin_unix_ns: u64,
        files: impl Fn() -> Vec<PathBuf> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let writer = Writer {
            host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default(),
            intervals,
            file,
            begin_unix_ns,
            sources: BTreeMap::new(),
            ended: Ended::keeping(most),
            builds: BTreeMap::new(),
            has_failed: false,
        };
        let builder = std::thread::Builder::new().name("intervals".into());
        let thread = builder.spawn(move || writer.run(&stopped, files))?;
        Ok(Continuous { stop, thread })
    }

    /// Writes the profiles of the last interval.
    pub fn finish(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

/// A file that a process records into.
struct Source {
    file: File,
    inode: u64,
    /// The state at the end of the previous interval.
    last: Option<Recorded>,
    /// End of the previous interval.
    until_ns: u64,
}

struct Writer {
    host: String,
    intervals: Intervals,
    /// The file of the process that the command starts.
    file: PathBuf,
    /// Older files are of an earlier run.
    begin_unix_ns: u64,
    sources: BTreeMap<PathBuf, Source>,
    ended: Ended,
    /// Build ids of programs.
    builds: BTreeMap<PathBuf, String>,
    /// Whether a profile could not be written.
    has_failed: bool,
}

impl Writer {
    fn run(mut self, stopped: &Receiver<()>, files: impl Fn() -> Vec<PathBuf>) {
        let mut next = Instant::now() + self.intervals.interval;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            let is_last = stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout);
            self.write_all(&files());
            if is_last {
                return;
            }
            next = (next + self.intervals.interval).max(Instant::now());
        }
    }

    fn write_all(&mut self, paths: &[PathBuf]) {
        for path in paths {
            let Ok(file) = File::open(path) else { continue };
            let inode = file.metadata().map_or(0, |metadata| metadata.ino());
            let known = self.sources.get(path).map(|source| source.inode);
            let known = known.or(self.ended.inode(path));
            if known == Some(inode) {
                continue;
            }
            self.ended.forget(path);
            let new = Source { file, inode, last: None, until_ns: 0 };
            if let Some(mut replaced) = self.sources.insert(path.clone(), new) {
                self.write_interval(&mut replaced);
            }
        }
        for (path, mut source) in std::mem::take(&mut self.sources) {
            // Asked first: the state read below then has everything that the process recorded.
            let has_ended = path != self.file && has_ended(&path);
            self.write_interval(&mut source);
            if has_ended {
                let waited_ns = source.last.as_ref().map(Recorded::waited_ns).unwrap_or_default();
                self.ended.add(path, source.inode, waited_ns);
            } else {
                self.sources.insert(path, source);
            }
        }
        rotate(&self.intervals.to, self.intervals.keep);
    }

    /// Writes a process's waits since the end of the previous interval.
    fn write_interval(&mut self, source: &mut Source) {
        let mut bytes = vec![0; size_of::<Profile>()];
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        if source.file.read_exact_at(&mut bytes, 0).is_err() {
            return;
        }
        let Ok(state) = Recorded::parse(&bytes) else { return };
        if state.begin_unix_ns < self.begin_unix_ns {
            return;
        }
        let mut part = match &source.last {
            Some(last) => state.since(last),
            None => state.clone(),
        };
        part.begin_unix_ns = source.until_ns.max(state.begin_unix_ns);
        part.wall_ns = now.saturating_sub(part.begin_unix_ns);
        // The profile has no waits for signals: threads without work would fill the directory.
        if part.locks.iter().any(|lock| lock.kind.is_lock()) {
            let (name, bytes) = self.encode(&part, now);
            let written = replace(&self.intervals.to.join(&name), &bytes);
            if let Err(why) = written
                && !std::mem::replace(&mut self.has_failed, true)
            {
                complain(&messages::interval_not_written(&self.intervals.to.join(name), why));
            }
        }
        source.last = Some(state);
        source.until_ns = now;
    }

    /// The name and the content of an interval's profile.
    fn encode(&mut self, part: &Recorded, now: u64) -> (String, Vec<u8>) {
        let mut report = Report::new(part, Sort::Waited);
        // The samples of a name stand for all its locks.
        let unsampled = report.classes.iter().filter(|row| !row.is_cond() && row.pairs.is_empty());
        let unsampled: Vec<StackSum> = unsampled
            .map(|row| StackSum {
                frames: vec![NO_SAMPLE.to_string()],
                lock: row.name.clone(),
                ns: row.waited_ns,
                waits: row.waits as f64,
            })
            .collect();
        report.waiter_stacks.extend(unsampled);
        let program = part.program.file_name().unwrap_or_default().to_string_lossy();
        let service = self.intervals.service.clone().unwrap_or_else(|| program.into_owned());
        let name = file_name(&service, part.pid, now / 1_000_000);
        let build = self.builds.entry(part.program.clone());
        let build = build.or_insert_with(|| build_id(&part.program).unwrap_or_default()).clone();
        let labels = [
            ("host", self.host.trim().to_string()),
            ("service", service),
            ("build", build),
            ("pid", part.pid.to_string()),
        ];
        let labels: Vec<_> = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        (name, compressed(&pprof::encode(&report, &labels)))
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let written = encoder.write_all(bytes);
    written.and_then(|()| encoder.finish()).unwrap_or_default()
}

/// The build id of a program, in hexadecimal digits.
fn build_id(program: &Path) -> Option<String> {
    let file = object::ReadCache::new(debug_files::open(program)?);
    let file = object::File::parse(&file).ok()?;
    let id = file.build_id().ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use unconvoy_profile::Kind;
    use unconvoy_profile::layout::{MAGIC, VERSION, zeroed};

    use super::super::intervals::Keep;
    use super::*;

    #[test]
    fn interval_with_waits_for_signals_alone_has_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, to) = (folder.path().join("profile"), folder.path().join("parts"));
        std::fs::create_dir(&to).unwrap();
        let profile = zeroed();
        profile.header.magic.store(MAGIC, Relaxed);
        profile.header.version.store(VERSION, Relaxed);
        std::fs::write(&path, profile.to_bytes()).unwrap();
        let mut writer = Writer {
            host: String::new(),
            intervals: Intervals {
                interval: Duration::from_secs(1),
                to: to.clone(),
                keep: Keep::Files(10),
                service: Some("pool".into()),
            },
            file: path.clone(),
            begin_unix_ns: 0,
            sources: BTreeMap::new(),
            ended: Ended::keeping(1),
            builds: BTreeMap::new(),
            has_failed: false,
        };
        let file = File::open(&path).unwrap();
        let mut source = Source { file, inode: 0, last: None, until_ns: 0 };
        let files_after = |kind: Kind| {
            let (_, lock) = profile.lock(kind, 0x1000).unwrap();
            profile.record_wait(lock, 5_000, 1, false);
            std::fs::write(&path, profile.to_bytes()).unwrap();
            writer.write_interval(&mut source);
            std::fs::read_dir(&to).unwrap().count()
        };
        assert_eq!([Kind::Cond, Kind::Cond, Kind::Mutex].map(files_after), [0, 0, 1]);
    }
}
