//! The exact number of runnable threads, updated by the kernel at each change.
//!
//! A BPF program on the scheduler's trace points counts these threads
//! (`crates/cli/src/bpf/runnable.bpf.c`). Loading it takes privileges and much code, so `unconvoy
//! run` loads it, and passes a descriptor of the count to the program that it executes. This sensor
//! maps the count. A reading is three loads, however many threads there are. Between readings,
//! waiters read the count ([`live`], ASPLOS 2010, section 6.2.2).
//!
//! | `COUNT` | meaning |
//! | --- | --- |
//! | null | no BPF program counts this process's threads |
//! | other | mapped until the process exits, even after the kernel has stopped counting |
//!
//! **Invariant 1.** A non-null `COUNT` belongs to this process: the child of a fork clears it.
//!
//! **Invariant 2.** The controller's own thread is not counted while it reads: the thread enters
//! its id as excluded, and removes the id when it exits.
//!
//! **Memory orderings.** All relaxed: the numbers order nothing else, and a reading that mixes two
//! changes is off by one thread for microseconds. `COUNT` is stored with release, and loaded with
//! acquire where it is dereferenced.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64};
use std::os::fd::BorrowedFd;

use rustix::mm::{MapFlags, ProtFlags};

use super::capacity::Capacity;
use crate::load::policy::observation::Margin;
use crate::load::sensor::{LiveLoad, Reading, Sensor};

/// State shared with the BPF program, which calls it `struct count`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Count {
    /// Threads on a processor or waiting for one.
    pub runnable: AtomicI64,
    /// When `runnable` last changed, on the clock of [`Clock::now`](crate::primitive::Clock::now).
    pub since: AtomicU64,
    /// The integral of `runnable` over time up to `since`.
    pub thread_ns: AtomicU64,
    /// Switches and wake-ups of the process's threads so far.
    pub events: AtomicU64,
    /// The process whose threads are counted.
    pub process: AtomicU32,
    /// A thread that is not counted; 0 if none.
    pub excluded: AtomicU32,
}

const PAGE: usize = 4096;

static COUNT: AtomicPtr<Count> = AtomicPtr::new(ptr::null_mut());

/// Bounds of the number of runnable threads between which waiters change nothing.
static LOW: AtomicU32 = AtomicU32::new(0);
static HIGH: AtomicU32 = AtomicU32::new(u32::MAX);

/// Maps the count behind `map`, which may then be closed. Returns false unless it counts this
/// process.
pub fn adopt(map: BorrowedFd<'_>) -> bool {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address of the mapping.
    let Ok(page) =
        (unsafe { rustix::mm::mmap(ptr::null_mut(), PAGE, protection, MapFlags::SHARED, map, 0) })
    else {
        return false;
    };
    let count = page.cast::<Count>();
    // SAFETY: the page is mapped and longer than a `Count`, which consists of atomics.
    let of = unsafe { (*count).process.load(Relaxed) };
    let is_ours = of == rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    if is_ours {
        COUNT.store(count, Release);
    } else {
        // SAFETY: mapped above, and not published.
        let _ = unsafe { rustix::mm::munmap(page, PAGE) };
    }
    is_ours
}

/// Whether the kernel counts for this process.
pub fn is_adopted() -> bool {
    !COUNT.load(Relaxed).is_null()
}

/// Stops using the count: in the child of the counted process, or when the count no longer moves.
pub(crate) fn forget() {
    COUNT.store(ptr::null_mut(), Release);
}

fn count() -> Option<&'static Count> {
    // SAFETY: null, or mapped until the process exits.
    unsafe { COUNT.load(Acquire).as_ref() }
}

/// The current load, if the kernel counts and a controller has read the capacity.
#[inline]
pub(crate) fn live() -> Option<LiveLoad> {
    if COUNT.load(Relaxed).is_null() {
        return None;
    }
    let high = HIGH.load(Relaxed);
    let runnable = count()?.runnable.load(Relaxed).clamp(0, i64::from(i32::MAX)) as u32;
    (high != u32::MAX).then(|| LiveLoad { runnable, low: LOW.load(Relaxed), high })
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: u64,
    thread_ns: u64,
    events: u64,
}

