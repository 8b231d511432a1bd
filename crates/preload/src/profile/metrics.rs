//! `UNCONVOY_METRICS=FILE`: waits and load in Prometheus's text format, for the textfile collector
//! of node_exporter.
//!
//! The figures are those of the table that a profile fills. The controller's thread writes the
//! file, at most once in a period and once when it exits; the exit of the process writes it a last
//! time. A wait starts a controller when a period has passed, so an idle process writes nothing and
//! wakes for nothing.
//!
//! Each lock belongs to a [class](super::classes): its kind, and the place of the static lock or of
//! the code that first waited for it. The first [`CLASSES`] classes get series of their own, and
//! the others share one.
//!
//! The controller's thread must not allocate, panic or use thread-local storage, so the text is
//! built in static memory.

use core::cell::UnsafeCell;
use core::fmt::{self, Write as _};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::OnceLock;

use syscalls::{Errno, Sysno, syscall};
use unconvoy_locks::catalogue::environment;
use unconvoy_locks::primitive::{Clock as _, Native, Threads as _};
use unconvoy_locks::runtime::{self, load_control};
use unconvoy_profile::{Kind, Profile};

use super::classes::{CLASSES, Class, Classes};
use super::exposition::{Seconds, Value};
use super::{classes, estimate, state};
use crate::chosen::pair;
use crate::variables::{absolute, read_milliseconds, variable};
use crate::{identity, message, output};

/// Longest path, with its terminating zero, as in the kernel.
const PATH_MAX: usize = 4096;

/// The file's path. The program may have changed its environment when the file is written.
static PATH: OnceLock<String> = OnceLock::new();

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Shortest time between two writings while the process waits, nanoseconds.
static PERIOD: AtomicU64 = AtomicU64::new(10_000_000_000);

/// When the file is next due, on the monotonic clock.
static DUE: AtomicU64 = AtomicU64::new(0);

/// Time of the last record in the file; see [`Header::last_ns`](unconvoy_profile::layout::Header).
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Whether a failure has been recorded. Only one message is printed, at the exit.
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Whether a thread writes the file.
static IS_WRITING: AtomicBool = AtomicBool::new(false);

/// Whether the process may make no more system calls of its own.
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Longest time that the exit waits for the controller to write the file.
const LONGEST_WRITING_NS: u64 = 1_000_000_000;

/// What the thread that writes uses.
struct Room {
    /// The file's path, and the path of the unfinished file.
    paths: [[u8; PATH_MAX]; 2],
    text: [u8; 8192],
    classes: Classes,
    sums: [Sums; CLASSES + 1],
}

/// The figures of one class.
#[derive(Clone, Copy)]
struct Sums {
    waits: u64,
    wait_ns: u64,
    holds: u64,
    hold_ns: u64,
    slept: u64,
    held_ns: u64,
}

const NOTHING: Sums = Sums { waits: 0, wait_ns: 0, holds: 0, hold_ns: 0, slept: 0, held_ns: 0 };

struct Place(UnsafeCell<Room>);

// SAFETY: only the thread that has set `IS_WRITING` uses it.
unsafe impl Sync for Place {}

static ROOM: Place = Place(UnsafeCell::new(Room {
    paths: [[0; PATH_MAX]; 2],
    text: [0; 8192],
    classes: Classes::new(),
    sums: [NOTHING; CLASSES + 1],
}));

