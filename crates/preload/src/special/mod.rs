//! A special set of cores for threads that wait too much for locks, with `sched_setaffinity`: the policy of crates/sched
//! (Cui, Wang, Chen and Shi, ACM TACO 9(4), 2013) for any user, on any kernel. Off unless `UNCONVOY_SSC` asks for it.
//!
//! | module | idea |
//! | --- | --- |
//! | `threads` | what each thread waited, and whether its mask is the program's or the set's |
//! | `director` | what the load controller's thread does at each interval: slices, policy, masks |
//! | `topology` | in which order processors come into the set |
//! | `mask` | sets of processors |
//! | `affinity` | the program asks for masks and sets them |
//! | `children` | threads and programs that a thread of the set begins inherit nothing of it |
//!
//! Between two waits a thread does nothing for this. A process without contention has no controller, and no set. When the
//! controller goes, because nobody waits any more or the process changes its credentials or confines itself, all masks are
//! what they were.

mod affinity;
mod children;
mod director;
mod mask;
mod threads;
mod topology;

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use serde_json::json;
use syscalls::{Errno, Sysno, syscall};
use unconvoy_locks::catalogue::environment;
use unconvoy_locks::load::sensor::Reading;
use unconvoy_locks::platform::native::companion::{self, Companion};
use unconvoy_locks::platform::{Native, Platform};
use unconvoy_sched::Parameters;

use crate::config::{Service, service};
use crate::message::say;
use crate::variables::variable;
use director::{Director, Kernel, Refusal};
use mask::Mask;
use threads::{GIVEN, IS_ON, RECORDS, SHOWN};

/// The controller's, and nobody else's while there is one.
static DIRECTOR: AtomicPtr<Director> = AtomicPtr::new(ptr::null_mut());
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

static COMPANION: Companion = Companion { waited, begin: begin_directing, interval, end: end_directing, forked };

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
    let director = Box::new(Director::new(parameters, topology::read()));
    DIRECTOR.store(Box::into_raw(director), Release);
    IS_ON.store(true, Relaxed);
    companion::accompany(&COMPANION);
}

/// Looks up libc's functions that this stands before.
pub(crate) fn find_all() {
    affinity::find_all();
    children::find_all();
}

