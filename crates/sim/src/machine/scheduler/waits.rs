//! Waits for locks, thread by thread, and which of them exceed a bound.
//!
//! Time does not count while a thread without a processor holds the lock: no lock can shorten it.
//! All other time of a wait counts, on and off the processor, and also while the lock is free. The
//! stated bound (docs/explanation/correctness.md) also omits the time in which the lock is free and
//! the next thread has no processor. So this account is stricter.

use crate::machine::thread::NO_THREAD;

/// A thread, and whether it had a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Number of the thread.
    pub thread: u32,
    /// Whether it had a processor.
    pub has_processor: bool,
}

/// A wait for a lock. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongWait {
    /// Number of the waiting thread.
    pub thread: u32,
    /// When the wait began.
    pub began: u64,
    /// Its length so far, or until the thread acquired the lock.
    pub lasted: u64,
    /// The part of `lasted` that counts.
    pub counted: u64,
    /// Whether the thread has acquired the lock.
    pub is_over: bool,
}

/// A wait that exceeds the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// The wait.
    pub wait: LongWait,
    /// When the violation was found, and whether the waiter had a processor then.
    pub found: u64,
    /// See `found`.
    pub waiter_has_processor: bool,
    /// The holder at that time, if the lock was held.
    pub holder: Option<Seen>,
    /// The next thread that acquired the lock, as it was at that time.
    pub next: Option<Seen>,
}

/// A lock, as its waiters' accounts see it.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// The holder, or `NO_THREAD`.
    holder: u32,
    /// Time during which a thread without a processor held the lock.
    stalled: u64,
    /// Start of the current period of that kind, if there is one.
    stalled_since: Option<u64>,
}

impl Held {
    const FREE: Held = Held { holder: NO_THREAD, stalled: 0, stalled_since: None };

    fn stalled(&self, now: u64) -> u64 {
        self.stalled + self.stalled_since.map_or(0, |since| now.saturating_sub(since))
    }

    fn end_stall(&mut self, now: u64) {
        (self.stalled, self.stalled_since) = (self.stalled(now), None);
    }
}

/// The current wait of a thread.
#[derive(Debug, Clone, Copy)]
struct Wait {
    lock: usize,
    began: u64,
    /// The stalled time of the lock when the wait began.
    stalled: u64,
    /// Index of its violation, if it exceeds the bound.
    violation: Option<usize>,
}

/// The waits of a program whose critical sections are no transactions.
#[derive(Debug)]
pub(crate) struct Waits {
    bound: u64,
    locks: Vec<Held>,
    waits: Vec<Option<Wait>>,
    has_processor: Vec<bool>,
    /// The wait of which the most counts, by thread.
    longest: Vec<Option<LongWait>>,
    violations: Vec<Violation>,
    /// Violations without a [`next`](Violation::next), with the lock and who had a processor.
    open: Vec<(usize, usize, Vec<bool>)>,
    acquisitions: u64,
}

/// Upper limit of the number of recorded violations. A lock that starves threads causes many.
const MOST_VIOLATIONS: usize = 1_000;

impl Waits {
    /// Records waits of which more than `bound` nanoseconds count.
    pub(crate) fn new(bound: u64) -> Self {
        Waits {
            bound,
            locks: Vec::new(),
            waits: Vec::new(),
            has_processor: Vec::new(),
            longest: Vec::new(),
            violations: Vec::new(),
            open: Vec::new(),
            acquisitions: 0,
        }
    }

    fn reach(&mut self, thread: u32) {
        let threads = self.waits.len().max(thread as usize + 1);
        self.waits.resize(threads, None);
        self.longest.resize(threads, None);
        self.has_processor.resize(threads, false);
    }

    fn lock(&mut self, lock: usize) -> &mut Held {
        let locks = self.locks.len().max(lock + 1);
        self.locks.resize(locks, Held::FREE);
        &mut self.locks[lock]
    }

    /// Records that `thread` gets or loses a processor.
    pub(super) fn set_processor(&mut self, thread: u32, has_processor: bool, now: u64) {
        self.reach(thread);
        self.has_processor[thread as usize] = has_processor;
        for held in self.locks.iter_mut().filter(|held| held.holder == thread) {
            if has_processor {
                held.end_stall(now);
            } else {
                held.stalled_since = Some(now);
            }
        }
    }

    pub(super) fn begin(&mut self, thread: u32, lock: usize, now: u64) {
        self.reach(thread);
        let stalled = self.lock(lock).stalled(now);
        self.waits[thread as usize] = Some(Wait { lock, began: now, stalled, violation: None });
    }

    pub(super) fn acquire(&mut self, thread: u32, lock: usize, now: u64) {
        self.acquisitions += 1;
        self.end(thread, now);
        self.lock(lock).holder = thread;
        let violations = &mut self.violations;
        self.open.retain(|(violation, its_lock, had_processor)| {
            if *its_lock != lock {
                return true;
            }
            let has_processor = had_processor.get(thread as usize).is_some_and(|&had| had);
            violations[*violation].next = Some(Seen { thread, has_processor });
            false
        });
    }

    pub(super) fn release(&mut self, lock: usize, now: u64) {
        let held = self.lock(lock);
        held.end_stall(now);
        held.holder = NO_THREAD;
    }

