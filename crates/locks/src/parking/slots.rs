//! The sleep-slot buffer: the controller sets how many of the spinning threads should sleep, and
//! finds the sleepers here.
//!
//! Johnson, Stoica, Ailamaki and Mowry, *Decoupling Contention Management from Scheduling* (ASPLOS
//! 2010), sections 3.1 and 3.2.2, Figure 7.
//!
//! ```text
//!   slot   | done | tid 7 | done | tid 3 | empty | empty |     S = sleeps begun,  W = sleeps ended
//!            ^end                           ^S (modulo size)     room:  S - W < T
//! ```
//!
//! | slot | set by | meaning |
//! | --- | --- | --- |
//! | `EMPTY` | the controller, on reclaiming | unclaimed; below S: claimed, the claimer is about to write its id |
//! | thread id | the claimer | that thread sleeps, or is about to |
//! | `DONE` | the thread that ends the sleep | ended, not yet reclaimed |
//!
//! **Invariant 1.** One compare-and-swap changes a slot from a thread id to `DONE`, and the thread
//! that succeeds increments W. That thread is the sleeper itself (on time-out or on returning the
//! slot), the controller, or a waiter that takes the sleeper's place. So `S - W` is the number of
//! threads asleep or about to sleep. It drops at once, not only when a woken thread runs (in Figure
//! 7 the woken thread increments W). At quiescence S and W agree.
//!
//! **Invariant 2.** A sleeper returns only after its slot no longer holds its thread id.
//!
//! **Invariant 3.** No thread stays asleep beyond a reduced target. The claimer writes its slot,
//! fences, and reads T. The controller, or a waiter that releases one sleeper, writes T, fences,
//! and reads the slots. One of the two sees the other's write.
//!
//! **Invariant 4.** Only the controller advances `end`, and never past an `EMPTY` slot, whose
//! claimer is about to write and would be overlooked.
//!
//! **Invariant 5.** `S - end` never exceeds the size of the array, so no two claims share a slot.
//!
//! **Invariant 6.** A thread that sleeps because another contends for its lock is woken if the
//! contender gives up. The sleeper publishes its lock, fences, and looks for a contender. The
//! contender abandons the lock, fences, and looks for sleepers. One of the two sees the other.
//!
//! **Memory orderings.** The fences of Invariants 3 and 6 are sequentially consistent. `end` is
//! stored with release after the slots below it are emptied, and claimers load it with acquire. S,
//! W and T order nothing else.

mod controller;

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::primitive::{Atomic, AtomicInt, Primitive};

const EMPTY: u32 = 0;
const DONE: u32 = u32::MAX;

/// Whether a slot holds a thread that sleeps or is about to.
fn is_thread(slot: u32) -> bool {
    !matches!(slot, EMPTY | DONE)
}

/// Size of the circular array. It exceeds the claims between two scans of the controller: some
/// hundreds per second (section 3.2.2), some thousands if thousands of threads take turns. Under
/// the model checker the array must wrap around.
pub const SLOTS: usize = if cfg!(loom) { 2 } else { 4096 };

/// Longest time between two exchanges, which are two context switches each. (`counter`, 8 threads
/// on 2 processors: the longest wait of a second is 32 ms with 3 ms here, 22 ms with 1 ms, and no
/// shorter with .5 ms. The throughput is the same.)
const LONGEST_INTERVAL_NS: u64 = 1_000_000;

/// A thread that has been awake for fewer intervals than this is fresh.
const FRESH_INTERVALS: u64 = 2;

/// Time between two exchanges for a given time-out and target, short enough that every sleeper is
/// exchanged well before its time-out.
fn exchange_interval_ns(timeout: u64, target: u32) -> u64 {
    (timeout / u64::from(target.max(1)) * 3 / 4).min(LONGEST_INTERVAL_NS)
}

