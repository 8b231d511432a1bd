//! What a load manager sees: the current wait, and the process around it.

use core::cell::Cell;

use super::pollers::Portion;
use super::sensor::LiveLoad;
use super::state::LoadControl;
use crate::parking::eventcount::{Eventcount, WaitedLock};
use crate::primitive::{Atomics, Clock as _, Primitive};
use crate::queue::NodeMemory;

/// Polling time that a thread accumulates before it reports the sum: short compared with an
/// interval.
const PORTION_NS: u64 = 50_000;

/// Length of a wait from which on the thread counts as overtaken: some time slices. Shorter waits
/// leave the lock to threads that run.
pub(crate) const OVERTAKEN_NS: u64 = if cfg!(loom) { 0 } else { 10_000_000 };

/// Sections with a longer mean time per acquisition are long. A waiter polls through short
/// sections, and a reserved lock would be idle for several of them while its waiter wakes. (A
/// reader-writer lock counts no acquisitions: all its sections pass for long, because its waiters
/// mostly park only behind sections of tens of microseconds.)
const LONG_SECTION_NS: u64 = 50_000;

/// State of a thread that outlives a wait. All zeroes in a new thread.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadState {
    /// When the thread last woke from a sleep, on the machine's clock; 0 if it never slept.
    pub awake_since: u64,
    /// Nanoseconds of polling not yet reported.
    pub polled: u64,
    /// Time until which the thread, as far as it knows, may hold a lock with parked waiters; 0 if
    /// it holds none.
    pub pending_wake_until: u64,
    /// The key of that lock.
    pub pending_wake_at: u64,
    /// When the thread last released a lock with parked waiters.
    pub last_wake: u64,
    /// The key of the lock for which the thread last waited while others needed it; 0 if none did.
    pub needed_at: u64,
    /// Time until which a wait for that lock does not end in a sleep for load.
    pub needed_until: u64,
    /// Running average of its spins in nanoseconds ([adaptive](super::adaptive)).
    pub spun: u64,
    /// Polling for events ([pollers](super::pollers)).
    pub portion: Portion,
    /// The [history](super::history) of waits for events without a history of their own.
    pub history: u32,
    /// Identifies the critical section in which the thread last signalled one of several waiters.
    pub section: u64,
    /// Address of the eventcount to which the thread has requeued waiters, or from which it was
    /// woken as one of them; 0 after its next release there.
    pub requeued_at: usize,
    /// Number of waiters that the thread has signalled and requeued there, or
    /// [`BROADCAST`](super::pollers::BROADCAST).
    pub requeued: u32,
    /// Whether the thread's next wait parks at once under [load control](super::control). Other
    /// load managers ignore this.
    pub parks_at_once: bool,
    /// Number of further waits for events after which the thread parks at the lock instead of
    /// [yielding](super::event::give_way).
    pub parks: u32,
}

impl ThreadState {
    /// Whether the thread has requeued waiters to the eventcount, or was woken as one of them.
    pub(crate) fn is_requeued_at<P: Primitive>(&self, eventcount: &Eventcount<P>) -> bool {
        self.requeued_at == core::ptr::from_ref(eventcount).addr()
    }
}

/// The process, as a waiter sees it. This crate implements the trait; a load manager only uses it.
///
/// ```
/// use unconvoy::load::{Context, Wait};
///
/// /// Tells load control that this wait is long, so that it begins to measure the load.
/// fn report<X: Context>(wait: &Wait<'_, X>) {
///     wait.process.report_contention();
/// }
/// ```
pub trait Context: Copy {
    /// The machine that the process runs on.
    type Machine: NodeMemory;

    /// The load control of the process, shared by all of its locks (ASPLOS 2010, section 3, last
    /// bullet).
    #[doc(hidden)]
    fn control(self) -> &'static LoadControl<Self::Machine>;

    /// The state of the calling thread.
    #[doc(hidden)]
    fn thread_state(self) -> ThreadState;

    /// Sets [`thread_state`](Self::thread_state).
    #[doc(hidden)]
    fn set_thread_state(self, state: ThreadState);

    /// Starts a controller for [`control`](Self::control) unless one runs. Cheap if one does.
    #[doc(hidden)]
    fn ensure_controller(self);

    /// The current load, if the process sees each change of it; `None`, at little cost, if it does
    /// not.
    #[doc(hidden)]
    #[inline(always)]
    fn live_load(self) -> Option<LiveLoad> {
        None
    }

    /// Whether the process collects [waiting times](Self::waited).
    #[doc(hidden)]
    #[inline(always)]
    fn counts_waits(self) -> bool {
        false
    }

    /// Reports `ns` more nanoseconds of processor time that the calling thread spent waiting for
    /// locks.
    #[doc(hidden)]
    #[inline(always)]
    fn waited(self, ns: u64) {
        let _ = ns;
    }

    /// Polling time of the calling thread's wait before it parks, in nanoseconds, if the lock has a
    /// bound of its own ([park](super::park)).
    #[doc(hidden)]
    #[inline(always)]
    fn spin_ns(self) -> Option<u64> {
        None
    }

