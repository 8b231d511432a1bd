//! Load control: spin for contention, block only for load.
//!
//! Johnson, Stoica, Ailamaki and Mowry (ASPLOS 2010), section 3. Each turn, a waiter checks whether
//! the sleep-slot buffer has room. If so, it claims a slot, abandons its place at the lock, and
//! sleeps until the [controller](super::controller) clears the slot or the sleep times out. If it
//! gets the lock first, it gives the slot back. The load of the whole process decides, never the
//! single lock.
//!
//! Nine rules go beyond the paper. [`published`](super::published) does without them, and an
//! experiment can [omit](super::rules) each alone.
//!
//! 1. **Grace.** A thread sleeps for load at most once in a wait. Otherwise the same threads would
//!    sleep forever while others keep the lock. (`counter`, 64 threads on 2 processors: the longest
//!    wait of a second is 105 ms, and 238 ms if a thread may sleep again after .5 ms.)
//! 2. **Turns.** A waiter goes to sleep in place of the longest sleeper before that sleeper times
//!    out ([`claim_in_exchange`]), and time-outs are spread evenly ([`wake_time`]). An exchange
//!    goes before a free slot: rule 3 may leave one slot free for good.
//! 3. **One contender stays.** A release does not wake threads that sleep for load. A waiter
//!    therefore sleeps in a slot only if another waiter contends, or has just been woken to
//!    contend. The last waiter parks at the lock's eventcount, where the next release wakes it.
//!    Otherwise a thread that once met a preempted holder would stay away from a free lock, and
//!    delay every thread that depends on it. (Without the rule, x265 with 8 threads on 2 processors
//!    reached .71 of libc's frames, Chromium .5.) A contender that gives up wakes such a sleeper.
//! 4. **Long waits park.** A waiter that has polled for [`LONG_WAIT_NS`] parks at the eventcount,
//!    as libc's mutex would at once. Otherwise a program that sleeps while it holds a mutex would
//!    burn a processor. Each time a woken waiter again sees no acquisition, it polls twice as long
//!    before it parks, so that a release eventually finds it polling.
//! 5. **Needed threads stay awake.** A waiter keeps its lock's holder from sleeping for load while
//!    the holder waits for another lock ([`pinned`](super::pinned); section 6.1.2 of the paper).
//!    For [`NEEDED_NS`], that thread then claims no slot in waits for the same lock. A thread that
//!    was parked at a lock and now holds it stays awake too: it has set the parked bit for threads
//!    that may still be parked.
//! 6. **Immediate notice.** With the `bpf` sensor, waiters see each change of load
//!    ([`Context::live_load`]) before the controller's next interval. At most every 100 us,
//!    one of them [follows](super::notice) it: above the controller's aim it raises T; with a free
//!    processor it wakes the longest sleeper and lowers T. Section 6.2.2 asks the operating system
//!    for this notice. Without pollers, only the controller acts. With other sensors the rule costs
//!    one load of a null pointer per turn.
//! 7. **Delay.** A waiter claims no slot in its first [`SHORT_WAIT_NS`].
//! 8. **Margin.** While threads mostly work, the controller leaves one thread more than processors
//!    awake, and more in each further interval (`Margin` in [`policy`](super::policy)).
//! 9. **Yields.** A polling waiter yields its processor every [`YIELD_EVERY_NS`].
//!
//! [`claim_in_exchange`]: crate::parking::slots::SleepSlots::claim_in_exchange
//! [`wake_time`]: crate::parking::slots::SleepSlots::wake_time

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use super::checkpoint::{Holds, Manner, sleep_for_load};
use super::notice::follow;
use super::pinned::Pin;
use super::rules::{Rule, Rules, Shipped};
use super::state::{MARGIN, TURNS};
use super::{Context, LoadManager, ThreadState, Wait, WaitSummary};
use crate::parking::slots::Claim;
use crate::primitive::turn::{LONGEST_TURN_NS, Verdict};
use crate::primitive::{Atomic, Clock as _, Threads as _};

