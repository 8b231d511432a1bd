//! The native controller thread. The first long wait starts it, it exits when long waits cease, and
//! a `fork` does not copy it. Each function for users of this state first reads the process's
//! [generation](crate::primitive::Generation), which resets the state in a child.
//!
//! | state | meaning |
//! | --- | --- |
//! | `NONE` | no controller; the next long wait starts one, or tries to a second after a failure |
//! | `RUNNING` | a controller runs or is being started |
//! | `REFUSED` | no controller can start: waiters spin and park, and none sleeps in a slot |
//!
//! **Invariant 1.** Only the thread that changed `NONE` to `RUNNING` starts a controller. That
//! controller changes the state back as its last action. The thread changes it back if it cannot
//! start the controller, and so does the child of a `fork`.

#[cfg(not(tsan))]
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::affinity;
use super::bare_thread::BareThread;
#[cfg(not(tsan))]
use super::bare_thread::NotStarted;
use super::hook::{self, ControllerHook, Observer};
use super::messages;
#[cfg(not(tsan))]
use super::priority;
use super::sensor::bpf;
use super::sensor::choice::{Choice, ChosenSensor};
#[cfg(not(tsan))]
use super::sensor::file::File;
use super::stderr::Line;
use crate::load::LoadControl;
use crate::load::controller::{Counters, serve};
use crate::load::sensor::{Reading, Sensor};
#[cfg(tsan)]
use crate::primitive::Threads as _;
use crate::primitive::native::slice;
use crate::primitive::{Clock as _, Generation as _, Native, Parking as _};

/// Longest wait for a controller's exit. A controller in the middle of a reading needs a few
/// hundred microseconds.
const LONGEST_EXIT_NS: u64 = 100_000_000;

const NONE: u32 = 0;
const RUNNING: u32 = 1;
const REFUSED: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(NONE);
/// Callers in [`without_controller`]. Controllers run only while it is 0.
static BARRED: AtomicU32 = AtomicU32::new(0);
/// Set by a controller that lost its sensor. It has no standard error, so the next long wait prints
/// the message.
static PENDING_MESSAGE: AtomicBool = AtomicBool::new(false);
static CONFINED: AtomicBool = AtomicBool::new(false);
/// The id of the process that owns this memory; 0 if not known yet.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static THREAD: BareThread = BareThread::new();
static COUNTERS: Counters<Native> = Counters {
    starts: AtomicU32::new(0),
    ticks: AtomicU32::new(0),
    busy_ns: AtomicU64::new(0),
    runnable: AtomicU32::new(0),
    capacity: AtomicU32::new(0),
};
/// The greatest number of runnable threads of any reading, in thousandths.
static MOST_RUNNABLE: AtomicU32 = AtomicU32::new(0);

static LOAD_CONTROL: LoadControl<Native> = LoadControl::idle();

/// The load control of this process.
#[inline(always)]
pub fn load_control() -> &'static LoadControl<Native> {
    &LOAD_CONTROL
}

/// Sets how many threads may poll for events until a controller has counted.
pub(super) fn assume_processors() {
    LOAD_CONTROL.pollers.assume_processors(affinity::processors() as u32);
}

/// The sensor of the next controller.
static SENSOR: AtomicU64 = AtomicU64::new(Choice::DEFAULT_WORD);

/// Activity of this process's controllers so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerReport {
    /// Controllers started.
    pub starts: u32,
    /// Intervals served.
    pub ticks: u32,
    /// Nanoseconds spent awake.
    pub busy_ns: u64,
    /// Whether a controller runs now.
    pub running: bool,
    /// The kernel's id of the running controller, else 0.
    pub thread: i32,
    /// The sensor's name in the catalogue.
    pub sensor: &'static str,
    /// Runnable threads of the last reading, in thousandths.
    pub runnable: u32,
    /// The greatest number of runnable threads of any reading, in thousandths. Includes those that
    /// polled for events.
    pub most_runnable: u32,
    /// Capacity in the last reading, in thousandths of a processor; 0 before the first reading.
    pub capacity: u32,
}

