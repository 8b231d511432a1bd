//! The native controller thread: comes with the first long wait, goes when there are none, does not
//! survive a `fork`.
//!
//! | state | meaning |
//! | --- | --- |
//! | `NONE` | no controller; the next long wait starts one |
//! | `RUNNING` | there is one, or a thread is just starting it |
//! | `REFUSED` | the kernel would not start one: waiters spin and park, nobody sleeps in slots |
//!
//! **Invariant 1.** Only the thread that moved the state from `NONE` to `RUNNING` starts a
//! controller; only the controller moves it back, as its last act.

#[cfg(not(tsan))]
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use super::bare_thread::BareThread;
#[cfg(not(tsan))]
use super::bare_thread::NotStarted;
use super::hook::{self, ControllerHook};
use super::sensor::bpf;
use super::sensor::choice::{Choice, ChosenSensor};
#[cfg(not(tsan))]
use super::sensor::file::File;
use crate::load::LoadControl;
use crate::load::controller::{Counters, serve};
use crate::load::sensor::{Reading, Sensor};
use crate::primitive::native::slice;
use crate::primitive::{Clock as _, Native, Parking as _, Threads as _};

/// A controller in the middle of a reading needs some hundred microseconds to go.
const LONGEST_FAREWELL_NS: u64 = 100_000_000;

const NONE: u32 = 0;
const RUNNING: u32 = 1;
const REFUSED: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(NONE);
/// How many callers of [`without_controller`] there are; while there is one, no controller goes on.
static BARRED: AtomicU32 = AtomicU32::new(0);
/// Set by a controller that has lost its sensor. It has no standard error itself: the next long wait reports it.
static UNSAID: AtomicBool = AtomicBool::new(false);
/// Set by [`confine`].
static CONFINED: AtomicBool = AtomicBool::new(false);
/// The id of the process that controllers belong to; 0: nobody knows yet.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static THREAD: BareThread = BareThread::new();
static COUNTERS: Counters<Native> = Counters {
    starts: AtomicU32::new(0),
    ticks: AtomicU32::new(0),
    busy_ns: AtomicU64::new(0),
    runnable: AtomicU32::new(0),
    capacity: AtomicU32::new(0),
};

static LOAD_CONTROL: LoadControl<Native> = LoadControl::idle();

/// The load control of this process.
#[inline(always)]
pub fn load_control() -> &'static LoadControl<Native> {
    &LOAD_CONTROL
}

/// The sensor that the next controller begins with: which, and its number if it has one.
static SENSOR: (AtomicU8, AtomicU64) = (AtomicU8::new(0), AtomicU64::new(0));

/// What the controllers of this process did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerReport {
    /// Times one was started.
    pub starts: u32,
    /// Intervals served.
    pub ticks: u32,
    /// Nanoseconds spent outside sleep.
    pub busy_ns: u64,
    /// Whether one runs now.
    pub running: bool,
    /// The kernel's id of the one that runs, else 0.
    pub thread: i32,
    /// The sensor, by its name in the catalogue.
    pub sensor: &'static str,
    /// Runnable threads of the last reading, in thousandths.
    pub runnable: u32,
    /// Its capacity, in thousandths of a processor; 0 before the first.
    pub capacity: u32,
}

/// What the controllers of this process did so far.
pub fn controller_report() -> ControllerReport {
    ControllerReport {
        starts: COUNTERS.starts.load(Relaxed),
        ticks: COUNTERS.ticks.load(Relaxed),
        busy_ns: COUNTERS.busy_ns.load(Relaxed),
        running: STATE.load(Relaxed) == RUNNING,
        thread: THREAD.id(),
        sensor: sensor().name(),
        runnable: COUNTERS.runnable.load(Relaxed),
        capacity: COUNTERS.capacity.load(Relaxed),
    }
}

/// Has controllers that are started from now on use this sensor.
pub fn use_sensor(choice: Choice) {
    let (kind, value) = match choice {
        Choice::Schedstat => (0, 0.0),
        Choice::LoadAverage => (1, 0.0),
        Choice::Pressure => (2, 0.0),
        Choice::Bpf => (3, 0.0),
        Choice::Fixed(processors) => (4, processors),
    };
    SENSOR.1.store(f64::to_bits(value), Relaxed);
    SENSOR.0.store(kind, Release);
}

