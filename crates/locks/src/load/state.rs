//! State that the waiters and the controller of one process share.

use core::sync::atomic::Ordering::Relaxed;

use super::passive::PassiveSets;
use super::pinned::PinnedHolders;
use super::policy::Policy;
use super::pollers::Pollers;
use super::settings::{BACKOFF_NS, INTERVAL_NS, SLEEP_NS};
use crate::parking::slots::SleepSlots;
use crate::primitive::{Atomic, AtomicInt, Primitive};
use crate::queue::NodeMemory;

/// A part of the controller: T leaves one more thread awake than there are processors, while
/// threads mostly work.
pub(super) const MARGIN: u32 = 1;
/// A part of the controller: it wakes a sleeper whose turn is due if no waiter does.
pub(super) const TURNS: u32 = 2;

/// Time between two reservations of locks. A reserved lock is idle until a thread wakes, some
/// 20 us.
pub(super) const RESERVE_EVERY_NS: u64 = 500_000;

/// Number of words that [`Polled`] is spread over.
const STRIPES: usize = if cfg!(loom) { 1 } else { 16 };

/// A word on a cache line of its own.
#[repr(align(128))]
struct Line<P: Primitive>(P::U64);

/// Nanoseconds that threads have polled since the process began, as far as they have reported.
///
/// Threads report when they have acquired a lock, and every waiter loads a setting in each turn. So
/// reports go to lines without settings, and to several, or they would delay every hand-over on a
/// machine with hundreds of waiters (`tpmcs`, 4096 threads on 1024 simulated contexts).
pub(super) struct Polled<P: Primitive>([Line<P>; STRIPES]);

impl<P: Primitive> Polled<P> {
    fn new() -> Self {
        Polled(core::array::from_fn(|_| Line(P::U64::new(0))))
    }

    /// Adds `ns`. `origin` is a number that differs between threads.
    #[cold]
    pub(super) fn add(&self, origin: u64, ns: u64) {
        // Fibonacci hashing: stacks are often the same distance apart.
        let hash = origin.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.0[hash as usize % STRIPES].0.fetch_add(ns, Relaxed);
    }

    /// The sum of all reports.
    pub(super) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, line| sum.wrapping_add(line.0.load(Relaxed)))
    }
}

/// The sleep-slot buffer, the settings, and what waiters and controller record for each other.
pub struct LoadControl<P: NodeMemory> {
    /// The sleep-slot buffer.
    pub slots: SleepSlots<P>,
    /// Set by long waits, cleared by the controller each interval.
    pub(crate) contended: P::U32,
    /// Polling time of all threads.
    pub(super) polled: Polled<P>,
    /// The controller's interval in nanoseconds.
    pub interval: P::U64,
    /// The longest sleep in nanoseconds.
    pub sleep: P::U64,
    /// The control policy, as an index into [`Policy::NAMES`].
    pub(super) policy: P::U32,
    /// Lock holders that must not sleep.
    pub pinned: PinnedHolders<P>,
    /// The overload of [load-triggered backoff](super::backoff), in millionths.
    overload: P::U32,
    /// The mean sleep of load-triggered backoff in nanoseconds.
    pub backoff: P::U64,
    /// Number of threads that sleep in load-triggered backoff.
    pub backed_off: P::U32,
    /// Set once a thread has passed a checkpoint under load-triggered backoff.
    pub(super) has_checkpoints: P::U32,
    /// The passive sets of [concurrency restriction](super::restrict).
    pub(super) passive: PassiveSets<P>,
    /// Earliest time of the next change to T by a waiter that follows the live load.
    pub(super) follow_at: P::U64,
    /// Earliest time at which a lock is reserved for a parked waiter again.
    reserve_at: P::U64,
    /// Parts of the controller that the waiters' manager does without.
    omitted: P::U32,
    /// Threads that poll for events.
    pub pollers: Pollers<P>,
}

#[cfg(not(loom))]
impl LoadControl<crate::primitive::Native> {
    /// Like `new`, for the initial value of a static.
    pub(crate) const fn idle() -> Self {
        use core::sync::atomic::AtomicU64;
        // SAFETY: the fields are integers and atomics, for which zero is a valid value: no thread
        // sleeps, waits or is pinned.
        let zeroes: Self = unsafe { core::mem::zeroed() };
        LoadControl {
            interval: AtomicU64::new(INTERVAL_NS),
            sleep: AtomicU64::new(SLEEP_NS),
            backoff: AtomicU64::new(BACKOFF_NS),
            ..zeroes
        }
    }
}