    /// When the calling thread samples its wait: `u64::MAX` if it does not.
    #[doc(hidden)]
    #[inline(always)]
    fn sample_at(self) -> u64 {
        u64::MAX
    }

    /// Samples the calling thread's wait: the time has come, or the thread is about to leave the
    /// processor.
    #[doc(hidden)]
    fn take_sample(self) {}

    /// Adds `polled` nanoseconds to the calling thread's polling time. The thread reports them in
    /// portions, since there may be millions of waits per second.
    #[doc(hidden)]
    #[inline]
    fn report_polling(self, polled: u64) {
        let mut state = self.thread_state();
        state.polled += polled;
        if state.polled > PORTION_NS {
            let portion = core::mem::take(&mut state.polled);
            self.control().polled.add(Self::Machine::address(&state), portion);
        }
        self.set_thread_state(state);
    }

    /// Reports a wait long enough to need a controller.
    #[cold]
    fn report_contention(self) {
        self.control().report_contention();
        self.ensure_controller();
    }
}

/// One wait for a lock.
///
/// ```
/// use unconvoy::load::{Context, Wait};
/// use unconvoy::primitive::Clock;
///
/// /// Nanoseconds until the waiter gives up; `None` if it waits for as long as it takes.
/// fn rest<X: Context>(wait: &Wait<'_, X>) -> Option<u64> {
///     wait.deadline.map(|deadline| deadline.saturating_sub(X::Machine::now()))
/// }
/// ```
pub struct Wait<'a, X: Context> {
    /// The process of the waiting thread.
    pub process: X,
    /// Where the waiter parks until a release.
    #[doc(hidden)]
    pub eventcount: &'a Eventcount<X::Machine>,
    /// The lock that the thread waits for.
    #[doc(hidden)]
    pub lock: &'a dyn WaitedLock,
    /// When the waiter gives up; see [`Clock::has_passed`](crate::primitive::Clock::has_passed).
    pub deadline: Option<u64>,
    /// When the wait began.
    #[doc(hidden)]
    pub begin: u64,
    /// When the thread first parked in this wait, and the lock's acquisitions by then, if counted.
    #[doc(hidden)]
    pub parked: Cell<Option<(u64, Option<u32>)>>,
}

impl<X: Context> Wait<'_, X> {
    /// Whether the deadline has passed at `now`.
    #[inline]
    pub(crate) fn is_late(&self, now: u64) -> bool {
        self.deadline.is_some_and(|end| X::Machine::has_passed(end, now))
    }

    /// The earlier of `time` and the deadline, on the clock of `time`.
    pub(crate) fn earlier(&self, time: u64) -> u64 {
        self.deadline.map_or(time, |end| X::Machine::expected(end).min(time))
    }

    /// A number that identifies the lock.
    pub fn key(&self) -> u64 {
        X::Machine::address(self.eventcount)
    }

    /// The key in 32 bits, for [sleepers](crate::parking::slots). Locks whose addresses differ by a
    /// multiple of 16 GiB share it. A sleeper may then be woken in place of the other lock's, which
    /// sleeps until its time-out.
    pub(super) fn short_key(&self) -> u32 {
        (self.key() >> 2) as u32 // the lowest bits of the address are 0
    }

    /// Parks until a release, the deadline, or the lock's next try. Returns true if the thread
    /// acquired the lock meanwhile.
    ///
    /// Until a parked waiter wakes, the last holder may have taken the lock again. If sections are
    /// longer than the waiter polls, this would repeat with each release. So if a thread parks
    /// again after [`OVERTAKEN_NS`], or what the lock says, the next release reserves the lock for
    /// the waiter that it wakes. This waiter's own release then does the same.
    pub fn park(&self) -> bool {
        if self.lock.reserve_after().is_some_and(|after| self.is_overtaken(after)) {
            self.reserve();
        }
        let end = || self.lock.retry_at().map(|at| self.earlier(at)).or(self.deadline);
        let acquired = self.eventcount.wait(self.lock, end);
        if acquired || !self.lock.take_reserved() {
            return acquired;
        }
        self.reserve();
        true
    }

    /// Whether the thread has parked before in this wait, the wait has lasted for `after`
    /// nanoseconds, and the sections since the first park are long.
    fn is_overtaken(&self, after: u64) -> bool {
        let (now, acquisitions) = (X::Machine::now(), self.lock.watched_acquisitions());
        let parked = self.parked.replace(self.parked.get().or(Some((now, acquisitions))));
        // A model explores a reservation at a first park, too.
        let Some((since, before)) = parked else { return cfg!(loom) };
        let sections = acquisitions.zip(before).map_or(0, |(now, before)| now.wrapping_sub(before));
        now.saturating_sub(self.begin) >= after
            && now.saturating_sub(since) >= u64::from(sections) * LONG_SECTION_NS
    }

    fn reserve(&self) {
        if self.process.control().may_reserve(X::Machine::now()) {
            self.lock.reserve();
        }
    }
}
