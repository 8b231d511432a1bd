//! Load control: spin for contention, block only for load.
//!
//! Johnson, Stoica, Ailamaki and Mowry (ASPLOS 2010), section 3. A waiter asks each turn whether
//! the sleep-slot buffer has room. If so it claims a slot, leaves its lock, and sleeps until the
//! [controller](super::controller) clears the slot or its time is up; if the lock came meanwhile,
//! it gives the slot back. What decides is the load of the whole process, never the one lock.
//!
//! Six rules go beyond the paper:
//!
//! 1. **Grace.** A thread that comes back from a sleep does not claim again at once. Otherwise the
//!    same threads would sleep for ever while others keep the lock.
//! 2. **Turns.** A waiter takes the longest sleeper's place before that one's time is up
//!    ([`SleepSlots::claim_in_exchange`]), and time-outs are spread evenly
//!    ([`SleepSlots::wake_time`]).
//! 3. **Somebody stays for the lock.** Nobody wakes who sleeps for load when its lock is released.
//!    So a waiter sleeps in a slot only if another one contends for the lock, or was just woken to;
//!    the last one parks at the lock's gate, and the next release wakes it. Without this a thread
//!    that met a preempted holder once would stay away from a free lock, and all that depends on
//!    it with it. (x265 with 8 threads on 2 processors: .71 of libc's frames; Chromium: .5.)
//!    A contender whose deadline passes wakes one of those that sleep on its account.
//! 4. **Long waits park.** A waiter that has polled for [`LONG_WAIT_NS`] is not waiting for a short
//!    critical section: it parks at the lock's gate until a release, as libc's mutex would do at
//!    once. Without this a program that holds a mutex while it sleeps would burn a processor. A waiter
//!    that was woken and found the lock standing still again polls twice as long before it parks the
//!    next time: in the end long enough to be its lock's standby when the release comes.
//! 5. **Who is needed stays.** A waiter keeps its lock's holder from sleeping for load while that one waits for
//!    another lock ([`awaited`](super::awaited); the paper's section 6.1.2). The holder of a lock at which
//!    others are parked behind it stays too: it was parked there itself, and marked the lock for them.
//! 6. **Notice at once.** Where the machine tells of each change of load ([`Platform::live_load`],
//!    the `bpf` sensor), a waiter does not wait for the controller's next interval: one of them, every
//!    [`NOTICE_NS`] at most, [heeds](LoadControl::heed) what it reads. With more runnable threads than the
//!    controller aims at it raises T; with a processor free it wakes the longest sleeper and lowers T. This is the
//!    notice that section 6.2.2 asks of the operating system. Where nobody polls, nobody reads, and the
//!    controller's interval is what there is. Elsewhere this costs a load of a null pointer per turn.

use core::sync::atomic::Ordering::Relaxed;

use super::awaited::{Awaited, Registration};
use super::backoff;
use super::gate::{Gate, Spot};
use super::passive::PassiveSets;
use super::sensor::LiveLoad;
use super::slots::{Claim, SleepSlots};
use super::{Departure, LoadManager};
use crate::catalogue::POLICY;
use crate::contention::{LONGEST_TURN_NS, Verdict};
use crate::platform::{Atomic, AtomicInt, Platform, ThreadNote};

/// A wait this long brings up the controller: several critical sections and a hand-over; shorter
/// contention does no harm that load control could mend.
const CONTENTION_NS: u64 = 20_000;

/// Polling this long costs some hundred times what parking would: even if the lock comes the next
/// moment, 1 % was lost.
pub(super) const LONG_WAIT_NS: u64 = 1_000_000;

/// A lock that nobody came by while somebody polled for so long is not worth polling for: a parked
/// waiter costs its releaser some microseconds. Where acquisitions are not counted, only
/// [`LONG_WAIT_NS`] ends the polling. (Chromium, 2 workers on 2 processors, with other processes of its own: .88 of libc's rate without.)
const STANDSTILL_NS: u64 = 20_000;