/// Counters that every waiter reads once per turn, on a separate line.
#[repr(align(128))]
struct Counters<P: Primitive> {
    slept: P::U32,
    left: P::U32,
    target: P::U32,
    /// When the next waiter may take a sleeper's place.
    next_exchange: P::U64,
}

#[repr(align(128))]
struct Controller<P: Primitive> {
    end: P::U32,
    woken: P::U32,
    timed_out: P::U32,
    given_back: P::U32,
    /// The latest wake-up time assigned.
    last_deadline: P::U64,
}

/// The sleep-slot buffer.
pub struct SleepSlots<P: Primitive> {
    counters: Counters<P>,
    controller: Controller<P>,
    slots: [P::U32; SLOTS],
    /// The key of the lock that each sleeper waits for.
    keys: [P::U32; SLOTS],
}

/// A claimed slot: the thread must sleep in it or give it back.
#[derive(Debug)]
#[must_use = "a claimed slot must be slept in or given back"]
pub struct Claim {
    index: usize,
    thread: u32,
}

impl Claim {
    /// The thread that claimed the slot.
    pub fn thread(&self) -> u32 {
        self.thread
    }
}

/// Totals since the process started, for statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// S: sleeps begun, i.e. successful claims.
    pub slept: u32,
    /// W: sleeps ended.
    pub left: u32,
    /// Sleeps ended by the controller, or by a waiter that took the sleeper's place.
    pub woken: u32,
    /// Sleeps ended by their time-out.
    pub timed_out: u32,
    /// Claims given back because the thread acquired the lock or the target shrank.
    pub given_back: u32,
}

impl<P: Primitive> SleepSlots<P> {
    /// An empty buffer with target 0.
    pub fn new() -> Self {
        let zero = || P::U32::new(0);
        SleepSlots {
            counters: Counters {
                slept: zero(),
                left: zero(),
                target: zero(),
                next_exchange: P::U64::new(0),
            },
            controller: Controller {
                end: zero(),
                woken: zero(),
                timed_out: zero(),
                given_back: zero(),
                last_deadline: P::U64::new(0),
            },
            slots: core::array::from_fn(|_| zero()),
            keys: core::array::from_fn(|_| zero()),
        }
    }

    /// Addresses for a reader in another process: of the slots, of the keys and of T.
    pub fn addresses(&self) -> [usize; 3] {
        let target = core::ptr::from_ref(&self.counters.target).addr();
        [self.slots.as_ptr().addr(), self.keys.as_ptr().addr(), target]
    }

    /// T, the number of threads that should sleep.
    pub fn target(&self) -> u32 {
        self.counters.target.load(Relaxed)
    }

    /// `S - W`, the number of threads that sleep or are about to.
    pub fn sleeping(&self) -> u32 {
        // Load S first: a claim between the two loads can then only make the difference too small.
        // A negative difference, which would wrap to a huge number, counts as 0.
        let slept = self.counters.slept.load(Acquire);
        (slept.wrapping_sub(self.counters.left.load(Relaxed)) as i32).max(0) as u32
    }

    /// Whether another thread should sleep: `S - W < T`. Checked every turn.
    #[inline]
    pub fn has_room(&self) -> bool {
        let target = self.counters.target.load(Relaxed);
        target != 0 && self.sleeping() < target
    }

    /// Claims the next slot for `thread`. `None` if there is no room; the caller keeps polling.
    ///
    /// A thread that another one overtakes tries again at once, while its core has the counters'
    /// line. (4096 threads on 1024 simulated contexts fill 654 slots in 3 ms, and in 13 ms with
    /// [one try](Self::try_claim) in each turn. They hardly work meanwhile.)
    #[cold]
    pub fn claim(&self, thread: u32) -> Option<Claim> {
        self.claim_up_to(thread, 0)
    }

    /// Claims the next slot for `thread`, as in section 3.1.2 of the paper. `None` if there is no
    /// room or another thread overtakes this one; the caller keeps polling.
    #[cold]
    pub fn try_claim(&self, thread: u32) -> Option<Claim> {
        let slept = self.counters.slept.load(Relaxed);
        let next = self.next_claim(slept, 0)?;
        self.counters.slept.compare_exchange(slept, next, AcqRel, Relaxed).ok()?;
        self.enter(slept, thread, 0)
    }

