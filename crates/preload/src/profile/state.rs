//! The profile of this process, and what a thread waits for.
//!
//! The child of a `fork` inherits its parent's profile, which is mapped in both, and must not write
//! to it. A signal handler may fork anywhere, even while the interrupted code records a wait that
//! then continues in the child. Whatever keeps a reference to a profile over a wait therefore
//! compares [`generation`] before it records.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use libc::CLOCK_REALTIME;
use unconvoy_locks::primitive::{Clock as _, Generation as _, Native, native};
use unconvoy_profile::{Kind, Profile};

static PROFILE: AtomicPtr<Profile> = AtomicPtr::new(ptr::null_mut());

/// The [`generation`] of the process that created the profile.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Number of forks that led to this process, plus one.
#[inline]
pub(super) fn generation() -> u32 {
    Native::generation()
}

/// A wait of this length is sampled with certainty. A sample takes two unwindings of some 2 us
/// each, so sampling takes at most .4 % of the time waited.
static PERIOD: AtomicU64 = AtomicU64::new(1_000_000);

/// The profile of this process, if it has one.
#[inline]
pub(super) fn get() -> Option<&'static Profile> {
    inherited().filter(|_| GENERATION.load(Relaxed) == generation())
}

/// The profile of this process or of its parent.
#[inline]
fn inherited() -> Option<&'static Profile> {
    // SAFETY: null or a mapping that stays.
    unsafe { PROFILE.load(Acquire).as_ref() }
}

/// Whether [`remove`] has not been called since the last `fork`.
#[inline]
pub(super) fn is_inherited() -> bool {
    inherited().is_some() && GENERATION.load(Relaxed) != generation()
}

pub(super) fn set(profile: &'static Profile) {
    GENERATION.store(generation(), Relaxed);
    PROFILE.store(ptr::from_ref(profile).cast_mut(), Release);
}

/// Removes and returns the parent's profile.
pub(super) fn remove() -> Option<&'static Profile> {
    // SAFETY: null or a mapping that stays.
    unsafe { PROFILE.swap(ptr::null_mut(), Relaxed).as_ref() }
}

/// The sampling period in nanoseconds, to be set before the first profile.
pub(super) fn period() -> &'static AtomicU64 {
    &PERIOD
}

/// The realtime clock less the monotonic one, at the last sample. To read the realtime clock in
/// each wait would delay the waiter. If that clock has been set since, a sample comes early or
/// late.
pub(super) static REALTIME: AtomicU64 = AtomicU64::new(0);

/// Updates [`REALTIME`].
pub(super) fn set_clock() {
    REALTIME.store(native::clock(CLOCK_REALTIME).wrapping_sub(Native::now()), Relaxed);
}

/// Greatest number of holds measured in a period: of one lock, or of one thread where libc serves
/// the locks.
pub(super) const HOLDS_PER_PERIOD: u64 = 10;

/// What a thread waits for.
#[derive(Clone, Copy)]
pub(crate) struct Waited<'a> {
    pub(crate) kind: Kind,
    pub(crate) address: usize,
    pub(crate) is_read: bool,
    /// The lock's own count of acquisitions, if it has one.
    pub(crate) acquisitions: Option<&'a AtomicU32>,
    /// Sends the lock's next release to the slow path, unless it takes that path anyway.
    pub(crate) request: &'a dyn Fn(),
}
