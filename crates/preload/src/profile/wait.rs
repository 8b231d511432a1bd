//! One wait for a lock.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::lock::Acquired;
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_locks::runtime::{WaitSample, keep_controller, sample_waits};
use unconvoy_profile::layout::Lock;
use unconvoy_profile::{Kind, Profile, mix, weight};

use super::ended::lose;
use super::process::{create_page, of_waiter};
use super::state::{HOLDS_PER_PERIOD, Waited, generation, period};
use super::{ask, ended, estimate, metrics, page, stack};
use crate::identity::me;
use crate::{live, probe};

/// A sample that is due in this first part of a wait is taken before the wait, which may end before
/// the first turn of the waiter's loop.
const EARLY_NS: u64 = 2_000;

/// Runs `wait`, which `unconvoy inspect` sees meanwhile, and records it if this process has a
/// profile.
#[inline(always)]
pub(crate) fn wait(waited: Waited<'_>, wait: impl FnOnce() -> Acquired) -> Acquired {
    let Waited { address, kind, is_read, .. } = waited;
    let waiting = live::begin(kind, address, is_read);
    probe::wait_begin(address, kind as usize);
    if page::is_due() {
        create_page();
    }
    let acquired = match of_waiter() {
        None => wait(),
        Some(profile) => wait_recorded(profile, waited, wait),
    };
    waiting.end();
    probe::wait_end(address, usize::from(acquired.held));
    acquired
}

#[cold]
#[inline(never)]
fn wait_recorded(
    profile: &'static Profile,
    waited: Waited<'_>,
    wait: impl FnOnce() -> Acquired,
) -> Acquired {
    if stack::is_unwinding() {
        return wait();
    }
    let now = Native::now();
    if page::is_recording() && page::stop_if_abandoned(now) {
        return wait();
    }
    let waiting = Waiting::new(profile, waited, now, 1);
    if waiting.lock().is_none() {
        lose(profile);
        return wait();
    }
    if waiting.is_early() {
        waiting.take_sample();
    }
    // A pointer to the first field alone could not be used for the whole, which `take` accesses.
    let whole: *const WaitSample = (&raw const waiting).cast();
    let due = if waiting.is_early() { ptr::null() } else { whole };
    // SAFETY: `waiting` stays in place until the previous sample is set again.
    let acquired = unsafe {
        let before = sample_waits(due);
        let acquired = wait();
        sample_waits(before);
        acquired
    };
    waiting.end(acquired.held, acquired.wait.sleeps);
    acquired
}

/// A wait; it lives on the waiter's stack. If a signal handler forks, it goes on in the child,
/// where it is not recorded.
#[repr(C)]
pub(super) struct Waiting<'a> {
    /// The first field: [`take`] finds the wait by this field's address.
    sample: WaitSample,
    profile: &'static Profile,
    waited: Waited<'a>,
    generation: u32,
    begin: u64,
    /// The lock's entry and its index, once looked up.
    lock: Cell<Option<(u32, &'static Lock)>>,
    /// Number of waits that this one stands for; see [`ended::draw`].
    one_of: u64,
    /// Number of the waiter's stack; 0 if it was not recorded.
    stack: Cell<u32>,
    ask: Cell<Option<u32>>,
}

