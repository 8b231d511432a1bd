//! Linux: the machine that the shipped locks run on.

pub mod companion;
mod controller;
mod doze;
pub mod fork;
mod nodes;
mod note;
pub mod slice;
mod thread;
pub mod transaction;

use core::sync::atomic::{self, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

use super::{Atomic, AtomicInt, Begun, Platform, ThreadNote};
use crate::contention::queue::Node;
use crate::load::control::LoadControl;
use crate::load::sensor::{LiveLoad, bpf};

pub use controller::{
    ControllerReport, claim_memory, confine, controller_report, keep_controller, use_sensor, without_controller,
};
pub use note::{set_word, word};

/// The running machine.
#[derive(Debug, Clone, Copy)]
pub struct Native;

macro_rules! atomic {
    ($cell:ty, $value:ty $(, $generic:ident)?) => {
        impl$(<$generic>)? Atomic<$value> for $cell {
            #[inline(always)]
            fn new(value: $value) -> Self {
                <$cell>::new(value)
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(&self, current: $value, new: $value, success: Ordering, failure: Ordering) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! atomic_int {
    ($cell:ty, $value:ty) => {
        atomic!($cell, $value);
        impl AtomicInt<$value> for $cell {
            #[inline(always)]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }
            #[inline(always)]
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.fetch_sub(value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, order)
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, order)
            }
        }
    };
}

atomic_int!(AtomicU32, u32);
atomic_int!(AtomicU64, u64);
atomic!(AtomicPtr<Node<Native>>, *mut Node<Native>);

static LOAD_CONTROL: LoadControl<Native> = LoadControl::idle();

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

impl Platform for Native {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type NodePtr = AtomicPtr<Node<Native>>;

    #[inline(always)]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    #[inline]
    fn now() -> u64 {
        clock(libc::CLOCK_MONOTONIC)
    }

    #[inline(always)]
    fn pause() {
        core::hint::spin_loop();
    }

    fn doze(word: &AtomicU64, seen: u64) {
        doze::doze(word, seen);
    }

    fn yield_now() {
        rustix::thread::sched_yield();
    }

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

    #[inline]
    fn begin_slice_extension() {
        slice::begin();
    }

    #[inline]
    fn end_slice_extension() {
        slice::end();
    }

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

    fn thread_note() -> ThreadNote {
        note::get()
    }

    fn set_thread_note(note: ThreadNote) {
        note::set(note);
    }

    #[inline]
    fn generation() -> u32 {
        fork::generation()
    }

    fn take_node() -> *mut Node<Native> {
        nodes::POOL.take()
    }

    unsafe fn give_node(node: *mut Node<Native>) {
        // SAFETY: passed on from the caller.
        unsafe { nodes::POOL.give(node) };
    }

    #[inline(always)]
    fn load_control() -> &'static LoadControl<Native> {
        &LOAD_CONTROL
    }

    #[inline]
    fn ensure_controller() {
        controller::ensure();
    }

    #[inline(always)]
    fn counts_waits() -> bool {
        companion::is_there()
    }

    #[inline]
    fn waited(ns: u64) {
        if let Some(companion) = companion::get() {
            (companion.waited)(ns);
        }
    }

    #[inline]
    fn live_load() -> Option<LiveLoad> {
        bpf::live()
    }
}