/// A wait below this is none of load control's business: the lock comes from a holder that runs.
/// Without it threads that meet for a moment at a lock that is mostly free would go to sleep, on a
/// machine that is overloaded but has no convoy. (Think time 1 us, section 100 ns, 8 threads on 2
/// processors: 5 us cost 5 % of the throughput, 20 us 2 %.)
const SHORT_WAIT_NS: u64 = 20_000;

/// Polling that a thread keeps to itself at most: small against an interval.
const PORTION_NS: u64 = 50_000;

/// How long a thread polls after its sleep before it may claim a slot again: some hand-overs.
const GRACE_NS: u64 = 500_000;

/// How often a polling thread offers its processor. A woken thread may have been put on the
/// holder's, and the holder then waits behind it. To a thread alone on its processor a yield costs
/// half a microsecond, of time that it would only have polled in; among several, more often would
/// mean that waiters change places with each other (8 threads on 2 processors: every 50 us .86 of
/// the serial limit, every 200 us .93).
pub(super) const YIELD_EVERY_NS: u64 = 200_000;

/// Time between two changes that waiters make to T: the first thread that sleeps for one must have left its processor
/// before the next, or both would be counted for the same excess (section 5.1: the load follows T within 200 us; a
/// context switch takes some microseconds).
const NOTICE_NS: u64 = 100_000;

/// Bounds and defaults of the settings.
pub mod settings {
    /// Default interval of the controller: 7 ms, the best of the ASPLOS paper's section 5.3, and in
    /// phase with no common tick.
    pub const INTERVAL_NS: u64 = 7_000_000;
    /// Default longest sleep: 100 ms (section 3.1.2).
    pub const SLEEP_NS: u64 = 100_000_000;

    use core::ops::RangeInclusive;

    /// Milliseconds that the interval may have: beyond what the paper's Figure 10 sweeps.
    pub const INTERVAL_MS: RangeInclusive<f64> = 0.5..=1000.0;
    /// Milliseconds that the longest sleep may have.
    pub const SLEEP_MS: RangeInclusive<f64> = 1.0..=10_000.0;
}

/// The load control of one process: the buffer, and what waiters and controller tell each other
/// beside it.
pub struct LoadControl<P: Platform> {
    /// The sleep-slot buffer.
    pub slots: SleepSlots<P>,
    /// Set by waiters that wait long, cleared by the controller each interval.
    pub(crate) contended: P::U32,
    /// Nanoseconds that threads spent polling since the process began, as far as they have said.
    pub(crate) polled: P::U64,
    /// The controller's interval in nanoseconds.
    pub interval: P::U64,
    /// The longest sleep in nanoseconds.
    pub sleep: P::U64,
    /// The control policy, as a place in the [catalogue](crate::catalogue::POLICY).
    pub(super) policy: P::U32,
    /// Threads that others wait for.
    pub awaited: Awaited<P>,
    /// The overload of [load-triggered backoff](super::backoff), in millionths.
    overload: P::U32,
    /// Its mean sleep in nanoseconds.
    pub backoff: P::U64,
    /// How many threads sleep by it.
    pub backed_off: P::U32,
    /// Of [concurrency restriction](super::restrict).
    pub(crate) passive: PassiveSets<P>,
    /// When a waiter may heed the live load next.
    pub(crate) heed_at: P::U64,
}

#[cfg(not(loom))]
impl LoadControl<crate::platform::Native> {
    /// As `new`, for a static.
    pub(crate) const fn idle() -> Self {
        use core::sync::atomic::{AtomicU32, AtomicU64};
        LoadControl {
            slots: SleepSlots::empty(),
            contended: AtomicU32::new(0),
            polled: AtomicU64::new(0),
            interval: AtomicU64::new(settings::INTERVAL_NS),
            sleep: AtomicU64::new(settings::SLEEP_NS),
            policy: AtomicU32::new(0),
            awaited: Awaited::nobody(),
            overload: AtomicU32::new(0),
            backoff: AtomicU64::new(backoff::MEAN_NS),
            backed_off: AtomicU32::new(0),
            passive: PassiveSets::empty(),
            heed_at: AtomicU64::new(0),
        }
    }
}