    /// Claims a slot if fewer than T + `beyond` threads sleep.
    fn claim_up_to(&self, thread: u32, beyond: u32) -> Option<Claim> {
        let next = |slept| self.next_claim(slept, beyond);
        let slept = self.counters.slept.modify(AcqRel, Relaxed, next).ok()?;
        self.enter(slept, thread, beyond)
    }

    /// T + `beyond`; 0 if T is.
    fn room(&self, beyond: u32) -> u32 {
        let target = self.target();
        if target == 0 { 0 } else { target + beyond }
    }

    /// The value of S after the next claim, if there is room and the next slot is reclaimed.
    fn next_claim(&self, slept: u32, beyond: u32) -> Option<u32> {
        let used = |end| slept.wrapping_sub(end) as usize;
        let may_claim =
            self.sleeping() < self.room(beyond) && used(self.controller.end.load(Acquire)) < SLOTS;
        may_claim.then(|| slept.wrapping_add(1))
    }

    /// Enters `thread` in the slot of the claim that has advanced S from `slept`.
    fn enter(&self, slept: u32, thread: u32, beyond: u32) -> Option<Claim> {
        let claim = Claim { index: slept as usize % SLOTS, thread };
        // The slot is EMPTY, because it was reclaimed before `end` passed it, and it is ours alone,
        // because our compare-and-swap advanced S.
        self.slots[claim.index].store(thread, Release);
        P::fence(SeqCst); // Invariant 3; pairs with `set_target`
        if self.sleeping() > self.room(beyond) {
            self.give_back(claim);
            return None;
        }
        Some(claim)
    }

    /// Ends a claim without a sleep: the thread acquired the lock, or gave up.
    pub fn give_back(&self, claim: Claim) {
        if self.end_sleep(&self.slots[claim.index], claim.thread) {
            self.controller.given_back.fetch_add(1, Relaxed);
        }
    }

    /// Publishes that the claimer waits for the lock of `key`. The claimer then checks that another
    /// thread contends for that lock; see [`wake_waiter`](Self::wake_waiter).
    pub fn announce(&self, claim: &Claim, key: u32) {
        self.keys[claim.index].store(key, Relaxed);
        P::fence(SeqCst); // Invariant 6; pairs with `wake_waiter`
    }

    /// Sleeps until another thread clears the slot, or until `deadline`.
    pub fn sleep(&self, claim: Claim, deadline: u64) {
        let slot = &self.slots[claim.index];
        while slot.load(Acquire) == claim.thread && P::now() < deadline {
            P::park(slot, claim.thread, Some(deadline));
        }
        if self.end_sleep(slot, claim.thread) {
            self.controller.timed_out.fetch_add(1, Relaxed);
        }
    }

    /// Takes `thread` out of `slot`; false if another thread has done so (Invariant 1).
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

    /// Claims a slot in exchange for the longest sleeper's, if an exchange is due. The caller then
    /// abandons its lock, [wakes the sleeper](Self::wake_longest), and sleeps.
    ///
    /// Sleepers would also wake at their time-out. But a timer fires on any processor, the holder's
    /// as likely as a waiter's, while a waiter that sleeps in another's place yields its own
    /// processor. Threads that have been awake longest go first: a fresh thread holds back for half
    /// an interval.
    #[inline]
    pub fn claim_in_exchange(
        &self,
        now: u64,
        timeout: u64,
        awake_since: impl FnOnce() -> u64,
    ) -> Option<Claim> {
        let next = self.counters.next_exchange.load(Relaxed);
        if now < next || self.sleeping() == 0 {
            return None;
        }
        self.exchange(now, next, exchange_interval_ns(timeout, self.target()), awake_since())
    }

