//! Linux: the machine that the shipped locks run on.

pub mod slice;
pub mod transaction;
mod umwait;

use core::sync::atomic::{self, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

use super::{Atomics, Begun, Clock, Parking, SliceExtension, Spin, Threads, Transactions};

/// The running machine.
#[derive(Debug, Clone, Copy)]
pub struct Native;

/// The kernel's number (`include/uapi/linux/sched.h`).
const SCHED_DEADLINE: usize = 6;

/// What the clocks are read with.
pub type ReadClock = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

static READ_CLOCK: AtomicPtr<()> = AtomicPtr::new(libc::clock_gettime as *mut ());

/// Has the clocks read with `read` from now on, instead of whatever `clock_gettime` the process is
/// linked against.
///
/// # Safety
///
/// `read` does what `clock_gettime` does, on any thread, without a lock and without thread-local
/// storage.
pub unsafe fn read_clock_with(read: ReadClock) {
    READ_CLOCK.store(read as *mut (), Ordering::Relaxed);
}

/// Nanoseconds on a clock that exists.
pub fn clock(clock: libc::clockid_t) -> u64 {
    // SAFETY: only `ReadClock`s are ever stored.
    let read: ReadClock = unsafe { core::mem::transmute(READ_CLOCK.load(Ordering::Relaxed)) };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills `time`.
    unsafe { read(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

impl Atomics for Native {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Ptr<T> = AtomicPtr<T>;

    #[inline(always)]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }
}

impl Clock for Native {
    #[inline]
    fn now() -> u64 {
        clock(libc::CLOCK_MONOTONIC)
    }
}

impl Spin for Native {
    #[inline(always)]
    fn pause() {
        core::hint::spin_loop();
    }

    fn umwait(word: &AtomicU64, seen: u64) {
        umwait::wait(word, seen);
    }
}

impl Parking for Native {
    fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        // Absolute, so that a spurious wake-up needs no arithmetic; every error means "look again", which
        // callers do.
        let deadline = deadline
            .map(|ns| futex::Timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ });
        let any = core::num::NonZeroU32::MAX;
        let _ = futex::wait_bitset(word, futex::Flags::PRIVATE, expected, deadline.as_ref(), any);
    }

    fn unpark(word: *const AtomicU32, count: u32) {
        use syscalls::{Sysno, syscall};
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the kernel hashes the address of a private futex, it does not read there, so that the
        // lock may be gone already.
        let _ = unsafe { syscall!(Sysno::futex, word, operation, count.min(i32::MAX as u32)) };
    }
}

impl Threads for Native {
    fn thread_id() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
    }

    fn is_real_time() -> bool {
        // SAFETY: asks about the calling thread, and writes nothing.
        let policy = unsafe { syscalls::syscall!(syscalls::Sysno::sched_getscheduler, 0) };
        const RESET_ON_FORK: usize = libc::SCHED_RESET_ON_FORK as usize;
        const FIFO: usize = libc::SCHED_FIFO as usize;
        const ROUND_ROBIN: usize = libc::SCHED_RR as usize;
        matches!(policy.map(|policy| policy & !RESET_ON_FORK), Ok(FIFO | ROUND_ROBIN | SCHED_DEADLINE))
    }

    fn yield_now() {
        rustix::thread::sched_yield();
    }
}

impl Transactions for Native {
    #[inline]
    fn begin_transaction() -> Begun {
        transaction::begin()
    }

    #[inline]
    fn in_transaction() -> bool {
        transaction::is_inside()
    }

    #[inline]
    fn end_transaction() {
        transaction::end();
    }

    #[inline]
    fn abort_transaction() {
        transaction::abort();
    }
}

impl SliceExtension for Native {
    #[inline]
    fn begin_slice_extension() {
        slice::begin();
    }

    #[inline]
    fn end_slice_extension() {
        slice::end();
    }
}
