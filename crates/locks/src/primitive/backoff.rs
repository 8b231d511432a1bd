//! Bounded exponential backoff (Agarwal and Cherian, ISCA 1989; the ASPLOS 2010 paper, section
//! 2.2).

use super::{Parking, Spin, Threads};

/// Number of polls before a thread yields that waits for a few instructions of another one. After
/// these polls, the other thread has probably been preempted.
const POLLS_BEFORE_YIELD: u32 = if cfg!(loom) { 0 } else { 100 };

/// Number of polls before the thread sleeps. With threads of one priority, the other one runs after
/// fewer yields; if it has a lower real-time priority, no yield lets it run.
const POLLS_BEFORE_SLEEP: u32 = if cfg!(loom) { u32::MAX } else { 200 };

/// Delays between polls for a few instructions of another thread, which may lack a processor.
#[derive(Debug, Default)]
pub(crate) struct BriefWait {
    polls: u32,
}

impl BriefWait {
    /// Delays the next poll. `word` may have any value.
    pub(crate) fn wait<P: Spin + Threads + Parking>(&mut self, word: &P::U32) {
        self.polls = self.polls.saturating_add(1);
        match self.polls {
            polls if polls < POLLS_BEFORE_YIELD => P::pause(),
            polls if polls < POLLS_BEFORE_SLEEP => P::yield_now(),
            _ => P::sleep_shortly(word),
        }
    }
}

/// One waiter's delays: from `first` nanoseconds, doubling up to `limit`. Each delay is drawn from
/// the upper half of its range, so that waiters that collided once do not collide again.
#[derive(Debug)]
pub struct Backoff {
    current: u64,
    limit: u64,
    random: u32,
}

impl Backoff {
    /// Returns a backoff between `first` and `limit` nanoseconds; `seed` differs between waiters.
    #[inline]
    pub fn new(first: u64, limit: u64, seed: u64) -> Self {
        // Any odd multiplier spreads the seed's low bits. Zero would be a fixed point of xorshift.
        let random = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32 | 1;
        Backoff { current: first, limit, random }
    }

    /// Waits once, then doubles the next wait up to the limit.
    #[inline]
    pub fn wait<P: Spin>(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let half = self.current / 2;
        P::delay(half + u64::from(self.random) % (half + 1));
        self.current = (self.current * 2).min(self.limit);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::{Atomics, Clock as _, Native};

    #[test]
    fn brief_wait_that_takes_long_sleeps() {
        let (word, mut delay) = (<Native as Atomics>::U32::new(1), BriefWait::default());
        (1..POLLS_BEFORE_SLEEP).for_each(|_| delay.wait::<Native>(&word));
        let begin = Native::now();
        (0..10).for_each(|_| delay.wait::<Native>(&word));
        let waited = Native::now() - begin;
        assert!(waited >= 500_000, "{waited} ns: no sleep of 50 us between two polls");
    }
}