fn sensor() -> Choice {
    match SENSOR.0.load(Acquire) {
        1 => Choice::LoadAverage,
        2 => Choice::Pressure,
        3 => Choice::Bpf,
        4 => Choice::Fixed(f64::from_bits(SENSOR.1.load(Relaxed))),
        _ => Choice::Schedstat,
    }
}

/// Sees to it that a controller runs, and that it stays for some intervals.
pub fn keep_controller() {
    if LOAD_CONTROL.contended.load(Relaxed) == 0 {
        LOAD_CONTROL.contended.store(1, Relaxed);
    }
    ensure();
}

/// Sees to it that a controller runs.
#[inline]
pub(super) fn ensure() {
    if UNSAID.load(Relaxed) {
        say_what_is_unsaid();
    }
    if STATE.load(Relaxed) == NONE {
        start();
    }
}

#[cold]
fn say_what_is_unsaid() {
    if UNSAID.swap(false, Relaxed) {
        say("the chosen sensor is lost (the program has closed its descriptors, or /proc is gone); using schedstat");
    }
}

#[cold]
fn start() {
    if STATE.compare_exchange(NONE, RUNNING, SeqCst, Relaxed).is_err() {
        return;
    }
    if BARRED.load(SeqCst) != 0 || !is_this_process() {
        STATE.store(NONE, Release);
        return;
    }
    if CONFINED.load(SeqCst) {
        STATE.store(REFUSED, Release); // silently: the program may have no standard error that it wants lines on
        return;
    }
    // A sanitizer's runtime must know every thread; there, an ordinary one serves.
    #[cfg(tsan)]
    std::thread::spawn(|| {
        serve_with_sensor(false, Native::thread_id());
    });
    #[cfg(not(tsan))]
    if rustix::fs::access(c"/proc/self/task", rustix::fs::Access::READ_OK).is_err() {
        STATE.store(REFUSED, Release);
        say("/proc/self/task cannot be read: waiters spin and park, none sleep for load");
        return;
    }
    #[cfg(not(tsan))]
    match THREAD.start(if is_filtered() { filtered_body } else { body }) {
        Ok(()) => {}
        Err(NotStarted::Leaving) => STATE.store(NONE, Release),
        Err(NotStarted::Refused(_)) => {
            STATE.store(REFUSED, Release);
            say("no thread for load control can be started here: waiters spin and park, none sleep for load");
        }
    }
}

/// Whether the caller is of the process whose memory this is. A `vfork` child is not: a controller
/// that it started would end with it.
fn is_this_process() -> bool {
    let caller = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    match PROCESS.compare_exchange(0, caller, Relaxed, Relaxed) {
        Ok(_) => true,
        Err(owner) => owner == caller,
    }
}

/// Has the calling process be the one whose memory this is, before it has a `vfork` child.
pub fn claim_memory() {
    is_this_process();
}

/// Whether this process's system calls go through a filter, which may kill for those that it does
/// not know. Looked up once, also for the children: who installs a filter later is [confined](confine)
/// first. (Each look leaves directory entries of the process in the kernel, and many short-lived children that do so
/// keep their parents busy for seconds in `wait`, on Linux 6.18.)
#[cfg(not(tsan))]
fn is_filtered() -> bool {
    const UNKNOWN: u32 = 0;
    const NO: u32 = 1;
    const YES: u32 = 2;
    static FILTERED: AtomicU32 = AtomicU32::new(UNKNOWN);
    if FILTERED.load(Relaxed) == UNKNOWN {
        let mut text = [0; 4096];
        let len = File::open(c"/proc/self/status").and_then(|file| file.read_into(&mut text)).unwrap_or(0);
        let line = b"\nSeccomp:\t";
        let mode = text[..len].windows(line.len() + 1).find(|window| window.starts_with(line));
        let filtered = mode.is_none_or(|window| window[line.len()] != b'0');
        FILTERED.store(if filtered { YES } else { NO }, Relaxed);
    }
    FILTERED.load(Relaxed) == YES
}

/// Has no controller in this process from now on, nor in its children: it is about to be confined
/// to system calls that it knows it needs. One that runs is gone on return.
pub fn confine() {
    if is_this_process() {
        CONFINED.store(true, SeqCst);
        slice::confine();
        without_controller(|| ());
    }
}

/// One line on standard error, without allocation or a lock.
fn say(what: &str) {
    ["unconvoy: ", what, "\n"].into_iter().for_each(|part| {
        // SAFETY: the text is valid for its length. Nothing can be done if nobody takes it.
        let _ = unsafe { syscalls::syscall!(syscalls::Sysno::write, 2, part.as_ptr(), part.len()) };
    });
}

