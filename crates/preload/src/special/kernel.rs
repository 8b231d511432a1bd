//! The special set's kernel interface: processor times and masks.

use syscalls::{Errno, Sysno, syscall};

use super::mask::Mask;
use super::threads::{GIVEN, SHOWN};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The thread has ended.
    Gone,
    /// No thread may do this here, for example because of a system-call filter.
    Forbidden,
    /// This thread or these processors do not allow it.
    Unfit,
}

/// The kernel interface, so that tests can replace it.
pub(super) trait Kernel {
    /// Processor time of `thread` so far, in nanoseconds.
    fn ran(&mut self, thread: u32) -> Option<u64>;
    /// The mask of `thread`; 0 is the caller. The caller has set its own mask to [`Mask::ALL`], so
    /// for 0 the result is all available processors.
    fn mask(&mut self, thread: u32) -> Result<Mask, Refusal>;
    fn set_mask(&mut self, thread: u32, mask: &Mask) -> Result<(), Refusal>;
    /// From now on, threads that leave the set get the mask `given`, and threads of the set see
    /// `mask` as their own.
    fn publish(&mut self, given: &Mask, mask: &Mask);
    /// Whether `thread` runs under one of the usual scheduling policies, which share processors.
    fn is_ordinary(&mut self, thread: u32) -> bool;
}

pub(super) struct Linux;

/// The kernel's number for the clock of `thread`'s processor time: `make_thread_cpuclock` and
/// `CPUCLOCK_SCHED` in its `include/linux/posix-timers.h`.
fn processor_clock(thread: u32) -> libc::clockid_t {
    const SCHEDULER: i32 = 2;
    const PER_THREAD: i32 = 4;
    (!thread.cast_signed() << 3) | PER_THREAD | SCHEDULER
}

/// Reads a clock, in nanoseconds.
pub(super) fn read_clock(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Not libc's function: another library may replace it, and it sets `errno`. SAFETY: fills
    // `time`.
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
        // SAFETY: reads no memory and writes none.
        let policy = unsafe { syscall!(Sysno::sched_getscheduler, thread) };
        let policy = policy.map(|policy| policy as i32 & !libc::SCHED_RESET_ON_FORK);
        matches!(policy, Ok(libc::SCHED_OTHER | libc::SCHED_BATCH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_locks::primitive::{Clock as _, Native, Threads as _};

    #[test]
    fn processor_time_of_other_thread_is_readable_until_its_end() {
        let (send, receive) = std::sync::mpsc::channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(Native::thread_id()).expect("the test receives");
            let _ = left.recv();
        });
        let id = receive.recv().expect("the thread sends");
        assert!(Linux.ran(id).is_some_and(|ns| ns > 0));
        assert!(Linux.is_ordinary(id));
        drop(leave);
        thread.join().expect("the thread ends");
        // `join` may return a moment before the kernel removes the thread.
        let end = Native::now() + 10_000_000_000;
        while Linux.ran(id).is_some() {
            assert!(Native::now() < end, "an ended thread still has a processor time");
            Native::yield_now();
        }
    }

    /// `cargo test --release -p unconvoy-preload --lib cost_of_a_recorded_wait -- --ignored
    /// --nocapture`: used by scripts/special-set-cost.py.
    #[test]
    #[ignore = "a measurement without assertions"]
    fn cost_of_a_recorded_wait() {
        const WAITS: u64 = 20_000_000;
        let clock =
            || read_clock(libc::CLOCK_THREAD_CPUTIME_ID).expect("a thread can read its own time");
        let (began, mut last) = (clock(), Native::now());
        for _ in 0..WAITS {
            let now = Native::now();
            super::super::threads::waited((now - last).min(1));
            last = now;
        }
        println!("{:.1} ns", (clock() - began) as f64 / WAITS as f64);
    }
}