impl<P: NodeMemory> LoadControl<P> {
    /// Load control with no thread asleep, target 0 and the default settings.
    pub fn new() -> Self {
        LoadControl {
            slots: SleepSlots::new(),
            contended: P::U32::new(0),
            polled: Polled::new(),
            interval: P::U64::new(INTERVAL_NS),
            sleep: P::U64::new(SLEEP_NS),
            policy: P::U32::new(0),
            pinned: PinnedHolders::new(),
            overload: P::U32::new(0),
            backoff: P::U64::new(BACKOFF_NS),
            backed_off: P::U32::new(0),
            has_checkpoints: P::U32::new(0),
            passive: PassiveSets::new(),
            follow_at: P::U64::new(0),
            reserve_at: P::U64::new(0),
            omitted: P::U32::new(0),
            pollers: Pollers::new(),
        }
    }

    /// Records that threads contend, for a controller that runs.
    #[inline]
    pub(crate) fn report_contention(&self) {
        if self.contended.load(Relaxed) == 0 {
            self.contended.store(1, Relaxed);
        }
    }

    /// Whether a lock may be [reserved](super::Wait::park) at `now`, at most every
    /// [`RESERVE_EVERY_NS`].
    pub(super) fn may_reserve(&self, now: u64) -> bool {
        let at = self.reserve_at.load(Relaxed);
        let next = now + RESERVE_EVERY_NS;
        now >= at && self.reserve_at.compare_exchange(at, next, Relaxed, Relaxed).is_ok()
    }

    /// Sets the policy of controllers that start from now on. An unknown name changes nothing.
    pub fn set_policy(&self, name: &str) {
        if let Some(index) = Policy::NAMES.iter().position(|known| *known == name) {
            self.policy.store(index as u32, Relaxed);
        }
    }

    /// Sets whether waiters keep their lock's holder from sleeping for load. The default is true.
    pub fn wake_holders(&self, enabled: bool) {
        self.pinned.disabled.store(u32::from(!enabled), Relaxed);
    }

    /// The probability with which a waiter backs off, 0 to 1.
    pub(super) fn overload(&self) -> f64 {
        f64::from(self.overload.load(Relaxed)) / 1e6
    }

    /// Whether [`overload`](Self::overload) is above 0.
    #[inline]
    pub(super) fn has_overload(&self) -> bool {
        self.overload.load(Relaxed) != 0
    }

    /// Sets [`overload`](Self::overload), for the controller or an experiment without one.
    pub fn set_overload(&self, overload: f64) {
        self.overload.store((overload * 1e6) as u32, Relaxed);
    }

    /// Omits `parts` of the controller until it ends. For the waiters of a manager that does
    /// without them, before they report contention.
    #[cold]
    pub(super) fn omit(&self, parts: u32) {
        if self.omitted.load(Relaxed) != parts {
            self.omitted.store(parts, Relaxed);
        }
    }

    pub(super) fn has(&self, part: u32) -> bool {
        self.omitted.load(Relaxed) & part == 0
    }

    /// Clears the state in the child of a `fork`, where no thread of the parent waits or sleeps.
    #[cfg_attr(loom, expect(dead_code, reason = "no fork under the model checker"))]
    pub(crate) fn reset(&self) {
        self.slots.reset();
        self.pinned.reset();
        self.passive.reset();
        self.pollers.reset();
        self.backed_off.store(0, Relaxed);
        self.set_overload(0.0);
        self.omit(0);
    }
}

impl<P: NodeMemory> Default for LoadControl<P> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::Native;

    #[test]
    fn polled_time_is_sum_of_reports_on_several_lines() {
        let polled = Polled::<Native>::new();
        (0..100).for_each(|thread| polled.add(thread * 0x80_1000, 50));
        assert_eq!(polled.sum(), 5000);
        let used = polled.0.iter().filter(|line| line.0.load(Relaxed) != 0).count();
        assert!(used > STRIPES / 2, "{used} of {STRIPES} lines");
    }

    #[test]
    fn polled_time_shares_no_line_with_settings() {
        let control = LoadControl::<Native>::new();
        let line = |address: usize| address / 128;
        let first = core::ptr::from_ref(&control.polled).addr();
        let lines = line(first)..line(first + size_of_val(&control.polled));
        let settings = [&control.interval, &control.sleep, &control.backoff]
            .map(|setting| line(core::ptr::from_ref(setting).addr()));
        assert!(settings.iter().all(|setting| !lines.contains(setting)));
    }

    #[test]
    fn idle_control_of_a_static_has_the_default_settings() {
        let settings = |control: &LoadControl<Native>| {
            [&control.interval, &control.sleep, &control.backoff]
                .map(|setting| setting.load(Relaxed))
        };
        assert_eq!(settings(&LoadControl::idle()), settings(&LoadControl::new()));
        assert_eq!(settings(&LoadControl::idle()), [INTERVAL_NS, SLEEP_NS, BACKOFF_NS]);
    }
}