/// Returns the activity of this process's controllers so far.
pub fn controller_report() -> ControllerReport {
    Native::generation();
    ControllerReport {
        starts: COUNTERS.starts.load(Relaxed),
        ticks: COUNTERS.ticks.load(Relaxed),
        busy_ns: COUNTERS.busy_ns.load(Relaxed),
        running: STATE.load(Relaxed) == RUNNING,
        thread: THREAD.id(),
        sensor: sensor().name(),
        runnable: COUNTERS.runnable.load(Relaxed),
        most_runnable: MOST_RUNNABLE.load(Relaxed),
        capacity: COUNTERS.capacity.load(Relaxed),
    }
}

/// Addresses of the controller's words, each of 32 bits, for a reader in another process.
#[derive(Debug, Clone, Copy)]
pub struct ControllerAddresses {
    /// The kernel's id of the running controller, else 0.
    pub thread: usize,
    /// Runnable threads of the last reading, in thousandths.
    pub runnable: usize,
    /// Capacity in the last reading, in thousandths of a processor.
    pub capacity: usize,
}

/// Where the controller's words are.
pub fn controller_addresses() -> ControllerAddresses {
    ControllerAddresses {
        thread: THREAD.id_address(),
        runnable: (&raw const COUNTERS.runnable).addr(),
        capacity: (&raw const COUNTERS.capacity).addr(),
    }
}

/// Sets the sensor of controllers that start from now on.
pub fn use_sensor(choice: Choice) {
    SENSOR.store(choice.to_word(), Relaxed);
}

fn sensor() -> Choice {
    Choice::from_word(SENSOR.load(Relaxed))
}

/// Starts a controller unless one runs, and keeps it running for some intervals.
pub fn keep_controller() {
    Native::generation();
    LOAD_CONTROL.report_contention();
    ensure();
}

/// Starts a controller unless one runs.
#[inline]
pub(super) fn ensure() {
    if PENDING_MESSAGE.load(Relaxed) {
        print_pending_message();
    }
    if STATE.load(Relaxed) == NONE {
        start();
    }
}

#[cold]
fn print_pending_message() {
    if PENDING_MESSAGE.swap(false, Relaxed) {
        print_line(messages::SENSOR_LOST);
    }
}

/// Time between two attempts to start a controller where the system had no room for its thread.
#[cfg(not(tsan))]
const TRY_AGAIN_AFTER_NS: u64 = 1_000_000_000;

static TRY_AGAIN_AT: AtomicU64 = AtomicU64::new(0);

#[cold]
fn start() {
    if Native::now() < TRY_AGAIN_AT.load(Relaxed) {
        return;
    }
    if STATE.compare_exchange(NONE, RUNNING, SeqCst, Relaxed).is_err() {
        return;
    }
    // First, because the filter may not allow the calls below.
    if CONFINED.load(SeqCst) {
        // No message: the program may not expect one on its standard error.
        STATE.store(REFUSED, Release);
        return;
    }
    if BARRED.load(SeqCst) != 0 || !is_this_process() {
        STATE.store(NONE, Release);
        return;
    }
    #[cfg(not(tsan))]
    if !is_filtered() && priority::leaves_start_to_others() {
        STATE.store(NONE, Release);
        return;
    }
    // A sanitizer's runtime must know every thread, so it gets an ordinary one.
    #[cfg(tsan)]
    std::thread::spawn(|| {
        serve_with_sensor(false, Native::thread_id());
    });
    #[cfg(not(tsan))]
    if rustix::fs::access(c"/proc/self/task", rustix::fs::Access::READ_OK).is_err() {
        STATE.store(REFUSED, Release);
        print_line(messages::NO_TASK_DIRECTORY);
        return;
    }
    #[cfg(not(tsan))]
    match THREAD.start(if is_filtered() { filtered_body } else { body }) {
        Ok(()) => priority::record_start(),
        Err(NotStarted::Exiting) => STATE.store(NONE, Release),
        Err(NotStarted::Refused(error)) => {
            // The limit on threads or memory may leave room later.
            let is_lasting = ![libc::EAGAIN, libc::ENOMEM].contains(&error);
            TRY_AGAIN_AT.store(Native::now() + TRY_AGAIN_AFTER_NS, Relaxed);
            STATE.store(if is_lasting { REFUSED } else { NONE }, Release);
            static IS_KNOWN: AtomicBool = AtomicBool::new(false);
            if !IS_KNOWN.swap(true, Relaxed) {
                print_line(format_args!("{}; error {error}", messages::NO_CONTROLLER_THREAD));
            }
        }
    }
}

