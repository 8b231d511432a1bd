//! A special set of cores for threads that wait too much for locks, by `sched_setaffinity`: the
//! policy of crates/sched (Cui, Wang, Chen and Shi, ACM TACO 9(4), 2013) for any user, on any
//! kernel. Off unless `UNCONVOY_SSC` asks for it.
//!
//! | module | idea |
//! | --- | --- |
//! | `threads` | how long each thread waited, and whether its mask is the program's or the set's |
//! | `scheduler` | the load controller's work at each interval: it ends slices and calls the policy |
//! | `back_end` | carries out the policy's decisions, by setting masks |
//! | `kernel` | the kernel interface |
//! | `topology` | the order in which processors join the set |
//! | `mask` | sets of processors |
//! | `affinity` | the program's own calls that read and set masks |
//! | `children` | keeps the set's mask from threads and programs that a thread of the set starts |
//!
//! A thread spends no time on the special set between two waits. A process without contention has
//! no controller and no set. When the controller stops, because no thread waits or because the
//! process changes its credentials or confines itself, all masks are restored.

mod affinity;
mod back_end;
mod children;
mod kernel;
mod mask;
mod scheduler;
mod threads;
mod topology;

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use serde_json::json;
use unconvoy_locks::catalogue::environment;
use unconvoy_locks::load::sensor::Reading;
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_locks::runtime::hook::{self, ControllerHook};
use unconvoy_sched::Parameters;

use crate::config::{Service, service};
use crate::message;
use crate::variables::variable;
use kernel::{Linux, read_clock};
use mask::Mask;
use scheduler::Scheduler;
use threads::{IS_ON, RECORDS};

/// Used only by the controller, while there is one.
static SCHEDULER: AtomicPtr<Scheduler> = AtomicPtr::new(ptr::null_mut());
/// The kernel refused to set masks, and the controller may not write to standard error. The next
/// thread that waits prints the warning.
static WARNING_IS_PENDING: AtomicBool = AtomicBool::new(false);
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Capacity of [`TIMELINE`].
const CHANGES: usize = 256;

/// Changes of the set's size: time in nanoseconds on the platform's clock, and the new size.
static TIMELINE: [(AtomicU64, AtomicU32); CHANGES] =
    [const { (AtomicU64::new(0), AtomicU32::new(0)) }; CHANGES];
static CHANGED: AtomicU32 = AtomicU32::new(0);

/// Processor time that the controller's thread spent on the special set, nanoseconds.
static SPENT: AtomicU64 = AtomicU64::new(0);

static HOOK: ControllerHook =
    ControllerHook { waited, begin: begin_scheduling, interval, end: end_scheduling, forked };

/// In a process, a slice lasts milliseconds and each core runs few threads. A few slices are not
/// representative: a thread that held the lock in one slice may wait in the next. A search keeps
/// the threads on fewer cores for tens of milliseconds, so its result is kept for a while.
fn refined(cores: u32) -> Parameters {
    Parameters { votes_per_core: 4, hold_ns: 1_000_000_000, ..Parameters::refined(cores) }
}

/// The policy's parameters as a function of the number of processors, if the user asked for a
/// special set.
fn parameters() -> Option<fn(u32) -> Parameters> {
    match variable(&environment::SPECIAL_SET) {
        None | Some("0") => None,
        Some("1" | "refined") => Some(refined),
        Some("published") => Some(Parameters::published),
        Some(other) => {
            message::unknown_special_set(other).print();
            None
        }
    }
}

/// Starts scheduling, if the environment asks for it. Called from the constructor.
pub(crate) fn begin() {
    let Some(parameters) = parameters() else { return };
    if service() == Service::Declined {
        return;
    }
    let obstacle = match Mask::get(0) {
        Err(_) => Some(message::no_special_set_unreadable_masks()),
        Ok(mask) if mask.count() < 2 => Some(message::no_special_set_one_processor()),
        Ok(_) => None,
    };
    if let Some(obstacle) = obstacle {
        // Warn once, and not again in programs that this process starts, which have no more
        // processors than it has. SAFETY: called from the constructor, before the program starts
        // threads.
        unsafe { std::env::set_var(environment::SPECIAL_SET.name, "0") };
        return obstacle.print();
    }
    let scheduler = Box::new(Scheduler::new(parameters, topology::read()));
    SCHEDULER.store(Box::into_raw(scheduler), Release);
    IS_ON.store(true, Relaxed);
    hook::install(&HOOK);
}

pub(crate) fn find_all() {
    affinity::find_all();
    children::find_all();
}

