//! Waits at a process-shared condition variable with a mutex of this library, which libc's wait
//! cannot release.
//!
//! No other process reaches private memory, so this library takes over a condition variable there.
//! Elsewhere, libc waits with a mutex of its own as a stand-in. A signal between the release of the
//! program's mutex and libc's wait is lost, so each wait ends after [`SLICE_NS`]. To the program,
//! that is a spurious wake-up, which POSIX allows.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;

use libc::{ETIMEDOUT, pthread_mutex_t};
use syscalls::{Sysno, syscall};

use super::{Cond, unconvoy_test_cancel};
use crate::cancel;
use crate::mutex::wait::Use;
use crate::mutex::{Mutex, pthread_mutex_lock, pthread_mutex_unlock};
use crate::object::{InPlace as _, Libcs, Until};
use crate::profile::SignalWait;
use crate::real;
use crate::time::Deadline;

/// The longest delay of a lost signal; a thread that waits for long wakes 100 times a second.
const SLICE_NS: u64 = 10_000_000;

/// Whether no other process can reach the object at `address`, which was written to. False if the
/// kernel does not say.
pub(super) fn is_private(address: usize) -> bool {
    // Linux, Documentation/admin-guide/mm/pagemap.rst: 64 bits for each page.
    const IS_OF_FILE_OR_SHARED: u64 = 1 << 61;
    const IS_PRESENT: u64 = 1 << 63;
    let path = c"/proc/thread-self/pagemap".as_ptr();
    let mut page = 0_u64;
    // SAFETY: no precondition.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned() as usize;
    let offset = address / page_size * size_of::<u64>();
    // SAFETY: the path ends in a zero, the kernel writes at most eight bytes, and this function
    // owns the descriptor.
    let read = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let Ok(file) = syscall!(Sysno::openat, libc::AT_FDCWD, path, flags) else { return false };
        let read = syscall!(Sysno::pread64, file, &raw mut page, size_of::<u64>(), offset);
        let _ = syscall!(Sysno::close, file);
        read
    };
    read == Ok(size_of::<u64>()) && page & (IS_PRESENT | IS_OF_FILE_OR_SHARED) == IS_PRESENT
}

impl Cond {
    /// Waits for at most [`SLICE_NS`]. During the wait no cancellation takes effect.
    ///
    /// # Safety
    ///
    /// The caller holds the mutex, and cancellation is deferred.
    pub(super) unsafe fn wait_in_slices(
        &self,
        mutex: &Mutex,
        in_use: Use<'_>,
        deadline: Option<Deadline>,
    ) -> c_int {
        // SAFETY: zeroes are an initialised mutex of libc's.
        let stand_in: Libcs<pthread_mutex_t> = unsafe { MaybeUninit::zeroed().assume_init() };
        real::pthread_mutex_lock(&stand_in);
        // SAFETY: the caller holds the mutex.
        let unlocked = unsafe { pthread_mutex_unlock(mutex) };
        if unlocked != 0 {
            in_use.end();
            return unlocked;
        }
        let recorded = SignalWait::begin(ptr::from_ref(self).addr());
        let result = cancel::without(|| {
            let slice = deadline.map_or(SLICE_NS, |deadline| deadline.left().min(SLICE_NS));
            let until = self.clock().in_ns(slice);
            real::pthread_cond_timedwait(self.libcs(), &stand_in, Until::from(&until))
        });
        if let Some(recorded) = recorded {
            recorded.end();
        }
        real::pthread_mutex_unlock(&stand_in);
        let locked = pthread_mutex_lock(mutex);
        if locked != 0 {
            return locked;
        }
        in_use.end();
        if result != ETIMEDOUT {
            return result;
        }
        unconvoy_test_cancel(); // not after a signal, which would be lost
        if deadline.is_some_and(Deadline::has_passed) { ETIMEDOUT } else { 0 }
    }
}