/// Whether the process writes metrics.
#[inline]
pub(super) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Starts, if the environment asks for it. Called from the constructor.
pub(super) fn begin() {
    let Some(path) = variable(&environment::METRICS) else { return };
    read_milliseconds(&environment::METRICS_PERIOD, &PERIOD);
    let wrong = |error| message::unwritable_metrics(path, &error).print();
    // A rename would destroy a link, a device or a pipe.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return wrong(std::io::Error::other(message::not_a_regular_file()));
    }
    let target = std::fs::canonicalize(path).ok();
    let path = target.as_deref().and_then(|target| target.to_str()).unwrap_or(path);
    if path.len() + 64 > PATH_MAX {
        return wrong(std::io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    PATH.get_or_init(|| absolute(path));
    IS_ON.store(true, Relaxed);
}

/// Whether a wait that ended at `now` must start a controller.
#[inline]
pub(super) fn is_due(now: u64) -> bool {
    is_on() && now >= DUE.load(Relaxed)
}

/// Writes the file if it is due. Runs on the controller's thread.
pub(super) fn interval(now: u64) {
    if is_due(now) {
        DUE.store(now + PERIOD.load(Relaxed), Relaxed);
        write_if_new(false);
    }
}

/// Whether the last write left out locks that have no class yet.
static LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// Writes the file unless it has the last wait. Runs on the controller's thread, or at the exit.
pub(super) fn write_if_new(is_last: bool) {
    let Some(profile) = state::get().filter(|_| is_on()) else { return };
    let last = profile.header.last_ns.load(Relaxed);
    let is_old = WRITTEN.load(Relaxed) != last || is_last && LEFT_OUT.load(Relaxed);
    if !is_old || IS_CONFINED.load(Relaxed) || IS_WRITING.swap(true, Acquire) {
        return;
    }
    // SAFETY: only the thread that has set `IS_WRITING` uses the room.
    let room = unsafe { &mut *ROOM.0.get() };
    match runtime::without_signals(|| write(profile, room, is_last)) {
        Ok(()) => {
            FAILED.store(0, Relaxed);
            WRITTEN.store(last, Relaxed);
        }
        Err(error) => FAILED.store(error.into_raw().cast_unsigned().into(), Relaxed),
    }
    IS_WRITING.store(false, Release);
}

/// Writes the file a last time. Called when the process exits.
pub(super) fn end() {
    let begin = Native::now();
    while IS_WRITING.load(Relaxed) && Native::now() - begin < LONGEST_WRITING_NS {
        Native::yield_now();
    }
    write_if_new(true);
    let error = FAILED.load(Relaxed) as i32;
    if let Some(path) = PATH.get().filter(|_| error != 0) {
        message::unwritable_metrics(path, &std::io::Error::from_raw_os_error(error)).print();
    }
}

/// Makes no more system calls. The controller has stopped.
pub(super) fn confine() {
    IS_CONFINED.store(true, Relaxed);
}

/// Forgets the parent's figures, in the child of a `fork`.
pub(super) fn after_fork() {
    classes::after_fork();
    DUE.store(0, Relaxed);
    WRITTEN.store(0, Relaxed);
    FAILED.store(0, Relaxed);
    IS_WRITING.store(false, Relaxed);
    if is_on() {
        estimate::after_fork();
    }
}

/// Writes the file under another name, and then renames it.
fn write(profile: &Profile, room: &mut Room, is_last: bool) -> Result<(), Errno> {
    let path = PATH.get().ok_or(Errno::ENOENT)?;
    let [file, unfinished] = &mut room.paths;
    let stem = name_file(file, path, "");
    name_file(unfinished, path, ".unfinished");
    add_up(profile, &mut room.classes, &mut room.sums, is_last);
    // The name is known, so somebody else may have placed a link there.
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: the paths end in a zero, and this function owns the descriptor.
    unsafe {
        let at = unfinished.as_ptr();
        let _ = syscall!(Sysno::unlinkat, libc::AT_FDCWD, at, 0);
        let open = syscall!(Sysno::openat, libc::AT_FDCWD, at, flags, 0o644)?;
        let mut text = Text { file: open, room: &mut room.text, used: 0, error: None };
        let process = &file[stem.0..stem.1];
        let _ = render(&mut text, process, profile, room.classes.known(), &room.sums);
        text.flush();
        let error = text.error;
        let _ = syscall!(Sysno::close, open);
        let renamed = match error {
            None => syscall!(Sysno::renameat, libc::AT_FDCWD, at, libc::AT_FDCWD, file.as_ptr()),
            Some(error) => Err(error),
        };
        if renamed.is_err() {
            let _ = syscall!(Sysno::unlinkat, libc::AT_FDCWD, at, 0);
        }
        renamed.map(|_| ())
    }
}

/// Writes the path of this process's file, and its end, with a zero: FILE, or for a process that
/// the program starts, FILE with the process id before the extension. Returns the range of the
/// file's name without the extension.
fn name_file(room: &mut [u8; PATH_MAX], path: &str, end: &str) -> (usize, usize) {
    let start = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = path[start..].rfind('.').filter(|&dot| dot > 0).map_or(path.len(), |dot| start + dot);
    let mut number = itoa::Buffer::new();
    let mut used = 0;
    let mut append = |text: &str| {
        room[used..used + text.len()].copy_from_slice(text.as_bytes());
        used += text.len();
        used
    };
    let mut stem = append(&path[..dot]);
    if output::is_descendant() {
        append(".");
        stem = append(number.format(identity::process()));
    }
    append(&path[dot..]);
    append(end);
    append("\0");
    (start, stem)
}

/// Gives new locks their classes, and adds up the figures of each class.
fn add_up(profile: &Profile, classes: &mut Classes, sums: &mut [Sums], is_last: bool) {
    classes.begin(is_last);
    sums.fill(NOTHING);
    LEFT_OUT.store(false, Relaxed);
    for (index, lock) in profile.locks.iter().enumerate() {
        let Some(kind) = lock.kind() else { continue };
        if !kind.is_lock() || lock.waits.load(Acquire) == 0 {
            continue;
        }
        let Some(class) = classes.of(profile, index, kind as u32) else {
            LEFT_OUT.store(true, Relaxed);
            continue;
        };
        let sum = &mut sums[class];
        sum.waits += lock.waits.load(Relaxed);
        sum.wait_ns += lock.wait_ns.load(Relaxed);
        sum.holds += lock.holds.load(Relaxed);
        sum.hold_ns += lock.hold_ns.load(Relaxed);
        sum.slept += u64::from(lock.slept.load(Relaxed));
        sum.held_ns += estimate::held_ns(index);
    }
}

/// Text for a file, written through a buffer.
struct Text<'a> {
    file: usize,
    room: &'a mut [u8; 8192],
    used: usize,
    error: Option<Errno>,
}

