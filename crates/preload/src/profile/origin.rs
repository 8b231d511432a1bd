//! Where locks were initialised.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_profile::layout::ORIGINS;

use super::{stack, state};

/// Initialisations whose stacks were recorded.
static INITIALISED: AtomicU32 = AtomicU32::new(0);

/// Restarts the count, for another file.
pub(super) fn reset() {
    INITIALISED.store(0, Relaxed);
}

/// Records where the object at `address` was initialised. A program may initialise millions of
/// objects, and a stack takes some 2 us to record, so only those of the first [`ORIGINS`]
/// initialisations are recorded.
#[inline]
pub(crate) fn initialised(address: usize) {
    let Some(profile) = state::get() else { return };
    let is_early = INITIALISED.load(Relaxed) < ORIGINS as u32;
    let stack = if is_early { stack::record(profile) } else { 0 };
    INITIALISED.fetch_add(u32::from(is_early), Relaxed);
    profile.record_origin(address, stack);
}