/// Whether the caller belongs to the process that owns this memory. A controller started by a
/// `vfork` child would end with the child.
fn is_this_process() -> bool {
    let caller = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    match PROCESS.compare_exchange(0, caller, Relaxed, Relaxed) {
        Ok(_) => true,
        Err(owner) => owner == caller,
    }
}

/// Makes the calling process the owner of this memory, before it has a `vfork` child.
pub fn claim_memory() {
    is_this_process();
}

/// Whether a filter checks this process's system calls; such a filter may kill the process for a
/// call that it does not know. The answer is read once, and child processes inherit it, since a
/// process that installs a filter later is [confined](confine) first. (Each read leaves directory
/// entries of the process in the kernel. On Linux 6.18, many short-lived children that each read
/// the answer keep their parents busy for seconds in `wait`.)
#[cfg(not(tsan))]
pub fn is_filtered() -> bool {
    const UNKNOWN: u32 = 0;
    const NO: u32 = 1;
    const YES: u32 = 2;
    static FILTERED: AtomicU32 = AtomicU32::new(UNKNOWN);
    if FILTERED.load(Relaxed) == UNKNOWN {
        let mode =
            File::open(c"/proc/self/status").and_then(|file| file.byte_after(b"\nSeccomp:\t"));
        let filtered = mode != Some(b'0');
        FILTERED.store(if filtered { YES } else { NO }, Relaxed);
    }
    FILTERED.load(Relaxed) == YES
}

#[cfg(tsan)]
pub fn is_filtered() -> bool {
    false
}

/// Prevents controllers in this process and its children, because the process is about to install a
/// filter of system calls, which may end the process for the controller's. On return no controller
/// runs, and waiters spin and park from then on. Returns false, without effect, in a child that
/// shares its parent's memory.
///
/// ```
/// assert!(unconvoy::confine());
/// // Install the filter here.
/// ```
pub fn confine() -> bool {
    Native::generation(); // the child of a bare `clone` has state of its own from here on
    let is_this_process = is_this_process();
    if is_this_process {
        CONFINED.store(true, SeqCst);
        slice::confine();
        without_controller(|| ());
    }
    is_this_process
}

fn print_line(text: impl core::fmt::Display) {
    Line::new(format_args!("{text}")).print();
}

/// Like [`body`], for a process under a filter of system calls: makes no call that old filters do
/// not know.
#[cfg(not(tsan))]
extern "C" fn filtered_body(_: *mut c_void) -> c_int {
    run(false)
}

#[cfg(not(tsan))]
extern "C" fn body(_: *mut c_void) -> c_int {
    // Gives the thread its own, empty descriptor table (see `bare_thread`). Before Linux 5.9 the
    // table stays shared, and the sensor keeps no descriptor. SAFETY: no code on this thread owns a
    // descriptor, and UNSHARE makes the emptied table private.
    let private = unsafe {
        syscalls::syscall!(syscalls::Sysno::close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE)
    }
    .is_ok();
    run(private)
}

#[cfg(not(tsan))]
fn run(private: bool) -> c_int {
    serve_with_sensor(private, THREAD.enter().cast_unsigned());
    0
}

