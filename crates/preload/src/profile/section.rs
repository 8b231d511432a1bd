//! A section of system calls that one thread at a time enters, and that can be closed for good.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicUsize};

use unconvoy_locks::primitive::{Clock as _, Native, Threads as _};

/// Longest time that [`Section::close`] waits. The calls of a section take milliseconds, or seconds
/// on a slow disk, but a thread that was cancelled in the section never leaves it.
const CLOSE_NS: u64 = 10_000_000_000;

/// See the [module](self).
///
/// **Memory orderings.** A thread sets `owner` before it loads `is_closed`, and [`Section::close`]
/// sets `is_closed` before it loads `owner`, all SeqCst, so one of the two threads sees the other.
pub(super) struct Section {
    /// The thread in the section, or 0. glibc's name of a thread is also valid in the child of a
    /// `fork`, where the kernel's id of the thread has changed.
    owner: AtomicUsize,
    is_closed: AtomicBool,
}

/// glibc's name of the calling thread.
fn caller() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

impl Section {
    pub(super) const fn new() -> Self {
        Section { owner: AtomicUsize::new(0), is_closed: AtomicBool::new(false) }
    }

    /// Runs `calls`, unless the section is closed or a thread is in it.
    pub(super) fn enter<T>(&self, calls: impl FnOnce() -> T) -> Option<T> {
        self.owner.compare_exchange(0, caller(), SeqCst, Relaxed).ok()?;
        let result = (!self.is_closed.load(SeqCst)).then(calls);
        self.owner.store(0, SeqCst);
        result
    }

    pub(super) fn is_occupied(&self) -> bool {
        self.owner.load(Relaxed) != 0
    }

    /// Closes the section, and waits until no other thread is in it.
    pub(super) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        let begin = Native::now();
        // A signal handler that closes the section may have interrupted it.
        while ![0, caller()].contains(&self.owner.load(SeqCst)) {
            if Native::now() - begin >= CLOSE_NS {
                return;
            }
            Native::yield_now();
        }
    }

    /// Forgets the parent's other threads, in the child of a `fork`. A signal handler that forked
    /// may have interrupted the section, which then continues in the child.
    pub(super) fn after_fork(&self) {
        if self.owner.load(Relaxed) != caller() {
            self.owner.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_waits_for_thread_in_section() {
        static SECTION: Section = Section::new();
        static HAS_LEFT: AtomicBool = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                SECTION.enter(|| {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    HAS_LEFT.store(true, SeqCst);
                })
            });
            while !SECTION.is_occupied() {
                std::thread::yield_now();
            }
            SECTION.close();
            assert!(HAS_LEFT.load(SeqCst));
        });
        assert_eq!(SECTION.enter(|| ()), None);
    }

    #[test]
    fn thread_in_section_neither_enters_nor_waits() {
        let section = Section::new();
        let inner = section.enter(|| {
            section.close();
            section.after_fork();
            section.enter(|| ())
        });
        assert_eq!(inner, Some(None));
        assert!(!section.is_occupied());
    }
}
