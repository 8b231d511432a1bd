//! The sleep-slot buffer: by it the controller sets how many of the spinning threads should sleep,
//! and finds those that do.
//!
//! Johnson, Stoica, Ailamaki and Mowry, *Decoupling Contention Management from Scheduling* (ASPLOS
//! 2010), sections 3.1 and 3.2.2, Figure 7.
//!
//! ```text
//!   slot   | done | tid 7 | done | tid 3 | empty | empty |        S = ever slept,  W = woken and left
//!            ^end                           ^S (modulo size)     room:  S - W < T
//! ```
//!
//! | slot | set by | meaning |
//! | --- | --- | --- |
//! | `EMPTY` | the controller, on reclaiming | to be claimed; behind S: claimed, its thread about to write |
//! | thread id | the claimer | that thread sleeps, or is about to |
//! | `DONE` | whoever ends the sleep | left, not yet reclaimed |
//!
//! **Invariant 1.** A slot goes from a thread id to `DONE` by one compare-and-swap, and whoever
//! makes it increments W: the sleeper that timed out or gave its slot back, the controller, or a
//! waiter that takes the sleeper's place. So `S - W` is the number of threads asleep or about to
//! be, at once and not only when a woken thread gets to run (Figure 7 has the woken thread
//! increment W), and in the end S and W agree.
//!
//! **Invariant 2.** A sleeper returns only after its slot left its thread id.
//!
//! **Invariant 3.** Nobody sleeps beyond a target that shrank. The claimer writes its slot, fences,
//! and reads T; the controller, or a waiter that lets one go, writes T, fences, and reads the slots. One of them
//! sees the other.
//!
//! **Invariant 4.** `end` is moved only by the controller, and never past an `EMPTY` slot: the
//! claimer that is about to write there would be overlooked.
//!
//! **Invariant 5.** `S - end` never exceeds the array's size, so no two claims share a slot.
//!
//! **Invariant 6.** A thread that sleeps because another one contends for its lock is woken when
//! that one gives up. The sleeper publishes its lock, fences, and looks for a contender; the
//! contender abandons the lock, fences, and looks for sleepers. One of them sees the other.
//!
//! **Memory orderings.** The fences of Invariants 3 and 6 are sequentially consistent. `end` is stored
//! with release after the slots it passes are emptied, and loaded with acquire by claimers. S, W
//! and T order nothing else.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::primitive::{Atomic, AtomicInt, Primitive};

const EMPTY: u32 = 0;
const DONE: u32 = u32::MAX;

/// Whether a slot holds a thread that sleeps, or is about to.
fn is_thread(slot: u32) -> bool {
    !matches!(slot, EMPTY | DONE)
}

/// How many slots the circular array has. More than claims between two scans of the controller:
/// some hundreds per second (section 3.2.2), some thousands when thousands of threads are turned
/// over. A checker needs the wrap-around to happen.
pub const SLOTS: usize = if cfg!(loom) { 2 } else { 4096 };

/// Longest time between two changes of place while anybody sleeps: about a scheduler's time slice,
/// so that its two context switches stay below a percent of it.
const LONGEST_TURN_NS: u64 = 3_000_000;

/// A thread awake for fewer turns than this is fresh.
const FRESH_TURNS: u64 = 2;

/// Time between two changes of place while anybody sleeps, for a time-out and a target: every
/// sleeper's turn comes well before its time-out.
fn turn_ns(timeout: u64, target: u32) -> u64 {
    (timeout / u64::from(target.max(1)) * 3 / 4).min(LONGEST_TURN_NS)
}

/// The counters that every waiter reads once per turn, on a line of their own.
#[repr(align(128))]
struct Counters<P: Primitive> {
    slept: P::U32,
    left: P::U32,
    target: P::U32,
    /// When the next waiter may take a sleeper's place.
    next_turn: P::U64,
}

#[repr(align(128))]
struct Controller<P: Primitive> {
    end: P::U32,
    woken: P::U32,
    timed_out: P::U32,
    given_back: P::U32,
    /// The latest wake-up time given out.
    last_deadline: P::U64,
}

/// The buffer.
pub struct SleepSlots<P: Primitive> {
    counters: Counters<P>,
    controller: Controller<P>,
    slots: [P::U32; SLOTS],
    /// What each sleeper waits for: its lock's key.
    keys: [P::U64; SLOTS],
}