/// What the set was, for the record.
pub(crate) fn report(began: u64) -> Option<serde_json::Value> {
    // SAFETY: null or the director, of which the controller may just write: the numbers are for people.
    let deeds = unsafe { DIRECTOR.load(Acquire).as_ref() }?.deeds();
    let changes: Vec<_> = TIMELINE
        .iter()
        .take(CHANGED.load(Acquire) as usize)
        .map(|(at, bound)| json!([at.load(Relaxed).saturating_sub(began), bound.load(Relaxed)]))
        .collect();
    Some(json!({
        "cores": deeds.cores,
        "bound": deeds.bound,
        "tasks": deeds.tasks,
        "most_tasks": deeds.most_tasks,
        "moves": deeds.moves,
        "votes": deeds.votes,
        "searches": deeds.searches,
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
        companion::part();
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
unsafe fn directing<R>(work: impl FnOnce(&mut Director) -> R) -> Option<R> {
    // SAFETY: null or the director; there is one controller at a time, and nobody else changes it.
    let director = unsafe { DIRECTOR.load(Acquire).as_mut() }?;
    let before = director.deeds().bound;
    let began = read_clock(libc::CLOCK_THREAD_CPUTIME_ID);
    let result = work(director);
    if let (Some(began), Some(ended)) = (began, read_clock(libc::CLOCK_THREAD_CPUTIME_ID)) {
        SPENT.store(SPENT.load(Relaxed) + ended.saturating_sub(began), Relaxed);
    }
    if director.is_forbidden() && !FORBIDDEN.swap(true, Relaxed) {
        UNSAID.store(true, Relaxed);
    }
    if director.deeds().bound != before {
        let place = CHANGED.load(Relaxed);
        if let Some((at, bound)) = TIMELINE.get(place as usize) {
            at.store(Native::now(), Relaxed);
            bound.store(director.deeds().bound, Relaxed);
        }
        CHANGED.store(place.saturating_add(1), Release);
    }
    Some(result)
}

fn begin_directing(now: u64) {
    // SAFETY: this is called on the controller's thread.
    unsafe { directing(|director| director.begin(&mut Linux, now)) };
}

fn interval(now: u64, reading: Option<Reading>) -> Option<Reading> {
    let work = |director: &mut Director| {
        director.interval(&RECORDS, &mut Linux, now);
        reading.map(|reading| director.limit(reading, now))
    };
    // SAFETY: as above.
    unsafe { directing(work) }.unwrap_or(reading)
}

fn end_directing() {
    // SAFETY: as above.
    unsafe { directing(|director| director.end(&RECORDS, &mut Linux)) };
}

/// The kernel of this machine.
struct Linux;

/// The kernel's number of the clock that `thread`'s processor time is on: `make_thread_cpuclock` and `CPUCLOCK_SCHED` of its
/// `include/linux/posix-timers.h`.
fn processor_clock(thread: u32) -> libc::clockid_t {
    const SCHEDULER: i32 = 2;
    const PER_THREAD: i32 = 4;
    (!thread.cast_signed() << 3) | PER_THREAD | SCHEDULER
}

fn read_clock(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Not libc's function, which may be somebody else's, and sets `errno`.
    // SAFETY: fills `time`.
    unsafe { syscall!(Sysno::clock_gettime, clock, &raw mut time) }.ok()?;
    Some(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

fn refusal(error: Errno) -> Refusal {
    match error {
        Errno::ESRCH => Refusal::Gone,
        Errno::EPERM | Errno::EACCES | Errno::ENOSYS => Refusal::Forbidden,
        _ => Refusal::Unfit,
    }
}

impl Kernel for Linux {
    fn ran(&mut self, thread: u32) -> Option<u64> {
        read_clock(processor_clock(thread))
    }

    fn mask(&mut self, thread: u32) -> Result<Mask, Refusal> {
        Mask::get(thread).map_err(refusal)
    }

    fn set_mask(&mut self, thread: u32, mask: &Mask) -> Result<(), Refusal> {
        mask.set(thread).map_err(refusal)
    }

    fn publish(&mut self, given: &Mask, mask: &Mask) {
        GIVEN.store(given);
        SHOWN.store(mask);
    }

    fn is_ordinary(&mut self, thread: u32) -> bool {
        // SAFETY: asks, and writes nothing.
        let policy = unsafe { syscall!(Sysno::sched_getscheduler, thread) };
        let policy = policy.map(|policy| policy as i32 & !libc::SCHED_RESET_ON_FORK);
        matches!(policy, Ok(libc::SCHED_OTHER | libc::SCHED_BATCH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_the_time_of_other_threads() {
        let (send, receive) = std::sync::mpsc::channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(Native::thread_id()).expect("somebody asks");
            let _ = left.recv();
        });
        let id = receive.recv().expect("a thread");
        assert!(Linux.ran(id).is_some_and(|ns| ns > 0));
        assert!(Linux.is_ordinary(id));
        drop(leave);
        thread.join().expect("it ends");
        // It is joined a moment before the kernel has forgotten it.
        let end = Native::now() + 10_000_000_000;
        while Linux.ran(id).is_some() {
            assert!(Native::now() < end, "a thread that has ended has no time");
            Native::yield_now();
        }
    }

    /// `cargo test --release -p unconvoy-preload --lib what_a_wait_pays -- --ignored --nocapture`: for scripts/special-set-cost.py.
    #[test]
    #[ignore = "measures, and has nothing to assert"]
    fn what_a_wait_pays() {
        const WAITS: u64 = 20_000_000;
        let clock = || read_clock(libc::CLOCK_THREAD_CPUTIME_ID).expect("a thread has its time");
        let (began, mut last) = (clock(), Native::now());
        for _ in 0..WAITS {
            let now = Native::now();
            threads::waited((now - last).min(1));
            last = now;
        }
        println!("{:.1} ns", (clock() - began) as f64 / WAITS as f64);
    }
}
