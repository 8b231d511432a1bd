//! Asks a process to record its waits, and takes snapshots.

use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use unconvoy::primitive::{Clock as _, Native};
use unconvoy_profile::page::Page;
use unconvoy_profile::{Mapping, Profile, Recorded};

use super::maps::{self, Mapped};
use super::segment::Shared;
use super::snapshot::{Controller, Lock, Snapshot};
use super::target::{Target, text};
use crate::inspect::LongWaits;
use crate::live_thread::live_thread;
use crate::messages::top as messages;
use crate::names;
use crate::profile::names::{Names, of_files};
use crate::profile::options::Sort;
use crate::profile::remarks::shown_by_offset;
use crate::profile::report::Report;
use crate::profile::sources;

/// Longest time between two requests to record. It leaves some of the process's patience
/// ([`PATIENCE_NS`](unconvoy_profile::page::PATIENCE_NS)) for a machine without a free processor.
pub const RENEWAL: Duration = Duration::from_secs(2);

/// How often the controller's first interval is looked for.
const FIRST_INTERVAL: Duration = Duration::from_millis(20);

/// A table that has recorded for less says nothing about rates, in seconds.
const SHORTEST: f64 = 0.01;

/// A wait of this length is announced while it goes on: the figures count it only at its end.
const LONG: Duration = Duration::from_secs(1);

/// Schema of the JSON snapshot.
const SCHEMA: &str = "unconvoy-top-1";

/// A process under observation.
pub struct Watcher {
    target: Target,
    /// The segment's identifier, and the page.
    page: Option<(i32, Shared<Page>)>,
    /// Its address in the process, and the table.
    table: Option<(u64, Shared<Profile>)>,
    /// The table at the last snapshot.
    before: Option<Recorded>,
    at: Instant,
    /// What the controller wrote at the last snapshot. It writes only while somebody watches, so
    /// what it wrote for an earlier watcher does not count.
    controlled: Option<Controlled>,
    /// When this command began to watch, on the monotonic clock.
    since: u64,
    /// Names from the files in these mappings.
    names: Option<(Vec<Mapping>, Rc<names::Names>)>,
    program: String,
    long_waits: LongWaits,
}

impl Watcher {
    /// Begins to watch a process.
    ///
    /// # Errors
    ///
    /// There is no such process, it does not run under unconvoy or hides itself, or this user may
    /// not watch it.
    pub fn open(pid: u32) -> anyhow::Result<Self> {
        let target = Target::open(pid)?;
        ensure!(!target.hides_itself(), messages::hides_itself(pid));
        let mut watcher = Watcher {
            target,
            page: None,
            table: None,
            before: None,
            at: Instant::now(),
            controlled: None,
            since: Native::now(),
            names: None,
            program: program(pid).unwrap_or_default(),
            long_waits: LongWaits::default(),
        };
        watcher.attach()?;
        watcher.before = watcher.table.as_ref().map(|(_, table)| Recorded::of(table));
        Ok(watcher)
    }

    /// Finds the page and the table, and asks the process to record.
    fn attach(&mut self) -> anyhow::Result<()> {
        let Ok(mapped) = maps::read(self.target.pid) else { return Ok(()) };
        if mapped.is_empty() {
            return Ok(()); // it is ending
        }
        // After `exec` the process has another page, or none.
        let is_mapped = |id: i32| mapped.iter().filter_map(Mapped::segment).any(|it| it == id);
        if self.page.as_ref().is_some_and(|(id, _)| !is_mapped(*id)) {
            (self.page, self.table, self.before) = (None, None, None);
            (self.controlled, self.since) = (None, Native::now());
        }
        if self.page.is_none() {
            self.page = self.target.page(&mapped)?;
        }
        let Some((_, page)) = &self.page else { return Ok(()) };
        if page.unwinds.load(Relaxed) == 0 && self.target.has_lock_free_unwinder(&mapped) {
            page.unwinds.store(1, Relaxed);
        }
        let next = |asked: u32| Some(asked.wrapping_add(1).max(1));
        let _ = page.asked.fetch_update(Relaxed, Relaxed, next);
        let error = page.error.load(Relaxed);
        if error != 0 {
            let error = std::io::Error::from_raw_os_error(error.cast_signed());
            bail!(messages::cannot_record(self.target.pid, &error));
        }
        let address = page.table.load(Acquire);
        if address != 0 && self.table.as_ref().is_none_or(|(known, _)| *known != address) {
            // The process may have created the table after the first look at its mappings.
            let mapped = maps::read(self.target.pid).unwrap_or_default();
            if mapped.is_empty() {
                return Ok(());
            }
            self.table = Some((address, self.target.table(&mapped, address)?));
        }
        Ok(())
    }

    /// Asks the process to go on recording. Due once per [`RENEWAL`] between snapshots.
    pub fn renew(&mut self) {
        if !self.target.has_ended() {
            // The next snapshot fails for the same reason.
            let _ = self.attach();
        }
    }

    /// Whether the controller has written since this command watches.
    fn has_base(&mut self) -> bool {
        let page = self.page.as_ref().filter(|_| self.controlled.is_none());
        if let Some((_, page)) = page {
            self.controlled = Controlled::of(page).filter(|it| it.at > self.since);
        }
        self.controlled.is_some()
    }