/// A claimed slot: the thread sleeps, or gives it back.
#[derive(Debug)]
#[must_use = "a claimed slot is slept in or given back"]
pub struct Claim {
    index: usize,
    thread: u32,
}

impl Claim {
    /// Who claimed it.
    pub fn thread(&self) -> u32 {
        self.thread
    }
}

/// Totals since the process began, for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// S: claims that succeeded.
    pub slept: u32,
    /// W: claims that ended.
    pub left: u32,
    /// Sleeps that the controller ended, or a waiter that took the sleeper's place.
    pub woken: u32,
    /// Sleeps that the time-out ended.
    pub timed_out: u32,
    /// Claims given back because the lock came meanwhile or the target shrank.
    pub given_back: u32,
}

impl<P: Primitive> SleepSlots<P> {
    /// An empty buffer with target 0.
    pub fn new() -> Self {
        let zero = || P::U32::new(0);
        SleepSlots {
            counters: Counters { slept: zero(), left: zero(), target: zero(), next_turn: P::U64::new(0) },
            controller: Controller {
                end: zero(),
                woken: zero(),
                timed_out: zero(),
                given_back: zero(),
                last_deadline: P::U64::new(0),
            },
            slots: core::array::from_fn(|_| zero()),
            keys: core::array::from_fn(|_| P::U64::new(0)),
        }
    }

    /// T, the number of threads that should sleep.
    pub fn target(&self) -> u32 {
        self.counters.target.load(Relaxed)
    }

    /// `S - W`, the number of threads that sleep or are about to.
    pub fn sleeping(&self) -> u32 {
        // S first: a claim between the two reads then makes the difference too small, never huge.
        let slept = self.counters.slept.load(Acquire);
        (slept.wrapping_sub(self.counters.left.load(Relaxed)) as i32).max(0) as u32
    }

    /// Whether another thread should sleep: `S - W < T`. The check of every turn.
    #[inline]
    pub fn has_room(&self) -> bool {
        let target = self.counters.target.load(Relaxed);
        target != 0 && self.sleeping() < target
    }

    /// Claims the next slot for `thread`. `None`: no room, or another thread was first, and the
    /// caller keeps polling.
    #[cold]
    pub fn claim(&self, thread: u32) -> Option<Claim> {
        self.claim_up_to(thread, 0)
    }

    /// Claims a slot if fewer than T threads sleep, and `beyond`.
    fn claim_up_to(&self, thread: u32, beyond: u32) -> Option<Claim> {
        let slept = self.counters.slept.load(Relaxed);
        let room = |target: u32| if target == 0 { 0 } else { target + beyond };
        if self.sleeping() >= room(self.target()) {
            return None;
        }
        if slept.wrapping_sub(self.controller.end.load(Acquire)) as usize >= SLOTS {
            return None; // wrapped around to slots that are not reclaimed yet
        }
        self.counters.slept.compare_exchange(slept, slept.wrapping_add(1), AcqRel, Relaxed).ok()?;
        let claim = Claim { index: slept as usize % SLOTS, thread };
        self.slots[claim.index].store(thread, Release); // EMPTY: reclaimed before `end` passed it, and S gave it to us alone
        P::fence(SeqCst); // Invariant 3; pairs with `set_target`
        if self.sleeping() > room(self.target()) {
            self.give_back(claim);
            return None;
        }
        Some(claim)
    }

    /// Ends a claim without sleep: the lock came meanwhile, or its waiter gave up.
    pub fn give_back(&self, claim: Claim) {
        if self.end_sleep(&self.slots[claim.index], claim.thread) {
            self.controller.given_back.fetch_add(1, Relaxed);
        }
    }

    /// Publishes that the claimer waits for the lock of `key`. After it the claimer checks that
    /// another thread contends for that lock; see [`wake_waiter`](Self::wake_waiter).
    pub fn announce(&self, claim: &Claim, key: u64) {
        self.keys[claim.index].store(key, Relaxed);
        P::fence(SeqCst); // Invariant 6; pairs with `wake_waiter`
    }

