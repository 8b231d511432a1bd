//! The program asks for masks of its threads, and sets them.
//!
//! It is told of the mask that it gave, or was given, and not of the special set's. A thread for which it sets one is left
//! alone from then on. Not answered for: who asks by a system call of its own, `pthread_getattr_np`, and other processes.

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
        // SAFETY: the caller's word that the thread exists.
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

/// `call` has libc fill `size` bytes at `mask`; for a thread with the set's mask they are replaced.
fn get(thread: impl FnOnce() -> Option<u32>, mask: *mut cpu_set_t, size: size_t, call: &dyn Fn() -> c_int) -> c_int {
    let result = call();
    if result == 0 && IS_ON.load(Relaxed) && thread().is_some_and(threads::is_placed) {
        let bytes = threads::SHOWN.load();
        let bytes = bytes.bytes().chain(core::iter::repeat(0)).take(size);
        // SAFETY: within the caller's bytes, of which libc has just filled as many.
        bytes.enumerate().for_each(|(place, byte)| unsafe { mask.cast::<u8>().add(place).write(byte) });
    }
    result
}
