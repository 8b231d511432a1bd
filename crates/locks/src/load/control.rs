//! Load control: spin for contention, block only for load.
//!
//! Johnson, Stoica, Ailamaki and Mowry (ASPLOS 2010), section 3. A waiter asks each turn whether
//! the sleep-slot buffer has room. If so it claims a slot, abandons its lock, and sleeps until the
//! [controller](super::controller) clears the slot or its time is up; if the lock came meanwhile,
//! it gives the slot back. What decides is the load of the whole process, never the one lock.
//!
//! Six rules go beyond the paper:
//!
//! 1. **Grace.** A thread that comes back from a sleep does not claim again at once. Otherwise the
//!    same threads would sleep for ever while others keep the lock.
//! 2. **Turns.** A waiter takes the longest sleeper's place before that one's time is up
//!    ([`claim_in_exchange`]), and time-outs are spread evenly
//!    ([`wake_time`]).
//! 3. **Somebody stays for the lock.** Nobody wakes who sleeps for load when its lock is released.
//!    So a waiter sleeps in a slot only if another one contends for the lock, or was just woken to;
//!    the last one parks at the lock's eventcount, and the next release wakes it. Without this a thread
//!    that met a preempted holder once would stay away from a free lock, and all that depends on
//!    it with it. (x265 with 8 threads on 2 processors: .71 of libc's frames; Chromium: .5.)
//!    A contender whose deadline passes wakes one of those that sleep on its account.
//! 4. **Long waits park.** A waiter that has polled for [`LONG_WAIT_NS`] is not waiting for a short
//!    critical section: it parks at the lock's eventcount until a release, as libc's mutex would do at
//!    once. Without this a program that holds a mutex while it sleeps would burn a processor. A waiter
//!    that was woken and found that nobody acquires the lock again polls twice as long before it parks the
//!    next time: in the end long enough to be its lock's standby when the release comes.
//! 5. **Who is needed stays.** A waiter keeps its lock's holder from sleeping for load while that one waits for
//!    another lock ([`pinned`](super::pinned); the paper's section 6.1.2). The holder of a lock at which
//!    others are parked behind it stays too: it was parked there itself, and set the parked bit for them.
//! 6. **Notice at once.** Where the process learns of each change of load ([`Context::live_load`],
//!    the `bpf` sensor), a waiter does not wait for the controller's next interval: one of them, every
//!    [`NOTICE_NS`] at most, [follows](follow) what it reads. With more runnable threads than the
//!    controller aims at it raises T; with a processor free it wakes the longest sleeper and lowers T. This is the
//!    notice that section 6.2.2 asks of the operating system. Where nobody polls, nobody reads, and the
//!    controller's interval is what there is. Elsewhere this costs a load of a null pointer per turn.
//!
//! [`claim_in_exchange`]: crate::parking::slots::SleepSlots::claim_in_exchange
//! [`wake_time`]: crate::parking::slots::SleepSlots::wake_time

use core::sync::atomic::Ordering::Relaxed;

use super::pinned::Pin;
use super::sensor::LiveLoad;
use super::{Context, LoadManager, ThreadState, Wait, WaitSummary};
use crate::parking::slots::Claim;
use crate::primitive::turn::{LONGEST_TURN_NS, Verdict};
use crate::primitive::{Atomic, Clock as _, Threads as _};

/// A wait this long brings up the controller: several critical sections and a hand-over; shorter
/// contention does no harm that load control could mend.
const CONTENTION_NS: u64 = 20_000;

/// Polling this long costs some hundred times what parking would: even if the lock comes the next
/// moment, 1 % was lost.
pub(super) const LONG_WAIT_NS: u64 = 1_000_000;

/// A lock without an acquisition while a waiter polled for this long is not worth polling for: a parked
/// waiter costs its releaser some microseconds. Where acquisitions are not counted, only
/// [`LONG_WAIT_NS`] ends the polling. (Chromium, 2 workers on 2 processors, with other processes of its own: .88 of libc's rate without.)
const NO_PROGRESS_NS: u64 = 20_000;

/// A wait below this is none of load control's business: the lock comes from a holder that runs.
/// Without it threads that meet for a moment at a lock that is mostly free would go to sleep, on a
/// machine that is overloaded but has no convoy. (Think time 1 us, section 100 ns, 8 threads on 2
/// processors: 5 us cost 5 % of the throughput, 20 us 2 %.)
const SHORT_WAIT_NS: u64 = 20_000;

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

/// A waiter sees the load of this moment: T follows it, if it has not just done so (rule 6).
#[cold]
fn follow<X: Context>(process: X, now: u64, load: LiveLoad) {
    let control = process.control();
    let due = control.follow_at.load(Relaxed);
    let is_in_bounds = (load.low..=load.high).contains(&load.runnable);
    if is_in_bounds || now < due || control.follow_at.compare_exchange(due, now + NOTICE_NS, Relaxed, Relaxed).is_err()
    {
        return;
    }
    if load.runnable > load.high {
        control.slots.raise_target(control.slots.sleeping() + load.runnable - load.high);
        process.ensure_controller(); // it is what lowers T again if nobody polls then
    } else {
        control.slots.let_one_go();
    }
}