    /// Sleeps until somebody clears the slot, or until `deadline`.
    pub fn sleep(&self, claim: Claim, deadline: u64) {
        let slot = &self.slots[claim.index];
        while slot.load(Acquire) == claim.thread && P::now() < deadline {
            P::park(slot, claim.thread, Some(deadline));
        }
        if self.end_sleep(slot, claim.thread) {
            self.controller.timed_out.fetch_add(1, Relaxed);
        }
    }

    /// Takes `thread` out of `slot`; false if somebody else has (Invariant 1).
    fn end_sleep(&self, slot: &P::U32, thread: u32) -> bool {
        let ended = slot.compare_exchange(thread, DONE, AcqRel, Acquire).is_ok();
        if ended {
            self.counters.left.fetch_add(1, Release);
        }
        ended
    }

    /// Takes `thread` out of `slot` and wakes it.
    fn wake(&self, slot: &P::U32, thread: u32) -> bool {
        let ended = self.end_sleep(slot, thread);
        if ended {
            self.controller.woken.fetch_add(1, Relaxed);
            P::unpark(slot, 1);
        }
        ended
    }

    /// Claims a slot in exchange for the longest sleeper's, if that one's turn has come. The caller
    /// abandons its place, then [wakes it](Self::wake_longest), then sleeps.
    ///
    /// Sleepers would come back by themselves when their time is up. But then a timer wakes them
    /// wherever it fires, as likely on the holder's processor as on a waiter's; a waiter that
    /// wakes another and goes to sleep in its place gives it its own processor, and the holder is
    /// left alone.
    ///
    /// The places of those that are awake longest go first: a thread that has not been awake for
    /// some turns yet leaves the exchange to others for a while.
    #[inline]
    pub fn claim_in_exchange(&self, now: u64, timeout: u64, awake_since: impl FnOnce() -> u64) -> Option<Claim> {
        let next = self.counters.next_turn.load(Relaxed);
        if now < next || self.sleeping() == 0 {
            return None;
        }
        self.exchange(now, next, turn_ns(timeout, self.target()), awake_since())
    }

    #[cold]
    fn exchange(&self, now: u64, next: u64, turn: u64, awake_since: u64) -> Option<Claim> {
        let is_fresh = now.saturating_sub(awake_since) < FRESH_TURNS * turn;
        if is_fresh && now < next + turn / 2 {
            return None;
        }
        self.counters.next_turn.compare_exchange(next, now + turn, Relaxed, Relaxed).ok()?;
        self.claim_up_to(P::thread_id(), 1) // asked for here and not by every turn: it costs a system call
    }

    /// Wakes the thread that has slept longest; the key of the lock that it waits for, if there is one
    /// and it had announced it.
    pub fn wake_longest(&self) -> Option<u64> {
        self.used().find_map(|(place, slot)| {
            let thread = slot.load(Acquire);
            let key = self.keys[place as usize % SLOTS].load(Relaxed);
            (is_thread(thread) && self.wake(slot, thread)).then_some(key)
        })
    }

    /// Wakes one sleeper that waits for the lock of `key`. For a thread that contended for that
    /// lock while others slept, and does so no longer.
    #[cold]
    pub fn wake_waiter(&self, key: u64) {
        P::fence(SeqCst); // Invariant 6; pairs with `announce`
        let _ = self.used().any(|(index, slot)| {
            let thread = slot.load(Acquire);
            let waits_for = self.keys[index as usize % SLOTS].load(Relaxed);
            is_thread(thread) && waits_for == key && self.wake(slot, thread)
        });
    }

    /// Wakes `thread` if it sleeps; `before` is done if it does, before it can know.
    pub(crate) fn wake_thread(&self, thread: u32, before: impl FnOnce()) {
        let slot = self.used().map(|(_, slot)| slot).find(|slot| slot.load(Acquire) == thread);
        if let Some(slot) = slot {
            before();
            self.wake(slot, thread);
        }
    }

    /// Raises T to `target`, unless it is there or somebody changes it.
    pub fn raise_target(&self, target: u32) {
        let before = self.target();
        if before < target {
            let _ = self.counters.target.compare_exchange(before, target, Relaxed, Relaxed);
        }
    }