    /// Lets the process record for this long.
    pub fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time;
        let mut renewed = Instant::now();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // The controller's first interval is the base of its figures.
            let at_most = if self.has_base() { RENEWAL } else { FIRST_INTERVAL };
            std::thread::sleep(left.min(at_most));
            if left <= at_most {
                return;
            }
            if renewed.elapsed() >= RENEWAL {
                renewed = Instant::now();
                self.renew();
            }
        }
    }

    /// What happened since the last snapshot.
    ///
    /// # Errors
    ///
    /// The process cannot record, or has become another user's.
    pub fn look(&mut self) -> anyhow::Result<Snapshot> {
        let ended = self.target.has_ended();
        if !ended {
            self.attach()?;
            // After `exec` it is another one.
            self.program = program(self.target.pid).unwrap_or_else(|| self.program.clone());
        }
        let now = self.table.as_ref().map(|(_, table)| Recorded::of(table));
        let seconds = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let mut snapshot = Snapshot {
            schema: SCHEMA,
            pid: self.target.pid,
            program: self.program.clone(),
            seconds,
            ended,
            ..Snapshot::default()
        };
        let pid = self.target.pid;
        let long = if ended { 0 } else { self.long_waits.count(pid, LONG) };
        if long > 0 {
            snapshot.remarks.push(messages::has_long_waits(pid, long));
        }
        let has_base = self.has_base();
        let Some((_, page)) = &self.page else {
            let is_filtered = !ended && self.target.is_filtered();
            snapshot.remarks.push(match is_filtered {
                true => messages::is_filtered(),
                false => messages::has_no_page(),
            });
            return Ok(snapshot);
        };
        (snapshot.lock, snapshot.load) = (text(&page.lock), text(&page.load));
        let controlled = Controlled::of(page).filter(|_| has_base);
        snapshot.controller =
            controller(page, self.controlled, controlled).filter(|_| !snapshot.ended);
        self.controlled = controlled;
        match now {
            Some(now) => self.add_locks(&mut snapshot, now),
            // A table begins with the first wait after the request for it.
            None if ended => {}
            None => snapshot.remarks.push(messages::has_no_wait()),
        }
        Ok(snapshot)
    }

    fn add_locks(&mut self, snapshot: &mut Snapshot, now: Recorded) {
        let recent = match &self.before {
            Some(before) => now.since(before),
            None => now.clone(),
        };
        if self.before.is_none() {
            // The table began in this interval: after the request, or with another program.
            let recorded = Native::now().saturating_sub(now.begin_ns) as f64 * 1e-9;
            snapshot.seconds = snapshot.seconds.min(recorded.max(SHORTEST));
        }
        self.before = Some(now);
        if self.names.as_ref().is_none_or(|(mappings, _)| *mappings != recent.mappings) {
            let names = of_files(&recent, |path| self.target.path(path));
            self.names = Some((recent.mappings.clone(), names));
        }
        let Some((_, names)) = &self.names else { return };
        let report = Report::named(&recent, Sort::Waited, &Names::with(&recent, names.clone()));
        let locks = report.classes.iter().filter(|row| !row.is_cond());
        snapshot.locks = locks.map(Lock::of).collect();
        snapshot.waits = snapshot.locks.iter().map(|lock| lock.waits).sum();
        snapshot.waited_ns = snapshot.locks.iter().map(|lock| lock.waited_ns).sum();
        let gone = sources::gone(&recent, |path| self.target.path(path));
        let shown = shown_by_offset(&report, &gone).into_iter();
        snapshot.remarks.extend(shown.map(|name| messages::file_is_gone(name)));
        if recent.has_registered || !recent.unwinds {
            snapshot.remarks.push(messages::has_no_stacks());
        }
        let lost: u32 = recent.lost.iter().sum();
        if lost > 0 {
            snapshot.remarks.push(messages::table_is_full());
        }
    }
}

/// Path of a process's program.
fn program(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{}/exe", live_thread(pid))).ok()?;
    Some(path.display().to_string())
}

/// What the controller has done by the time of its last interval.
#[derive(Debug, Clone, Copy)]
struct Controlled {
    /// On the monotonic clock.
    at: u64,
    intervals: u64,
    busy_ns: u64,
}

impl Controlled {
    /// `None` before the first interval.
    fn of(page: &Page) -> Option<Self> {
        let at = Some(page.interval_at.load(Relaxed)).filter(|&at| at != 0)?;
        let [intervals, busy_ns] = [&page.intervals, &page.busy_ns].map(|it| it.load(Relaxed));
        Some(Self { at, intervals, busy_ns })
    }
}

/// The controller's figures, if one runs, with the rates between two of its intervals.
fn controller(
    page: &Page,
    before: Option<Controlled>,
    now: Option<Controlled>,
) -> Option<Controller> {
    let thread = Some(page.controller.load(Relaxed)).filter(|&thread| thread != 0)?;
    let thousandths = |value: u32| f64::from(value) / 1e3;
    let between = before.zip(now).filter(|(before, now)| now.at > before.at);
    let rate = |of: fn(&Controlled) -> u64| {
        let (before, now) = between?;
        Some(of(&now).saturating_sub(of(&before)) as f64 * 1e9 / (now.at - before.at) as f64)
    };
    Some(Controller {
        thread,
        sensor: text(&page.sensor),
        runnable: thousandths(page.runnable.load(Relaxed)),
        capacity: thousandths(page.capacity.load(Relaxed)),
        sleeping: page.sleeping.load(Relaxed),
        target: page.target.load(Relaxed),
        intervals: rate(|it| it.intervals),
        busy: rate(|it| it.busy_ns).map(|busy| busy * 1e-9),
        confined: page.confined.load(Relaxed),
        cores: page.cores.load(Relaxed),
    })
}