/// Load control as a load manager.
pub struct Control;

/// One wait under [`Control`].
pub struct Waiter {
    /// Time spent polling, on a processor, since the wait began or the last sleep ended.
    polled: u64,
    last_turn: u64,
    /// How often the lock had been acquired when that was last looked at.
    acquisitions: Option<u32>,
    /// At which `polled` that is looked at again.
    look_at: u64,
    /// At which `polled` somebody was last seen to have acquired the lock.
    progress_at: u64,
    /// How long the lock may make no progress before the waiter parks; twice as long each time in a row.
    bound: u64,
    no_claim_before: u64,
    yield_at: u64,
    /// The claim is in exchange for the longest sleeper's.
    exchanges: bool,
    claim: Option<Claim>,
    reported: bool,
    parked: bool,
    sleeps: u32,
    /// The thread that is taken for the lock's holder, and kept from sleeping.
    holder: Option<Pin>,
}

impl Waiter {
    /// Sleeps until the lock's next release.
    fn park<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        self.pin_holder(wait);
        self.parked = true;
        let acquired = wait.park();
        self.unpin(wait);
        self.start_over::<X>(SHORT_WAIT_NS);
        acquired
    }

    #[inline]
    fn unpin<X: Context>(&mut self, wait: &Wait<'_, X>) {
        if let Some(holder) = self.holder.take() {
            wait.process.control().pinned.end(holder);
        }
    }

    /// Keeps whoever holds the lock now from sleeping for load (rule 5).
    #[cold]
    fn pin_holder<X: Context>(&mut self, wait: &Wait<'_, X>) {
        self.unpin(wait);
        let control = wait.process.control();
        // Nobody sleeps unless there is a target.
        if control.slots.target() != 0 && control.pinned.is_enabled() {
            let since = self.last_turn - self.polled.saturating_sub(self.progress_at).min(self.last_turn);
            self.holder = wait.lock.holder().map(|holder| control.pinned.pin(holder, &control.slots, since));
        }
    }

    /// Whether nobody has acquired the lock for longer than the bound: its holder does not run, or works
    /// for long.
    #[inline]
    fn sees_no_progress<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        self.polled >= self.look_at && self.look(wait)
    }

    #[cold]
    fn look<X: Context>(&mut self, wait: &Wait<'_, X>) -> bool {
        self.look_at = self.polled + NO_PROGRESS_NS;
        let before = core::mem::replace(&mut self.acquisitions, wait.lock.acquisitions());
        if before != self.acquisitions {
            if before.is_some() {
                self.bound = NO_PROGRESS_NS;
            }
            self.progress_at = self.polled;
            self.unpin(wait);
            return false;
        }
        if before.is_none() {
            return false;
        }
        if self.polled - self.progress_at < self.bound {
            self.pin_holder(wait); // a waiter that parks does so itself
            return false;
        }
        self.bound = (2 * self.bound).min(LONG_WAIT_NS);
        true
    }

    /// The wait goes on after a sleep, with `grace` nanoseconds before the next one for load.
    fn start_over<X: Context>(&mut self, grace: u64) {
        let now = X::Machine::now();
        self.polled = 0;
        self.look_at = 0;
        self.progress_at = 0;
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
    fn leave_with<X: Context>(&mut self, claim: Claim, wait: &Wait<'_, X>, now: u64) -> Verdict {
        let control = wait.process.control();
        let enabled = control.pinned.is_enabled();
        let state = wait.process.thread_state();
        let is_needed =
            enabled && (state.pending_wake_until > now || control.pinned.is_pinned(claim.thread(), state.last_wake));
        if is_needed || X::Machine::is_real_time() {
            control.slots.give_back(claim);
            self.no_claim_before = if is_needed { now + SHORT_WAIT_NS } else { u64::MAX };
            return Verdict::Spin;
        }
        self.claim = Some(claim);
        Verdict::Leave
    }

    /// Sleeps in the claimed slot, or parks at the lock if nobody stays for it (rule 3); true if the
    /// lock was acquired on the way.
    fn sleep<X: Context>(&mut self, claim: Claim, wait: &Wait<'_, X>) -> bool {
        let (process, control) = (wait.process, wait.process.control());
        let key = wait.key();
        control.slots.announce(&claim, key);
        let replaced = core::mem::take(&mut self.exchanges) && control.slots.wake_longest() == Some(key);
        if !replaced && !wait.lock.has_contender() {
            control.slots.give_back(claim);
            return self.park(wait);
        }
        self.unpin(wait);
        let wake = control.slots.wake_time(X::Machine::now(), control.sleep.load(Relaxed));
        let thread = claim.thread();
        control.slots.sleep(claim, wait.deadline.map_or(wake, |end| end.min(wake)));
        let now = X::Machine::now();
        control.pinned.resume(thread, now);
        process.set_thread_state(ThreadState { awake_since: now, ..process.thread_state() });
        self.start_over::<X>(GRACE_NS);
        false
    }
}

