//! What the special set asks of the kernel: processor times, and masks.

use syscalls::{Errno, Sysno, syscall};

use super::mask::Mask;
use super::threads::{GIVEN, SHOWN};

/// Why the kernel did not do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such thread any more.
    Gone,
    /// Nobody may here: a filter of system calls, say.
    Forbidden,
    /// Something about this thread, or these processors.
    Unfit,
}

/// What is asked of the kernel.
pub(super) trait Kernel {
    /// Processor time of `thread` so far, nanoseconds.
    fn ran(&mut self, thread: u32) -> Option<u64>;
    /// The mask of `thread`, 0 being the caller, whose mask is [`Mask::ALL`]: then, all processors that may be had.
    fn mask(&mut self, thread: u32) -> Result<Mask, Refusal>;
    /// Sets it.
    fn set_mask(&mut self, thread: u32, mask: &Mask) -> Result<(), Refusal>;
    /// From now on threads of the set get back `given`, and are to believe meanwhile that they have `mask`.
    fn publish(&mut self, given: &Mask, mask: &Mask);
    /// Whether `thread` shares processors with others by the usual policies.
    fn is_ordinary(&mut self, thread: u32) -> bool;
}

/// The kernel of this machine.
pub(super) struct Linux;

/// The kernel's number of the clock that `thread`'s processor time is on: `make_thread_cpuclock` and `CPUCLOCK_SCHED` of its
/// `include/linux/posix-timers.h`.
fn processor_clock(thread: u32) -> libc::clockid_t {
    const SCHEDULER: i32 = 2;
    const PER_THREAD: i32 = 4;
    (!thread.cast_signed() << 3) | PER_THREAD | SCHEDULER
}

/// What a clock shows, in nanoseconds.
pub(super) fn read_clock(clock: libc::clockid_t) -> Option<u64> {
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
    use unconvoy_locks::primitive::{Clock as _, Native, Threads as _};

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
            super::super::threads::waited((now - last).min(1));
            last = now;
        }
        println!("{:.1} ns", (clock() - began) as f64 / WAITS as f64);
    }
}