impl Text<'_> {
    fn flush(&mut self) {
        let mut rest = &self.room[..self.used];
        while !rest.is_empty() && self.error.is_none() {
            // SAFETY: the buffer has `rest.len()` bytes.
            match unsafe { syscall!(Sysno::write, self.file, rest.as_ptr(), rest.len()) } {
                Ok(written) => rest = &rest[written..],
                Err(Errno::EINTR) => {}
                Err(error) => self.error = Some(error),
            }
        }
        self.used = 0;
    }
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.used + text.len() > self.room.len() {
            self.flush();
        }
        let fits = text.len().min(self.room.len());
        self.room[self.used..self.used + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.used += fits;
        Ok(())
    }
}

/// A metric of each class: its name, its meaning, and whether the figure is in nanoseconds.
type OfClass = (&'static str, &'static str, bool, fn(&Sums) -> u64);

const OF_CLASSES: [OfClass; 6] = [
    ("unconvoy_lock_waits_total", "Waits for locks that ended.", false, |sums| sums.waits),
    ("unconvoy_lock_waited_seconds_total", "Time that these waits took.", true, |s| s.wait_ns),
    (
        "unconvoy_lock_measured_holds_total",
        "Measured holds, which are some of those after a wait.",
        false,
        |sums| sums.holds,
    ),
    ("unconvoy_lock_measured_held_seconds_total", "Time of the measured holds.", true, |sums| {
        sums.hold_ns
    }),
    ("unconvoy_mutex_held_seconds_total", "Estimated time of all holds.", true, |s| s.held_ns),
    ("unconvoy_lock_sleeps_total", "Times that waiters left the processor.", false, |s| s.slept),
];