/// Polling time after which a wait starts the controller: several critical sections and a
/// hand-over. Shorter contention is not worth controlling.
pub(super) const CONTENTION_NS: u64 = 20_000;

/// Polling time after which a waiter parks: some hundred times the cost of parking, which is thus
/// at most 1 % of the wait.
pub(super) const LONG_WAIT_NS: u64 = 1_000_000;

/// After this polling time without an acquisition of the lock, the waiter parks; after twice this
/// time if acquisitions are counted on request. A parked waiter costs its releaser a few
/// microseconds. (Chromium, 2 workers on 2 processors beside other processes of its own: .88 of
/// libc's rate without this bound. `unconvoy::Mutex`, 8 threads with pauses of 10 us: .975 of
/// parking_lot's rate without it, .99 with it.)
const NO_PROGRESS_NS: u64 = 20_000;

/// Shorter waits never sleep for load: the holder runs. Without this bound, threads that briefly
/// meet at a mostly free lock would sleep on a machine that is overloaded but has no convoy. (Think
/// time 1 us, section 100 ns, 8 threads on 2 processors: a bound of 5 us cost 5 % of the
/// throughput, and 20 us cost 2 %.)
const SHORT_WAIT_NS: u64 = 20_000;

/// How long a thread that has slept passes checkpoints without another sleep: some hand-overs.
const GRACE_NS: u64 = 500_000;

/// For this time, a thread that others needed does not sleep for load in waits for the same lock:
/// the longest sleep. (`unconvoy bench nested`, 2 threads on 2 processors: the 99th percentile of
/// the time inside the outer lock is 2.8 ms without this time and .38 ms with it. With 1 s, shares
/// of the throughput become uneven.)
const NEEDED_NS: u64 = 100_000_000;

/// Time between two yields of a polling thread. The holder may be waiting for that thread's
/// processor. A yield costs a lone thread half a microsecond of polling time. More frequent yields
/// would only swap waiters (8 threads on 2 processors reach .86 of the serial limit with a yield
/// every 50 us, and .93 with one every 200 us).
pub(super) const YIELD_EVERY_NS: u64 = 200_000;

/// Records that others need `thread`, the caller, during this wait, because it holds another lock.
/// Called when a pin has kept the thread from sleeping, or has woken it.
#[cold]
fn record_need<X: Context>(wait: &Wait<'_, X>, thread: u32, now: u64) {
    if !wait.process.control().pinned.is_for_other_lock(thread, wait.key()) {
        return;
    }
    wait.process.set_thread_state(ThreadState {
        needed_at: wait.key(),
        needed_until: now + NEEDED_NS,
        ..wait.process.thread_state()
    });
}

/// Load control as a load manager.
///
#[doc = example_of_pair!("tpmcs::TpMcs", "control::Control")]
pub type Control = ControlWith<Shipped>;

/// Load control with the rules of `R`.
#[doc(hidden)]
pub struct ControlWith<R>(PhantomData<R>);

/// One wait under [`ControlWith`].
#[doc(hidden)]
pub struct Waiter<R> {
    /// Time spent polling on a processor since the wait began or a sleep ended.
    polled: u64,
    last_turn: u64,
    /// Number of acquisitions of the lock at the last check.
    acquisitions: Option<u32>,
    /// The value of `polled` at which to check again.
    check_at: u64,
    /// The value of `polled` when the lock was last seen to make progress.
    progress_at: u64,
    /// Longest time without progress before the waiter parks; doubles with each such park in a row.
    bound: u64,
    no_claim_before: u64,
    yield_at: u64,
    /// Whether the thread's [need](record_need) at this lock has been looked up.
    knows_need: bool,
    /// Whether the claim is in exchange for the longest sleeper's, which the thread then wakes.
    exchanges: bool,
    claim: Option<Claim>,
    has_slept: bool,
    reported: bool,
    parked: bool,
    sleeps: u32,
    /// The presumed holder of the lock, kept from sleeping.
    holder: Option<Pin>,
    rules: PhantomData<R>,
}

