//! The load control of one process: what its waiters and its controller share.

use core::sync::atomic::Ordering::Relaxed;

use super::passive::PassiveSets;
use super::pinned::PinnedHolders;
use super::policy::Policy;
use super::settings::{BACKOFF_NS, INTERVAL_NS, SLEEP_NS};
use crate::parking::slots::SleepSlots;
use crate::primitive::{Atomic, Primitive};

/// The sleep-slot buffer, the settings, and what waiters and controller write for each other.
pub struct LoadControl<P: Primitive> {
    /// The sleep-slot buffer.
    pub slots: SleepSlots<P>,
    /// Set by waiters that wait long, cleared by the controller each interval.
    pub(crate) contended: P::U32,
    /// Nanoseconds that threads spent polling since the process began, as far as they have reported.
    pub(super) polled: P::U64,
    /// The controller's interval in nanoseconds.
    pub interval: P::U64,
    /// The longest sleep in nanoseconds.
    pub sleep: P::U64,
    /// The control policy, as a place in [`Policy::NAMES`].
    pub(super) policy: P::U32,
    /// Lock holders that are not to sleep.
    pub pinned: PinnedHolders<P>,
    /// The overload of [load-triggered backoff](super::backoff), in millionths.
    overload: P::U32,
    /// Its mean sleep in nanoseconds.
    pub backoff: P::U64,
    /// How many threads sleep by it.
    pub backed_off: P::U32,
    /// Of [concurrency restriction](super::restrict).
    pub(super) passive: PassiveSets<P>,
    /// When a waiter may follow the live load next.
    pub(super) follow_at: P::U64,
}

#[cfg(not(loom))]
impl LoadControl<crate::primitive::Native> {
    /// As `new`, for a static.
    pub(crate) const fn idle() -> Self {
        use core::sync::atomic::AtomicU64;
        // SAFETY: integers and atomics, of which zeroes are values: nobody sleeps, waits or is pinned.
        let zeroes: Self = unsafe { core::mem::zeroed() };
        LoadControl {
            interval: AtomicU64::new(INTERVAL_NS),
            sleep: AtomicU64::new(SLEEP_NS),
            backoff: AtomicU64::new(BACKOFF_NS),
            ..zeroes
        }
    }
}

impl<P: Primitive> LoadControl<P> {
    /// Load control with nobody asleep, target 0 and the default settings.
    pub fn new() -> Self {
        LoadControl {
            slots: SleepSlots::new(),
            contended: P::U32::new(0),
            polled: P::U64::new(0),
            interval: P::U64::new(INTERVAL_NS),
            sleep: P::U64::new(SLEEP_NS),
            policy: P::U32::new(0),
            pinned: PinnedHolders::new(),
            overload: P::U32::new(0),
            backoff: P::U64::new(BACKOFF_NS),
            backed_off: P::U32::new(0),
            passive: PassiveSets::new(),
            follow_at: P::U64::new(0),
        }
    }

    /// Has the next controller follow the policy of this name; an unknown name changes nothing.
    pub fn set_policy(&self, name: &str) {
        if let Some(place) = Policy::NAMES.iter().position(|known| *known == name) {
            self.policy.store(place as u32, Relaxed);
        }
    }

    /// Whether waiters keep their lock's holder from sleeping for load; they do by default.
    pub fn wake_holders(&self, enabled: bool) {
        self.pinned.disabled.store(u32::from(!enabled), Relaxed);
    }

    /// The probability with which a waiter backs off, 0 to 1.
    pub(super) fn overload(&self) -> f64 {
        f64::from(self.overload.load(Relaxed)) / 1e6
    }

    /// Sets it. For the controller, or an experiment without one.
    pub fn set_overload(&self, overload: f64) {
        self.overload.store((overload * 1e6) as u32, Relaxed);
    }

    /// Starts anew, in the child of a `fork`, where no thread of the parent's waits or sleeps.
    #[cfg_attr(loom, expect(dead_code, reason = "nobody forks there"))]
    pub(crate) fn reset(&self) {
        self.slots.reset();
        self.pinned.reset();
        self.passive.reset();
        self.backed_off.store(0, Relaxed);
    }
}

impl<P: Primitive> Default for LoadControl<P> {
    fn default() -> Self {
        Self::new()
    }
}
