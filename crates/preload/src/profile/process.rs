//! Begins the program's profile at its start, and that of a process that the program starts at its
//! first wait. A profile ends when its process exits.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::OnceLock;

use unconvoy_locks::catalogue::environment;
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_profile::Profile;

use super::section::Section;
use super::{ask, ended, file, metrics, modules, origin, page, stack, state};
use crate::variables::{absolute, read_milliseconds, variable};
use crate::{identity, message, output};

/// The file's path, for a process that creates its file later. The program may have changed its
/// environment by then.
static PATH: OnceLock<String> = OnceLock::new();

/// Whether the process creates its file at its first wait.
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// Whether libc serves the locks.
static IS_OF_LIBC: AtomicBool = AtomicBool::new(false);

/// Whether the process may make no more system calls of its own.
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// The creation of the file at a wait.
static CREATION: Section = Section::new();

/// The [`state::generation`] of the last process for which [`after_fork`] has run.
static FORKED: AtomicU32 = AtomicU32::new(0);

/// The profile of this process, created now if it is due.
#[inline]
pub(super) fn of_waiter() -> Option<&'static Profile> {
    state::get().or_else(|| if may_begin() { begin_late() } else { None })
}

/// Whether waits of this process are recorded.
#[inline]
pub(crate) fn may_record() -> bool {
    state::get().is_some() || may_begin()
}

/// Whether this process creates its file at its first wait, or a reader asks for its waits.
#[inline]
fn may_begin() -> bool {
    IS_DUE.load(Relaxed) || state::is_inherited() || page::is_asked()
}

/// Creates the page for `unconvoy top`, inside a lock operation.
#[cold]
pub(super) fn create_page() {
    CREATION.enter(page::create_page);
}

/// Starts recording, if the environment asks for it. `is_of_libc` says that libc serves the locks.
/// Called from the constructor.
pub(crate) fn begin(is_of_libc: bool) {
    IS_OF_LIBC.store(is_of_libc, Relaxed);
    if !is_of_libc {
        page::begin();
    }
    let path = variable(&environment::PROFILE).map(|path| PATH.get_or_init(|| absolute(path)));
    if path.is_some() || metrics::is_on() {
        stack::begin();
    }
    let Some(path) = path else { return };
    state::set_clock();
    read_milliseconds(&environment::PROFILE_PERIOD, state::period());
    if output::is_descendant() {
        // Most processes of a build or a shell never wait.
        return IS_DUE.store(true, Relaxed);
    }
    let created = CREATION.enter(|| {
        // SAFETY: only the thread in the section calls this.
        let created = unsafe { file::create(path, is_of_libc) };
        created.map(|profile| {
            publish(profile);
            origin::begin();
        })
    });
    if let Some(Err(error)) = created {
        message::unwritable_profile(path, &std::io::Error::from_raw_os_error(error)).print();
    }
}

/// Creates the file if it is due, inside a lock operation.
#[cold]
fn begin_late() -> Option<&'static Profile> {
    if state::is_inherited() {
        output::after_fork();
        after_fork();
    }
    CREATION.enter(|| {
        if !IS_DUE.swap(false, Relaxed) {
            return begin_table();
        }
        let Some(path) = PATH.get() else { return };
        let generation = state::generation();
        // SAFETY: only the thread in the section calls this.
        let created = unsafe { file::create(path, IS_OF_LIBC.load(Relaxed)) };
        match created {
            // A signal handler has forked: this is the child, and the file is the parent's.
            Ok(profile) if state::generation() != generation => file::detach(profile),
            Ok(profile) => publish(profile),
            Err(error) => message::no_profile_of_child(error).print(),
        }
    });
    state::get()
}

/// Records into the table that a reader asks for. One thread at a time calls this.
fn begin_table() {
    if state::get().is_some() {
        return;
    }
    let generation = state::generation();
    let Some(table) = page::table() else { return };
    if state::generation() == generation {
        state::set_clock();
        page::begin_recording();
        publish(table);
    }
}

fn publish(profile: &'static Profile) {
    profile.header.period_ns.store(state::period().load(Relaxed), Relaxed);
    modules::refresh(profile);
    state::set(profile);
    stack::mark(profile);
    page::show(profile);
}

/// Removes the parent's profile. The child of a `fork` writes its own file.
pub(crate) fn after_fork() {
    let generation = state::generation();
    if FORKED.swap(generation, Relaxed) == generation {
        return;
    }
    let inherited = state::remove();
    let may_call = !IS_CONFINED.load(Relaxed);
    let was_shown = page::after_fork(may_call);
    if inherited.is_none() && !was_shown && !CREATION.is_occupied() {
        return;
    }
    if let Some(profile) = inherited.filter(|_| may_call) {
        file::detach(profile);
    }
    ended::forget();
    origin::reset();
    ask::reset();
    metrics::after_fork();
    modules::after_fork();
    stack::after_fork();
    CREATION.after_fork();
    IS_DUE.store(may_call && PATH.get().is_some(), Relaxed);
}

/// Stops the system calls of the profile, for which a filter may kill the process. Another thread
/// may be creating the file or reading the list of mapped files: waits until it has finished.
pub(crate) fn confine() {
    if IS_CONFINED.swap(true, Relaxed) {
        return;
    }
    CREATION.close();
    IS_DUE.store(false, Relaxed);
    page::confine();
    metrics::confine();
    if let Some(profile) = state::get() {
        modules::refresh(profile);
    }
    modules::stop();
}

/// Completes the file when the process exits.
pub(crate) fn end() {
    let Some(profile) = state::get() else { return };
    if profile.header.pid.load(Relaxed) != identity::process() {
        return; // the child of a system call that `after_fork` does not learn of
    }
    ended::record_kept();
    ask::flush(profile);
    modules::refresh(profile);
    profile.header.last_ns.store(Native::now(), Relaxed);
    profile.header.ended.store(1, Relaxed);
    metrics::end();
}