impl<R: Rules> Waiter<R> {
    fn park<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        self.pin_holder(wait);
        self.parked = true;
        let acquired = wait.park();
        self.unpin(wait);
        self.start_over::<X>();
        acquired
    }

    #[inline]
    fn unpin<X: Context>(&mut self, wait: &Wait<'_, X>) {
        if let Some(holder) = self.holder.take() {
            wait.process.control().pinned.end(holder);
        }
    }

    /// Keeps the current holder of the lock from sleeping for load (rule 5).
    #[cold]
    fn pin_holder<X: Context>(&mut self, wait: &Wait<'_, X>) {
        self.unpin(wait);
        let control = wait.process.control();
        // No thread sleeps while the target is 0.
        if R::has(Rule::Pins) && control.slots.target() != 0 && control.pinned.is_enabled() {
            let since =
                self.last_turn - self.polled.saturating_sub(self.progress_at).min(self.last_turn);
            self.holder = wait
                .lock
                .holder()
                .map(|holder| control.pinned.pin(holder, wait.key(), &control.slots, since));
        }
    }

    /// The acquisitions so far of a lock that the thread expects to make no progress
    /// ([`parks_at_once`](ThreadState::parks_at_once)).
    #[inline]
    fn acquisitions_without_progress<X: Context>(wait: &Wait<'_, X>) -> Option<u32> {
        let state = wait.process.thread_state();
        if !state.parks_at_once {
            return None;
        }
        wait.process.set_thread_state(ThreadState { parks_at_once: false, ..state });
        wait.lock.acquisitions()
    }

    /// Whether the lock made no progress for longer than the bound: its holder is off the
    /// processor, or has a long section.
    #[inline]
    fn sees_no_progress<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        self.polled >= self.check_at && self.check_progress(wait)
    }

    #[cold]
    fn check_progress<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        self.check_at = self.polled + NO_PROGRESS_NS;
        let before = core::mem::replace(&mut self.acquisitions, wait.lock.acquisitions());
        if self.acquisitions.is_none() && self.polled >= NO_PROGRESS_NS {
            wait.lock.watch();
            self.acquisitions = wait.lock.acquisitions();
        } else if before == self.acquisitions {
            return before.is_some() && self.finds_no_progress(wait);
        } else if before.is_some() {
            self.bound = NO_PROGRESS_NS;
        }
        self.progress_at = self.polled;
        self.unpin(wait);
        false
    }

    /// Whether the lock has made no progress for longer than the bound, which may then double.
    fn finds_no_progress<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        if self.polled - self.progress_at < self.bound {
            self.pin_holder(wait); // `park` pins the holder otherwise
            return false;
        }
        // A release of a reader-writer lock wakes all readers, and writers take turns by
        // reservation: neither needs to be found polling.
        let longest = if wait.lock.is_exclusive() { LONG_WAIT_NS } else { NO_PROGRESS_NS };
        self.bound = (2 * self.bound).clamp(NO_PROGRESS_NS, longest);
        true
    }

    /// Time before the first claim of a wait (rule 7).
    #[inline]
    fn delay() -> u64 {
        if R::has(Rule::Delay) { SHORT_WAIT_NS } else { 0 }
    }

    /// Omits the controller's part of the rules that `R` does without.
    #[inline]
    fn omit_parts<X: Context>(process: X) {
        let without = |rule, part| if R::has(rule) { 0 } else { part };
        let omitted = without(Rule::Margin, MARGIN) | without(Rule::Turns, TURNS);
        if omitted != 0 {
            process.control().omit(omitted);
        }
    }

    /// Continues the wait after a sleep or a park.
    fn start_over<X: Context>(&mut self) {
        let now = X::Machine::now();
        self.polled = 0;
        self.check_at = 0;
        self.progress_at = 0;
        self.acquisitions = None;
        self.last_turn = now;
        self.yield_at = now;
        let may_claim = !(R::has(Rule::Grace) && self.has_slept);
        self.no_claim_before = if may_claim { now + Self::delay() } else { u64::MAX };
        self.knows_need = false;
        self.reported = false;
    }

    /// Whether the thread was recently [needed](record_need) in a wait for this lock. Then no claim
    /// is due.
    #[inline]
    fn is_needed_here<X: Context>(&mut self, wait: &Wait<'_, X>, now: u64) -> bool {
        !core::mem::replace(&mut self.knows_need, true)
            && R::has(Rule::Pins)
            && self.look_up_need(wait, now)
    }

    #[cold]
    fn look_up_need<X: Context>(&mut self, wait: &Wait<'_, X>, now: u64) -> bool {
        let state = wait.process.thread_state();
        let is_needed = state.needed_at == wait.key()
            && state.needed_until > now
            && wait.process.control().pinned.is_enabled();
        if is_needed {
            self.no_claim_before = state.needed_until;
        }
        is_needed
    }

    /// Claims a slot in exchange for the longest sleeper's if one is due, else a free slot.
    #[inline]
    fn find_claim<X: Context>(&mut self, process: X, now: u64) -> Option<Claim> {
        let control = process.control();
        let awake_since = || process.thread_state().awake_since;
        let exchange =
            || control.slots.claim_in_exchange(now, control.sleep.load(Relaxed), awake_since);
        let claim = R::has(Rule::Turns).then(exchange).flatten();
        self.exchanges = claim.is_some();
        let free_slot = || control.slots.claim(X::Machine::thread_id());
        claim.or_else(|| control.slots.has_room().then(free_slot).flatten())
    }

    /// Sleeps in the claimed slot, unless others need the thread (rule 5) or it has a real-time
    /// policy and must run before others. The policy is read only here, since that costs a system
    /// call.
    #[cold]
    fn leave_with<X: Context>(&mut self, claim: Claim, wait: &Wait<'_, X>, now: u64) -> Verdict {
        let control = wait.process.control();
        let enabled = R::has(Rule::Pins) && control.pinned.is_enabled();
        let state = wait.process.thread_state();
        let is_pinned = enabled && control.pinned.is_pinned(claim.thread(), state.last_wake);
        let is_needed = is_pinned || enabled && state.pending_wake_until > now;
        if is_needed || X::Machine::is_real_time() {
            let thread = claim.thread();
            control.slots.give_back(claim);
            self.no_claim_before = if is_needed { now + SHORT_WAIT_NS } else { u64::MAX };
            if is_pinned {
                record_need(wait, thread, now);
            }
            return Verdict::Spin;
        }
        self.claim = Some(claim);
        Verdict::Leave
    }

    /// Sleeps in the claimed slot, or parks if no other waiter contends (rule 3). Returns true if
    /// the thread acquired the lock meanwhile.
    fn sleep<X: Context>(&mut self, claim: Claim, wait: &Wait<'_, X>) -> bool {
        let (process, control) = (wait.process, wait.process.control());
        let key = wait.short_key();
        if self.parked || process.thread_state().is_requeued_at(wait.eventcount) {
            // The thread was woken by a release, and others may still be parked.
            wait.eventcount.pass_on(wait.lock);
        }
        control.slots.announce(&claim, key);
        let replaced =
            core::mem::take(&mut self.exchanges) && control.slots.wake_longest() == Some(key);
        if R::has(Rule::Contender) && !replaced && !wait.lock.has_contender() {
            control.slots.give_back(claim);
            return self.park(wait);
        }
        self.unpin(wait);
        let (now, longest) = (X::Machine::now(), control.sleep.load(Relaxed));
        let wake =
            if R::has(Rule::Turns) { control.slots.wake_time(now, longest) } else { now + longest };
        let thread = claim.thread();
        control.slots.sleep(claim, wait.earlier(wake));
        let now = X::Machine::now();
        process.set_thread_state(ThreadState { awake_since: now, ..process.thread_state() });
        if control.pinned.resume(thread, now) {
            record_need(wait, thread, now);
        }
        self.has_slept = true;
        self.start_over::<X>();
        false
    }
}

