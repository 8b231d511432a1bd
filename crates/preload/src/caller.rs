//! Who called into this library: for the statistics, which tell a lock by where it was first taken.
//!
//! Unwinding is slow, and done once per lock. The unwinder may itself take a lock of libgcc's, through this library: only when
//! code was registered with it (`__register_frame`), which takes that lock first, so that its record is there and nobody unwinds for it.

use core::ffi::{c_int, c_void};
use core::ptr;

/// Frames of this library between an acquisition and its caller; a bound, in case that unwinding goes astray.
const MOST_FRAMES: usize = 32;

/// `_URC_NO_REASON` and `_URC_NORMAL_STOP` of the C++ ABI for Itanium, "Exception Handling", section 1.1.
const CONTINUE: c_int = 0;
const STOP: c_int = 4;

unsafe extern "C" {
    fn _Unwind_Backtrace(trace: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    /// The linker's: where this library's file begins in memory, and where its data end.
    static __ehdr_start: u8;
    static _end: u8;
}

struct Search {
    frames: usize,
    found: usize,
}

/// Where the caller of this library's outermost function goes on; 0 if that cannot be told.
pub(crate) fn of_this_library() -> usize {
    let mut search = Search { frames: 0, found: 0 };
    // SAFETY: the function is called during the call only, with `search` as its argument.
    unsafe { _Unwind_Backtrace(look, ptr::from_mut(&mut search).cast()) };
    search.found
}

extern "C" fn look(context: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: of `of_this_library`, which does nothing else with it meanwhile.
    let search = unsafe { &mut *argument.cast::<Search>() };
    // SAFETY: the unwinder's own context.
    let pc = unsafe { _Unwind_GetIP(context) };
    let own = (&raw const __ehdr_start).addr()..(&raw const _end).addr();
    search.frames += 1;
    if !own.contains(&pc) {
        search.found = pc;
    }
    if search.found != 0 || search.frames == MOST_FRAMES { STOP } else { CONTINUE }
}