/// Serves with the chosen sensor, or with `schedstat` once that fails.
fn serve_with_sensor(private: bool, own_thread: u32) {
    let sensor = ChosenSensor::new(sensor(), private, own_thread);
    let mut sensor = Watched { sensor, hook: hook::get(), observer: hook::observer() };
    sensor.record_fallback();
    serve(&LOAD_CONTROL, &mut sensor, &COUNTERS, &BARRED);
    if let Some(hook) = sensor.hook {
        (hook.end)();
    }
    if let Some(observer) = sensor.observer {
        (observer.end)();
    }
    drop(sensor);
    STATE.store(NONE, Release);
}

/// A sensor that reports its own replacement, with the functions to call at each reading.
struct Watched {
    sensor: ChosenSensor,
    hook: Option<&'static ControllerHook>,
    observer: Option<&'static Observer>,
}

impl Watched {
    /// Requests one message if the sensor in use differs from the chosen one.
    fn record_fallback(&self) {
        if self.sensor.choice() != sensor() {
            use_sensor(self.sensor.choice());
            PENDING_MESSAGE.store(true, Relaxed);
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
        self.record_fallback();
        let reading = self.hook.map_or(reading, |hook| (hook.interval)(now, reading));
        if let Some(Reading { runnable, .. }) = reading {
            MOST_RUNNABLE.fetch_max((runnable * 1e3) as u32, Relaxed);
        }
        if let Some(observer) = self.observer {
            (observer.interval)(now);
        }
        reading
    }

    fn expect_asleep(&mut self, thread: u32, slot: u32) {
        self.sensor.expect_asleep(thread, slot);
    }
}

/// Runs `work` while no controller runs, for calls that change the process's credentials or its
/// user namespace: libc changes credentials in the threads that it knows, and the controller, which
/// is unknown to it, would keep what the process gives up.
///
/// ```
/// // SAFETY: the call has no preconditions.
/// let result = unconvoy::without_controller(|| unsafe { libc::setuid(libc::getuid()) });
/// assert_eq!(result, 0);
/// ```
pub fn without_controller<R>(work: impl FnOnce() -> R) -> R {
    let generation = Native::generation();
    if !is_this_process() {
        return work(); // in a child that shares its parent's memory, or does not know of the fork
    }
    // `BARRED` is written before the state is read, and `start` writes the state before it reads
    // `BARRED`. So at least one of the two threads sees the other's write.
    BARRED.fetch_add(1, SeqCst);
    let _barred = Barred { generation };
    Native::unpark(&raw const BARRED, u32::MAX);
    // A controller that runs will exit, however late it gets a processor. All else is bounded: a
    // signal handler may have interrupted `start` before it started the thread.
    let deadline = Native::now() + LONGEST_EXIT_NS;
    let may_run = || STATE.load(SeqCst) == RUNNING || THREAD.exists();
    while THREAD.id() != 0 || may_run() && Native::now() < deadline {
        Native::sleep_shortly(&BARRED);
    }
    work()
}

/// Bars the controller until it is dropped, even by a panic. A child of a `fork` begins unbarred.
struct Barred {
    generation: u32,
}

impl Drop for Barred {
    fn drop(&mut self) {
        if self.generation == Native::generation() {
            BARRED.fetch_sub(1, Relaxed);
        }
    }
}

/// Resets the state in the child of a `fork`, which has neither a controller nor waiters.
pub(super) fn reset_after_fork() {
    PROCESS.store(0, Relaxed);
    THREAD.forget();
    BARRED.store(0, Relaxed);
    let Counters { starts, ticks, busy_ns, runnable, capacity } = &COUNTERS;
    for count in [starts, ticks, runnable, capacity, &MOST_RUNNABLE] {
        count.store(0, Relaxed);
    }
    busy_ns.store(0, Relaxed);
    LOAD_CONTROL.reset();
    if let Some(hook) = hook::get() {
        (hook.forked)();
    }
    if bpf::is_adopted() {
        bpf::forget();
        use_sensor(Choice::Schedstat); // the kernel's count is the parent's
    }
    let _ = STATE.compare_exchange(RUNNING, NONE, Relaxed, Relaxed);
}