// SAFETY: `block` returns what `park` did, or false.
unsafe impl<R: Rules> LoadManager for ControlWith<R> {
    type Waiter = Waiter<R>;

    #[inline]
    fn begin_wait<X: Context>(wait: &Wait<'_, X>, now: u64) -> Waiter<R> {
        let acquisitions = Waiter::<R>::acquisitions_without_progress(wait);
        Waiter {
            polled: 0,
            last_turn: now,
            acquisitions,
            check_at: 0,
            progress_at: 0,
            bound: if acquisitions.is_some() { 0 } else { NO_PROGRESS_NS },
            no_claim_before: now + Waiter::<R>::delay(),
            yield_at: now + YIELD_EVERY_NS,
            knows_need: false,
            exchanges: false,
            claim: None,
            has_slept: false,
            reported: false,
            parked: false,
            sleeps: 0,
            holder: None,
            rules: PhantomData,
        }
    }

    #[inline]
    fn turn<X: Context>(waiter: &mut Waiter<R>, wait: &Wait<'_, X>, now: u64) -> Verdict {
        if waiter.claim.is_some() {
            return Verdict::Leave; // leaving a queue may take several turns
        }
        let process = wait.process;
        if now >= waiter.no_claim_before && !waiter.is_needed_here(wait, now) {
            if R::has(Rule::Notice)
                && let Some(load) = process.live_load()
            {
                follow(process, now, load);
            }
            if let Some(claim) = waiter.find_claim(process, now) {
                return waiter.leave_with(claim, wait, now);
            }
        }
        if R::has(Rule::Yields) && now >= waiter.yield_at {
            X::Machine::yield_now();
            waiter.yield_at = now + YIELD_EVERY_NS;
        }
        // A gap between two turns is time off the processor, which costs no other thread anything.
        waiter.polled += now.saturating_sub(waiter.last_turn).min(LONGEST_TURN_NS);
        waiter.last_turn = now;
        if waiter.polled > CONTENTION_NS && !waiter.reported {
            waiter.reported = true;
            Waiter::<R>::omit_parts(process);
            process.report_contention();
        }
        if R::has(Rule::Parking) && (waiter.polled > LONG_WAIT_NS || waiter.sees_no_progress(wait))
        {
            Verdict::Leave
        } else {
            Verdict::Spin
        }
    }

    fn block<X: Context>(waiter: &mut Waiter<R>, wait: &Wait<'_, X>) -> bool {
        waiter.sleeps += 1;
        wait.process.report_polling(waiter.polled);
        match waiter.claim.take() {
            Some(claim) => waiter.sleep(claim, wait),
            None => waiter.park(wait),
        }
    }

    #[inline]
    fn end_wait<X: Context>(mut waiter: Waiter<R>, wait: &Wait<'_, X>) -> WaitSummary {
        waiter.unpin(wait);
        wait.process.report_polling(waiter.polled);
        if let Some(claim) = waiter.claim {
            wait.process.control().slots.give_back(claim);
        }
        WaitSummary { sleeps: waiter.sleeps, parked: waiter.parked }
    }

    #[cold]
    fn give_up<X: Context>(wait: &Wait<'_, X>) {
        if R::has(Rule::Contender) && !wait.lock.has_contender() {
            wait.process.control().slots.wake_waiter(wait.short_key()); // rule 3
        }
    }

    #[inline]
    fn checkpoint<X: Context>(process: X, holds: impl FnOnce() -> Holds) -> bool {
        let control = process.control();
        control.slots.has_room() && sleep_for_load(process, holds(), Manner::of::<R>(GRACE_NS))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