/// Writes all metrics. Each series has the label `process`, so that the files of a directory have
/// no series in common.
fn render(
    to: &mut Text<'_>,
    process: &[u8],
    profile: &Profile,
    classes: &[Class],
    sums: &[Sums],
) -> fmt::Result {
    let process = Value(process);
    for (name, help, is_time, of) in OF_CLASSES {
        write!(to, "# HELP {name} {help}\n# TYPE {name} counter\n")?;
        let named = classes.iter().zip(sums);
        let all = named.map(|(class, sums)| (class.label.bytes(), Kind::of(class.kind), sums));
        let other = (&b"other"[..], None, &sums[CLASSES]);
        let is_of_mutexes = name.starts_with("unconvoy_mutex");
        let has = |kind: Option<Kind>| !is_of_mutexes || kind.is_none_or(|it| it == Kind::Mutex);
        for (label, kind, sums) in all.chain([other]).filter(|it| has(it.1)) {
            let kind = kind.map_or("any", Kind::name);
            let class = Value(label);
            write!(to, "{name}{{process=\"{process}\",class=\"{class}\",kind=\"{kind}\"}} ")?;
            match is_time {
                true => writeln!(to, "{}", Seconds(of(sums)))?,
                false => writeln!(to, "{}", of(sums))?,
            }
        }
    }
    let report = runtime::controller_report();
    let control = load_control();
    let slots = (control.slots.sleeping(), control.slots.target());
    let thousandths = |value: u32| Seconds(u64::from(value) * 1_000_000);
    let mut one = |name: &str, help: &str, kind: &str, value: &dyn fmt::Display| {
        write!(to, "# HELP {name} {help}\n# TYPE {name} {kind}\n")?;
        writeln!(to, "{name}{{process=\"{process}\"}} {value}")
    };
    let lost = profile.header.lost_waits.load(Relaxed);
    one("unconvoy_lost_waits_total", "Waits for locks without room.", "counter", &lost)?;
    one("unconvoy_sleeping_threads", "Threads that sleep for load.", "gauge", &slots.0)?;
    one("unconvoy_sleep_target", "Threads that should sleep for load.", "gauge", &slots.1)?;
    let runnable = thousandths(report.runnable);
    one("unconvoy_runnable_threads", "Threads that run or wait to run.", "gauge", &runnable)?;
    let capacity = thousandths(report.capacity);
    one("unconvoy_processors", "Processors that the process may use.", "gauge", &capacity)?;
    let busy = Seconds(report.busy_ns);
    one("unconvoy_controller_seconds_total", "The controller's time awake.", "counter", &busy)?;
    let (lock, load) = (pair().lock, pair().load);
    let name = "unconvoy_info";
    write!(to, "# HELP {name} Locks of the process.\n# TYPE {name} gauge\n")?;
    writeln!(to, "{name}{{process=\"{process}\",lock=\"{lock}\",load=\"{load}\"}} 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, end: &str) -> (String, String) {
        let mut room = [0; PATH_MAX];
        let (start, stop) = name_file(&mut room, path, end);
        let length = room.iter().position(|&byte| byte == 0).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&room[..length]), text(&room[start..stop]))
    }

    #[test]
    fn unfinished_file_has_another_extension() {
        let pair = |path: &str, stem: &str| (path.to_string(), stem.to_string());
        assert_eq!(named("/d.d/server.prom", ""), pair("/d.d/server.prom", "server"));
        let unfinished = pair("server.prom.unfinished", "server");
        assert_eq!(named("server.prom", ".unfinished"), unfinished);
        assert_eq!(named("/d.d/server", ""), pair("/d.d/server", "server"));
        assert_eq!(named("/d/.prom", ""), pair("/d/.prom", ".prom"));
    }
}