/// The special set's part of the statistics.
pub(crate) fn report(began: u64) -> Option<serde_json::Value> {
    // SAFETY: null or the scheduler. The controller may be changing the counters meanwhile, which
    // is acceptable because only people read these numbers.
    let counters = unsafe { SCHEDULER.load(Acquire).as_ref() }?.counters();
    let changes: Vec<_> = TIMELINE
        .iter()
        .take(CHANGED.load(Acquire) as usize)
        .map(|(at, bound)| json!([at.load(Relaxed).saturating_sub(began), bound.load(Relaxed)]))
        .collect();
    Some(json!({
        "cores": counters.cores,
        "bound": counters.bound,
        "tasks": counters.tasks,
        "most_tasks": counters.most_tasks,
        "moves": counters.moves,
        "votes": counters.votes,
        "searches": counters.searches,
        "cpu_ns": SPENT.load(Relaxed),
        // Nanoseconds since the recording started, and the set's size from then on; 0: no set.
        "changes": changes,
        "changes_left_out": CHANGED.load(Relaxed).saturating_sub(CHANGES as u32),
    }))
}

/// Number of cores of the special set, and of the threads on it; `None` if the process has no
/// special set. Runs on the controller's thread.
pub(crate) fn confined() -> Option<(u32, u32)> {
    // SAFETY: null or the scheduler, which only this thread changes.
    let counters = unsafe { SCHEDULER.load(Acquire).as_ref() }?.counters();
    Some((counters.bound, counters.tasks))
}

/// Prints the warning that is still pending. Called at exit, and when a thread waits.
pub(crate) fn print_pending_warning() {
    if WARNING_IS_PENDING.load(Relaxed) && WARNING_IS_PENDING.swap(false, Relaxed) {
        message::no_special_set_forbidden_masks().print();
    }
}

/// The child inherits the calling thread's mask, so the controller must not change that mask during
/// the fork.
pub(crate) fn before_fork() {
    if IS_ON.load(Relaxed) {
        threads::stay_outside();
    }
}

pub(crate) fn after_fork_in_parent() {
    if IS_ON.load(Relaxed) {
        threads::come_back();
    }
}

fn waited(ns: u64) {
    if WARNING_IS_PENDING.load(Relaxed) {
        hook::remove();
        return print_pending_warning();
    }
    threads::waited(ns);
}

fn forked() {
    threads::forked();
    CHANGED.store(0, Relaxed);
    SPENT.store(0, Relaxed);
}

/// # Safety
///
/// Call on the controller's thread only.
unsafe fn scheduling<R>(work: impl FnOnce(&mut Scheduler) -> R) -> Option<R> {
    // SAFETY: null or the scheduler. Only the controller's thread changes it, and there is one
    // controller at a time.
    let scheduler = unsafe { SCHEDULER.load(Acquire).as_mut() }?;
    let before = scheduler.counters().bound;
    let began = read_clock(libc::CLOCK_THREAD_CPUTIME_ID);
    let result = work(scheduler);
    if let (Some(began), Some(ended)) = (began, read_clock(libc::CLOCK_THREAD_CPUTIME_ID)) {
        SPENT.store(SPENT.load(Relaxed) + ended.saturating_sub(began), Relaxed);
    }
    if scheduler.is_forbidden() && !FORBIDDEN.swap(true, Relaxed) {
        WARNING_IS_PENDING.store(true, Relaxed);
    }
    if scheduler.counters().bound != before {
        let place = CHANGED.load(Relaxed);
        if let Some((at, bound)) = TIMELINE.get(place as usize) {
            at.store(Native::now(), Relaxed);
            bound.store(scheduler.counters().bound, Relaxed);
        }
        CHANGED.store(place.saturating_add(1), Release);
    }
    Some(result)
}

fn begin_scheduling(now: u64) {
    // SAFETY: the hook runs on the controller's thread.
    unsafe { scheduling(|scheduler| scheduler.begin(&mut Linux, now)) };
}

fn interval(now: u64, reading: Option<Reading>) -> Option<Reading> {
    let work = |scheduler: &mut Scheduler| {
        scheduler.interval(&RECORDS, &mut Linux, now);
        reading.map(|reading| scheduler.limit(reading, now))
    };
    // SAFETY: as above.
    unsafe { scheduling(work) }.unwrap_or(reading)
}

fn end_scheduling() {
    // SAFETY: as above.
    unsafe { scheduling(|scheduler| scheduler.end(&RECORDS, &mut Linux)) };
}