    #[cold]
    fn exchange(&self, now: u64, next: u64, interval: u64, awake_since: u64) -> Option<Claim> {
        let is_fresh = now.saturating_sub(awake_since) < FRESH_INTERVALS * interval;
        if is_fresh && now < next + interval / 2 {
            return None;
        }
        self.counters
            .next_exchange
            .compare_exchange(next, now + interval, Relaxed, Relaxed)
            .ok()?;
        self.claim_up_to(P::thread_id(), 1) // not in every turn: the id costs a system call
    }

    /// Wakes the thread that has slept longest. Returns the key of its lock; `None` if no thread
    /// sleeps. The key is 0 or stale if the sleeper did not announce one.
    pub fn wake_longest(&self) -> Option<u32> {
        self.used().find_map(|(position, slot)| {
            let thread = slot.load(Acquire);
            let key = self.keys[position as usize % SLOTS].load(Relaxed);
            (is_thread(thread) && self.wake(slot, thread)).then_some(key)
        })
    }

    /// Wakes one sleeper that waits for the lock of `key`. For a thread that contended for that
    /// lock while others slept, and gives up.
    #[cold]
    pub fn wake_waiter(&self, key: u32) {
        P::fence(SeqCst); // Invariant 6; pairs with `announce`
        let _ = self.used().any(|(position, slot)| {
            let thread = slot.load(Acquire);
            let waits_for = self.keys[position as usize % SLOTS].load(Relaxed);
            is_thread(thread) && waits_for == key && self.wake(slot, thread)
        });
    }

    /// Wakes `thread` if it sleeps, and calls `before` first in that case.
    pub(crate) fn wake_thread(&self, thread: u32, before: impl FnOnce()) {
        let slot = self.used().map(|(_, slot)| slot).find(|slot| slot.load(Acquire) == thread);
        if let Some(slot) = slot {
            before();
            self.wake(slot, thread);
        }
    }

    /// Raises T to `target`, unless T is higher or changes concurrently.
    pub fn raise_target(&self, target: u32) {
        let before = self.target();
        if before < target {
            let _ = self.counters.target.compare_exchange(before, target, Relaxed, Relaxed);
        }
    }

    /// Wakes the thread that has slept longest, and lowers T to the number still asleep so that no
    /// other thread takes the slot.
    pub fn wake_one_and_lower_target(&self) {
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

    /// A wake-up time at most `timeout` nanoseconds ahead, spread evenly over the sleepers: threads
    /// that fell asleep together must not wake together, which would be the load spike of
    /// load-triggered backoff (ASPLOS 2010, section 2.3).
    pub fn wake_time(&self, now: u64, timeout: u64) -> u64 {
        let step = timeout / u64::from(self.target().max(1));
        let after = |last: u64| (last + step).clamp(now + step, now + timeout);
        let (Ok(last) | Err(last)) =
            self.controller.last_deadline.modify(Relaxed, Relaxed, |last| Some(after(last)));
        after(last)
    }

    /// Positions in the sequence of claims from the last known end up to S, with their slots.
    fn used(&self) -> impl Iterator<Item = (u32, &P::U32)> {
        // Load the end first: it may then only be too low, and the number too large.
        let end = self.controller.end.load(Acquire);
        let used = self.counters.slept.load(Acquire).wrapping_sub(end) as i32;
        (0..used.max(0) as u32)
            .map(move |offset| end.wrapping_add(offset))
            .map(|position| (position, &self.slots[position as usize % SLOTS]))
    }

    /// Resets the buffer in the child of a `fork`, where none of the sleepers exists.
    pub fn reset(&self) {
        let Counters { slept, left, target, .. } = &self.counters;
        let Controller { end, woken, timed_out, given_back, .. } = &self.controller;
        let words = [slept, left, target, end, woken, timed_out, given_back];
        words.into_iter().chain(&self.slots).for_each(|word| word.store(0, Relaxed));
    }

    /// Totals since the process started.
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
