//! A special set of cores for threads that wait too much for locks, with `sched_setaffinity`: the policy of crates/sched
//! (Cui, Wang, Chen and Shi, ACM TACO 9(4), 2013) for any user, on any kernel. Off unless `UNCONVOY_SSC` asks for it.
//!
//! | module | idea |
//! | --- | --- |
//! | `threads` | what each thread waited, and whether its mask is the program's or the set's |
//! | `scheduler` | what the load controller's thread does at each interval: it ends slices, and tells the policy |
//! | `back_end` | what the policy has done to threads: masks |
//! | `kernel` | what is asked of the kernel |
//! | `topology` | in which order processors come into the set |
//! | `mask` | sets of processors |
//! | `affinity` | the program asks for masks and sets them |
//! | `children` | threads and programs that a thread of the set begins inherit nothing of it |
//!
//! Between two waits a thread does nothing for this. A process without contention has no controller, and no set. When the
//! controller goes, because nobody waits any more or the process changes its credentials or confines itself, all masks are
//! what they were.

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
use crate::message::say;
use crate::variables::variable;
use kernel::{Linux, read_clock};
use mask::Mask;
use scheduler::Scheduler;
use threads::{IS_ON, RECORDS};

/// The controller's, and nobody else's while there is one.
static SCHEDULER: AtomicPtr<Scheduler> = AtomicPtr::new(ptr::null_mut());
/// The controller was not allowed to; it has no standard error, the next thread that waits says so.
static UNSAID: AtomicBool = AtomicBool::new(false);
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Changes of the bound that are kept for the record.
const CHANGES: usize = 256;

/// When the set had another size, nanoseconds on the platform's clock, and which.
static TIMELINE: [(AtomicU64, AtomicU32); CHANGES] = [const { (AtomicU64::new(0), AtomicU32::new(0)) }; CHANGES];
static CHANGED: AtomicU32 = AtomicU32::new(0);

/// Processor time of the controller's thread that went into all this, nanoseconds.
static SPENT: AtomicU64 = AtomicU64::new(0);

static HOOK: ControllerHook = ControllerHook { waited, begin: begin_scheduling, interval, end: end_scheduling, forked };

/// Slices here are milliseconds, of some threads for each core, and a few of them say little: who held the lock in one
/// waited in the next. A search costs tens of milliseconds of fewer cores, so that its result is held for a while.
fn refined(cores: u32) -> Parameters {
    Parameters { votes_per_core: 4, patience_ns: 1_000_000_000, ..Parameters::refined(cores) }
}

/// The policy's parameters on so many processors, if the user asked for a special set.
fn parameters() -> Option<fn(u32) -> Parameters> {
    match variable(&environment::SPECIAL_SET) {
        None | Some("0") => None,
        Some("1" | "refined") => Some(refined),
        Some("published") => Some(Parameters::published),
        Some(other) => {
            say(&["UNCONVOY_SSC=", other, " is none of 0 1 refined published; using 0"]);
            None
        }
    }
}

/// Begins, if the environment asks for it. From the constructor.
pub(crate) fn begin() {
    let Some(parameters) = parameters() else { return };
    if service() == Service::Declined {
        return;
    }
    let hindrance = match Mask::get(0) {
        Err(_) => Some("the masks of processors cannot be read here (a filter of system calls?)"),
        Ok(mask) if mask.count() < 2 => Some("there is one processor, and nothing to choose from"),
        Ok(_) => None,
    };
    if let Some(hindrance) = hindrance {
        // Once: the programs that this one starts have no more.
        // SAFETY: called from the constructor, before the program's threads.
        unsafe { std::env::set_var(environment::SPECIAL_SET.name, "0") };
        return say(&["no special set: ", hindrance]);
    }
    let scheduler = Box::new(Scheduler::new(parameters, topology::read()));
    SCHEDULER.store(Box::into_raw(scheduler), Release);
    IS_ON.store(true, Relaxed);
    hook::install(&HOOK);
}

/// Looks up libc's functions that this stands before.
pub(crate) fn find_all() {
    affinity::find_all();
    children::find_all();
}

/// What the set was, for the record.
pub(crate) fn report(began: u64) -> Option<serde_json::Value> {
    // SAFETY: null or the scheduler, of which the controller may just write: the numbers are for people.
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
        // Nanoseconds from the record's beginning, and the cores of the set from then on; 0: there is none.
        "changes": changes,
        "changes_left_out": CHANGED.load(Relaxed).saturating_sub(CHANGES as u32),
    }))
}

/// Says what could not be said yet. At exit, and when a thread waits.
pub(crate) fn say_what_is_unsaid() {
    if UNSAID.load(Relaxed) && UNSAID.swap(false, Relaxed) {
        say(&["no special set: the kernel does not let masks of processors be set here (a filter of system calls?)"]);
    }
}

/// The child inherits the calling thread's mask; the controller is not to change it in the middle of that.
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
    if UNSAID.load(Relaxed) {
        hook::remove();
        return say_what_is_unsaid();
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
/// On the controller's thread.
unsafe fn scheduling<R>(work: impl FnOnce(&mut Scheduler) -> R) -> Option<R> {
    // SAFETY: null or the scheduler; there is one controller at a time, and nobody else changes it.
    let scheduler = unsafe { SCHEDULER.load(Acquire).as_mut() }?;
    let before = scheduler.counters().bound;
    let began = read_clock(libc::CLOCK_THREAD_CPUTIME_ID);
    let result = work(scheduler);
    if let (Some(began), Some(ended)) = (began, read_clock(libc::CLOCK_THREAD_CPUTIME_ID)) {
        SPENT.store(SPENT.load(Relaxed) + ended.saturating_sub(began), Relaxed);
    }
    if scheduler.is_forbidden() && !FORBIDDEN.swap(true, Relaxed) {
        UNSAID.store(true, Relaxed);
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
    // SAFETY: this is called on the controller's thread.
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