impl<P: Platform> LoadControl<P> {
    /// Load control with nobody asleep, target 0 and the default settings.
    pub fn new() -> Self {
        LoadControl {
            slots: SleepSlots::new(),
            contended: P::U32::new(0),
            polled: P::U64::new(0),
            interval: P::U64::new(settings::INTERVAL_NS),
            sleep: P::U64::new(settings::SLEEP_NS),
            policy: P::U32::new(0),
            awaited: Awaited::new(),
            overload: P::U32::new(0),
            backoff: P::U64::new(backoff::MEAN_NS),
            backed_off: P::U32::new(0),
            passive: PassiveSets::new(),
            heed_at: P::U64::new(0),
        }
    }

    /// Has the next controller follow the policy of this name; one that is none changes nothing.
    pub fn set_policy(&self, name: &str) {
        if let Some(place) = POLICY.iter().position(|entry| entry.name == name) {
            self.policy.store(place as u32, Relaxed);
        }
    }

    /// Whether waiters keep their lock's holder from sleeping for load; they do unless told otherwise.
    pub fn wake_holders(&self, enabled: bool) {
        self.awaited.enabled.store(u32::from(enabled), Relaxed);
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
        self.awaited.reset();
        self.passive.reset();
        self.backed_off.store(0, Relaxed);
    }

    /// The calling thread stops polling, after `polled` nanoseconds of it. Told to the others in
    /// portions, since there may be millions of waits per second.
    #[inline]
    fn report_polling(&self, polled: u64) {
        let mut note = P::thread_note();
        note.polled += polled;
        if note.polled > PORTION_NS {
            self.polled.fetch_add(core::mem::take(&mut note.polled), Relaxed);
        }
        P::set_thread_note(note);
    }

    /// A waiter sees the load of this moment: T follows it, if it has not just done so.
    #[cold]
    fn heed(&self, now: u64, load: LiveLoad) {
        let due = self.heed_at.load(Relaxed);
        let is_in_bounds = (load.low..=load.high).contains(&load.runnable);
        if is_in_bounds || now < due || self.heed_at.compare_exchange(due, now + NOTICE_NS, Relaxed, Relaxed).is_err() {
            return;
        }
        if load.runnable > load.high {
            self.slots.raise_target(self.slots.sleeping() + load.runnable - load.high);
            P::ensure_controller(); // it is what lowers T again if nobody polls then
        } else {
            self.slots.let_one_go();
        }
    }

    /// A waiter has waited long enough for a controller to be of use.
    #[cold]
    pub(super) fn report_contention(&self) {
        if self.contended.load(Relaxed) == 0 {
            self.contended.store(1, Relaxed);
        }
        P::ensure_controller();
    }
}

impl<P: Platform> Default for LoadControl<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Load control as a load manager.
pub struct Control;

/// One wait under [`Control`].
pub struct Waiter {
    /// Time spent polling, on a processor, since the arrival or the last sleep.
    polled: u64,
    last_turn: u64,
    /// How often the lock had been acquired when that was last looked at.
    acquisitions: Option<u32>,
    /// At which `polled` that is looked at again.
    look_at: u64,
    /// At which `polled` somebody was last seen to have come by the lock.
    moved_at: u64,
    /// How long the lock may stand still before the waiter parks; twice as long each time in a row.
    patience: u64,
    no_claim_before: u64,
    yield_at: u64,
    /// The claim is in exchange for the longest sleeper's.
    exchanges: bool,
    claim: Option<Claim>,
    reported: bool,
    parked: bool,
    sleeps: u32,
    /// The thread that is taken for the lock's holder, and kept from sleeping.
    holder: Option<Registration>,
}

impl Waiter {
    /// Sleeps until the lock's next release.
    fn park<P: Platform>(&mut self, gate: &Gate<P>, spot: &dyn Spot, deadline: Option<u64>) -> bool {
        self.expect_holder::<P>(spot);
        self.parked = true;
        let acquired = gate.wait(spot, deadline);
        self.expect_nobody::<P>();
        self.start_over::<P>(SHORT_WAIT_NS);
        acquired
    }

