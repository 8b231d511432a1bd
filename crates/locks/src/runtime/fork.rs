//! Forks, noticed in the child by its first look, whoever made it: `fork`, `_Fork`, a bare
//! `clone`, and also in a fork handler that runs before any of ours could.
//!
//! A page that the kernel empties in every child says in which generation of processes this one
//! is. Where the kernel cannot (before Linux 4.14, or with larger pages), [`after_fork`] must be
//! called.
//!
//! | generation | meaning |
//! | --- | --- |
//! | `NEW` | this process has not looked yet |
//! | `BEGINNING` | a thread is just looking |
//! | anything else | forks since the first process, and one |

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

use super::controller;
use crate::primitive::{Generation, Native};

const NEW: u32 = 0;
const BEGINNING: u32 = u32::MAX;

const PAGE: usize = 4096;

/// What is true of one process and not of its children.
#[repr(C, align(4096))]
pub struct OfThisProcess {
    generation: AtomicU32,
    /// A byte for whoever builds on this library, 0 again in the child.
    pub byte: AtomicU8,
    _rest: [u8; PAGE - 5],
}

/// The page.
pub static OF_THIS_PROCESS: OfThisProcess =
    OfThisProcess { generation: AtomicU32::new(NEW), byte: AtomicU8::new(0), _rest: [0; PAGE - 5] };

const _: () = assert!(size_of::<OfThisProcess>() == PAGE);

/// The latest generation that began, here or in a parent.
static LATEST: AtomicU32 = AtomicU32::new(NEW);

/// Whether the kernel empties the page.
static EMPTIED: AtomicBool = AtomicBool::new(false);

impl Generation for Native {
    #[inline]
    fn generation() -> u32 {
        generation()
    }
}

#[inline]
fn generation() -> u32 {
    match OF_THIS_PROCESS.generation.load(Acquire) {
        NEW | BEGINNING => begin(),
        generation => generation,
    }
}

#[cold]
fn begin() -> u32 {
    let generation = &OF_THIS_PROCESS.generation;
    if generation.compare_exchange(NEW, BEGINNING, Acquire, Relaxed).is_err() {
        loop {
            match generation.load(Acquire) {
                BEGINNING => rustix::thread::sched_yield(),
                known => return known,
            }
        }
    }
    let before = LATEST.load(Relaxed);
    if before == NEW {
        let page = core::ptr::from_ref(&OF_THIS_PROCESS).cast_mut().cast();
        // SAFETY: advice about a page that nothing else shares: it concerns children only.
        let advised = unsafe { rustix::mm::madvise(page, PAGE, rustix::mm::Advice::LinuxWipeOnFork) };
        EMPTIED.store(advised.is_ok(), Relaxed);
    } else {
        controller::begin_anew();
    }
    LATEST.store(before + 1, Relaxed);
    generation.store(before + 1, Release);
    before + 1
}

/// Says that this process is the child of a fork, where the kernel does not: for a fork handler.
pub fn after_fork() {
    if !EMPTIED.load(Relaxed) {
        OF_THIS_PROCESS.byte.store(0, Relaxed);
        OF_THIS_PROCESS.generation.store(NEW, Relaxed);
    }
    generation();
}
