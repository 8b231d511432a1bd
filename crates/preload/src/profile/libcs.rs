//! Measures waits for locks that libc serves. A lock operation tries the lock first, and calls
//! libc's waiting function if the lock is taken.
//!
//! A thread that sleeps in libc cannot run code at the time of its sample. The wait for a mutex
//! therefore first ends at that time. Then the thread takes the sample and waits again. Other waits
//! have deadlines of their own, or must not time out: in glibc 2.36, after a writer has timed out,
//! a reader-writer lock may fail to wake the next writer. The stacks of these waits are recorded
//! before the wait.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use libc::{EBUSY, EINVAL, EOWNERDEAD, ETIMEDOUT, timespec};
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_profile::{Kind, Profile};

use super::ask::{end_hold, releasing};
use super::process::{may_record, of_waiter};
use super::signal::SignalWait;
use super::state::{REALTIME, Waited, generation, set_clock};
use super::wait::Waiting;
use super::{ended, stack};
use crate::cancel;
use crate::object::Until;
use crate::{held, live, probe};

/// Polls of a spin lock between two readings of the clock.
const POLLS: u32 = 64;

/// An object of libc's.
#[derive(Clone, Copy)]
pub(crate) struct Observed {
    pub(crate) kind: Kind,
    pub(crate) address: usize,
    pub(crate) is_read: bool,
}

impl Observed {
    fn waited(self) -> Waited<'static> {
        let Observed { kind, address, is_read } = self;
        Waited { kind, address, is_read, acquisitions: None, request: &|| {} }
    }

    /// Locks by `attempt`, or by `lock` if the lock is taken. `until` is `lock` with a deadline on
    /// the realtime clock.
    pub(crate) fn lock(
        self,
        attempt: impl Fn() -> c_int,
        until: impl Fn(Until<'_>) -> c_int,
        lock: impl Fn() -> c_int,
    ) -> c_int {
        self.observe(attempt, &lock, |waiting| {
            if !waiting.is_early() {
                let at = waiting.sample_at().wrapping_add(REALTIME.load(Relaxed));
                let at = timespec {
                    tv_sec: (at / 1_000_000_000).cast_signed(),
                    tv_nsec: (at % 1_000_000_000).cast_signed(),
                };
                match until(Until::from(&at)) {
                    ETIMEDOUT | EINVAL => {}
                    result => return result,
                }
            }
            set_clock();
            waiting.take_sample();
            lock()
        })
    }

    /// Locks by `attempt`, or by `lock` if the lock is taken. `lock` may have a deadline of its
    /// own.
    pub(crate) fn lock_until(self, attempt: impl Fn() -> c_int, lock: impl Fn() -> c_int) -> c_int {
        self.observe(attempt, &lock, |waiting| {
            waiting.take_sample();
            lock()
        })
    }

    /// Locks a spin lock by repeated attempts, or by `lock` if the wait is not to be sampled.
    pub(crate) fn spin(self, attempt: impl Fn() -> c_int, lock: impl Fn() -> c_int) -> c_int {
        self.observe(&attempt, lock, |waiting| {
            let mut is_due = true;
            loop {
                for _ in 0..POLLS {
                    core::hint::spin_loop();
                    let result = attempt();
                    if result != EBUSY {
                        return result;
                    }
                }
                if is_due && Native::now() >= waiting.sample_at() {
                    is_due = false;
                    waiting.take_sample();
                }
            }
        })
    }

    fn observe(
        self,
        attempt: impl Fn() -> c_int,
        lock: impl Fn() -> c_int,
        wait: impl FnOnce(&Waiting<'_>) -> c_int,
    ) -> c_int {
        if !may_record() {
            return if held::is_kept() { self.watch(attempt, lock) } else { lock() };
        }
        let result = attempt();
        if result != EBUSY {
            return result;
        }
        if ended::is_any_kept() {
            ended::record_kept();
        }
        let Some(profile) = of_waiter().filter(|_| !stack::is_unwinding()) else { return lock() };
        let begin = Native::now();
        let Some(one_of) = ended::draw(begin) else {
            return self.only_time(profile, begin, lock);
        };
        let waiting = Waiting::new(profile, self.waited(), begin, one_of);
        probe::wait_begin(self.address, self.kind as usize);
        let result = wait(&waiting);
        probe::wait_end(self.address, usize::from(matches!(result, 0 | EOWNERDEAD)));
        match result {
            0 | EOWNERDEAD => waiting.end_held(),
            ETIMEDOUT => waiting.end(false, 0),
            // The thread holds the lock itself, the lock cannot be recovered, or the deadline is
            // invalid.
            _ => waiting.abandon(),
        }
        result
    }

    /// Locks by `attempt`, or by `lock` if the lock is taken. A watchdog sees the wait.
    #[cold]
    fn watch(self, attempt: impl Fn() -> c_int, lock: impl Fn() -> c_int) -> c_int {
        let mut result = attempt();
        if result == EBUSY {
            let waiting = live::begin(self.kind, self.address, self.is_read);
            result = lock();
            waiting.end();
        }
        if matches!(result, 0 | EOWNERDEAD) {
            held::acquired(self.kind, self.address, self.is_read);
        }
        result
    }

    /// Waits for a taken lock by `lock`. Such a wait is measured but not eligible for a sample.
    #[inline]
    fn only_time(self, profile: &Profile, begin: u64, lock: impl Fn() -> c_int) -> c_int {
        let generation_before = generation();
        let result = lock();
        if generation_before != generation() {
            return result; // a signal handler has forked, and this is the child
        }
        let time = (begin, Native::now());
        match result {
            0 | EOWNERDEAD => ended::keep(&self.waited(), time, false),
            ETIMEDOUT => ended::record_timed_out(profile, &self.waited(), time),
            _ => {}
        }
        result
    }

    /// Unlocks by `unlock`, and then answers requests for the holder's stack.
    pub(crate) fn unlock(self, unlock: impl Fn() -> c_int) -> c_int {
        if held::is_kept() {
            held::released(self.address);
        }
        if ended::is_kept(self.address) {
            return self.unlock_after_wait(unlock);
        }
        let releasing = releasing(self.kind, self.address);
        let result = unlock();
        if let Some(releasing) = releasing {
            releasing.released();
        }
        result
    }

    /// Unlocks a lock that the calling thread has waited for.
    fn unlock_after_wait(self, unlock: impl Fn() -> c_int) -> c_int {
        let releasing = releasing(self.kind, self.address);
        let hold_end = ended::hold_end();
        let result = unlock();
        if let Some(releasing) = releasing {
            releasing.released();
        }
        ended::record_with_hold(hold_end);
        result
    }
}

/// Waits on a condition variable of libc's by `wait`, and records the wait. `released` is the
/// mutex, if the wait releases it. Cancellation is deferred while the wait is recorded: a function
/// of Rust's or the unwinder's that is cancelled asynchronously may abort the process.
pub(crate) fn wait_for_signal(
    cond: usize,
    released: Option<usize>,
    wait: impl Fn() -> c_int,
) -> c_int {
    let type_before = cancel::defer();
    if let Some(mutex) = released {
        if ended::is_kept(mutex) {
            ended::record_with_hold(ended::hold_end());
        }
        end_hold(mutex);
    }
    let waiting = SignalWait::begin(cond);
    type_before.restore();
    let result = wait();
    if let Some(waiting) = waiting {
        let type_before = cancel::defer();
        waiting.end();
        type_before.restore();
    }
    result
}