    #[inline]
    fn expect_nobody<P: Platform>(&mut self) {
        if let Some(holder) = self.holder.take() {
            P::load_control().awaited.end(holder);
        }
    }

    /// Keeps whoever holds the lock now from sleeping for load (rule 5).
    #[cold]
    fn expect_holder<P: Platform>(&mut self, spot: &dyn Spot) {
        self.expect_nobody::<P>();
        let control = P::load_control();
        // Nobody sleeps unless there is a target.
        if control.slots.target() != 0 && control.awaited.enabled.load(Relaxed) != 0 {
            let since = self.last_turn - self.polled.saturating_sub(self.moved_at).min(self.last_turn);
            self.holder = spot.holder().map(|holder| control.awaited.expect(holder, &control.slots, since));
        }
    }

    /// Whether nobody has come by the lock for longer than is to be borne: its holder does not run, or
    /// works for long.
    #[inline]
    fn sees_standstill<P: Platform>(&mut self, spot: &dyn Spot) -> bool {
        self.polled >= self.look_at && self.look::<P>(spot)
    }

    #[cold]
    fn look<P: Platform>(&mut self, spot: &dyn Spot) -> bool {
        self.look_at = self.polled + STANDSTILL_NS;
        let before = core::mem::replace(&mut self.acquisitions, spot.acquisitions());
        if before != self.acquisitions {
            if before.is_some() {
                self.patience = STANDSTILL_NS;
            }
            self.moved_at = self.polled;
            self.expect_nobody::<P>();
            return false;
        }
        if before.is_none() {
            return false;
        }
        if self.polled - self.moved_at < self.patience {
            self.expect_holder::<P>(spot); // who parks does so itself
            return false;
        }
        self.patience = (2 * self.patience).min(LONG_WAIT_NS);
        true
    }

    /// The wait goes on after a sleep, with `grace` nanoseconds before the next one for load.
    fn start_over<P: Platform>(&mut self, grace: u64) {
        let now = P::now();
        self.polled = 0;
        self.look_at = 0;
        self.moved_at = 0;
        self.acquisitions = None;
        self.last_turn = now;
        self.yield_at = now;
        self.no_claim_before = now + grace;
        self.reported = false;
    }

    /// A slot is claimed: the thread sleeps in it, unless others need it (rule 5), or it has a
    /// real-time policy: then it is to run before the others. Asked for only here, since that costs a
    /// system call.
    #[cold]
    fn leave_with<P: Platform>(&mut self, claim: Claim, now: u64) -> Verdict {
        let control = P::load_control();
        let enabled = control.awaited.enabled.load(Relaxed) != 0;
        let note = P::thread_note();
        let is_needed = enabled && (note.owes_until > now || control.awaited.is_expected(claim.thread(), note.settled));
        if is_needed || P::is_real_time() {
            control.slots.give_back(claim);
            self.no_claim_before = if is_needed { now + SHORT_WAIT_NS } else { u64::MAX };
            return Verdict::Spin;
        }
        self.claim = Some(claim);
        Verdict::Leave
    }
}

impl<P: Platform> LoadManager<P> for Control {
    type Waiter = Waiter;

    #[inline]
    fn arrive(now: u64, _place: u64) -> Waiter {
        Waiter {
            polled: 0,
            last_turn: now,
            acquisitions: None,
            look_at: 0,
            moved_at: 0,
            patience: STANDSTILL_NS,
            no_claim_before: now + SHORT_WAIT_NS,
            yield_at: now + YIELD_EVERY_NS,
            exchanges: false,
            claim: None,
            reported: false,
            parked: false,
            sleeps: 0,
            holder: None,
        }
    }

