//! Unwinds the callers of this library: of statistics, which identify a lock by the code that first
//! took it, and of the profile's stacks ([`unwind`](crate::profile::unwind) says when that is
//! possible).

use core::ffi::{c_int, c_void};
use core::ptr;

/// Limit on the frames of this library between an acquisition and its caller, in case unwinding
/// goes astray.
const MOST_FRAMES: usize = 32;

/// `_URC_NO_REASON` and `_URC_NORMAL_STOP` of the Itanium C++ ABI, "Exception Handling", section
/// 1.1.
const CONTINUE: c_int = 0;
const STOP: c_int = 4;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        trace: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    /// Set by the linker: the start of this library's image in memory, and the end of its data.
    static __ehdr_start: u8;
    static _end: u8;
}

/// The unwinder's function that [`stack`] calls.
pub(crate) fn unwinder() -> *const c_void {
    _Unwind_Backtrace as *const c_void
}

/// A stack being filled.
struct Frames<'a> {
    frames: &'a mut [u64],
    depth: usize,
    own: usize,
}

/// Fills `frames` with the return addresses of the calling thread, innermost first, from the call
/// that entered this library on. Returns their number.
pub(crate) fn stack(frames: &mut [u64]) -> usize {
    let mut stack = Frames { frames, depth: 0, own: 0 };
    // SAFETY: the unwinder calls `add_frame` with `stack`, and only during this call.
    unsafe { _Unwind_Backtrace(add_frame, ptr::from_mut(&mut stack).cast()) };
    stack.depth
}

extern "C" fn add_frame(context: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the `Frames` of `stack`, which does not touch it meanwhile.
    let stack = unsafe { &mut *argument.cast::<Frames<'_>>() };
    // SAFETY: the unwinder's own context.
    let pc = unsafe { _Unwind_GetIP(context) };
    if stack.depth == 0 && own_image().contains(&pc) {
        stack.own += 1;
        return if stack.own == MOST_FRAMES { STOP } else { CONTINUE };
    }
    if pc == 0 {
        return STOP;
    }
    stack.frames[stack.depth] = pc as u64;
    stack.depth += 1;
    if stack.depth == stack.frames.len() { STOP } else { CONTINUE }
}

/// The addresses of this library.
fn own_image() -> core::ops::Range<usize> {
    (&raw const __ehdr_start).addr()..(&raw const _end).addr()
}