/// # Safety
///
/// `sample` points to a whole [`Waiting`].
unsafe fn take(sample: *const WaitSample) {
    // SAFETY: as the caller promises.
    unsafe { &*sample.cast::<Waiting<'_>>() }.take_sample();
}

impl<'a> Waiting<'a> {
    /// A wait that began at `begin`, and stands for `one_of` waits.
    pub(super) fn new(
        profile: &'static Profile,
        waited: Waited<'a>,
        begin: u64,
        one_of: u64,
    ) -> Self {
        let random = mix(begin ^ u64::from(me()) << 32);
        let at = begin + random % period().load(Relaxed);
        Waiting {
            sample: WaitSample { at, take },
            profile,
            waited,
            generation: generation(),
            begin,
            lock: Cell::new(None),
            one_of,
            stack: Cell::new(0),
            ask: Cell::new(None),
        }
    }

    /// When the wait is sampled, if it lasts that long.
    pub(super) fn sample_at(&self) -> u64 {
        self.sample.at
    }

    pub(super) fn is_early(&self) -> bool {
        self.sample.at < self.begin + EARLY_NS
    }

    /// The lock's index and entry; `None` if it does not fit in the table.
    fn lock(&self) -> Option<(u32, &'static Lock)> {
        if self.lock.get().is_none() {
            self.lock.set(self.profile.lock(self.waited.kind, self.waited.address));
        }
        self.lock.get()
    }

    /// Whether this process is the child of a `fork` during the wait.
    fn is_inherited(&self) -> bool {
        self.generation != generation()
    }

    /// Records the calling thread's stack, and asks for the holder's.
    pub(super) fn take_sample(&self) {
        if self.is_inherited() {
            return;
        }
        let Some((index, lock)) = self.lock() else { return };
        let stack = stack::record(self.profile);
        self.stack.set(stack);
        if lock.first_stack.load(Relaxed) == 0 {
            lock.first_stack.store(stack, Relaxed);
        }
        self.ask.set(ask::open(self.profile, lock, index, stack));
        (self.waited.request)();
    }

    /// Ends the wait; the lock is `held` unless the wait timed out.
    pub(super) fn end(&self, held: bool, sleeps: u32) {
        if self.is_inherited() {
            return;
        }
        let now = Native::now();
        self.record(now, held);
        let Some((index, lock)) = self.lock.get() else { return };
        if sleeps > 0 {
            lock.slept.fetch_add(sleeps, Relaxed);
        }
        if held {
            self.measure_hold(index, lock, now);
        } else {
            lock.timed_out.fetch_add(1, Relaxed);
        }
    }

    /// Ends the wait for a lock of libc's, which is now held. A sampled wait is recorded now,
    /// because it is rare; the others are recorded after the release.
    #[inline]
    pub(super) fn end_held(&self) {
        if self.is_inherited() {
            return;
        }
        let now = Native::now();
        let is_sampled = now >= self.sample.at || self.ask.get().is_some();
        if is_sampled {
            self.record(now, true);
        }
        ended::keep(&self.waited, (self.begin, now), is_sampled);
    }

    /// Forgets the wait: the lock cannot be acquired.
    #[cold]
    pub(super) fn abandon(&self) {
        if !self.is_inherited()
            && let (Some(ask), Some((_, lock))) = (self.ask.get(), self.lock.get())
        {
            ask::finish(self.profile, lock, ask, (0, 0), true);
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&self, now: u64, held: bool) {
        let profile = self.profile;
        let Some((index, lock)) = self.lock() else { return lose(profile) };
        let ns = now.saturating_sub(self.begin);
        profile.record_wait(lock, ns, now, self.waited.is_read);
        if metrics::is_due(now) {
            keep_controller();
        }
        let period = period().load(Relaxed);
        let is_sampled = now >= self.sample.at;
        let weight = if is_sampled { weight(ns, period) } else { (0, 0) };
        let weight = (weight.0 * self.one_of, weight.1 * self.one_of);
        match self.ask.get() {
            Some(ask) => ask::finish(profile, lock, ask, weight, held),
            None if is_sampled => {
                profile.add_sample(index, (self.stack.get(), 0), weight.0, weight.1);
            }
            None => {}
        }
        if ns >= period {
            profile.record_long_wait(ns, now, index, self.stack.get(), me());
        }
    }

    /// Lets the release measure the hold that begins now, if it is exclusive and due for
    /// measurement.
    fn measure_hold(&self, index: u32, lock: &Lock, now: u64) {
        let acquisitions = self.waited.acquisitions.map(|count| count.load(Relaxed));
        if let Some(before) = acquisitions {
            lock.acquisitions.store(u64::from(before) + 1, Relaxed);
        }
        let pause = period().load(Relaxed) / HOLDS_PER_PERIOD;
        // Without a profile from the start, the release of a spin lock takes the fast path.
        let has_fast_path = page::is_recording() && !metrics::is_on();
        let is_measurable = !(self.waited.kind == Kind::Spin && has_fast_path);
        let before = lock.chosen_at.load(Relaxed);
        if is_measurable && !self.waited.is_read && now >= before + pause {
            lock.chosen_at.store(now, Relaxed);
            if let Some(count) = acquisitions.filter(|_| metrics::is_on()) {
                let since = before.max(self.profile.header.begin_ns.load(Relaxed));
                estimate::begin(index, count.wrapping_add(1), now.saturating_sub(since));
            }
            // Not `now`: recording the wait took time, and the program's section begins here.
            ask::begin_hold(lock, Native::now());
            (self.waited.request)();
        }
    }
}
