//! The controller has the priority of the thread that starts it, and an ordinary user's thread
//! cannot raise its own. A thread of low priority therefore leaves the start to others for a while.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use syscalls::{Sysno, syscall};

use crate::primitive::{Clock as _, Native};

/// For how long threads of low priority leave the start to others, pauses left out.
const LEFT_NS: u64 = 1_000_000_000;
/// A longer time between two such decisions counts as this long.
const PAUSE_NS: u64 = 100_000_000;

/// How long such threads have left the start to others, and when one last did.
static LEFT: AtomicU64 = AtomicU64::new(0);
static LAST_LEFT: AtomicU64 = AtomicU64::new(0);

/// Whether the calling thread has a low priority, and another thread may still come.
pub(super) fn leaves_start_to_others() -> bool {
    if !is_low() {
        return false;
    }
    let now = Native::now();
    let left = now.saturating_sub(LAST_LEFT.swap(now, Relaxed)).min(PAUSE_NS);
    LEFT.fetch_add(left, Relaxed) + left < LEFT_NS
}

/// To be called when the controller has started. The others then have their time again.
pub(super) fn record_start() {
    LEFT.store(0, Relaxed);
}

/// Whether the calling thread is idle to the scheduler, or less urgent than the process's first.
fn is_low() -> bool {
    // SAFETY: these calls write nothing.
    let (policy, own, of_process) = unsafe {
        let process = syscall!(Sysno::getpid).unwrap_or_default();
        (
            syscall!(Sysno::sched_getscheduler, 0),
            syscall!(Sysno::getpriority, libc::PRIO_PROCESS, 0),
            syscall!(Sysno::getpriority, libc::PRIO_PROCESS, process),
        )
    };
    const IDLE: usize = libc::SCHED_IDLE as usize;
    let is_idle = policy.is_ok_and(|it| it & !(libc::SCHED_RESET_ON_FORK as usize) == IDLE);
    // The system call returns 20 less the nice value.
    is_idle || own.is_ok_and(|own| of_process.is_ok_and(|of_process| own < of_process))
}
