//! Sampling of waits, for a user of this library that profiles locks: code that runs on the waiting
//! thread, at a chosen time of its wait.

use super::thread_state;

/// Code to run in the calling thread's present wait.
pub struct WaitSample {
    /// The earliest time at which it runs, on the machine's clock; `u64::MAX`: never.
    pub at: u64,
    /// The code. It runs inside a lock operation, so it must not allocate or lock. It runs once,
    /// between two turns of the waiter's loop, or before the thread leaves the processor, even if
    /// the time has not come. It does not run if the wait ends first.
    pub take: unsafe fn(*const WaitSample),
}

/// Makes `sample` the sample of the calling thread's waits from now on; null samples none of them.
/// Returns the previous sample.
///
/// # Safety
///
/// `sample` stays in place until the thread calls this again.
#[inline]
pub unsafe fn sample_waits(sample: *const WaitSample) -> *const WaitSample {
    thread_state::replace_sample(sample.cast()).cast()
}

/// The sample of the calling thread's present wait; null if there is none.
#[inline]
pub fn present_sample() -> *const WaitSample {
    thread_state::sample().cast()
}

/// See [`Context::sample_at`](crate::load::Context::sample_at).
#[inline]
pub(super) fn at() -> u64 {
    // SAFETY: null or, as `sample_waits` requires, in place.
    unsafe { present_sample().as_ref() }.map_or(u64::MAX, |sample| sample.at)
}

/// Runs the code of the present wait.
pub(super) fn take() {
    let sample = present_sample();
    if !sample.is_null() {
        // SAFETY: as `sample_waits` requires.
        unsafe { ((*sample).take)(sample) };
    }
}