    #[inline]
    fn turn(waiter: &mut Waiter, now: u64, spot: &dyn Spot) -> Verdict {
        if waiter.claim.is_some() {
            return Verdict::Leave; // the queue asks again if leaving took more than one turn
        }
        let control = P::load_control();
        if now >= waiter.no_claim_before {
            if let Some(load) = P::live_load() {
                control.heed(now, load);
            }
            waiter.exchanges = !control.slots.has_room();
            let claim = if waiter.exchanges {
                control.slots.claim_in_exchange(now, control.sleep.load(Relaxed))
            } else {
                control.slots.claim(P::thread_id())
            };
            if let Some(claim) = claim {
                return waiter.leave_with::<P>(claim, now);
            }
        }
        if now >= waiter.yield_at {
            P::yield_now();
            waiter.yield_at = now + YIELD_EVERY_NS;
        }
        // A gap between two turns is time off the processor, which costs nobody anything.
        waiter.polled += now.saturating_sub(waiter.last_turn).min(LONGEST_TURN_NS);
        waiter.last_turn = now;
        if waiter.polled > CONTENTION_NS && !waiter.reported {
            waiter.reported = true;
            control.report_contention();
        }
        if waiter.polled > LONG_WAIT_NS || waiter.sees_standstill::<P>(spot) { Verdict::Leave } else { Verdict::Spin }
    }

    fn away(waiter: &mut Waiter, gate: &Gate<P>, spot: &dyn Spot, deadline: Option<u64>) -> bool {
        waiter.sleeps += 1;
        let control = P::load_control();
        control.report_polling(waiter.polled);
        match waiter.claim.take() {
            Some(claim) => {
                let place = P::place(gate);
                control.slots.announce(&claim, place);
                let replaced = core::mem::take(&mut waiter.exchanges) && control.slots.wake_longest() == Some(place);
                if !replaced && !spot.is_awaited() {
                    control.slots.give_back(claim);
                    return waiter.park(gate, spot, deadline);
                }
                waiter.expect_nobody::<P>();
                let wake = control.slots.wake_time(P::now(), control.sleep.load(Relaxed));
                let thread = claim.thread();
                control.slots.sleep(claim, deadline.map_or(wake, |end| end.min(wake)));
                let now = P::now();
                control.awaited.resume(thread, now);
                P::set_thread_note(ThreadNote { awake_since: now, ..P::thread_note() });
            }
            None => return waiter.park(gate, spot, deadline),
        }
        waiter.start_over::<P>(GRACE_NS);
        false
    }

    #[inline]
    fn depart(mut waiter: Waiter) -> Departure {
        waiter.expect_nobody::<P>();
        let control = P::load_control();
        control.report_polling(waiter.polled);
        if let Some(claim) = waiter.claim {
            control.slots.give_back(claim);
        }
        Departure { sleeps: waiter.sleeps, parked: waiter.parked }
    }

    #[cold]
    fn give_up(place: u64, spot: &dyn Spot) {
        if !spot.is_awaited() {
            P::load_control().slots.wake_waiter(place); // rule 3
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::platform::Native;

    #[test]
    fn the_target_follows_the_load_of_the_moment() {
        let control = LoadControl::<Native>::new();
        let load = |runnable| LiveLoad { runnable, low: 2, high: 3 };
        let mut now = NOTICE_NS;
        let mut heed = |runnable| {
            now += NOTICE_NS;
            control.heed(now, load(runnable));
            control.slots.target()
        };
        assert_eq!((heed(2), heed(3)), (0, 0), "between the bounds");
        assert_eq!(heed(5), 2);
        let claims = [1, 2].map(|thread| control.slots.claim(thread).expect("room for two"));
        assert_eq!(heed(4), 3, "beyond those who sleep");
        assert_eq!((heed(1), control.slots.sleeping()), (1, 1), "one goes, and nobody takes its place");
        assert_eq!((heed(1), control.slots.sleeping()), (0, 0));
        assert_eq!(heed(1), 0);
        claims.into_iter().for_each(|claim| control.slots.give_back(claim));
    }

    #[test]
    fn one_change_at_a_time() {
        let control = LoadControl::<Native>::new();
        let heed = |now, runnable| control.heed(now, LiveLoad { runnable, low: 2, high: 3 });
        heed(NOTICE_NS, 4);
        heed(NOTICE_NS + 1, 9);
        assert_eq!(control.slots.target(), 1);
        heed(2 * NOTICE_NS, 9);
        assert_eq!(control.slots.target(), 6);
    }
}
