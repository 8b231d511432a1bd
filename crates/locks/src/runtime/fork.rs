//! Detection of forks by the child: after `fork`, `_Fork` or a bare `clone`, and even in a fork
//! handler that runs before ours. The child notices before it uses what the parent's threads may
//! have left: the queue of a lock, a sleep slot, the controller.
//!
//! A page that the kernel clears in every child holds the generation of the process. Where it does
//! not (before Linux 4.14, with larger pages, under an emulator), the process must call
//! [`after_fork`].
//!
//! | generation | meaning |
//! | --- | --- |
//! | `NEW` | this process has not read it yet |
//! | `BEGINNING` | a thread is setting it |
//! | other values | 1 + the number of forks since the first process |
//!
//! **Invariant.** The kernel has been asked to clear the page before `BEGINNING` is stored there.
//! So a child never inherits `BEGINNING`, whose thread exists in the parent only.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

use syscalls::Sysno;

use super::controller;
use crate::primitive::{Generation, Native, Parking as _};

const NEW: u32 = 0;
const BEGINNING: u32 = u32::MAX;

const PAGE: usize = 4096;

/// State of one process that its children do not inherit.
#[doc(hidden)]
#[repr(C, align(4096))]
pub struct ProcessState {
    generation: AtomicU32,
    /// A byte for the user of this library, 0 in a new child.
    pub byte: AtomicU8,
    /// Whether a thread of this process was given a row among the visible readers.
    pub(super) has_given_row: AtomicBool,
    /// Three words for the user of this library, likewise.
    pub words: [AtomicU32; 3],
    /// A byte for each value of a byte, likewise.
    pub bytes: [AtomicU8; 256],
    _rest: [u8; PAGE - 20 - 256],
}

/// The page that the kernel clears.
#[doc(hidden)]
pub static PROCESS_STATE: ProcessState = ProcessState {
    generation: AtomicU32::new(NEW),
    byte: AtomicU8::new(0),
    has_given_row: AtomicBool::new(false),
    words: [const { AtomicU32::new(0) }; 3],
    bytes: [const { AtomicU8::new(0) }; 256],
    _rest: [0; PAGE - 20 - 256],
};

const _: () = assert!(size_of::<ProcessState>() == PAGE);

/// The latest generation, of this process or of a parent.
static LATEST: AtomicU32 = AtomicU32::new(NEW);

/// Whether the kernel clears the page in children.
static IS_CLEARED: AtomicBool = AtomicBool::new(false);

impl Generation for Native {
    #[inline]
    fn generation() -> u32 {
        generation()
    }
}

#[inline]
fn generation() -> u32 {
    match PROCESS_STATE.generation.load(Acquire) {
        NEW | BEGINNING => begin(),
        generation => generation,
    }
}

#[cold]
fn begin() -> u32 {
    let generation = &PROCESS_STATE.generation;
    let before = LATEST.load(Relaxed);
    if before == NEW {
        // Several threads may do this at once, to the same effect.
        let page = core::ptr::from_ref(&PROCESS_STATE).cast_mut();
        // An emulator may accept any advice and ignore it, as QEMU's user mode up to 7.2 does.
        // SAFETY: no kernel knows this advice.
        let accepts_all = unsafe { syscalls::syscall!(Sysno::madvise, page, PAGE, -1_i32) }.is_ok();
        // The kernel would clear the whole of a larger page, with other data.
        // SAFETY: `sysconf` has no preconditions.
        let has_own_page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } == PAGE as i64;
        // SAFETY: the page holds no other data, and the advice only affects children.
        let advise = || unsafe {
            rustix::mm::madvise(page.cast(), PAGE, rustix::mm::Advice::LinuxWipeOnFork)
        };
        IS_CLEARED.store(!accepts_all && has_own_page && advise().is_ok(), Relaxed);
    }
    if generation.compare_exchange(NEW, BEGINNING, Acquire, Relaxed).is_err() {
        loop {
            match generation.load(Acquire) {
                // No yield lets a thread of lower real-time priority run.
                BEGINNING => Native::sleep_shortly(generation),
                known => return known,
            }
        }
    }
    if before == NEW {
        controller::assume_processors();
    } else {
        controller::reset_after_fork();
    }
    LATEST.store(before + 1, Relaxed);
    generation.store(before + 1, Release);
    before + 1
}

/// Announces that this process is the child of a fork. For a fork handler, where the kernel does
/// not clear the page: before Linux 4.14, with pages larger than 4 KiB, or under an emulator.
/// Elsewhere it has no effect.
///
/// ```
/// extern "C" fn announce_child() {
///     unconvoy::after_fork();
/// }
///
/// // SAFETY: the handler is safe in a child of a program with threads.
/// let result = unsafe { libc::pthread_atfork(None, None, Some(announce_child)) };
/// assert_eq!(result, 0);
/// ```
pub fn after_fork() {
    if !IS_CLEARED.load(Relaxed) {
        PROCESS_STATE.byte.store(0, Relaxed);
        PROCESS_STATE.has_given_row.store(false, Relaxed);
        PROCESS_STATE.words.iter().for_each(|word| word.store(0, Relaxed));
        PROCESS_STATE.bytes.iter().for_each(|byte| byte.store(0, Relaxed));
        PROCESS_STATE.generation.store(NEW, Relaxed);
    }
    generation();
}
