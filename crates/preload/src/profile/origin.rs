//! Where locks were initialised, and where they were taken first.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};

use unconvoy_profile::Profile;
use unconvoy_profile::layout::ORIGINS;

use super::{stack, state};

/// Initialisations and first acquisitions whose stacks were recorded.
static RECORDED: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Whether the file exists since the process started. A lock's first acquisition in a file that was
/// created later may have been before.
static IS_COMPLETE: AtomicBool = AtomicBool::new(false);

/// Restarts the counts, for another file.
pub(super) fn reset() {
    RECORDED.iter().for_each(|count| count.store(0, Relaxed));
    IS_COMPLETE.store(false, Relaxed);
}

/// Allows first acquisitions to be recorded.
pub(super) fn begin() {
    IS_COMPLETE.store(true, Relaxed);
}

/// Records where the object at `address` was initialised.
#[inline]
pub(crate) fn initialised(address: usize) {
    let Some(profile) = state::get() else { return };
    profile.record_origin(address, early_stack(profile, 0));
}

/// Records where the object at `address` was taken first. Returns whether the profile keeps first
/// acquisitions.
#[cold]
pub(crate) fn first_taken(address: usize) -> bool {
    let Some(profile) = state::get().filter(|_| IS_COMPLETE.load(Relaxed)) else { return false };
    profile.record_first_taken(address, early_stack(profile, 1));
    true
}

/// The calling thread's stack. A program may use millions of objects, and a stack takes some 2 us
/// to record, so only the first [`ORIGINS`] of each kind are recorded.
fn early_stack(profile: &Profile, kind: usize) -> u32 {
    let is_early = RECORDED[kind].load(Relaxed) < ORIGINS as u32;
    let stack = if is_early { stack::record(profile) } else { 0 };
    RECORDED[kind].fetch_add(u32::from(is_early), Relaxed);
    stack
}
