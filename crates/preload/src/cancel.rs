//! The calling thread's cancellation type and state.

use core::ffi::c_int;

/// glibc's value; the libc crate lacks it.
const PTHREAD_CANCEL_DEFERRED: c_int = 0;

/// glibc's value, likewise.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    /// See `boundary.c`.
    safe fn unconvoy_set_cancel_type(new: c_int) -> c_int;

    /// See `boundary.c`.
    safe fn unconvoy_set_cancel_state(new: c_int) -> c_int;
}

/// The type that a thread had before [`defer`].
#[derive(Clone, Copy)]
pub(crate) struct Before(c_int);

/// Defers cancellation to the next cancellation point, until [`Before::restore`].
#[inline]
pub(crate) fn defer() -> Before {
    Before(unconvoy_set_cancel_type(PTHREAD_CANCEL_DEFERRED))
}

/// Runs `work`, in which no cancellation takes effect.
pub(crate) fn without<R>(work: impl FnOnce() -> R) -> R {
    let before = unconvoy_set_cancel_state(PTHREAD_CANCEL_DISABLE);
    let result = work();
    unconvoy_set_cancel_state(before);
    result
}

/// Whether the calling thread may be cancelled at any instruction.
pub(crate) fn is_asynchronous() -> bool {
    let before = defer();
    before.restore();
    before.0 != PTHREAD_CANCEL_DEFERRED
}

impl Before {
    /// Restores the type. An asynchronous cancellation that arrived meanwhile unwinds the caller.
    #[inline]
    pub(crate) fn restore(self) {
        if self.0 != PTHREAD_CANCEL_DEFERRED {
            unconvoy_set_cancel_type(self.0);
        }
    }
}
