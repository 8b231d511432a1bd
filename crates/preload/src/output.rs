//! The names of the files that a process writes. The program that `unconvoy` started writes FILE;
//! processes that it starts in turn write `FILE.PID`.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::catalogue::environment;

use crate::identity;
use crate::variables::variable;

static IS_DESCENDANT: AtomicBool = AtomicBool::new(false);

/// Determines whether this process is the first one. Called from the constructor, before the
/// program starts threads.
pub(crate) fn find_owner() {
    let own = identity();
    match variable(&environment::STATS_OWNER) {
        Some(owner) => IS_DESCENDANT.store(owner != own, Relaxed),
        // SAFETY: no other thread exists.
        None => unsafe { std::env::set_var(environment::STATS_OWNER.name, own) },
    }
}

/// The process's id and the number of the namespace that gave it (0 if unknown): in another
/// container, another process may have the same id.
fn identity() -> String {
    let namespace = rustix::fs::stat("/proc/self/ns/pid").map_or(0, |status| status.st_ino);
    format!("{}:{namespace}", identity::process())
}

/// In the child of a `fork`: the child writes its own file.
pub(crate) fn after_fork() {
    IS_DESCENDANT.store(true, Relaxed);
}

/// Whether this process writes `FILE.PID`.
pub(crate) fn is_descendant() -> bool {
    IS_DESCENDANT.load(Relaxed)
}