    fn measure(&self, thread: u32, wait: &Wait, now: u64) -> LongWait {
        let lasted = now.saturating_sub(wait.began);
        let stalled = self.locks[wait.lock].stalled(now) - wait.stalled;
        LongWait {
            thread,
            began: wait.began,
            lasted,
            counted: lasted.saturating_sub(stalled),
            is_over: false,
        }
    }

    /// Ends the wait of `thread`.
    fn end(&mut self, thread: u32, now: u64) {
        self.check(thread, now);
        let Some(wait) = self.waits[thread as usize].take() else { return };
        if let Some(longest) = &mut self.longest[thread as usize]
            && longest.began == wait.began
        {
            longest.is_over = true;
        }
        if let Some(violation) = wait.violation {
            self.violations[violation].wait.is_over = true;
        }
    }

    /// Checks the current wait of `thread` against its longest one and the bound.
    fn check(&mut self, thread: u32, now: u64) {
        let Some(mut wait) = self.waits[thread as usize] else { return };
        let so_far = self.measure(thread, &wait, now);
        let longest = &mut self.longest[thread as usize];
        if longest.is_none_or(|longest| so_far.counted > longest.counted) {
            *longest = Some(so_far);
        }
        match wait.violation {
            Some(violation) => self.violations[violation].wait = so_far,
            None if so_far.counted > self.bound && self.violations.len() < MOST_VIOLATIONS => {
                wait.violation = Some(self.violations.len());
                self.waits[thread as usize] = Some(wait);
                self.record(&wait, so_far, now);
            }
            None => {}
        }
    }

    fn record(&mut self, wait: &Wait, so_far: LongWait, now: u64) {
        let holder = self.locks[wait.lock].holder;
        let seen = || Seen { thread: holder, has_processor: self.has_processor[holder as usize] };
        let holder = (holder != NO_THREAD).then(seen);
        self.open.push((self.violations.len(), wait.lock, self.has_processor.clone()));
        self.violations.push(Violation {
            wait: so_far,
            found: now,
            waiter_has_processor: self.has_processor[so_far.thread as usize],
            holder,
            next: None,
        });
    }

    /// Checks all threads that wait at `now`.
    pub(crate) fn check_all(&mut self, now: u64) {
        (0..self.waits.len() as u32).for_each(|thread| self.check(thread, now));
    }

    /// The waits that exceed the bound, up to the last [check](Self::check_all).
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The longest wait of each thread that has waited, up to the last [check](Self::check_all).
    pub(crate) fn longest(&self) -> impl Iterator<Item = LongWait> {
        self.longest.iter().copied().flatten()
    }

    /// Number of acquisitions of all locks.
    pub(crate) fn acquisitions(&self) -> u64 {
        self.acquisitions
    }

    /// Time during which threads without a processor held a lock, summed over the locks.
    pub(crate) fn stalled(&self, now: u64) -> u64 {
        self.locks.iter().map(|held| held.stalled(now)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads 0 to 2 have processors, and thread 0 holds lock 0 from time 100 on.
    fn waits(bound: u64) -> Waits {
        let mut waits = Waits::new(bound);
        (0..3).for_each(|thread| waits.set_processor(thread, true, 0));
        waits.begin(0, 0, 90);
        waits.acquire(0, 0, 100);
        waits
    }

    #[test]
    fn time_of_holder_without_processor_does_not_count() {
        let mut waits = waits(1_000);
        waits.begin(1, 0, 200);
        waits.set_processor(0, false, 300);
        waits.set_processor(1, false, 350); // the waiter's own time off the processor counts
        waits.set_processor(0, true, 700);
        waits.release(0, 800);
        waits.acquire(1, 0, 900);
        let expected = LongWait { thread: 1, began: 200, lasted: 700, counted: 300, is_over: true };
        assert_eq!(waits.longest().last(), Some(expected));
        assert_eq!((waits.stalled(900), waits.acquisitions()), (400, 2));
        assert_eq!(waits.violations(), []);
    }

    #[test]
    fn wait_beyond_bound_is_reported_with_holder_and_next_thread() {
        let mut waits = waits(1_000);
        waits.begin(1, 0, 200);
        waits.begin(2, 0, 300);
        waits.set_processor(1, false, 400);
        waits.check_all(1_200);
        assert_eq!(waits.violations(), [], "the bound itself is allowed");
        waits.check_all(1_201);
        waits.release(0, 1_300);
        waits.acquire(2, 0, 1_350);
        let still_waits =
            LongWait { thread: 1, began: 200, lasted: 1_001, counted: 1_001, is_over: false };
        let first = Violation {
            wait: still_waits,
            found: 1_201,
            waiter_has_processor: false,
            holder: Some(Seen { thread: 0, has_processor: true }),
            next: Some(Seen { thread: 2, has_processor: true }),
        };
        assert_eq!(waits.violations()[0], first);
        assert_eq!(waits.violations().len(), 2, "thread 2 acquired the lock after 1050 ns");
        waits.release(0, 1_400);
        waits.acquire(1, 0, 1_500);
        let over = LongWait { lasted: 1_300, counted: 1_300, is_over: true, ..still_waits };
        assert_eq!(waits.violations()[0], Violation { wait: over, ..first });
    }
}