impl LoadManager for Control {
    type Waiter = Waiter;

    #[inline]
    fn begin_wait<X: Context>(_: &Wait<'_, X>, now: u64) -> Waiter {
        Waiter {
            polled: 0,
            last_turn: now,
            acquisitions: None,
            look_at: 0,
            progress_at: 0,
            bound: NO_PROGRESS_NS,
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
    fn turn<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>, now: u64) -> Verdict {
        if waiter.claim.is_some() {
            return Verdict::Leave; // the queue asks again if leaving took more than one turn
        }
        let (process, control) = (wait.process, wait.process.control());
        if now >= waiter.no_claim_before {
            if let Some(load) = process.live_load() {
                follow(process, now, load);
            }
            waiter.exchanges = !control.slots.has_room();
            let claim = if waiter.exchanges {
                let awake_since = || process.thread_state().awake_since;
                control.slots.claim_in_exchange(now, control.sleep.load(Relaxed), awake_since)
            } else {
                control.slots.claim(X::Machine::thread_id())
            };
            if let Some(claim) = claim {
                return waiter.leave_with(claim, wait, now);
            }
        }
        if now >= waiter.yield_at {
            X::Machine::yield_now();
            waiter.yield_at = now + YIELD_EVERY_NS;
        }
        // A gap between two turns is time off the processor, which costs nobody anything.
        waiter.polled += now.saturating_sub(waiter.last_turn).min(LONGEST_TURN_NS);
        waiter.last_turn = now;
        if waiter.polled > CONTENTION_NS && !waiter.reported {
            waiter.reported = true;
            process.report_contention();
        }
        if waiter.polled > LONG_WAIT_NS || waiter.sees_no_progress(wait) { Verdict::Leave } else { Verdict::Spin }
    }

    fn block<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>) -> bool {
        waiter.sleeps += 1;
        wait.process.report_polling(waiter.polled);
        match waiter.claim.take() {
            Some(claim) => waiter.sleep(claim, wait),
            None => waiter.park(wait),
        }
    }

    #[inline]
    fn end_wait<X: Context>(mut waiter: Waiter, wait: &Wait<'_, X>) -> WaitSummary {
        waiter.unpin(wait);
        wait.process.report_polling(waiter.polled);
        if let Some(claim) = waiter.claim {
            wait.process.control().slots.give_back(claim);
        }
        WaitSummary { sleeps: waiter.sleeps, parked: waiter.parked }
    }

    #[cold]
    fn give_up<X: Context>(wait: &Wait<'_, X>) {
        if !wait.lock.has_contender() {
            wait.process.control().slots.wake_waiter(wait.key()); // rule 3
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::load::LoadControl;
    use crate::primitive::Native;

    /// A process whose controller never comes.
    #[derive(Clone, Copy)]
    struct Uncontrolled(&'static LoadControl<Native>);

    impl Context for Uncontrolled {
        type Machine = Native;

        fn control(self) -> &'static LoadControl<Native> {
            self.0
        }

        fn thread_state(self) -> ThreadState {
            ThreadState::default()
        }

        fn set_thread_state(self, _: ThreadState) {}

        fn ensure_controller(self) {}
    }

    fn uncontrolled() -> Uncontrolled {
        Uncontrolled(Box::leak(Box::default()))
    }

    #[test]
    fn the_target_follows_the_load_of_the_moment() {
        let process = uncontrolled();
        let slots = &process.control().slots;
        let load = |runnable| LiveLoad { runnable, low: 2, high: 3 };
        let mut now = NOTICE_NS;
        let mut follow = |runnable| {
            now += NOTICE_NS;
            follow(process, now, load(runnable));
            slots.target()
        };
        assert_eq!((follow(2), follow(3)), (0, 0), "between the bounds");
        assert_eq!(follow(5), 2);
        let claims = [1, 2].map(|thread| slots.claim(thread).expect("room for two"));
        assert_eq!(follow(4), 3, "beyond those who sleep");
        assert_eq!((follow(1), slots.sleeping()), (1, 1), "one goes, and nobody takes its place");
        assert_eq!((follow(1), slots.sleeping()), (0, 0));
        assert_eq!(follow(1), 0);
        claims.into_iter().for_each(|claim| slots.give_back(claim));
    }

    #[test]
    fn one_change_at_a_time() {
        let process = uncontrolled();
        let slots = &process.control().slots;
        let follow = |now, runnable| follow(process, now, LiveLoad { runnable, low: 2, high: 3 });
        follow(NOTICE_NS, 4);
        follow(NOTICE_NS + 1, 9);
        assert_eq!(slots.target(), 1);
        follow(2 * NOTICE_NS, 9);
        assert_eq!(slots.target(), 6);
    }
}
