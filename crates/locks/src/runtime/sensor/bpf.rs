//! The exact number of runnable threads, kept by the kernel at each change.
//!
//! A BPF program on the scheduler's trace points counts (`crates/cli/src/bpf/runnable.bpf.c`); `unconvoy run`
//! loads it, since that needs privilege and a good deal of code, and leaves the program that it becomes a descriptor of
//! the count. Here that is mapped and read: a reading is three loads, whatever the number of threads, and between two
//! readings the waiters look themselves ([`live`], ASPLOS 2010, section 6.2.2).
//!
//! | `COUNT` | meaning |
//! | --- | --- |
//! | null | nobody counts for this process |
//! | else | mapped for as long as the process lives, also after the kernel has stopped counting |
//!
//! **Invariant 1.** While `COUNT` is not null, the count is of this process: it is forgotten in the
//! child of a fork.
//!
//! **Invariant 2.** The controller's own thread is not counted while it reads; it enters its id for that,
//! and takes it out when it goes.
//!
//! **Memory orderings.** All relaxed: the numbers order nothing else, and a reading that mixes two changes is off by one
//! thread for the microseconds between them. `COUNT` itself is stored with release and loaded with acquire or by
//! who depends on the address.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64};
use std::os::fd::BorrowedFd;

use rustix::mm::{MapFlags, ProtFlags};

use super::capacity::Capacity;
use crate::load::policy::observation::MARGIN;
use crate::load::sensor::{LiveLoad, Reading, Sensor};

/// What the kernel's side keeps, and has in common with this one: `struct count` there.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Count {
    /// Threads on a processor or waiting for one.
    pub runnable: AtomicI64,
    /// When that changed last, on the clock of [`Clock::now`](crate::primitive::Clock::now).
    pub since: AtomicU64,
    /// Its integral over time until then.
    pub thread_ns: AtomicU64,
    /// Switches and wake-ups of the process's threads so far.
    pub events: AtomicU64,
    /// The process that is counted for.
    pub process: AtomicU32,
    /// A thread that is not counted, or 0.
    pub excluded: AtomicU32,
}

const PAGE: usize = 4096;

static COUNT: AtomicPtr<Count> = AtomicPtr::new(ptr::null_mut());

/// Between these numbers of runnable threads, waiters leave things as they are.
static LOW: AtomicU32 = AtomicU32::new(0);
static HIGH: AtomicU32 = AtomicU32::new(u32::MAX);

/// Reads from here on the count behind `map`, which may be closed afterwards. False if that is no count of
/// this process.
pub fn adopt(map: BorrowedFd<'_>) -> bool {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a mapping at an address of the kernel's choice.
    let Ok(page) = (unsafe { rustix::mm::mmap(ptr::null_mut(), PAGE, protection, MapFlags::SHARED, map, 0) }) else {
        return false;
    };
    let count = page.cast::<Count>();
    // SAFETY: mapped, and longer than a `Count`, which consists of atomics.
    let of = unsafe { (*count).process.load(Relaxed) };
    let is_ours = of == rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    if is_ours {
        COUNT.store(count, Release);
    } else {
        // SAFETY: mapped above, and nobody knows of it.
        let _ = unsafe { rustix::mm::munmap(page, PAGE) };
    }
    is_ours
}

/// Whether somebody counts for this process.
pub fn is_adopted() -> bool {
    !COUNT.load(Relaxed).is_null()
}

/// Nobody counts for this process any more: it is the child of the one that is counted for, or the count no longer moves.
pub(crate) fn forget() {
    COUNT.store(ptr::null_mut(), Release);
}

fn count() -> Option<&'static Count> {
    // SAFETY: null, or mapped for as long as the process lives.
    unsafe { COUNT.load(Acquire).as_ref() }
}

/// The load at this moment, if somebody counts and a controller has looked at the capacity.
#[inline]
pub(crate) fn live() -> Option<LiveLoad> {
    if COUNT.load(Relaxed).is_null() {
        return None;
    }
    let high = HIGH.load(Relaxed);
    let runnable = count()?.runnable.load(Relaxed).clamp(0, i64::from(i32::MAX)) as u32;
    (high != u32::MAX).then(|| LiveLoad { runnable, low: LOW.load(Relaxed), high })
}

/// What a look at the count remembers for the next.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: u64,
    thread_ns: u64,
    events: u64,
}

/// The sensor.
pub struct Bpf {
    own_thread: u32,
    last: Option<Look>,
    is_dead: bool,
    capacity: Capacity,
}

impl Count {
    /// The integral at `now`.
    fn thread_ns_at(&self, now: u64) -> u64 {
        let since = now.saturating_sub(self.since.load(Relaxed));
        let runnable = self.runnable.load(Relaxed).max(0).cast_unsigned();
        self.thread_ns.load(Relaxed).wrapping_add(runnable.wrapping_mul(since))
    }
}

/// The load that the controller is given: the average over the interval, or what it is at its end if that is less.
///
/// The average does not know yet of those who went to sleep during the interval, and the controller, which adds the
/// sleepers, would count them twice; the number at one moment takes a short spike for load.
fn load(average: f64, at_the_end: f64) -> f64 {
    average.min(at_the_end).max(0.0)
}

impl Bpf {
    /// A sensor on a thread with id `own_thread`; `None` if nobody counts for this process.
    pub fn open(own_thread: u32) -> Option<Self> {
        is_adopted().then(|| Bpf { own_thread, last: None, is_dead: false, capacity: Capacity::default() })
    }

    /// Whether the count stood still although this thread slept and woke: the program has closed the descriptors that
    /// keep the kernel counting.
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
        HIGH.store((capacity + MARGIN) as u32, Relaxed);

        let look = Look { at: now, thread_ns: count.thread_ns_at(now), events: count.events.load(Relaxed) };
        let before = self.last.replace(look)?;
        self.is_dead = look.events == before.events;
        let interval = now.checked_sub(before.at).filter(|&ns| ns > 0 && !self.is_dead)?;
        // Signed: what was mixed up between two changes may make a difference of nothing negative.
        let average = look.thread_ns.wrapping_sub(before.thread_ns).cast_signed() as f64 / interval as f64;
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
    fn the_count_is_laid_out_as_the_kernels_side_has_it() {
        assert_eq!(size_of::<Count>(), 40);
        assert_eq!(core::mem::offset_of!(Count, events), 24);
        assert_eq!(core::mem::offset_of!(Count, excluded), 36);
    }

    #[test]
    fn the_integral_goes_on_from_the_last_change() {
        let count = Count { since: AtomicU64::new(100), ..Count::default() };
        count.runnable.store(3, Relaxed);
        count.thread_ns.store(1000, Relaxed);
        assert_eq!(count.thread_ns_at(110), 1030);
        assert_eq!(count.thread_ns_at(90), 1000, "a change that came after the clock was read");
        count.runnable.store(-1, Relaxed);
        assert_eq!(count.thread_ns_at(110), 1000);
    }

    #[test]
    fn a_spike_and_those_gone_to_sleep_do_not_count() {
        assert_eq!(load(2.0, 60.0), 2.0);
        assert_eq!(load(33.0, 3.0), 3.0);
        assert_eq!(load(-0.1, 3.0), 0.0);
    }

    #[test]
    fn without_a_count_there_is_no_sensor() {
        assert!(Bpf::open(1).is_none());
        assert_eq!(live(), None);
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(PAGE as u64).expect("room for a page");
        use std::os::fd::AsFd;
        assert!(!adopt(file.as_fd()), "a count of no process");
    }
}