/// As `body`, where system calls are filtered: without the one that old filters do not know.
#[cfg(not(tsan))]
extern "C" fn filtered_body(_: *mut c_void) -> c_int {
    run(false)
}

#[cfg(not(tsan))]
extern "C" fn body(_: *mut c_void) -> c_int {
    // A descriptor table of its own, emptied: see `bare_thread`. Before Linux 5.9 it stays shared, and the
    // sensor keeps nothing open.
    // SAFETY: no code on this thread owns a descriptor, and with UNSHARE the table that is emptied is
    // this thread's alone.
    let private =
        unsafe { syscalls::syscall!(syscalls::Sysno::close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE) }.is_ok();
    run(private)
}

#[cfg(not(tsan))]
fn run(private: bool) -> c_int {
    serve_with_sensor(private, THREAD.id().cast_unsigned());
    0
}

/// Serves with the chosen sensor; where that cannot be had (any more) it is `schedstat` from then on.
fn serve_with_sensor(private: bool, own_thread: u32) {
    let sensor = ChosenSensor::new(sensor(), private, own_thread);
    let mut sensor = Watched { sensor, hook: hook::get() };
    sensor.notice();
    serve(&LOAD_CONTROL, &mut sensor, &COUNTERS, &BARRED);
    if let Some(hook) = sensor.hook {
        (hook.end)();
    }
    drop(sensor);
    STATE.store(NONE, Release);
}

/// The sensor, with an eye on what it has become; and what else is done each time that it is read.
struct Watched {
    sensor: ChosenSensor,
    hook: Option<&'static ControllerHook>,
}

impl Watched {
    /// Has it said, once, if another sensor is in use than was chosen.
    fn notice(&self) {
        if self.sensor.choice() != sensor() {
            use_sensor(self.sensor.choice());
            UNSAID.store(true, Relaxed);
        }
    }
}

impl Sensor for Watched {
    fn begin(&mut self, now: u64) {
        self.sensor.begin(now);
        if let Some(hook) = self.hook {
            (hook.begin)(now);
        }
    }

    fn read(&mut self, now: u64) -> Option<Reading> {
        let reading = self.sensor.read(now);
        self.notice();
        self.hook.map_or(reading, |hook| (hook.interval)(now, reading))
    }

    fn expect_asleep(&mut self, thread: u32, slot: u32) {
        self.sensor.expect_asleep(thread, slot);
    }
}

/// Runs `work` while there is no controller. For what libc does to every thread that it knows:
/// a process that gives up its privileges must not keep them in a thread of ours.
pub fn without_controller<R>(work: impl FnOnce() -> R) -> R {
    BARRED.fetch_add(1, SeqCst); // and then the state; who starts one does it the other way round
    Native::unpark(&raw const BARRED, u32::MAX);
    // Not for ever: a signal handler may have come between the start of a controller and its thread.
    let give_up = Native::now() + LONGEST_FAREWELL_NS;
    let mut thread = THREAD.id();
    while (STATE.load(SeqCst) == RUNNING || THREAD.id() != 0) && Native::now() < give_up {
        thread = if thread == 0 { THREAD.id() } else { thread };
        Native::yield_now();
    }
    // Its id is cleared a moment before the kernel counts one thread less.
    while thread != 0 && is_known(thread) && Native::now() < give_up {
        Native::yield_now();
    }
    let result = work();
    BARRED.fetch_sub(1, Relaxed);
    result
}

/// Whether the kernel has a thread of this process with the number `thread`.
fn is_known(thread: i32) -> bool {
    // SAFETY: signal 0 is none.
    unsafe { syscalls::syscall!(syscalls::Sysno::tgkill, std::process::id(), thread, 0) }.is_ok()
}

/// Starts anew in the child of a `fork`: the controller and all waiters stayed behind.
pub(super) fn begin_anew() {
    PROCESS.store(0, Relaxed);
    THREAD.forget();
    BARRED.store(0, Relaxed);
    LOAD_CONTROL.reset();
    if let Some(hook) = hook::get() {
        (hook.forked)();
    }
    if bpf::is_adopted() {
        bpf::forget();
        use_sensor(Choice::Schedstat); // the kernel counts for the parent
    }
    let _ = STATE.compare_exchange(RUNNING, NONE, Relaxed, Relaxed);
}
