//! Begins the program's profile at its start, and that of a process that the program starts at its
//! first wait. A profile ends when its process exits.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::catalogue::environment;
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_profile::Profile;

use super::{ask, ended, file, modules, origin, stack, state};
use crate::variables::{read_milliseconds, variable};
use crate::{message, output};

/// Whether the process creates its file at its first wait.
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// Whether libc serves the locks.
static IS_OF_LIBC: AtomicBool = AtomicBool::new(false);

/// Whether the process may make no more system calls of its own.
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// The profile of this process, created now if it is due.
#[inline]
pub(super) fn of_waiter() -> Option<&'static Profile> {
    state::get().or_else(|| if IS_DUE.load(Relaxed) { begin_late() } else { None })
}

/// Whether waits of this process are recorded.
#[inline]
pub(super) fn may_record() -> bool {
    state::get().is_some() || IS_DUE.load(Relaxed)
}

/// Starts recording, if the environment asks for it. `is_of_libc` says that libc serves the locks.
/// Called from the constructor.
pub(crate) fn begin(is_of_libc: bool) {
    let Some(path) = variable(&environment::PROFILE) else { return };
    IS_OF_LIBC.store(is_of_libc, Relaxed);
    stack::begin();
    state::set_clock();
    read_milliseconds(&environment::PROFILE_PERIOD, state::period());
    if output::is_descendant() {
        // Most processes of a build or a shell never wait.
        return IS_DUE.store(true, Relaxed);
    }
    // SAFETY: called from the constructor, before the program starts threads.
    match unsafe { file::create(path, is_of_libc) } {
        Ok(profile) => publish(profile),
        Err(error) => {
            message::unwritable_profile(path, &std::io::Error::from_raw_os_error(error)).print();
        }
    }
}

/// Creates the file if it is due, inside a lock operation.
#[cold]
fn begin_late() -> Option<&'static Profile> {
    if !IS_DUE.swap(false, Relaxed) {
        return None;
    }
    let path = variable(&environment::PROFILE)?;
    // SAFETY: this thread alone has cleared the flag, and the constructor's call has ended.
    match unsafe { file::create(path, IS_OF_LIBC.load(Relaxed)) } {
        Ok(profile) => publish(profile),
        Err(error) => message::no_profile_of_child(error).print(),
    }
    state::get()
}

fn publish(profile: &'static Profile) {
    profile.header.period_ns.store(state::period().load(Relaxed), Relaxed);
    modules::refresh(profile);
    state::set(profile);
    stack::mark(profile);
}

/// Removes the parent's profile. The child of a `fork` writes its own file.
pub(crate) fn after_fork() {
    if state::remove() {
        ended::forget();
        origin::reset();
        ask::reset();
        modules::reset();
        stack::reset();
        IS_DUE.store(!IS_CONFINED.load(Relaxed), Relaxed);
    }
}

/// Stops the system calls of the profile, for which a filter may kill the process.
pub(crate) fn confine() {
    if IS_CONFINED.swap(true, Relaxed) {
        return;
    }
    IS_DUE.store(false, Relaxed);
    if let Some(profile) = state::get() {
        modules::refresh(profile);
    }
    modules::stop();
}

/// Completes the file when the process exits.
pub(crate) fn end() {
    let Some(profile) = state::get() else { return };
    if profile.header.pid.load(Relaxed) != std::process::id() {
        return; // the child of a system call that `after_fork` does not learn of
    }
    ended::record_kept();
    ask::flush(profile);
    modules::refresh(profile);
    profile.header.last_ns.store(Native::now(), Relaxed);
    profile.header.ended.store(1, Relaxed);
}
