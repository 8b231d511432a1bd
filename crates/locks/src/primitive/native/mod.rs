//! Linux: the machine that shipped locks run on.

mod messages;
#[doc(hidden)]
pub mod probe;
#[doc(hidden)]
pub mod slice;
#[doc(hidden)]
pub mod symbol;
#[doc(hidden)]
pub mod transaction;
#[doc(hidden)]
pub mod umwait;
#[cfg(target_arch = "x86_64")]
pub(crate) mod versioned;

use core::num::NonZeroU32;
use core::sync::atomic::{self, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

use super::{
    Abort, Atomics, Begun, Clock, Kind, Monitor, Parking, SAMPLED, SliceExtension, Spin, Threads,
    Transactions, poll_for_change,
};

/// The running machine.
///
/// ```
/// use unconvoy::contention::{Contention, mcs::Mcs};
/// use unconvoy::primitive::Native;
///
/// let lock = Mcs::<Native>::unlocked();
/// assert!(lock.try_lock());
/// assert!(!lock.try_lock());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Native;

/// The kernel's value (`include/uapi/linux/sched.h`).
const SCHED_DEADLINE: usize = 6;

/// Number of times that a failing wake-up is tried.
const WAKE_ATTEMPTS: u32 = 3;

/// The type of `clock_gettime`.
#[doc(hidden)]
pub type ReadClock = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

static READ_CLOCK: AtomicPtr<()> = AtomicPtr::new(libc::clock_gettime as *mut ());

/// Makes the clocks call `read` from now on instead of the `clock_gettime` that the process is
/// linked against.
///
/// # Safety
///
/// `read` behaves like `clock_gettime` on any thread, and uses no lock and no thread-local storage.
#[doc(hidden)]
pub unsafe fn read_clock_with(read: ReadClock) {
    READ_CLOCK.store(read as *mut (), Ordering::Relaxed);
}

/// Nanoseconds on `clock`, which must exist.
#[doc(hidden)]
pub fn clock(clock: libc::clockid_t) -> u64 {
    // SAFETY: only values of type `ReadClock` are stored.
    let read: ReadClock = unsafe { core::mem::transmute(READ_CLOCK.load(Ordering::Relaxed)) };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes `time` only.
    unsafe { read(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

// SAFETY: the processor's.
unsafe impl Atomics for Native {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Ptr<T> = AtomicPtr<T>;

    #[inline(always)]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }
}

/// Marks a deadline as a time on the realtime clock, which may be set while a thread waits. Neither
/// clock reaches this bit before the year 2262.
#[doc(hidden)]
pub const REALTIME: u64 = 1 << 63;

/// Nanoseconds until a deadline with the mark passes, unless the clock is set.
#[cold]
fn left_until(marked: u64) -> u64 {
    (marked - REALTIME).saturating_sub(clock(libc::CLOCK_REALTIME))
}

impl Clock for Native {
    #[inline]
    fn now() -> u64 {
        clock(libc::CLOCK_MONOTONIC)
    }

    #[inline(always)]
    fn has_passed(deadline: u64, now: u64) -> bool {
        if deadline < REALTIME { now >= deadline } else { left_until(deadline) == 0 }
    }

    #[inline(always)]
    fn expected(deadline: u64) -> u64 {
        if deadline < REALTIME { deadline } else { Self::now() + left_until(deadline) }
    }
}

impl Spin for Native {
    #[inline(always)]
    fn pause() {
        core::hint::spin_loop();
    }
}

impl Monitor for Native {
    fn wait_for_change(word: &AtomicU64, seen: u64) {
        if !umwait::wait(word, seen) {
            poll_for_change::<Self>(word, seen); // each of its pauses takes 40 to 140 cycles
        }
    }
}

/// The bit set of a futex for one kind of thread.
fn kinds(kind: Kind) -> NonZeroU32 {
    NonZeroU32::new(kind as u32).expect("a bit")
}

fn park_with(kinds: NonZeroU32, word: &AtomicU32, expected: u32, deadline: Option<u64>) {
    probe::sleep(core::ptr::from_ref(word).addr(), deadline.map_or(0, Native::expected));
    let is_realtime = deadline.is_some_and(|ns| ns >= REALTIME);
    // An absolute deadline stays valid across spurious wake-ups. Every error means "check again",
    // which callers do.
    let deadline = deadline.map(|ns| ns & !REALTIME).map(|ns| futex::Timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    let mut flags = futex::Flags::PRIVATE;
    flags.set(futex::Flags::CLOCK_REALTIME, is_realtime);
    let _ = futex::wait_bitset(word, flags, expected, deadline.as_ref(), kinds);
}

impl Parking for Native {
    fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        park_with(NonZeroU32::MAX, word, expected, deadline);
    }

    fn park_as(kind: Kind, word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        park_with(kinds(kind), word, expected, deadline);
    }

    fn unpark_kind(kind: Kind, word: *const AtomicU32, count: u32) {
        use syscalls::{Sysno, syscall};
        probe::wake(word.addr(), count as usize);
        let operation = libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let (count, kinds) = (count.min(i32::MAX as u32), kinds(kind).get());
        // SAFETY: as in `unpark`; this operation uses neither the time-out nor the second address.
        let woken = unsafe { syscall!(Sysno::futex, word, operation, count, 0, 0, kinds) };
        if woken.is_err() {
            Self::unpark(word, u32::MAX); // a filter of system calls may not know the operation
        }
    }

    fn unpark(word: *const AtomicU32, count: u32) {
        use syscalls::{Sysno, syscall};
        probe::wake(word.addr(), count as usize);
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // A wake-up that failed would be lost. Linux documents no error for it, but a tracer or a
        // filter of system calls may return one.
        for _ in 0..WAKE_ATTEMPTS {
            // SAFETY: for a private futex the kernel hashes the address and does not read it, so
            // the lock may already be freed.
            let woken =
                unsafe { syscall!(Sysno::futex, word, operation, count.min(i32::MAX as u32)) };
            if woken.is_ok() {
                break;
            }
        }
    }
}

impl Threads for Native {
    fn thread_id() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
    }

    fn is_real_time() -> bool {
        // SAFETY: queries the calling thread and writes nothing.
        let policy = unsafe { syscalls::syscall!(syscalls::Sysno::sched_getscheduler, 0) };
        const RESET_ON_FORK: usize = libc::SCHED_RESET_ON_FORK as usize;
        const FIFO: usize = libc::SCHED_FIFO as usize;
        const ROUND_ROBIN: usize = libc::SCHED_RR as usize;
        matches!(
            policy.map(|policy| policy & !RESET_ON_FORK),
            Ok(FIFO | ROUND_ROBIN | SCHED_DEADLINE)
        )
    }

    fn yield_now() {
        rustix::thread::sched_yield();
    }
}

impl Transactions for Native {
    #[inline]
    fn has_transactions() -> bool {
        transaction::available().is_ok()
    }

    #[inline(always)]
    fn begin_transaction() -> Begun {
        transaction::begin()
    }

    #[inline]
    fn in_transaction() -> bool {
        transaction::is_inside()
    }

    #[inline]
    fn elided_lock() -> usize {
        transaction::elided_lock()
    }

    #[inline]
    fn set_elided_lock(address: usize) {
        transaction::set_elided_lock(address);
    }

    #[inline]
    fn is_sampled() -> bool {
        // Spread by the golden ratio: each sixteenth section might always be of the same lock.
        transaction::count_section().wrapping_mul(0x9E37_79B9) < u32::MAX / SAMPLED + 1
    }

    #[inline]
    fn end_transaction() {
        transaction::end();
    }

    #[inline]
    fn abort_transaction(because: Abort) {
        transaction::abort(because);
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