    /// Wakes the thread that has slept longest, and lowers T to those who still sleep, so that nobody takes its place.
    pub fn let_one_go(&self) {
        let (before, sleeping) = (self.target(), self.sleeping());
        if sleeping == 0 || before == 0 {
            return;
        }
        let target = before.min(sleeping - 1);
        if self.counters.target.compare_exchange(before, target, Relaxed, Relaxed).is_ok() {
            P::fence(SeqCst); // Invariant 3; pairs with `claim`
            self.wake_longest();
        }
    }

    /// Wakes the longest sleepers whose turn has come between `since` and `now` without a waiter
    /// that took their place: all locks may be free by now, and nobody's release wakes who sleeps
    /// for load. For the controller.
    pub fn serve_turns(&self, since: u64, now: u64, timeout: u64) {
        let (next, sleeping) = (self.counters.next_turn.load(Relaxed), self.sleeping());
        if sleeping == 0 || now < next {
            return;
        }
        let turn = turn_ns(timeout, self.target());
        let overdue = ((now - next.max(since)) / turn.max(1)).min(u64::from(sleeping));
        if overdue > 0 && self.counters.next_turn.compare_exchange(next, now + turn, Relaxed, Relaxed).is_ok() {
            for _ in 0..overdue {
                self.wake_longest();
            }
        }
    }

    /// A wake-up time at most `timeout` nanoseconds ahead, spread evenly over the sleepers: threads
    /// that fell asleep together do not wake together, which would be the load spike that the
    /// ASPLOS paper sees in load-triggered backoff (section 2.3).
    pub fn wake_time(&self, now: u64, timeout: u64) -> u64 {
        let step = timeout / u64::from(self.target().max(1));
        let after = |last: u64| (last + step).clamp(now + step, now + timeout);
        let (Ok(last) | Err(last)) = self.controller.last_deadline.modify(Relaxed, Relaxed, |last| Some(after(last)));
        after(last)
    }

    /// Places in the sequence of claims from the last known end to S, and their slots.
    fn used(&self) -> impl Iterator<Item = (u32, &P::U32)> {
        let end = self.controller.end.load(Relaxed);
        let used = self.counters.slept.load(Acquire).wrapping_sub(end);
        (0..used).map(move |offset| end.wrapping_add(offset)).map(|place| (place, &self.slots[place as usize % SLOTS]))
    }

    /// Tells `visit` every sleeping thread, and its place in the sequence of claims. For the
    /// controller.
    pub fn for_each_sleeper(&self, mut visit: impl FnMut(u32, u32)) {
        for (place, slot) in self.used() {
            let thread = slot.load(Relaxed);
            if is_thread(thread) {
                visit(thread, place);
            }
        }
    }

    /// Sets T, wakes the longest sleepers beyond it, and reclaims slots from the last known end.
    ///
    /// For the controller: one thread at a time.
    pub fn set_target(&self, target: u32) {
        self.counters.target.store(target, Relaxed);
        P::fence(SeqCst); // Invariant 3; pairs with `claim`
        let mut sleeping = 0;
        self.for_each_sleeper(|_, _| sleeping += 1);
        let mut excess = u32::saturating_sub(sleeping, target);
        let mut end = self.controller.end.load(Relaxed);
        let mut contiguous = true;
        for (place, slot) in self.used() {
            let mut state = slot.load(Acquire);
            if excess > 0 && is_thread(state) && self.wake(slot, state) {
                excess -= 1;
                state = DONE;
            }
            contiguous &= state == DONE;
            if contiguous {
                slot.store(EMPTY, Release);
                end = place.wrapping_add(1);
            }
        }
        self.controller.end.store(end, Release);
    }

    /// Starts anew, in the child of a `fork`, where none of the sleepers exists.
    pub fn reset(&self) {
        let words = [&self.counters.slept, &self.counters.left, &self.counters.target, &self.controller.end];
        words.into_iter().chain(&self.slots).for_each(|word| word.store(0, Relaxed));
    }

    /// Totals since the process began.
    pub fn totals(&self) -> Totals {
        Totals {
            slept: self.counters.slept.load(Relaxed),
            left: self.counters.left.load(Relaxed),
            woken: self.controller.woken.load(Relaxed),
            timed_out: self.controller.timed_out.load(Relaxed),
            given_back: self.controller.given_back.load(Relaxed),
        }
    }
}

impl<P: Primitive> Default for SleepSlots<P> {
    fn default() -> Self {
        Self::new()
    }
}
