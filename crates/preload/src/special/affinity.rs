//! The program's own calls that read and set its threads' masks.
//!
//! A read returns the mask that the program set or was given, not the special set's. If the program
//! sets a thread's mask, the scheduler leaves that thread alone from then on. Not covered: direct
//! system calls, `pthread_getattr_np`, and other processes.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use libc::{cpu_set_t, pid_t, pthread_t, size_t};

use super::threads::{self, IS_ON};
use crate::identity;
use crate::real::stand_in;

stand_in! {
    fn sched_setaffinity(thread: pid_t, size: size_t, mask: *const cpu_set_t) -> c_int =
        |call| set(|| Some(thread.cast_unsigned()), call);
    fn sched_getaffinity(thread: pid_t, size: size_t, mask: *mut cpu_set_t) -> c_int =
        |call| get(|| Some(thread.cast_unsigned()), mask, size, call);
    fn pthread_setaffinity_np(thread: pthread_t, size: size_t, mask: *const cpu_set_t) -> c_int =
        // SAFETY: the caller promises that the thread exists.
        |call| set(|| unsafe { identity::of(thread) }, call);
    fn pthread_getaffinity_np(thread: pthread_t, size: size_t, mask: *mut cpu_set_t) -> c_int =
        // SAFETY: as above.
        |call| get(|| unsafe { identity::of(thread) }, mask, size, call);
}

fn set(thread: impl FnOnce() -> Option<u32>, call: &dyn Fn() -> c_int) -> c_int {
    if IS_ON.load(Relaxed) {
        thread().into_iter().for_each(threads::leave_alone);
    }
    call()
}

/// Runs `call`, in which libc fills `size` bytes at `mask`. If the thread has the set's mask,
/// replaces these bytes with the mask that the program knows.
fn get(
    thread: impl FnOnce() -> Option<u32>,
    mask: *mut cpu_set_t,
    size: size_t,
    call: &dyn Fn() -> c_int,
) -> c_int {
    let result = call();
    if result == 0 && IS_ON.load(Relaxed) && thread().is_some_and(threads::is_placed) {
        let bytes = threads::SHOWN.load();
        let bytes = bytes.bytes().chain(core::iter::repeat(0)).take(size);
        // SAFETY: within the caller's `size` bytes, which libc has just filled.
        bytes
            .enumerate()
            .for_each(|(place, byte)| unsafe { mask.cast::<u8>().add(place).write(byte) });
    }
    result
}