/// The sensor.
pub struct Bpf {
    own_thread: u32,
    last: Option<Sample>,
    is_dead: bool,
    capacity: Capacity,
}

impl Count {
    /// The integral of `runnable` at the time `now`.
    fn thread_ns_at(&self, now: u64) -> u64 {
        let since = now.saturating_sub(self.since.load(Relaxed));
        let runnable = self.runnable.load(Relaxed).max(0).cast_unsigned();
        self.thread_ns.load(Relaxed).wrapping_add(runnable.wrapping_mul(since))
    }
}

/// The load for the controller: the smaller of the interval's average and the value at its end.
///
/// The average contains threads that fell asleep during the interval. The controller adds the
/// sleepers, and would count them twice. The value at the end alone would mistake a short spike for
/// load.
fn load(average: f64, at_the_end: f64) -> f64 {
    average.min(at_the_end).max(0.0)
}

impl Bpf {
    /// The sensor, for a controller with thread id `own_thread`; `None` if no BPF program counts
    /// this process's threads.
    pub fn open(own_thread: u32) -> Option<Self> {
        is_adopted().then(|| Bpf {
            own_thread,
            last: None,
            is_dead: false,
            capacity: Capacity::default(),
        })
    }

    /// Whether the count stood still although this thread slept and woke: the program has closed
    /// the descriptors that keep the kernel counting.
    pub fn is_dead(&self) -> bool {
        self.is_dead
    }
}

impl Sensor for Bpf {
    fn begin(&mut self, now: u64) {
        if let Some(count) = count() {
            count.excluded.store(self.own_thread, Relaxed);
        }
        let _ = self.read(now);
    }

    fn read(&mut self, now: u64) -> Option<Reading> {
        let count = count()?;
        self.capacity.follow_process(now, self.own_thread);
        let capacity = self.capacity.processors();
        LOW.store(capacity.ceil() as u32, Relaxed);
        HIGH.store((capacity + Margin::FIRST) as u32, Relaxed);

        let sample = Sample {
            at: now,
            thread_ns: count.thread_ns_at(now),
            events: count.events.load(Relaxed),
        };
        let before = self.last.replace(sample)?;
        self.is_dead = sample.events == before.events;
        let interval = now.checked_sub(before.at).filter(|&ns| ns > 0 && !self.is_dead)?;
        // Signed: mixing two changes can make the difference negative.
        let average =
            sample.thread_ns.wrapping_sub(before.thread_ns).cast_signed() as f64 / interval as f64;
        Some(Reading::of_runnable(load(average, count.runnable.load(Relaxed) as f64), capacity))
    }
}

impl Drop for Bpf {
    fn drop(&mut self) {
        if let Some(count) = count() {
            count.excluded.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_layout_matches_bpf_program() {
        assert_eq!(size_of::<Count>(), 40);
        assert_eq!(core::mem::offset_of!(Count, events), 24);
        assert_eq!(core::mem::offset_of!(Count, excluded), 36);
    }

    #[test]
    fn integral_between_changes_grows_linearly() {
        let count = Count { since: AtomicU64::new(100), ..Count::default() };
        count.runnable.store(3, Relaxed);
        count.thread_ns.store(1000, Relaxed);
        assert_eq!(count.thread_ns_at(110), 1030);
        assert_eq!(count.thread_ns_at(90), 1000, "changed after the clock was read");
        count.runnable.store(-1, Relaxed);
        assert_eq!(count.thread_ns_at(110), 1000);
    }

    #[test]
    fn load_is_smaller_of_average_and_current() {
        assert_eq!(load(2.0, 60.0), 2.0);
        assert_eq!(load(33.0, 3.0), 3.0);
        assert_eq!(load(-0.1, 3.0), 0.0);
    }

    #[test]
    fn open_without_count_returns_none() {
        assert!(Bpf::open(1).is_none());
        assert_eq!(live(), None);
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(PAGE as u64).expect("room for a page");
        use std::os::fd::AsFd;
        assert!(!adopt(file.as_fd()), "a count of no process");
    }
}
